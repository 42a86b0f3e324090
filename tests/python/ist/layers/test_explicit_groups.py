"""Hidden layers that are named, (producers, norms, consumers): they train as reference subnets, and as "auto" cuts
them; those whose neurons cannot be dealt out are refused by name."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import joinsum
import pytest
import torch
import torch.distributed as dist
from reference_subnets import Axes, compare_rounds
from torch import nn
from torch.nn import functional as F

Widths = Mapping[str, int]
STATISTICS = ("weight", "bias", "running_mean", "running_var")


class Classifier(nn.Module):
    """A convolution, and three fully connected layers; the first reads four positions of each channel."""

    def __init__(self, widths: Widths) -> None:
        super().__init__()
        channels, first, second = (widths.get(name, full) for name, full in (("conv", 6), ("fc1", 12), ("fc2", 10)))
        self.conv, self.norm = nn.Conv2d(3, channels, 3, padding=1, bias=False), nn.BatchNorm2d(channels)
        self.fc1, self.norm1 = nn.Linear(4 * channels, first, bias=False), nn.BatchNorm1d(first)
        self.fc2, self.norm2 = nn.Linear(first, second, bias=False), nn.BatchNorm1d(second)
        self.fc3 = nn.Linear(second, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.flatten(F.adaptive_avg_pool2d(F.relu(self.norm(self.conv(x))), 2), 1)
        return self.fc3(F.relu(self.norm2(self.fc2(F.relu(self.norm1(self.fc1(x)))))))


class Gated(nn.Module):
    """Neurons that two layers compute, combined by `combine`."""

    def __init__(self, widths: Widths, combine: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        hidden = widths.get("gate", 12)
        self.gate, self.value = nn.Linear(5, hidden), nn.Linear(5, hidden)
        self.norm, self.out = nn.LayerNorm(hidden), nn.Linear(hidden, 4)
        self.combine = combine

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.out(self.norm(self.combine(self.gate(x), self.value(x))))


class Unpacking(Gated):
    """What torch.fx cannot follow."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        _, _ = x.shape
        return super().forward(x)


def gated(widths: Widths) -> nn.Module:
    return Gated(widths, lambda gate, value: F.silu(gate) * value)


def summed(widths: Widths) -> nn.Module:
    return Gated(widths, lambda gate, value: gate + value)


def unpacking(widths: Widths) -> nn.Module:
    return Unpacking(widths, lambda gate, value: F.dropout(torch.sin(gate), 0.0) * value)


FC1 = {"fc1.weight": {0: ("fc1", 1)}, **{f"norm1.{each}": {0: ("fc1", 1)} for each in STATISTICS}}
FULLY_CONNECTED: Axes = {
    **FC1,
    "fc2.weight": {0: ("fc2", 1), 1: ("fc1", 1)},
    **{f"norm2.{each}": {0: ("fc2", 1)} for each in STATISTICS},
    "fc3.weight": {1: ("fc2", 1)},
}
# Three neurons of two channels, and four of three features.
BLOCKS: Axes = {
    "conv.weight": {0: ("conv", 2)},
    **{f"norm.{each}": {0: ("conv", 2)} for each in STATISTICS},
    "fc1.weight": {0: ("fc1", 3), 1: ("conv", 8)},
    **{f"norm1.{each}": {0: ("fc1", 3)} for each in STATISTICS},
    "fc2.weight": {1: ("fc1", 3)},
}
GATED: Axes = {
    **{f"{name}.{each}": {0: ("gate", 1)} for name in ("gate", "value", "norm") for each in ("weight", "bias")},
    "out.weight": {1: ("gate", 1)},
}


def batches(count: int, images: bool) -> list[tuple[torch.Tensor, torch.Tensor]]:
    generator = torch.Generator().manual_seed(3)
    shape = (5, 3, 6, 6) if images else (5, 5)
    return [
        (
            torch.randn(shape, generator=generator, dtype=torch.float64),
            torch.randint(0, 4, (5,), generator=generator),
        )
        for _ in range(count)
    ]


def step(model: nn.Module, optimizer: torch.optim.Optimizer, batch: tuple[torch.Tensor, torch.Tensor]) -> None:
    optimizer.zero_grad()
    F.cross_entropy(model(batch[0]), batch[1]).backward()
    optimizer.step()


