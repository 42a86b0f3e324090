"""What `explain` tells of plans that people make by hand, for models and training steps; against closed forms.

An all-reduce of e elements on s sites sends 2 (s - 1) e of them, whichever way the sites share it.
"""

from __future__ import annotations

import itertools
from dataclasses import replace

import joinsum
import pytest
import torch
from closed_forms import BYTES, CLUSTER, all_reduces, layers
from joinsum.explanation.model_text import Pass, layout_text
from joinsum.planner.baseline_costs import PricedBaseline
from torch import nn
from training import EVERYTHING

KINDS = ["data parallel", "fully sharded data parallel", "tensor parallel", "sequence split", "replicate all"]


def step_of(model: nn.Sequential, batch: int, sites: int, cluster: joinsum.Cluster = CLUSTER) -> Pass:
    """The explanation of a step, compared with baselines."""
    joinsum.init(sites=sites, cluster=cluster, plan_cache=False)
    step = joinsum.train_step(model, nn.functional.mse_loss, torch.optim.SGD(model.parameters(), lr=0.1))
    x, y = torch.rand(batch, model[0].in_features), torch.rand(batch, model[-1].out_features)
    return step.explain(x, y, baselines=True).passes[0]


def by_name(told: Pass) -> dict[str, PricedBaseline]:
    return {each.name: each for each in told.baselines}


def cuts(found: PricedBaseline) -> dict[str, str]:
    assert found.plan is not None
    return {name: layout_text(type_) for name, type_ in found.plan.inputs.items()}


def assert_never_worse(told: Pass) -> None:
    chosen = told.explanation.cost.seconds
    for each in told.baselines:
        assert each.cost is not None, each
        assert each.loses == each.cost.seconds - chosen
        assert each.loses >= -1e-9 * chosen, each.name


@pytest.mark.parametrize("sites", [2, 3, 4])
def test_with_a_large_batch_data_parallelism_is_as_good_as_the_choice(sites: int) -> None:
    model = layers(48, 36, 24)
    told = step_of(model, 6144, sites)
    assert [each.name for each in told.baselines] == KINDS
    assert_never_worse(told)
    found = by_name(told)
    weights = sum(p.numel() for p in model.parameters())
    for name in ("data parallel", "fully sharded data parallel"):
        cost = found[name].cost
        assert cost is not None
        # The loss is the sum of a scalar for each block.
        assert 0 <= cost.wire_bytes - all_reduces(weights, sites) <= (sites - 1) * sites * sites * BYTES
        assert cost.seconds == pytest.approx(told.explanation.cost.seconds, rel=1e-3)
    assert found["tensor parallel"].cost.seconds > 1.005 * told.explanation.cost.seconds
    assert "data parallel" in str(told).split("\nbaselines\n")[1]


@pytest.mark.parametrize("sites", [2, 3, 4])
def test_with_a_small_batch_and_wide_layers_tensor_parallelism_is_the_best_by_hand(sites: int) -> None:
    batch, width = 6, 768
    told = step_of(layers(width, width, width), batch, sites)
    assert_never_worse(told)
    found = by_name(told)
    best = min(told.baselines, key=lambda each: each.cost.seconds)
    assert best.name == "tensor parallel"
    # Partial sums of the last product go to all sites; the first one's gradients are reduced on each site.
    assert 0 <= best.cost.wire_bytes - all_reduces(batch * width, sites) <= (sites - 1) * sites * sites * BYTES
    # New weights go to all sites, each from the site that computed it.
    assert found["data parallel"].cost.wire_bytes >= (sites - 1) * 2 * width * width * BYTES


def test_each_plan_made_by_hand_starts_as_its_name_says() -> None:
    told = step_of(layers(64, 96, 32), 16, 4)
    starts = {each.name: cuts(each) for each in told.baselines}
    data = {"input": "f32[16{}, 64{}]", "target": "f32[16{}, 32{}]"}
    weights = {"0.weight": "f32[96{}, 64{}]", "2.weight": "f32[32{}, 96{}]"}
    parts = {
        "data parallel": {"input": ("/4", ""), "target": ("/4", "")},
        "fully sharded data parallel": {
            "input": ("/4", ""),
            "target": ("/4", ""),
            "0.weight": ("/4", ""),
            "2.weight": ("", "/4"),
        },
        "tensor parallel": {"0.weight": ("/4", ""), "2.weight": ("", "/4")},
        # The target's second axis is of another length.
        "sequence split": {"input": ("", "/4")},
        "replicate all": {},
    }
    for kind, cut in parts.items():
        for name, text in (data | weights).items():
            want = text.format(*cut[name]) if name in cut else text.format("", "") + ", 4 copies"
            assert starts[kind][name] == want, (kind, name)
    assert by_name(told)["replicate all"].cost.wire_bytes == 0


class Block(nn.Module):
    """Attention and a feed-forward part around a stream of width 32."""

    def __init__(self) -> None:
        super().__init__()
        self.mix, self.out = nn.Linear(32, 96, bias=False), nn.Linear(32, 32, bias=False)
        self.up, self.down = nn.Linear(32, 64), nn.Linear(64, 32)
        self.norm = nn.LayerNorm(32)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = (y.unflatten(-1, (8, 4)).transpose(1, 2) for y in self.mix(self.norm(x)).chunk(3, -1))
        x = x + self.out(nn.functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))
        return x + self.down(nn.functional.gelu(self.up(x)))


