"""Functions and methods that neurons pass: elementwise ones keep them apart, and their subnets train as plain torch's;
of others the refusal says what is known."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import joinsum
import pytest
import torch
from joinsum.ist.layers.discovery import find_layers
from reference_subnets import Axes, compare_rounds
from torch import nn
from torch.nn import functional as F

Operator = Callable[[torch.Tensor], torch.Tensor]


class Passed(nn.Module):
    """Hidden neurons that pass an operator."""

    def __init__(self, operator: Operator, hidden: int = 8) -> None:
        super().__init__()
        self.first, self.norm, self.second = nn.Linear(4, hidden), nn.BatchNorm1d(hidden), nn.Linear(hidden, 2)
        self.operator = operator

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(self.operator(self.norm(self.first(x))))


def cut(model: nn.Module) -> dict[str, list[str]]:
    return {each.name: [member.module for member in each.members] for each in find_layers(model, False, None).layers}


def in_place(x: torch.Tensor) -> torch.Tensor:
    y = x.clone()
    y += 1
    y *= x
    return y.mul_(0.5).sub_(x)


def new_gelu(x: torch.Tensor) -> torch.Tensor:
    """Of minGPT and Hugging Face's GPT-2."""
    return 0.5 * x * (1.0 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * torch.pow(x, 3.0))))


UNARY: list[Operator] = [
    *(torch.sin, torch.cos, torch.tan, torch.atan, torch.sinh, torch.asinh, torch.sinc, torch.erf, torch.erfc),
    *(torch.sign, torch.sgn, torch.round, torch.floor, torch.ceil, torch.trunc, torch.frac, torch.nan_to_num),
    *(torch.abs, torch.neg, torch.negative, torch.exp, torch.exp2, torch.expm1, torch.square, torch.positive),
    *(torch.reciprocal, torch.deg2rad, torch.special.expit, torch.special.erf, torch.special.i0e, torch.special.ndtr),
    *(F.softsign, F.logsigmoid, F.hardshrink, F.softshrink, F.tanhshrink, F.rrelu, F.celu, F.selu, F.mish, F.relu6),
    *(lambda x: F.threshold(x, 0, 0), lambda x: torch.clip(x, -1, 1), lambda x: x.clamp_min(0).clamp_max(2)),
    *(lambda x: x.abs().log1p(), lambda x: (x.abs() + 1).log(), lambda x: (x * x + 1).rsqrt(), lambda x: -abs(x)),
    *(
        lambda x: x.abs().sqrt(),
        lambda x: x**2,
        lambda x: x.pow(3),
        lambda x: 2.0 ** (-x),
        lambda x: torch.logit(x, 0.1),
    ),
    *(lambda x: x.double().half().float(), lambda x: x.to(torch.float32), lambda x: x.bfloat16().type(torch.float32)),
]
BINARY: list[Operator] = [
    *(
        lambda x: x / (1 + x.abs()),
        lambda x: 1 / (2 + x.abs()),
        lambda x: x.div(x.exp()),
        lambda x: x * torch.sigmoid(x),
    ),
    *(lambda x: x + F.relu(x), lambda x: x - x.tanh(), lambda x: x + x.sin() ** 2, new_gelu, in_place),
    *(lambda x: torch.where(x > 0, x, 0.1 * x), lambda x: torch.where(x.abs() < 1, x, torch.zeros_like(x))),
    *(lambda x: x.masked_fill(x < 0, 0.0), lambda x: x * (x > 0), lambda x: x * ((x > 0) & ~(x > 1)).float()),
    *(lambda x: torch.maximum(x, -x), lambda x: torch.minimum(x, x.square()), lambda x: torch.max(x, 0.1 * x)),
    *(
        lambda x: torch.lerp(x, x.relu(), 0.5),
        lambda x: torch.addcmul(x, x, x, value=0.5),
        lambda x: torch.atan2(x, x + 9),
    ),
    *(lambda x: torch.logaddexp(x, -x), lambda x: x.exp().type_as(x), lambda x: x.tanh().to(x.dtype).to(x.device)),
    *(lambda x: x * torch.tensor(0.5), lambda x: torch.sqrt(torch.tensor(2.0)) * x.relu(), lambda x: x + torch.ones(1)),
]
DROPPING: list[Operator] = [
    *(F.dropout, F.alpha_dropout, F.feature_alpha_dropout, lambda x: x + torch.randn_like(x)),
    *(lambda x: F.rrelu(x, training=True), lambda x: x * torch.bernoulli(x.sigmoid())),
]


