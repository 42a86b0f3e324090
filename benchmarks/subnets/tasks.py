"""What independent subnets and their baselines train: data, module, loss and measures, the same for all methods.

`xml` is extreme classification of Debian's packages by one hidden layer; `digits` are scikit-learn's images of digits
and a small residual network; `speech` are 35 words that espeak-ng speaks, in voices that training does not hear, and
two hidden layers (`speech.py`); `speech_wide` has wider ones.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import torch
import torch.distributed as dist
import torch.nn.functional as F
from frame.contenders import rank, ranks
from joinsum import extreme
from torch import Tensor, nn

__all__ = ["TASKS", "Batch", "Digits", "Speech", "Task", "WideSpeech", "Xml", "evaluated"]

DATA = Path(__file__).resolve().parents[2] / "data" / "debian-xml"
Batch = tuple[Tensor, Tensor]


class Task(ABC):
    """Points, in batches of this rank.

    batch      points of a rank's training step
    chunk      points of a rank's batch in evaluation
    measures   names of what `sums` returns; the first one says when a method has arrived
    """

    batch: int
    chunk: int
    measures: tuple[str, ...]

    @abstractmethod
    def model(self) -> nn.Module: ...

    @abstractmethod
    def take(self, part: str, rows: Tensor) -> Batch:
        """Points of "train" or "test", valid until the next call."""

    @abstractmethod
    def points(self, part: str) -> int: ...

    @abstractmethod
    def loss(self, scores: Tensor, y: Tensor) -> Tensor: ...

    @abstractmethod
    def sums(self, scores: Tensor, y: Tensor) -> Tensor:
        """Sums of the measures over the points of a batch."""

    def training(self, seed: int = 0) -> Iterator[Batch]:
        """Endless batches: an epoch's order is drawn, and each step's points are divided among the ranks."""
        generator = torch.Generator().manual_seed(seed)
        step = self.batch * ranks()
        while True:
            order = torch.randperm(self.points("train"), generator=generator)
            for start in range(0, len(order) - step + 1, step):
                yield self.take("train", order[start + rank() * self.batch :][: self.batch])

    def shard(self, part: str, batches: int | None = None) -> Iterator[Batch]:
        """This rank's batches in evaluation, at most so many; of all ranks as many and of one size."""
        count = self.points(part) // (self.chunk * ranks())
        for index in range(count if batches is None else min(count, batches)):
            first = (index * ranks() + rank()) * self.chunk
            yield self.take(part, torch.arange(first, first + self.chunk))


@torch.no_grad()
def evaluated(task: Task, model: Callable[[Tensor], Tensor]) -> list[float]:
    """The measures of a model on the test points of all ranks; collective."""
    total = torch.zeros(len(task.measures) + 1, dtype=torch.float64)
    for x, y in task.shard("test"):
        total[:-1] += task.sums(model(x), y)
        total[-1] += len(x)
    dist.all_reduce(total)
    return [float(each) for each in total[:-1] / total[-1]]


class Xml(Task):
    batch, chunk = 64, 548
    measures = ("P@1", "P@5")
    hidden = 512

    def __init__(self) -> None:
        self._points = {part: extreme.load(DATA / f"{part}.txt.gz") for part in ("train", "test")}
        self._buffers: dict[int, extreme.DenseBatch] = {}

    def model(self) -> nn.Module:
        header = self._points["train"].header
        return nn.Sequential(
            nn.Linear(header.features, self.hidden),
            nn.BatchNorm1d(self.hidden),
            nn.ReLU(),
            nn.Linear(self.hidden, header.labels),
        )

    def points(self, part: str) -> int:
        return len(self._points[part])

    def take(self, part: str, rows: Tensor) -> Batch:
        header, count = self._points[part].header, len(rows)
        if count not in self._buffers:
            shapes = (count, header.features), (count, header.labels)
            self._buffers[count] = extreme.DenseBatch(*(torch.empty(shape) for shape in shapes))
        return self._points[part].batch(rows, out=self._buffers[count])

    def loss(self, scores: Tensor, y: Tensor) -> Tensor:
        return F.binary_cross_entropy_with_logits(scores, y, reduction="sum") / len(y)

    def sums(self, scores: Tensor, y: Tensor) -> Tensor:
        return extreme.precision_sums(scores, y, (1, 5))