def adam(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.Adam(parameters, lr=0.01, eps=1e-3)


def blocks(widths: Widths) -> nn.Module:
    """By numbers of blocks."""
    return Classifier({name: count * {"conv": 2, "fc1": 3}[name] for name, count in widths.items()})


@pytest.mark.parametrize(
    ("build", "layers", "axes"),
    [
        (Classifier, [("fc1", "norm1", "fc2"), ("fc2", "norm2", "fc3")], FULLY_CONNECTED),
        (blocks, [("conv", "norm", "fc1", 3), (["fc1"], ["norm1"], ["fc2"], 4)], BLOCKS),
        (gated, [(["gate", "value"], "norm", "out")], GATED),
        (summed, [(["gate", "value"], "norm", "out")], GATED),
        (unpacking, [(["gate", "value"], "norm", "out")], GATED),
    ],
    ids=["fully connected layers of a CNN", "blocks of neurons", "gated", "summed", "not traced"],
)
@pytest.mark.parametrize("sites", [2, 3])
def test_named_layers_train_as_narrower_models(build: Any, layers: Any, axes: Axes, sites: int) -> None:
    joinsum.init(sites=sites)
    torch.manual_seed(4)
    model = build({}).double()
    data = batches(3 * 2 * sites, isinstance(model, Classifier))
    ist = compare_rounds(
        model, lambda widths: build(widths).double(), axes, adam, data, step, rounds=3, seed=2, layers=layers
    )
    assert ist.uncut == {}
    assert {layer.name for layer in ist.layers} == {layer for each in axes.values() for layer, _ in each.values()}


ALL_OF_CLASSIFIER = [("conv", "norm", "fc1"), ("fc1", "norm1", "fc2"), ("fc2", "norm2", "fc3")]


@pytest.mark.parametrize("form", ["names", "lists", "modules"])
@pytest.mark.parametrize(
    ("build", "groups"), [(Classifier, ALL_OF_CLASSIFIER), (gated, [(["gate", "value"], "norm", "out")])]
)
def test_named_layers_train_as_those_that_auto_finds_to_the_bit(build: Any, groups: Any, form: str) -> None:
    joinsum.init(sites=3)
    results = []
    for named in (False, True):
        torch.manual_seed(4)
        model = build({}).double()
        layers: Any = "auto"
        if named and form == "modules":
            layers = [
                tuple([model.get_submodule(each) for each in ([x] if isinstance(x, str) else x)] for x in group)
                for group in groups
            ]
            layers = [tuple(each[0] if len(each) == 1 else each for each in group) for group in layers]
        elif named:
            layers = [tuple([x] if form == "lists" and isinstance(x, str) else x for x in group) for group in groups]
        optimizer = adam(model.parameters())
        with joinsum.IST(model, optimizer, every=2, seed=5, layers=layers):
            for batch in batches(18, isinstance(model, Classifier)):
                step(model, optimizer, batch)
        results.append(model.state_dict())
    assert not torch.equal(results[0]["norm.weight"], torch.ones_like(results[0]["norm.weight"]))
    assert all(torch.equal(results[1][name], wanted) for name, wanted in results[0].items())


# --- refusals ---------------------------------------------------------------------------------------------------------


def refused(model: nn.Module, *layers: Any, **options: Any) -> str:
    joinsum.init(sites=2)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    with pytest.raises(joinsum.PlanError) as caught:
        joinsum.IST(model, torch.optim.SGD(model.parameters(), lr=0.1), layers=list(layers), **options)
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
    assert not model._forward_pre_hooks
    return str(caught.value)


class Mixed(nn.Module):
    """Hidden neurons that `mix` combines with others."""

    def __init__(self, mix: Any, convolution: bool = False) -> None:
        super().__init__()
        if convolution:
            self.first, self.norm, self.second = nn.Conv2d(4, 8, 1), nn.BatchNorm2d(8), nn.Conv2d(8, 2, 1)
        else:
            self.first, self.norm, self.second = nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 2)
        self.mix = mix

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(self.mix(self.norm(self.first(x))))


