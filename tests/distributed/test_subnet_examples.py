"""Examples of independent subnet training: ranks, also those that go on from a checkpoint, train what the sites of one
process train."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import joinsum
import pytest
import torch
import torch.distributed as dist
from forks import Forks
from launch import torchrun
from torch import Tensor, nn
from training import EVERYTHING

EXAMPLES = Path(__file__).parents[2] / "examples"
FEATURES, HIDDEN, LABELS = 17671, 16, 17860
WIDTHS = (4,)

Run = Callable[[Sequence[object]], str]  # of a command; gives what it prints

pytestmark = [
    pytest.mark.distributed,
    pytest.mark.slow,
    pytest.mark.skipif(not dist.is_available() or not dist.is_gloo_available(), reason="torch has no gloo"),
    pytest.mark.skipif(not EVERYTHING, reason="takes over a minute; set JOINSUM_ALL_MODELS=1"),
]


@pytest.fixture(scope="module")
def forks() -> Iterator[Forks]:
    libraries = [name for name in ("matplotlib.figure", "sklearn.datasets") if find_spec(name.partition(".")[0])]
    with Forks(["joinsum", "torch._dynamo", *libraries], EXAMPLES) as process:
        yield process


def classifier() -> nn.Module:
    return import_module("ist_xml").network(FEATURES, HIDDEN, LABELS)


def resnet() -> nn.Module:
    return import_module("ist_resnet").ResNet(WIDTHS)


def said(text: str) -> list[str]:
    """Of each evaluation, the round and what the full model reaches."""
    return re.findall(r"^round \d+: .*\d\.\d+", text, re.MULTILINE)


def saved(make: Callable[[], nn.Module], folder: Path) -> dict[str, Tensor]:
    """The full model of a checkpoint."""
    joinsum.init()
    model = make()
    joinsum.load_checkpoint(folder, model)
    return model.state_dict()


def goes_on(forks: Forks, command: Sequence[object], make: Callable[[], nn.Module], folder: Path, run: Run) -> None:
    """Asserts that two ranks, which stop after a round and go on by `run`, save and say what two sites of one process
    do."""
    one, two, log = folder / "one", folder / "two", folder / "log"
    wanted = forks.output([*command, "--sites", 2, "--rounds", 2, "--out", one], log)
    first = forks.output([*command, "--rounds", 1, "--out", two], log, ranks=2)
    rest = run([*command, "--rounds", 2, "--out", two, "--resume"])
    assert len(said(wanted)) == 2
    assert said(first) + said(rest) == said(wanted)
    found = saved(make, two)
    for name, tensor in saved(make, one).items():
        assert torch.equal(found[name], tensor), name


def test_a_classifier_of_many_labels(forks: Forks, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("matplotlib")
    monkeypatch.syspath_prepend(EXAMPLES)
    sizes = ["--hidden", HIDDEN, "--batch", 16, "--every", 2, "--evaluate", 1, "--points", 64]
    command = [EXAMPLES / "ist_xml.py", *sizes]
    goes_on(forks, command, classifier, tmp_path, lambda command: torchrun(2, *command))


def test_a_residual_network(forks: Forks, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("sklearn")
    monkeypatch.syspath_prepend(EXAMPLES)
    sizes = ["--widths", *WIDTHS, "--batch", 8, "--every", 1, "--evaluate", 1]
    command = [EXAMPLES / "ist_resnet.py", *sizes]
    log = tmp_path / "log of the rest"
    goes_on(forks, command, resnet, tmp_path, lambda command: forks.output(command, log, ranks=2))