@pytest.mark.parametrize("operator", UNARY + BINARY)
def test_elementwise_operators_keep_neurons_apart(operator: Operator) -> None:
    assert cut(Passed(operator)) == {"first": ["first", "norm", "second"]}
    x, some = torch.linspace(-2, 2, 24).view(3, 8), [1, 4, 6]
    torch.testing.assert_close(operator(x)[:, some], operator(x[:, some]))  # torch rounds vectors and their rests apart


@pytest.mark.parametrize("operator", DROPPING)
def test_operators_that_draw_for_each_element_keep_neurons_apart(operator: Operator) -> None:
    assert cut(Passed(operator)) == {"first": ["first", "norm", "second"]}


@pytest.mark.parametrize(
    ("operator", "reason"),
    [
        (torch.fft.fft, "that joinsum does not know: operator=fft_fft"),
        (lambda x: x.unfold(1, 2, 1), "that joinsum does not know: operator=unfold"),
        (lambda x: x.view(-1, 8), "that mixes axes: operator=view"),
        (lambda x: x @ x, "that mixes axes: operator=matmul"),
        (lambda x: x[:, [1, 0]], "that mixes axes: operator=getitem"),
        (lambda x: torch.where(x > 0)[0], "that joinsum does not know: operator=where"),
        (lambda x: torch.max(x, 1), "that mixes axes: operator=max"),
    ],
)
def test_operators_of_which_nothing_is_known_are_not_said_to_mix(operator: Operator, reason: str) -> None:
    with pytest.raises(joinsum.PlanError, match=f"first: they reach an operator {reason}"):
        find_layers(Passed(operator), False, None)


@pytest.mark.parametrize(
    "operator",
    [
        *(lambda x: x * torch.ones(8), lambda x: torch.where(x > 0, x, torch.ones(8)), lambda x: x / x.shape[1]),
        *(
            lambda x: torch.maximum(x, torch.zeros(8)),
            lambda x: x + torch.ones(1, 1, 1),
            lambda x: x.clamp(torch.ones(8)),
        ),
    ],
)
def test_operands_that_have_no_neurons_but_an_extent_leave_them_uncut(operator: Operator) -> None:
    with pytest.raises(joinsum.PlanError, match="first: they are combined with a value that is not cut"):
        find_layers(Passed(operator), False, None)