@pytest.mark.parametrize(
    ("batch", "sites"), list(itertools.product([8, 64], [4, 8])) if EVERYTHING else [(8, 8), (64, 4)]
)
def test_the_choice_for_a_transformer_is_never_worse_than_the_baselines(sites: int, batch: int) -> None:
    joinsum.init(sites=sites, cluster=joinsum.Cluster("described", 1e11, 1e9, 1e-6), plan_cache=False)
    blocks = 2 if EVERYTHING or sites < 8 else 1
    model = nn.Sequential(nn.Embedding(48, 32), *(Block() for _ in range(blocks)), nn.Linear(32, 48))
    step = joinsum.train_step(
        model,
        lambda scores, target: nn.functional.cross_entropy(scores.flatten(0, 1), target.flatten()),
        torch.optim.AdamW(model.parameters()),
    )
    ids = torch.randint(48, (batch, 16))
    told = step.explain(ids, ids, baselines=True).passes[0]
    assert_never_worse(told)
    # The width of the residual stream is undivided; heads, hidden features and the vocabulary are divided.
    cut = cuts(by_name(told)["tensor parallel"])
    assert cut["1.up.weight"] == f"f32[64/{sites}, 32]"
    assert cut["1.down.weight"] == f"f32[32, 64/{sites}]"
    assert cut["1.norm.weight"] == f"f32[32], {sites} copies"
    assert cut["0.weight"] == f"f32[48/{sites}, 32]"


def test_the_choice_for_a_step_of_many_operators_is_never_worse_than_the_baselines() -> None:
    joinsum.init(sites=4, cluster=joinsum.Cluster("described", 1e11, 1e9, 1e-6), plan_cache=False)
    model = nn.Sequential(nn.Embedding(48, 32), *(Block() for _ in range(5)), nn.Linear(32, 48))
    step = joinsum.train_step(
        model,
        lambda scores, target: nn.functional.cross_entropy(scores.flatten(0, 1), target.flatten()),
        torch.optim.AdamW(model.parameters()),
    )
    ids = torch.randint(48, (8, 16))
    told = step.explain(ids, ids, baselines=True).passes[0]
    assert len(told.explanation.plan.core.nodes) > 500
    assert_never_worse(told)


def test_a_plan_that_cannot_be_says_why() -> None:
    told = step_of(layers(64, 96, 32), 2, 4)
    found = by_name(told)["data parallel"]
    assert (found.plan, found.cost, found.loses) == (None, None, None)
    assert found.reason == "input is not to be cut for 4 sites along axis 0"
    assert f"none: {found.reason}" in str(told)
    joinsum.init(sites=1)
    told = step_of(layers(8, 4), 4, 1)
    assert {each.reason for each in told.baselines} == {"there is one site"}


def test_plans_that_do_not_fit_a_sites_memory_are_none() -> None:
    told = step_of(layers(768, 768, 768), 6, 4, replace(CLUSTER, memory_bytes=3_000_000))
    assert told.explanation.cost.peak_bytes <= 3_000_000
    found = by_name(told)
    assert found["tensor parallel"].cost.peak_bytes <= 3_000_000
    for name in ("data parallel", "replicate all"):
        assert found[name].plan is None
        assert "memory" in found[name].reason


def test_a_model_is_told_in_both_passes_and_without_gradients_in_one() -> None:
    joinsum.init(sites=4, cluster=CLUSTER, plan_cache=False)
    model, x = layers(16, 32, 8), torch.rand(64, 16)
    told = joinsum.explain(model, x, baselines=True)
    assert [each.name for each in told.passes] == ["forward", "backward"]
    assert [each.name for each in told.passes[0].baselines] == KINDS
    assert_never_worse(told.passes[0])
    assert told.passes[1].baselines == ()
    # Two products forward; backward one for each weight, and one for the hidden layer.
    products = [sum(each.what.startswith("einsum") for each in found.vertices) for found in told.passes]
    assert products == [2, 3]
    assert joinsum.explain(model, x).passes[0].baselines == ()
    with torch.no_grad():
        assert [each.name for each in joinsum.explain(model, x).passes] == ["forward"]
    distributed = joinsum.distribute(model, x)
    assert [each.name for each in joinsum.explain(distributed, x).passes] == ["forward", "backward"]


def test_baselines_are_of_models_alone() -> None:
    with pytest.raises(joinsum.PlanError, match="baselines are those of models, functions and training steps"):
        joinsum.explain(joinsum.parse("tra\ninput X: f32[4]<2>\noutput Y = X"), baselines=True)


@pytest.mark.parametrize("shape", [(5, 1), (4, 3, 1, 1)])
def test_baselines_of_operators_that_change_nothing(shape: tuple[int, ...]) -> None:
    """The mean of one element is that element, an input of the plan, which a baseline places."""
    joinsum.init(sites=2, plan_cache=False)
    torch._dynamo.reset()
    x = torch.randn(shape)
    found = torch.compile(lambda x: x - x.mean(-1, keepdim=True) / 2, backend="joinsum", fullgraph=True)(x)
    joinsum.init()
    torch.testing.assert_close(found, x / 2)