class _Block(nn.Module):
    """The basic block of a residual network."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.shortcut = nn.Sequential()
        if inputs != outputs:
            convolution = nn.Conv2d(inputs, outputs, 1, stride, bias=False)
            self.shortcut = nn.Sequential(convolution, nn.BatchNorm2d(outputs))

    def forward(self, x: Tensor) -> Tensor:
        inner = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)))))
        return F.relu(inner + self.shortcut(x))


class _ResNet(nn.Module):
    """A stem and a block for each width; all but the first halve the image."""

    def __init__(self, widths: tuple[int, ...] = (32, 64, 128)) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(1, widths[0], 3, 1, 1, bias=False), nn.BatchNorm2d(widths[0]))
        inputs = (widths[0], *widths)
        self.blocks = nn.Sequential(
            *(_Block(inputs[i], width, 1 if i == 0 else 2) for i, width in enumerate(widths)),
        )
        self.last = nn.Linear(widths[-1], 10)

    def forward(self, x: Tensor) -> Tensor:
        scores: Tensor = self.last(self.blocks(F.relu(self.stem(x))).mean((2, 3)))
        return scores


class _Classification(Task):
    """Points of one class each, in memory or mapped from a file."""

    measures = ("accuracy",)
    _parts: Mapping[str, Batch]

    def points(self, part: str) -> int:
        return len(self._parts[part][1])

    def take(self, part: str, rows: Tensor) -> Batch:
        x, y = self._parts[part]
        return x[rows], y[rows]

    def loss(self, scores: Tensor, y: Tensor) -> Tensor:
        return F.cross_entropy(scores, y)

    def sums(self, scores: Tensor, y: Tensor) -> Tensor:
        return (scores.argmax(1) == y).sum(dtype=torch.float64).view(1)


class Digits(_Classification):
    batch, chunk = 16, 45

    def __init__(self) -> None:
        from sklearn.datasets import load_digits  # type: ignore[import-untyped]

        images, labels = load_digits(return_X_y=True)
        order = torch.randperm(len(images), generator=torch.Generator().manual_seed(0))
        x = torch.from_numpy(images).float().view(-1, 1, 8, 8)[order] / 16
        y = torch.from_numpy(labels).long()[order]
        test = 8 * self.chunk
        self._parts = {"test": (x[:test], y[:test]), "train": (x[test:], y[test:])}

    def model(self) -> nn.Module:
        return _ResNet()


class Speech(_Classification):
    batch, chunk = 64, 105
    hidden = 1000

    def __init__(self) -> None:
        from subnets import speech

        self._parts = speech.load()
        self._inputs, self._classes = speech.BANDS * speech.FRAMES, len(speech.WORDS)

    def model(self) -> nn.Module:
        return nn.Sequential(
            nn.Linear(self._inputs, self.hidden),
            nn.BatchNorm1d(self.hidden),
            nn.ReLU(),
            nn.Linear(self.hidden, self.hidden),
            nn.BatchNorm1d(self.hidden),
            nn.ReLU(),
            nn.Linear(self.hidden, self._classes),
        )

    def take(self, part: str, rows: Tensor) -> Batch:
        decibels, y = super().take(part, rows)
        return decibels.float() / 40 + 1, y


class WideSpeech(Speech):
    hidden = 4096  # in each of two layers: 8,192 in all, as in the thesis (section 2.3.1)


TASKS: Mapping[str, Callable[[], Task]] = {"xml": Xml, "digits": Digits, "speech": Speech, "speech_wide": WideSpeech}
