"""Peak memory of a training step: what the plan predicts, and what joinsum.train_step and DDP take on two ranks.

A decoder of 6 layers x 512 (27 M parameters) is trained by AdamW on batches of 4 x 256 tokens of a vocabulary of 8,192.
Each setting runs in processes of its own, over Gloo on this machine. Measured is the growth of a rank's resident memory
from before the model exists to its peak in six steps (`VmHWM`), so it has parameters, gradients, state and activations,
as the prediction has. It also has what no plan predicts: the allocator's unused memory, scratch memory of kernels, and,
for joinsum, the modules and graphs of the first step's capture and planning. Blocks and arrays of torch's operators,
with what the arena caches of them, are what the prediction is about.

    python benchmarks/memory.py [--layers 6] [--width 512] [--steps 6] [--json FILE]
"""

from __future__ import annotations

import json
import os
import platform
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import click
import joinsum
import torch
import torch.distributed as dist
import torch.nn.functional as F
from joinsum.cluster.context import context
from torch import Tensor, nn

RANKS = 2
HEADS = 8
LIMIT = 1800  # seconds for one setting


class Setting(NamedTuple):
    layers: int
    width: int
    sequence: int
    batch: int
    vocabulary: int
    steps: int


class Layer(nn.Module):
    """Causal attention and a perceptron of four times the width, each after a norm."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norms = nn.ModuleList([nn.LayerNorm(width), nn.LayerNorm(width)])
        self.queries_keys_values = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        heads = self.queries_keys_values(self.norms[0](x)).unflatten(-1, (3, HEADS, -1)).transpose(1, 3)
        query, key, value = heads.unbind(2)
        attended = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.out(attended.transpose(1, 2).flatten(2))
        return x + self.down(F.gelu(self.up(self.norms[1](x))))  # type: ignore[no-any-return]


class Decoder(nn.Module):
    def __init__(self, setting: Setting) -> None:
        super().__init__()
        self.tokens = nn.Embedding(setting.vocabulary, setting.width)
        self.layers = nn.ModuleList([Layer(setting.width) for _ in range(setting.layers)])
        self.head = nn.Linear(setting.width, setting.vocabulary, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.tokens(tokens)
        for layer in self.layers:
            x = layer(x)
        return self.head(x)  # type: ignore[no-any-return]


def loss_of(scores: Tensor, targets: Tensor) -> Tensor:
    return F.cross_entropy(scores.flatten(0, 1), targets.flatten())


# --- a rank -----------------------------------------------------------------------------------------------------------


def memory(field: str) -> int:
    """Bytes of a field of /proc/self/status: `VmRSS` is resident now, `VmHWM` was at most."""
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith(f"{field}:"):
            return 1024 * int(line.split()[1])
    raise OSError(f"memory: /proc/self/status has no such field: field={field}")


def batches(setting: Setting) -> list[Tensor]:
    generator = torch.Generator().manual_seed(0)
    shape = (setting.batch, setting.sequence + 1)
    return [torch.randint(setting.vocabulary, shape, generator=generator) for _ in range(setting.steps)]


def ddp_step(model: nn.Module, optimizer: torch.optim.Optimizer) -> Callable[[Tensor, Tensor], Tensor]:
    """A step of each rank on its shard of the batch."""
    parallel = nn.parallel.DistributedDataParallel(model)

    def step(inputs: Tensor, targets: Tensor) -> Tensor:
        own = slice(dist.get_rank() * len(inputs) // RANKS, (dist.get_rank() + 1) * len(inputs) // RANKS)
        loss = loss_of(parallel(inputs[own]), targets[own])
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        return loss

    return step


def train(kind: str, setting: Setting) -> dict[str, Any]:
    """Figures of this rank, in bytes."""
    if kind == "joinsum":
        joinsum.init()
    else:
        dist.init_process_group("gloo")
    data = batches(setting)
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # sets VmHWM to VmRSS
    before = memory("VmRSS")
    torch.manual_seed(0)
    model = Decoder(setting)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    parameters = sum(p.numel() for p in model.parameters())
    step = joinsum.train_step(model, loss_of, optimizer) if kind == "joinsum" else ddp_step(model, optimizer)
    resident = []
    for batch in data:
        loss = step(batch[:, :-1], batch[:, 1:]).detach().item()
        resident.append(memory("VmRSS") - before)
    figures = {
        "parameters": parameters,
        "last loss": loss,
        "resident after each step": resident,
        "peak growth": memory("VmHWM") - before,
    }
    if isinstance(step, joinsum.TrainStep):
        figures["blocks and arrays"] = context().resident_bytes
        figures["predicted"] = step.explain().passes[0].explanation.cost.peak_bytes
    return figures


# --- all ranks --------------------------------------------------------------------------------------------------------


def launch(kind: str, setting: Setting) -> dict[str, Any]:
    """Runs the ranks of one setting; the figures of the rank that takes most."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    common = {"WORLD_SIZE": str(RANKS), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, __file__, "--rank-of", kind, "--setting", json.dumps(setting)]
    processes = [
        subprocess.Popen(command, env=os.environ | common | {"RANK": str(rank)}, stdout=subprocess.PIPE, text=True)
        for rank in range(RANKS)
    ]
    try:
        outputs = [process.communicate(timeout=LIMIT)[0] for process in processes]
    finally:
        for process in processes:
            process.kill()
    if any(process.returncode for process in processes):
        raise click.ClickException(f"memory: a rank of {kind} failed: exit codes={[p.returncode for p in processes]}")
    ranks: list[dict[str, Any]] = [json.loads(output.splitlines()[-1]) for output in outputs]
    return max(ranks, key=lambda figures: int(figures["peak growth"]))


