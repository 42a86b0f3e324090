"""Hugging Face families on the sites against plain torch; `make sweep` runs all of them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import joinsum
import pytest
import torch

pytest.importorskip("transformers")

from attention_of_gpus import attention_of_gpus
from families import FAMILIES, Family
from family_sweep import TOLERANCE, Measured, measure, relative, train
from training import EVERYTHING

FOUR = [("llama", 3), ("t5", 4), ("resnet", 4), ("qwen3_moe", 2)]
ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "sites"), FOUR if EVERYTHING else FOUR[::2])
def test_a_family_has_the_loss_and_gradients_of_torch(name: str, sites: int) -> None:
    try:
        measured = measure(FAMILIES[name], sites)
    finally:
        joinsum.init()
    assert (measured.result, measured.why) == ("equal", "")
    # The work is divided: otherwise no site would need what another has.
    assert measured.moved > 0
    assert measured.einsums > 0
    assert measured.calls > 0


# Among them: logged warnings, locks and flags of a first call, caches, experts, encoder and decoder, images, sound.
# The last three train on every change in tests/python/frontend/tracing/test_hugging_face.py.
AS_THEY_COME = [
    ("mixtral", "train_step", "eager"),
    ("resnet", "train_step", "eager"),
    ("bert", "distribute", "eager"),
    ("llama", "distribute", "sdpa"),
    ("t5", "torch.compile", "eager"),
    ("gpt2", "train_step", "sdpa"),
    ("wav2vec2", "train_step", "sdpa"),
    ("vit", "distribute", "sdpa"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "way", "attention"), AS_THEY_COME if EVERYTHING else AS_THEY_COME[:-3])
def test_a_family_trains_as_it_comes(name: str, way: str, attention: str) -> None:
    try:
        trained = train(FAMILIES[name], way, attention, 2)
    finally:
        joinsum.init()
    assert (trained.result, trained.why) == ("equal", "")


# Families with heads that share keys and a mask, and without a mask; nightly, all.
@pytest.mark.slow
@pytest.mark.parametrize("name", FAMILIES if EVERYTHING else ["llama", "vit"])
def test_a_family_trains_by_the_attention_of_gpus(name: str) -> None:
    try:
        with attention_of_gpus() as called:
            trained = train(FAMILIES[name], "train_step", "sdpa", 2)
    finally:
        joinsum.init()
    assert (trained.result, trained.why) == ("equal", "") or trained.result == "none"
    assert len(set(called)) > 1 or EVERYTHING


def test_there_are_forty_families() -> None:
    assert len(FAMILIES) == 40
    assert len({family.model for family in FAMILIES.values()}) == 40


def test_a_family_is_built_with_equal_weights_and_without_chance() -> None:
    family = FAMILIES["bert"]
    first, second = family.build(), family.build()
    assert all(torch.equal(p, q) for p, q in zip(first.parameters(), second.parameters(), strict=True))
    losses = {float(first(**family.inputs())[0]) for _ in range(3)}
    assert len(losses) == 1


def test_what_differs_is_found_relative_to_its_magnitude() -> None:
    ones = {"large": 100 * torch.ones(2), "small": torch.ones(2), "none": None}
    assert relative(ones, ones) == (0.0, "")
    assert relative(ones, {**ones, "small": torch.tensor([1.0, 1.5])}) == (0.5, "small")
    # A hundredth of the largest magnitude is the least that a difference is compared with.
    assert relative({**ones, "small": torch.zeros(2)}, ones) == (1.0, "small")
    assert relative(ones, {**ones, "large": 101 * torch.ones(2)}) == (pytest.approx(0.01), "large")


@pytest.mark.parametrize("got", [None, torch.ones(3), torch.tensor([1.0, float("nan")]), torch.ones(2).double()])
def test_a_tensor_that_is_missing_or_of_another_kind_is_infinitely_wrong(got: torch.Tensor | None) -> None:
    assert relative({"x": torch.ones(2)}, {"x": got}) == (float("inf"), "x")


class _Cubed(torch.autograd.Function):
    """A cube whose gradient is that of a square."""

    @staticmethod
    def forward(ctx: torch.autograd.function.FunctionCtx, x: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    def backward(ctx: torch.autograd.function.FunctionCtx, grad: torch.Tensor) -> torch.Tensor:
        (x,) = ctx.saved_tensors  # type: ignore[attr-defined]
        return grad * 2 * x if torch.compiler.is_compiling() else grad * 3 * x**2


class _Model(torch.nn.Module):
    def __init__(self, body: object) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.full((4, 4), 0.5))
        self.body = body

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor]:
        return (self.body(self.weight @ x).sum(),)  # type: ignore[operator]


class _Made(Family):
    """A family of which every model has this body."""

    def build(self) -> torch.nn.Module:
        return _Model(_BODIES[self.name])

    def inputs(self) -> dict[str, torch.Tensor]:
        return {"x": torch.arange(16.0).reshape(4, 4) / 16}


_BODIES = {
    "right": torch.tanh,
    "wrong": _Cubed.apply,
    "refused": lambda x: x * torch.special.bessel_j0(x.detach()),
    "branching": lambda x: x if x.sum() > 0 else -x,
}


def _measured(name: str) -> Measured:
    try:
        return measure(_Made(name, "", dict), 2)
    finally:
        joinsum.init()


def test_a_right_model_is_equal() -> None:
    measured = _measured("right")
    assert measured.result == "equal"
    assert measured.error <= TOLERANCE[torch.float32]


def test_wrong_gradients_are_found() -> None:
    measured = _measured("wrong")
    assert measured.result == "wrong"
    assert measured.why.startswith("weight differs by ")


@pytest.mark.parametrize(
    ("name", "said"), [("refused", "operator=aten::special_bessel_j0"), ("branching", "branching")]
)
def test_what_is_not_captured_is_refused_by_name_and_place(name: str, said: str) -> None:
    measured = _measured(name)
    assert measured.result == "refused"
    assert said in measured.why
    assert "test_families.py" in measured.why


def test_the_sweep_fails_for_an_unknown_family() -> None:
    command = [sys.executable, str(ROOT / "tools" / "sweep.py"), "no_such_family"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "no_such_family" in done.stderr
