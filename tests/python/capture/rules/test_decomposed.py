"""Softmax, norms and attention: decomposed where their mixed axes are divided between sites, else undecomposed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import joinsum
import pytest
import torch
import torch.nn.functional as F
from capture_by_torch import Captured
from functorch.compile import aot_function, default_partition, make_boxed_func
from joinsum.capture.captured_graph import CapturedGraph
from joinsum.capture.executable import compile_fx
from torch import Tensor, nn
from training import CUTTING, divided, same, sgd

Function = Callable[..., Tensor]


@pytest.fixture(autouse=True)
def afterwards_one_site() -> Iterator[None]:
    yield
    joinsum.init()


def drawn(*shapes: tuple[int, ...]) -> list[Tensor]:
    torch.manual_seed(0)
    return [torch.randn(shape) for shape in shapes]


# Operators whose only axes are those that they mix, and calls of their decompositions, forward and backward.
CASES: dict[str, tuple[Function, list[tuple[int, ...]], str, str]] = {
    "softmax": (lambda x: F.softmax(x, -1), [(1, 1536)], "softmax_total", "softmax_slope"),
    "log_softmax": (lambda x: F.log_softmax(x, 0), [(1536, 1)], "softmax_total", "log_softmax_grad_of"),
    "layer_norm": (
        lambda x, w, b: F.layer_norm(x, (24, 64), w, b),
        [(24, 64)] * 3,
        "centred_squares",
        "layer_norm_slopes",
    ),
    "layer_norm_plain": (lambda x: F.layer_norm(x, (1536,)), [(1536,)], "centred_squares", "layer_norm_slopes"),
    "rms_norm": (
        lambda x, w: torch.ops.joinsum.rms_norm(x, (24, 64), w, 1e-5)[0],
        [(24, 64)] * 2,
        "rms_norm_squares",
        "rms_norm_slope",
    ),
    "rms_norm_plain": (
        lambda x: torch.ops.joinsum.rms_norm(x, (1536,), None, 1e-5)[0],
        [(1536,)],
        "rms_norm_squares",
        "rms_norm_slope",
    ),
    "batch_norm": (
        lambda x, w, b: F.batch_norm(x, None, None, w, b, True),
        [(12, 1, 16, 16), (1,), (1,)],
        "centred_squares",
        "batch_norm_slopes",
    ),
    "attention_keys": (
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v),
        [(1, 1, 1, 8), (1, 1, 96, 8), (1, 1, 96, 8)],
        "attention_lse",
        "attention_backward",
    ),
    "attention_queries": (
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v),
        [(1, 1, 96, 8), (1, 1, 1, 8), (1, 1, 1, 8)],
        "attention",
        "attention_backward",
    ),
    "attention_causal": (
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=0.3),
        [(1, 1, 48, 8)] * 3,
        "attention",
        "attention_backward",
    ),
    "attention_grouped": (
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True),
        [(1, 5, 48, 8), (1, 1, 48, 8), (1, 1, 48, 8)],
        "attention",
        "attention_backward",
    ),
    "attention_grouped_masked": (
        lambda q, k, v, m: F.scaled_dot_product_attention(q, k, v, attn_mask=m.detach(), enable_gqa=True),
        [(1, 5, 1, 8), (1, 1, 96, 8), (1, 1, 96, 8), (1, 5, 1, 96)],
        "attention",
        "attention_backward",
    ),
    "attention_masked": (
        lambda q, k, v, m: F.scaled_dot_product_attention(q, k, v, attn_mask=m.detach()),
        [(1, 1, 48, 8)] * 3 + [(48, 48)],
        "attention",
        "attention_backward",
    ),
}


# Calls on shards of mixed axes.
STEPS = [name for *_, forward, backward in CASES.values() for name in (forward, backward)]
STEPS = [name for name in STEPS if name not in ("attention", "attention_backward")]


def gradients(function: Function, tensors: Sequence[Tensor]) -> list[Tensor]:
    """The result, and the gradients of the tensors that have one."""
    given = [x.clone().requires_grad_() for x in tensors]
    result = function(*given)
    torch.manual_seed(1)
    result.backward(torch.randn(result.shape))
    return [result.detach(), *(x.grad for x in given if x.grad is not None)]


def plans(function: Function, tensors: Sequence[Tensor], sites: int, cluster: joinsum.Cluster) -> str:
    """The plans of the forward and the backward pass."""
    texts: list[str] = []

    def compiler(gm: torch.fx.GraphModule, inputs: Sequence[Tensor]) -> Callable[..., object]:
        executable = compile_fx(CapturedGraph(gm, inputs))
        texts.append(str(executable.planned.choice.plan))
        return make_boxed_func(gm.forward)

    joinsum.init(sites=sites, cluster=cluster, plan_cache=False)
    gradients(aot_function(function, fw_compiler=compiler, partition_fn=default_partition), tensors)
    return "\n".join(texts)


@pytest.mark.parametrize("sites", [2, 3, 4])
@pytest.mark.parametrize("name", CASES)
def test_an_operator_whose_mixed_axis_is_divided_gives_what_torch_gives(name: str, sites: int) -> None:
    function, shapes, *calls = CASES[name]
    tensors = drawn(*shapes)
    text = plans(function, tensors, sites, CUTTING)
    for call in calls:
        assert f"joinsum::{call};" in text, text
    torch._dynamo.reset()
    result = gradients(torch.compile(function, backend="joinsum", fullgraph=True), tensors)
    for x, y in zip(result, gradients(function, tensors), strict=True):
        torch.testing.assert_close(x, y, rtol=1e-5, atol=2e-5)


# Heads in groups of several, which sites divide alone.
IN_GROUPS = (CASES["attention_grouped"][0], [(2, 6, 5, 4), (2, 3, 5, 4), (2, 3, 5, 4)])


@pytest.mark.parametrize("name", [*CASES, "attention_groups"])
def test_results_of_all_shards_are_the_full_result(name: str) -> None:
    """Evaluation runs each call on shards along every letter, and undecomposed; double precision."""
    function, shapes, *_ = CASES.get(name, IN_GROUPS)
    tensors = [x.double() for x in drawn(*shapes)]
    captured = Captured()
    result = gradients(captured.of(function), tensors)
    calls = [vertex.call for program in captured.programs for vertex in program.vertices if vertex.call is not None]
    assert any(call.undecomposed for call in calls)
    for x, y in zip(result, gradients(function, tensors), strict=True):
        torch.testing.assert_close(x, y, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", CASES)
def test_an_operator_that_is_not_divided_runs_undecomposed(name: str) -> None:
    """On sites that one alone is faster than."""
    function, shapes, *_ = CASES[name]
    tensors = drawn(*shapes)
    text = plans(function, tensors, 4, joinsum.Cluster("fast sites, slow links", 1e12, 1e3, 1e-3))
    assert "call[" in text
    assert "undecomposed" not in text
    assert not [name for name in STEPS if f"joinsum::{name};" in text]


def test_rows_without_a_greatest_element_are_torchs() -> None:
    x = torch.full((1, 512), -torch.inf)
    y = torch.zeros(1, 512)
    y[0, 3], y[0, 400] = torch.nan, -torch.inf
    z = torch.zeros(1, 512)
    z[0, :300] = -torch.inf
    joinsum.init(sites=4, cluster=CUTTING, plan_cache=False)
    for given in (x, y, z):
        torch._dynamo.reset()
        run = torch.compile(lambda t: (F.softmax(t, -1), F.log_softmax(t, -1)), backend="joinsum", fullgraph=True)
        result = run(given)
        for each, wanted in zip(result, (F.softmax(given, -1), F.log_softmax(given, -1)), strict=True):
            torch.testing.assert_close(each, wanted, equal_nan=True)


def test_running_statistics_are_those_of_the_global_batch() -> None:
    joinsum.init(sites=4, cluster=CUTTING, plan_cache=False)
    torch.manual_seed(0)
    plain, model = nn.BatchNorm1d(1), nn.BatchNorm1d(1)
    run = torch.compile(model, backend="joinsum", fullgraph=True)
    torch._dynamo.reset()
    for _ in range(3):
        x = torch.randn(512, 1) * 3 + 5
        torch.testing.assert_close(run(x), plain(x), rtol=1e-5, atol=1e-5)
    same(model, plain, 1e-5)


def test_products_of_three_tensors_stand_beside_a_norm() -> None:
    """Forms with and without decomposition are compared by their work, of which products of two have one alone."""
    x, weight = drawn((4, 6), (3, 6, 6))

    def function(x: Tensor, weight: Tensor) -> Tensor:
        return torch.einsum("ab,cbd,ad->ac", F.layer_norm(x, (6,)), weight, x)

    joinsum.init(sites=2, cluster=CUTTING, plan_cache=False)
    torch._dynamo.reset()
    result = gradients(torch.compile(function, backend="joinsum", fullgraph=True), [x, weight])
    for one, other in zip(result, gradients(function, [x, weight]), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=2e-5)


# --- the vocabulary ---------------------------------------------------------------------------------------------------


class Tagger(nn.Module):
    """A table and a head, both of many words; few places."""

    def __init__(self, words: int, width: int) -> None:
        super().__init__()
        self.table, self.head = nn.Embedding(words, width), nn.Linear(width, words)

    def forward(self, ids: Tensor) -> Tensor:
        return self.head(self.table(ids))


WORDS, PLACES = 768, 3


@pytest.mark.parametrize("sites", [2, 3, 4])
def test_scores_of_words_remain_divided_by_word_from_the_head_to_the_update(sites: int) -> None:
    joinsum.init(sites=sites, cluster=joinsum.Cluster("slow links", 1e6, 1e6, 0.0), plan_cache=False)
    torch.manual_seed(0)
    plain, model = Tagger(WORDS, 16), Tagger(WORDS, 16)
    model.load_state_dict(plain.state_dict())
    data = [(torch.randint(WORDS, (PLACES,)), torch.randint(WORDS, (PLACES,))) for _ in range(4)]
    optimizer = sgd(plain.parameters())
    step = joinsum.train_step(model, F.cross_entropy, sgd(model.parameters()))
    for ids, target in data:
        loss = F.cross_entropy(plain(ids), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        torch.testing.assert_close(step(ids, target), loss.detach(), rtol=1e-5, atol=1e-6)
    assert {"head.weight", "table.weight"} <= set(divided(model))
    plan = joinsum.IaPlan(step.captured(*data[0]).planned.choice.plan)
    assert "joinsum::class_lse;" in str(plan), plan
    scores = 4 * PLACES * WORDS
    assert joinsum.cost(plan).wire_bytes < scores
    step.sync()
    same(model, plain, 1e-5)