def report(figures: dict[str, dict[str, Any]]) -> None:
    step, ddp = figures["joinsum"], figures["ddp"]
    print(f"{step['parameters'] / 1e6:.1f} M parameters, {RANKS} ranks over Gloo; GB of the rank that takes most")
    rows = [
        ("predicted peak of the plan of joinsum.train_step", step["predicted"]),
        ("memory of its blocks and arrays", step["blocks and arrays"]),
        ("measured peak growth, joinsum.train_step", step["peak growth"]),
        ("  of it after the first step", step["resident after each step"][0]),
        ("  of it after the last step", step["resident after each step"][-1]),
        ("measured peak growth, DDP", ddp["peak growth"]),
    ]
    for name, value in rows:
        print(f"{name:50} {value / 1e9:5.2f}")


@click.command()
@click.option("--layers", default=6, show_default=True)
@click.option("--width", default=512, show_default=True)
@click.option("--sequence", default=256, show_default=True)
@click.option("--batch", default=4, show_default=True)
@click.option("--vocabulary", default=8192, show_default=True)
@click.option("--steps", default=6, show_default=True)
@click.option("--json", "json_file", type=click.Path(path_type=Path), help="Write all figures here too.")
@click.option("--rank-of", type=click.Choice(["joinsum", "ddp"]), hidden=True)
@click.option("--setting", "setting_text", hidden=True)
def main(json_file: Path | None, rank_of: str | None, setting_text: str | None, **sizes: int) -> None:
    """Compare predicted and measured peak memory of a training step."""
    if rank_of is not None and setting_text is not None:
        print(json.dumps(train(rank_of, Setting(*json.loads(setting_text)))))
        return
    setting = Setting(**sizes)
    figures = {kind: launch(kind, setting) for kind in ("joinsum", "ddp")}
    report(figures)
    if json_file is not None:
        machine = {"platform": platform.platform(), "torch": torch.__version__, "cores": os.cpu_count()}
        json_file.write_text(json.dumps({"setting": setting._asdict(), "machine": machine, **figures}, indent=1) + "\n")


if __name__ == "__main__":
    main()
