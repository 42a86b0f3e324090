"""Trains a small LLaMA of characters on the King James Bible, on all sites.

    python examples/train_lm.py                                        # 4 sites in this process
    torchrun --nproc-per-node 4 examples/train_lm.py                   # the same on 4 processes
    python examples/train_lm.py --resume                               # continues from the last checkpoint in --out

The model is plain torch (`llama.py`); joinsum.train_step plans forward, loss, backward, clipping and
update together.
A run that is killed loses at most the steps since the last checkpoint. It then repeats the same losses, because the
batch of a step depends only on the number of the step.
"""

from __future__ import annotations

import argparse
import lzma
import math
import os
import sys
import time
from pathlib import Path

import joinsum
import torch
from llama import Llama, Size, next_token_loss

TEXT = Path(__file__).parents[1] / "data" / "debian-kjv" / "kjv.txt.xz"
HELD_OUT = 100_000  # characters at the text's end
WARM_UP = 20  # steps


class Text:
    """The characters as numbers. Raises SystemExit where the file is not there."""

    def __init__(self, path: Path) -> None:
        if not path.exists():
            sys.exit(f"train_lm: no text: missing={path}; data/debian-kjv/README.md says how it is made")
        characters = lzma.decompress(path.read_bytes()).decode("ascii")
        self.alphabet = "".join(sorted(set(characters)))
        numbers = {c: i for i, c in enumerate(self.alphabet)}
        ids = torch.tensor([numbers[c] for c in characters])
        self.train, self.held_out = ids[:-HELD_OUT], ids[-HELD_OUT:]

    def batch(self, step: int, count: int, length: int) -> tuple[torch.Tensor, torch.Tensor]:
        """`count` pieces of text, and what follows each character: int64 [count, length]; by `step` alone."""
        generator = torch.Generator().manual_seed(step)
        starts = torch.randint(len(self.train) - length, (count, 1), generator=generator)
        pieces = self.train[starts + torch.arange(length + 1)]
        return pieces[:, :-1], pieces[:, 1:]

    def show(self, ids: torch.Tensor) -> str:
        return "".join(self.alphabet[i] for i in ids.tolist())


def rate(step: int, steps: int, most: float) -> float:
    """The learning rate: a linear warm-up, then half a cosine down to a tenth."""
    if step < WARM_UP:
        return most * (step + 1) / WARM_UP
    return most * (0.55 + 0.45 * math.cos(math.pi * (step - WARM_UP) / max(1, steps - WARM_UP)))


@torch.no_grad()
def held_out_loss(model: Llama, text: Text, length: int) -> float:
    """Mean loss in nats on the held-out characters, in pieces of `length`; by plain torch."""
    count = (len(text.held_out) - 1) // length
    ids = text.held_out[: count * length + 1]
    inputs, targets = ids[:-1].view(count, length), ids[1:].view(count, length)
    pairs = zip(inputs.split(64), targets.split(64), strict=True)
    return sum(next_token_loss(model(x), y).item() * len(x) for x, y in pairs) / count


@torch.no_grad()
def sample(model: Llama, start: torch.Tensor, length: int, context: int, seed: int) -> torch.Tensor:
    """Draws `length` more characters, each from the scores that the model gives the last `context`; by plain torch."""
    generator = torch.Generator().manual_seed(seed)
    ids = start
    for _ in range(length):
        scores = model(ids[None, -context:])[0, -1] / 0.8
        ids = torch.cat([ids, torch.multinomial(scores.softmax(-1), 1, generator=generator)])
    return ids