@pytest.mark.parametrize(
    ("mix", "what"),
    [
        *((lambda x: x.softmax(-1), "softmax"), (lambda x: F.log_softmax(x, dim=-1), "log_softmax")),
        *((lambda x: x / x.sum(-1, keepdim=True), "sum"), (lambda x: x - x.mean(), "mean")),
        *((lambda x: F.max_pool1d(x, 3, 1, 1), "max_pool1d"), (lambda x: x.flip(-1), "flip")),
        *((lambda x: torch.cat(x.chunk(2, -1)[::-1], -1), "chunk"), (lambda x: x.cumsum(-1), "cumsum")),
        *((nn.Softmax(-1), "Softmax"), (nn.AvgPool1d(3, 1, 1), "AvgPool1d"), (nn.AdaptiveMaxPool1d(8), "AdaptiveMax")),
        # Behind BatchNorm1d the neurons of a Linear are axis 1.
        *((lambda x: x.softmax(1), "softmax"), (nn.Softmax(1), "Softmax"), (nn.GroupNorm(2, 8), "GroupNorm")),
        *((lambda x: x.flip(1), "flip"), (lambda x: x.roll(1, 1), "roll"), (lambda x: x.sort(1)[0], "sort")),
        *((lambda x: x - x.mean(1, keepdim=True), "mean"), (lambda x: x / x.max(1, keepdim=True)[0], "max")),
        *((F.normalize, "normalize"), (lambda x: torch.cat(x.chunk(2, 1)[::-1], 1), "chunk")),
        *((lambda x: torch.cat([x[:, 4:], x[:, :4]], 1), "getitem"), (lambda x: x[..., [1]], "getitem")),
    ],
)
def test_neurons_of_a_linear_that_are_mixed_are_refused(mix: Any, what: str) -> None:
    message = refused(Mixed(mix), ("first", "norm", "second"))
    assert f"={what}" in message
    assert "layer=first" in message


@pytest.mark.parametrize(
    "keep",
    [
        *(lambda x: x.softmax(0), lambda x: x - x.mean(0), lambda x: F.normalize(x, dim=0), lambda x: x[:, :]),
        *(lambda x: x[1:], lambda x: x.flip(0), lambda x: x[..., :]),
    ],
)
def test_what_combines_points_but_no_neurons_is_cut_where_it_is_named(keep: Any) -> None:
    joinsum.init(sites=2)
    model = Mixed(keep)
    joinsum.IST(model, torch.optim.SGD(model.parameters(), lr=0.1), layers=[("first", "norm", "second")])
    assert model(torch.ones(6, 4)).shape[1] == 2


@pytest.mark.parametrize(
    ("mix", "what"),
    [
        *((lambda x: x.softmax(1), "softmax"), (lambda x: x.mean(-3, keepdim=True).expand_as(x), "mean")),
        *((nn.Softmax(1), "Softmax"), (nn.GroupNorm(2, 8), "GroupNorm"), (nn.ChannelShuffle(2), "ChannelShuffle")),
        *((nn.LocalResponseNorm(2), "LocalResponseNorm"), (nn.AvgPool3d(1), "AvgPool3d")),
    ],
)
def test_channels_that_are_mixed_are_refused(mix: Any, what: str) -> None:
    message = refused(Mixed(mix, convolution=True), ("first", "norm", "second"))
    assert f"={what}" in message
    assert "layer=first" in message


class Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem, self.norm0 = nn.Linear(4, 8), nn.BatchNorm1d(8)
        self.up, self.norm1, self.down = nn.Linear(8, 12), nn.BatchNorm1d(12), nn.Linear(12, 8)
        self.norm2, self.head = nn.BatchNorm1d(8), nn.Linear(8, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.norm0(self.stem(x))
        x = x + self.down(F.relu(self.norm1(self.up(x))))
        return self.head(self.norm2(x))


class Crossing(nn.Module):
    """Hidden neurons of a block, as many as its features, that `join` combines with something else."""

    def __init__(self, join: Any) -> None:
        super().__init__()
        self.norm0, self.attention = nn.LayerNorm(8), nn.MultiheadAttention(8, 2, batch_first=True)
        self.first, self.norm, self.second = nn.Linear(8, 8), nn.BatchNorm1d(8), nn.Linear(8, 2)
        self.register_buffer("factor", torch.ones(8))
        self.join = join

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.norm0(x)
        return self.second(self.join(self, x, F.relu(self.norm(self.first(x)))))


@pytest.mark.parametrize(
    "join",
    [
        *(lambda _, x, h: x + h, lambda _, x, h: F.relu(x) * h, lambda m, _, h: h * m.factor),
        lambda m, x, h: h + m.attention(x, x, x)[0],
    ],
)
def test_neurons_that_are_combined_with_as_many_features_are_refused(join: Any) -> None:
    message = refused(Crossing(join), ("first", "norm", "second"))
    assert "they are combined with a value that is not cut" in message
    assert "layer=first" in message


def test_a_factor_of_each_point_combines_no_neurons() -> None:
    joinsum.init(sites=2)
    model = Crossing(lambda _, x, h: h * x.mean(1, keepdim=True))
    joinsum.IST(model, torch.optim.SGD(model.parameters(), lr=0.1), layers=[("first", "norm", "second")])
    assert model(torch.randn(6, 8)).shape == (6, 2)


def test_neurons_that_cross_a_residual_sum_are_refused() -> None:
    message = refused(Residual(), ("down", "norm2", "head"))
    assert "they cross a residual sum, and a module that the layer does not name computes them: module=stem" in message
    assert "layer=down" in message
    assert "layer=stem" in refused(Residual(), ("up", "norm1", "down"), ("stem", "norm0", "up"))


def test_layers_that_leave_out_a_module_of_their_neurons_are_refused() -> None:
    assert "computes them: module=value" in refused(gated({}), ("gate", "norm", "out"))
    assert "computes them: module=gate" in refused(gated({}), ("value", "norm", "out"))
    assert "has parameters of them: module=norm" in refused(
        gated({}), (["gate", "value"], (), "out"), unnormalised=True
    )
    assert "computes them: module=down" in refused(Residual(), ("stem", "norm0", ["up", "head"]))
    assert "reads them: module=up" in refused(Residual(), (["stem", "down"], ["norm0", "norm2"], "head"))
    assert "computes them: module=fc1" in refused(Classifier({}), ("conv", "norm", ["fc1", "fc2"]))


def test_neurons_that_reach_the_output_are_refused() -> None:
    class Both(Mixed):
        def forward(self, x: torch.Tensor) -> Any:
            hidden = self.norm(self.first(x))
            return self.second(hidden), hidden

    assert "they reach the output; leave it out of layers: layer=first" in refused(
        Both(None), ("first", "norm", "second")
    )


def test_tied_weights_are_refused() -> None:
    model = Residual()
    model.down = nn.Linear(12, 8)
    model.head = nn.Linear(8, 12)
    model.head.weight = model.up.weight
    assert "tied weights" in refused(model, ("up", "norm1", "down"))


@pytest.fixture
def process_group() -> Iterator[None]:
    """Of this process alone, beside loopback sites."""
    joinsum.init(sites=2)
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.mark.usefixtures("process_group")
def test_modules_in_other_ways_to_distribute_are_refused() -> None:
    from torch.distributed.fsdp import fully_shard

    def made(wrap: Callable[[nn.Module], nn.Module]) -> nn.Sequential:
        return nn.Sequential(wrap(nn.Linear(4, 8)), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 2))

    in_ddp = made(nn.parallel.DistributedDataParallel)
    for layers in ("auto", [("0.module", "1", "3")]):
        with pytest.raises(joinsum.PlanError, match="module=0, kind=DistributedDataParallel"):
            joinsum.IST(in_ddp, torch.optim.SGD(in_ddp.parameters(), lr=0.1), layers=layers)
    mesh = dist.init_device_mesh("cpu", (1,))
    in_fsdp = made(lambda module: fully_shard(module, mesh=mesh))
    whole = fully_shard(made(lambda module: module), mesh=mesh)
    for model, name in ((in_fsdp, "0"), (whole, "the model")):
        for layers in ("auto", [("0", "1", "3")]):
            with pytest.raises(joinsum.PlanError, match=f"module={name}, kind=FSDPModule"):
                joinsum.IST(model, torch.optim.SGD(model.parameters(), lr=0.1), layers=layers)


def test_modules_that_joinsum_has_distributed_are_refused() -> None:
    joinsum.init(sites=2)
    model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 2))
    joinsum.distribute(model[0], torch.ones(6, 4))
    for layers in ("auto", [("0", "1", "3")]):
        with pytest.raises(joinsum.PlanError, match=r"distributed already: module=0; joinsum.gather"):
            joinsum.IST(model, torch.optim.SGD(model.parameters(), lr=0.1), layers=layers)