class Scaled(Passed):
    """A learned factor and a learned gate, of one element each."""

    def __init__(self, hidden: int = 8) -> None:
        super().__init__(lambda x: x, hidden)
        self.alpha, self.beta = nn.Parameter(torch.tensor(0.7)), nn.Parameter(torch.full((1,), 0.3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = self.norm(self.first(x))
        return self.second(self.alpha * hidden + torch.sigmoid(self.beta - 1).to(self.alpha.dtype) * hidden.relu())


def scaled(widths: Mapping[str, int]) -> nn.Module:
    return Scaled(widths.get("first", 8))


def passed(operator: Operator) -> Callable[[Mapping[str, int]], nn.Module]:
    return lambda widths: Passed(operator, widths.get("first", 8))


AXES: Axes = {
    **{f"first.{name}": {0: ("first", 1)} for name in ("weight", "bias")},
    **{f"norm.{name}": {0: ("first", 1)} for name in ("weight", "bias", "running_mean", "running_var")},
    "second.weight": {1: ("first", 1)},
}


def step(model: nn.Module, optimizer: torch.optim.Optimizer, batch: torch.Tensor) -> None:
    optimizer.zero_grad()
    model(batch).square().mean().backward()
    optimizer.step()


@pytest.mark.parametrize(
    "build",
    [
        passed(new_gelu),
        passed(lambda x: x / (1 + x.abs())),
        passed(lambda x: torch.where(x > 0, x, torch.maximum(0.1 * x, x.sin()))),
        passed(in_place),
        scaled,
    ],
    ids=["x + f(x)", "x / f(x)", "where", "in place", "learned factors"],
)
def test_subnets_of_neurons_that_pass_them_train_as_narrower_models(build: Any) -> None:
    joinsum.init(sites=3)
    torch.manual_seed(4)
    data = list(torch.randn(3 * 2 * 3, 5, 4, dtype=torch.float64))
    compare_rounds(
        *(build({}).double(), lambda widths: build(widths).double(), AXES),
        *(lambda parameters: torch.optim.Adam(parameters, lr=0.01, eps=1e-3), data, step),
        rounds=3,
    )


class Blocks(nn.Module):
    """Two residual blocks with the activation of minGPT, pre-norm."""

    def __init__(self, widths: Mapping[str, int]) -> None:
        super().__init__()
        self.stem, self.head_norm, self.head = nn.Linear(4, 6), nn.LayerNorm(6), nn.Linear(6, 2)
        self.norms = nn.ModuleList(nn.LayerNorm(6) for _ in range(2))
        self.up = nn.ModuleList(nn.Linear(6, widths.get(f"up.{place}", 10)) for place in range(2))
        self.down = nn.ModuleList(nn.Linear(up.out_features, 6) for up in self.up)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.stem(x)
        for norm, up, down in zip(self.norms, self.up, self.down, strict=True):
            x = x + down(new_gelu(up(norm(x))))
        return self.head(self.head_norm(x))


def test_blocks_with_a_sum_of_the_same_neurons_are_cut_and_their_residual_is_not() -> None:
    joinsum.init(sites=2)
    torch.manual_seed(4)
    model = Blocks({}).double()
    found = find_layers(model, False, None)
    assert [(each.name, each.scaled) for each in found.layers] == [("up.0", True), ("up.1", True)]
    assert found.uncut["stem"] == found.uncut["down.0"] == "they cross a residual sum"
    axes = {
        **{f"up.{place}.{name}": {0: (f"up.{place}", 1)} for place in range(2) for name in ("weight", "bias")},
        **{f"down.{place}.weight": {1: (f"up.{place}", 1)} for place in range(2)},
    }
    compare_rounds(
        *(model, lambda widths: Blocks(widths).double(), axes),
        *(
            lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9),
            list(torch.randn(12, 5, 4).double()),
            step,
        ),
        rounds=3,
        scaled=False,
    )


def test_the_mlps_of_hugging_faces_gpt2_train_as_narrower_ones() -> None:
    transformers = pytest.importorskip("transformers")

    def build(widths: Mapping[str, int]) -> nn.Module:
        own = widths.get("transformer.h.0.mlp.c_fc", 24)  # as many in both layers
        sizes = {"vocab_size": 30, "n_embd": 12, "n_layer": 2, "n_head": 2, "n_positions": 8, "n_inner": own}
        dropped = dict.fromkeys(("resid_pdrop", "embd_pdrop", "attn_pdrop"), 0.0)
        return transformers.GPT2LMHeadModel(transformers.GPT2Config(**sizes, **dropped, use_cache=False)).double()

    def step(model: nn.Module, optimizer: torch.optim.Optimizer, batch: torch.Tensor) -> None:
        optimizer.zero_grad()
        model(input_ids=batch).logits.square().mean().backward()
        optimizer.step()

    axes = {}
    for mlp in ("transformer.h.0.mlp", "transformer.h.1.mlp"):
        axes |= {f"{mlp}.c_fc.weight": {1: (f"{mlp}.c_fc", 1)}, f"{mlp}.c_fc.bias": {0: (f"{mlp}.c_fc", 1)}}
        axes[f"{mlp}.c_proj.weight"] = {0: (f"{mlp}.c_fc", 1)}
    joinsum.init(sites=3)
    torch.manual_seed(4)
    data = list(torch.randint(30, (12, 2, 5)))
    compare_rounds(
        *(build({}), build, axes, lambda parameters: torch.optim.Adam(parameters, lr=0.01, eps=1e-3), data, step),
        rounds=2,
        unnormalised=True,
        scaled=False,
    )


@pytest.mark.parametrize(
    "combine",
    [
        *(lambda x, y: x + y, lambda x, y: x.sub(y), torch.maximum, lambda x, y: torch.lerp(x, y, 0.5)),
        *(lambda x, y: torch.where(y > 0, x, y), lambda x, y: x.add(y.relu()), lambda x, y: torch.addcmul(x, y, y)),
    ],
)
def test_neurons_that_others_join_other_than_by_products_are_not_cut(combine: Any) -> None:
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stem, self.norm, self.up, self.mid = nn.Linear(4, 8), nn.LayerNorm(8), nn.Linear(8, 6), nn.LayerNorm(6)
            self.down, self.last, self.head = nn.Linear(6, 8), nn.LayerNorm(8), nn.Linear(8, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = self.stem(x)
            return self.head(self.last(combine(x, self.down(F.relu(self.mid(self.up(self.norm(x))))))))

    assert cut(Two()) == {"up": ["up", "mid", "down"]}
    assert find_layers(Two(), False, None).uncut["stem"] == "they cross a residual sum"


def square(x: torch.Tensor) -> torch.Tensor:
    """Not torch's."""
    return x * x.mean(1, keepdim=True)


torch.fx.wrap("square")


def test_a_function_of_the_users_is_not_torchs_of_that_name() -> None:
    with pytest.raises(joinsum.PlanError, match="joinsum does not know: operator=square"):
        cut(Passed(lambda x: square(x)))