def draw(path: Path, losses: list[float], held_out: float, sites: int) -> None:
    """A picture of the loss of each step, and of their means over 20."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 4.5), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    axes.plot(range(1, len(losses) + 1), losses, linewidth=0.7, alpha=0.5, label="each step")
    means = [sum(losses[max(0, i - 20) : i]) / min(i, 20) for i in range(1, len(losses) + 1)]
    axes.plot(range(1, len(losses) + 1), means, label="mean of the last 20 steps")
    axes.axhline(held_out, linestyle="--", color="gray", label=f"held-out text at the end: {held_out:.3f}")
    axes.set_xlabel("step")
    axes.set_ylabel("loss: nats per character")
    axes.set_title(f"a LLaMA of characters on {sites} sites")
    axes.grid(True, alpha=0.3)
    axes.legend()
    figure.savefig(path, dpi=120)


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=600, help="steps in all, those before a resume too")
    parser.add_argument("--sites", type=int, help="sites in this process (4); under torchrun there is one per rank")
    parser.add_argument("--out", type=Path, default=Path("outputs/lm"), help="folder of checkpoint and plot")
    parser.add_argument("--resume", action="store_true", help="go on from the checkpoint in --out")
    parser.add_argument("--save-every", type=int, default=50, metavar="STEPS")
    parser.add_argument("--batch", type=int, default=16, help="pieces of text in a step")
    parser.add_argument("--context", type=int, default=128, help="characters of a piece")
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--rate", type=float, default=3e-3, help="highest learning rate of AdamW")
    parser.add_argument("--explain", action="store_true", help="print the plan of a step")
    return parser.parse_args()


class Run:
    """Model, optimizer and losses so far."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self.arguments = arguments
        self.text = Text(TEXT)
        torch.manual_seed(0)
        self.model = Llama(
            Size(len(self.text.alphabet), arguments.width, arguments.layers, hidden=arguments.width * 11 // 4)
        )
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=arguments.rate, weight_decay=0.1)
        self.train = joinsum.train_step(self.model, next_token_loss, self.optimizer, max_norm=1.0)
        self.losses: list[float] = []

    def say(self, text: str) -> None:
        if joinsum.context().local_sites[0] == 0:
            print(text, flush=True)

    def resume(self) -> None:
        extra = joinsum.load_checkpoint(self.arguments.out / "checkpoint", self.model, self.optimizer)
        self.losses = extra["losses"]
        self.say(f"goes on after step {len(self.losses)}")

    def save(self) -> None:
        joinsum.save_checkpoint(self.arguments.out / "checkpoint", self.model, self.optimizer, {"losses": self.losses})
        self.say(f"saved step {len(self.losses)}")

    def steps(self) -> None:
        """Trains to the last step, and saves on the way and at the end."""
        arguments, begun = self.arguments, time.perf_counter()
        for step in range(len(self.losses), arguments.steps):
            for group in self.optimizer.param_groups:
                group["lr"] = rate(step, arguments.steps, arguments.rate)
            self.losses.append(self.train(*self.text.batch(step, arguments.batch, arguments.context)).item())
            if not math.isfinite(self.losses[-1]):
                sys.exit(f"train_lm: the loss is no number: step={step + 1}, loss={self.losses[-1]}; lower --rate")
            self.say(f"step {step + 1}: loss {self.losses[-1]:.4f}, {time.perf_counter() - begun:.1f} s")
            if (step + 1) % arguments.save_every == 0 or step + 1 == arguments.steps:
                self.save()

    def finish(self) -> None:
        """Gathers the model, and prints its loss on held-out text and some samples."""
        self.train.sync()
        held_out = held_out_loss(self.model, self.text, self.arguments.context)
        self.say(f"held-out text: loss {held_out:.4f} nats, {held_out / math.log(2):.3f} bits per character")
        if joinsum.context().local_sites[0] == 0:
            draw(self.arguments.out / "loss.png", self.losses, held_out, joinsum.sites())
        for seed in range(2):
            start = self.text.held_out[seed * 1000 : seed * 1000 + self.arguments.context]
            sampled = sample(self.model, start, 300, self.arguments.context, seed)
            self.say(f"--- after {self.text.show(start)[-40:]!r}\n{self.text.show(sampled[len(start) :])}")


def main() -> None:
    arguments = options()
    if "RANK" in os.environ:
        torch.set_num_threads(1)
        joinsum.init()
        if arguments.sites not in (None, joinsum.sites()):
            sys.exit(f"train_lm: torchrun has one site per rank: sites={arguments.sites}, ranks={joinsum.sites()}")
    else:
        joinsum.init(sites=4 if arguments.sites is None else arguments.sites)
    arguments.out.mkdir(parents=True, exist_ok=True)
    run = Run(arguments)
    parameters = sum(weight.numel() for weight in run.model.parameters())
    run.say(f"{parameters:,} parameters, {len(run.text.train):,} characters, {joinsum.sites()} sites")
    if arguments.resume:
        run.resume()
    run.steps()
    if arguments.explain:
        run.say(str(run.train.explain()))
    run.finish()


if __name__ == "__main__":
    main()
