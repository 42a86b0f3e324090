"""Examples of independent subnet training: a run that goes on from its checkpoint ends as one that was not stopped, and
ranks train what the sites of one process train."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import joinsum
import pytest
import torch
import torch.distributed as dist
from forks import Forks
from joinsum import extreme
from launch import torchrun
from torch import Tensor, nn
from torch.optim.swa_utils import update_bn
from training import takes_long

EXAMPLES = Path(__file__).parents[2] / "examples"
FEATURES, HIDDEN, LABELS, POINTS = 17671, 16, 17860, 64
WIDTHS = (8,)

Run = Callable[[Sequence[object]], str]  # of a command; gives what it prints

on_ranks = [
    pytest.mark.distributed,
    pytest.mark.slow,
    pytest.mark.skipif(not dist.is_available() or not dist.is_gloo_available(), reason="torch has no gloo"),
    takes_long,
]


@dataclass(frozen=True)
class Example:
    """A program with the sizes of a small run; what it prints of a point of its curve.

    make      the plain model
    measure   what the curve has of a full model, computed by plain torch
    """

    program: str
    libraries: Sequence[str]
    sizes: Sequence[object]
    line: str
    make: Callable[[], nn.Module]
    measure: Callable[[nn.Module], list[float]]


def classifier() -> nn.Module:
    return import_module("ist_xml").network(FEATURES, HIDDEN, LABELS)


def precision(model: nn.Module) -> list[float]:
    """Precision at 1, 3 and 5 on the first test points, with statistics of the first training points."""
    train, test = (extreme.load(import_module("ist_xml").DATA / f"{part}.txt.gz") for part in ("train", "test"))
    update_bn([train.batch(range(start, start + 512))[0] for start in range(0, 2048, 512)], model)
    x, y = test.batch(range(POINTS))
    found = y.gather(1, model.eval()(x).topk(5).indices)
    return [found[:, :k].mean().item() for k in (1, 3, 5)]


def resnet() -> nn.Module:
    return import_module("ist_resnet").ResNet(WIDTHS)


def accuracy(model: nn.Module) -> list[float]:
    """The share of test images that are right, with statistics of all training images."""
    x, _, test_x, test_y = import_module("ist_resnet").digits()
    update_bn(x.split(256), model)
    return [(model.eval()(test_x).argmax(1) == test_y).float().mean().item()]


XML = Example(
    "ist_xml.py",
    ["matplotlib.figure"],
    ["--hidden", HIDDEN, "--batch", 16, "--every", 2, "--points", POINTS],
    "round {}: P@1 {:.4f}, P@3 {:.4f}, P@5 {:.4f}",
    classifier,
    precision,
)
RESNET = Example(
    "ist_resnet.py",
    ["matplotlib.figure", "sklearn.datasets"],
    ["--widths", *WIDTHS, "--batch", 16, "--every", 5],
    "round {}: {:.3f} of the test images are right",
    resnet,
    accuracy,
)

each_example = pytest.mark.parametrize("example", [pytest.param(XML, id="xml"), pytest.param(RESNET, id="resnet")])


@pytest.fixture(autouse=True)
def modules(monkeypatch: pytest.MonkeyPatch) -> None:
    """The examples can be imported; they read a file of data once."""
    monkeypatch.syspath_prepend(EXAMPLES)
    monkeypatch.setattr(extreme, "load", lru_cache(extreme.load))


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs an example in this process."""

    def run(command: Sequence[object]) -> str:
        monkeypatch.delenv("RANK", raising=False)
        monkeypatch.setattr(sys, "argv", [str(each) for each in command])
        import_module(Path(sys.argv[0]).stem).main()
        return capsys.readouterr().out

    return run


@pytest.fixture(scope="module")
def forks() -> Iterator[Forks]:
    libraries = {name for each in (XML, RESNET) for name in each.libraries if find_spec(name.partition(".")[0])}
    with Forks(["joinsum", "torch._dynamo", *sorted(libraries)], EXAMPLES) as process:
        yield process


def progress(text: str) -> list[str]:
    """The lines of evaluations, without seconds."""
    lines = [line for line in text.splitlines() if line.startswith("round ")]
    return [re.sub(r", \d+ s of training$", "", line) for line in lines]


def saved(example: Example, folder: Path) -> tuple[nn.Module, dict[str, Tensor], list[list[float]]]:
    """The full model of a checkpoint, all tensors of it and of its optimizer, and the curve."""
    joinsum.init()
    model = example.make()
    optimizer = torch.optim.AdamW(model.parameters())
    curve = joinsum.load_checkpoint(folder, model, optimizer)["extra"]["curve"]
    states: Mapping[int, Mapping[str, Any]] = optimizer.state_dict()["state"]
    tensors = {f"{number} {key}": value for number, state in states.items() for key, value in state.items()}
    assert len(tensors) == 3 * len(states) > 0
    return model, tensors | model.state_dict(), curve


def check_same(example: Example, one: Path, other: Path) -> tuple[nn.Module, list[list[float]]]:
    """Asserts that two runs have ended alike to the bit; returns the full model and the curve."""
    model, wanted, curve = saved(example, one)
    _, found, found_curve = saved(example, other)
    assert found.keys() == wanted.keys()
    for name, tensor in wanted.items():
        assert torch.equal(found[name], tensor), name
    assert found_curve == curve
    picture = (one / "curve.png").read_bytes()
    assert picture.startswith(b"\x89PNG")
    assert (other / "curve.png").read_bytes() == picture
    return model, curve


@each_example
def test_a_run_that_goes_on_ends_as_one_that_was_not_stopped(example: Example, run: Run, tmp_path: Path) -> None:
    for library in example.libraries:
        pytest.importorskip(library)
    one, two = tmp_path / "one", tmp_path / "two"
    command = [EXAMPLES / example.program, *example.sizes, "--sites", 2, "--evaluate", 2]
    whole = run([*command, "--rounds", 6, "--out", one])
    first = run([*command, "--rounds", 4, "--out", two])
    stopped = (two / "curve.png").read_bytes()
    rest = run([*command, "--rounds", 6, "--out", two, "--resume"])
    assert progress(first) + progress(rest) == progress(whole)
    model, curve = check_same(example, one, two)
    assert (two / "curve.png").read_bytes() != stopped
    assert [point[0] for point in curve] == [2, 4, 6]
    assert progress(whole) == [example.line.format(*point) for point in curve]
    # Scores of which two are almost equal may change places.
    assert example.measure(model) == pytest.approx(curve[-1][1:], abs=1.5 / POINTS)


@pytest.mark.parametrize(
    ("example", "by_torchrun"),
    [pytest.param(XML, True, id="xml", marks=on_ranks), pytest.param(RESNET, False, id="resnet", marks=on_ranks)],
)
def test_ranks_go_on_as_sites_of_one_process(example: Example, by_torchrun: bool, forks: Forks, tmp_path: Path) -> None:
    for library in example.libraries:
        pytest.importorskip(library)
    one, two, log = tmp_path / "one", tmp_path / "two", tmp_path / "log"
    command = [EXAMPLES / example.program, *example.sizes, "--evaluate", 1]
    whole = forks.output([*command, "--sites", 2, "--rounds", 2, "--out", one], log)
    first = forks.output([*command, "--rounds", 1, "--out", two], log, ranks=2)
    resumed = [*command, "--rounds", 2, "--out", two, "--resume"]
    rest = torchrun(2, *resumed) if by_torchrun else forks.output(resumed, log, ranks=2)
    assert len(progress(whole)) == 2
    assert progress(first) + progress(rest) == progress(whole)
    check_same(example, one, two)
