"""Attention of shards of queries and keys, by the processor's kernels, beside the softmax written out."""

import itertools
import math
from collections.abc import Callable

import joinsum
import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention
from training import CUTTING, divided, same, sgd

ops = torch.ops.joinsum

# Factors of an axis of twelve elements, and offset and extent of a shard along each.
SHARDS: dict[str, tuple[list[int], list[int], list[int]]] = {
    "all": ([0], [12], [12]),
    "first": ([0], [5], [12]),
    "middle": ([3], [4], [12]),
    "last": ([11], [1], [12]),
    "all of two factors": ([0, 0], [3, 4], [3, 4]),
    "rows of two factors": ([1, 0], [2, 4], [3, 4]),
    "columns of two factors": ([0, 1], [3, 2], [3, 4]),
    "of three factors": ([1, 0, 1], [1, 2, 2], [2, 2, 3]),
    "runs of three factors": ([0, 1, 0], [2, 1, 3], [2, 2, 3]),
}


def shard(name: str) -> list[int]:
    offsets, local, extents = SHARDS[name]
    return [*offsets, *local, *extents]


def shard_indices(shard: list[int]) -> Tensor:
    """Global indices of the elements of a shard of an axis."""
    count = len(shard) // 3
    offsets, local, extents = (shard[each * count : (each + 1) * count] for each in range(3))
    whole = torch.arange(math.prod(extents)).view(extents)
    for axis, (offset, size) in enumerate(zip(offsets, local, strict=True)):
        whole = whole.narrow(axis, offset, size)
    return whole.flatten()


def written_out(query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
    """Causal attention of heads that may share keys, and the logarithms of its softmax's denominators."""
    key, value = (x.repeat_interleave(query.shape[1] // x.shape[1], 1) for x in (key, value))
    scores = query @ key.mT * 0.3
    later = torch.arange(key.shape[2]) > torch.arange(query.shape[2]).unsqueeze(1)
    scores = scores.masked_fill(later, -torch.inf)
    return scores.softmax(-1) @ value, scores.logsumexp(-1)


def operands(keys: int = 12) -> list[Tensor]:
    torch.manual_seed(0)
    shapes = [(2, 4, 12, 8), (2, 2, keys, 8), (2, 2, keys, 8)]
    return [torch.randn(shape, dtype=torch.float64) for shape in shapes]


@pytest.mark.parametrize("keys", [12, 4, 15])
@pytest.mark.parametrize("name", SHARDS)
def test_a_shard_of_queries_attends_to_the_keys_up_to_each_index(name: str, keys: int) -> None:
    query, key, value = operands(keys)
    indices = shard_indices(shard(name))
    found = ops.attention(query[:, :, indices], key, value, None, True, 0.3, shard(name))
    for x, y in zip(found, written_out(query, key, value), strict=True):
        torch.testing.assert_close(x, y[:, :, indices], rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize(("rows", "columns"), list(itertools.product(SHARDS, SHARDS)))
def test_gradients_of_shards_are_those_of_the_scores_between_them(rows: str, columns: str) -> None:
    """The gradients of the scores outside of the shards are left out."""
    query, key, value = operands()
    out, lse = written_out(query, key, value)
    grad = torch.randn_like(out)
    own, others = shard_indices(shard(rows)), shard_indices(shard(columns))
    found = ops.attention_backward(
        *(x[:, :, own] for x in (grad, query)),
        *(x[:, :, others] for x in (key, value)),
        *(x[:, :, own] for x in (out, lse)),
        *(None, True, 0.3, shard(rows), shard(columns)),
    )
    heads = [x[:, :, others].repeat_interleave(2, 1) for x in (key, value)]
    weights = (query[:, :, own] @ heads[0].mT * 0.3 - lse[:, :, own].unsqueeze(-1)).exp()
    weights = weights.masked_fill(others > own.unsqueeze(1), 0)
    slope = grad[:, :, own] @ heads[1].mT - (grad * out)[:, :, own].sum(-1, keepdim=True)
    slope = slope * weights * 0.3
    wanted = [slope @ heads[0], slope.mT @ query[:, :, own], weights.mT @ grad[:, :, own]]
    wanted[1:] = [x.unflatten(1, (2, 2)).sum(2) for x in wanted[1:]]
    for x, y in zip(found, wanted, strict=True):
        torch.testing.assert_close(x, y, rtol=1e-10, atol=1e-12)


def test_undivided_attention_is_one_flash_call() -> None:
    query, key, value = operands()
    with torch.profiler.profile() as profile:
        found = ops.attention(query, key, value, None, True)
        ops.attention_backward(found[0], query, key, value, *found, None, True)
    counts = {each.key: each.count for each in profile.key_averages()}
    flash = "aten::_scaled_dot_product_flash_attention_for_cpu"
    assert (counts[flash], counts[f"{flash}_backward"]) == (1, 1)
    for x, y in zip(
        found, torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(*operands(), 0.0, True), strict=True
    ):
        assert torch.equal(x, y)


def test_a_shard_of_keys_that_the_mask_leaves_out_adds_nothing() -> None:
    query, key, value = operands()
    mask = torch.zeros(12, 12, dtype=torch.float64)
    mask[3] = -torch.inf
    mask[5, :6] = -torch.inf
    scores = query @ key.repeat_interleave(2, 1).mT * 8**-0.5 + mask
    lse = scores.logsumexp(-1)
    out = scores.softmax(-1).nan_to_num(0) @ value.repeat_interleave(2, 1)
    found = ops.attention_backward(out, query, key[:, :, :6], value[:, :, :6], out, lse, mask[:, :6])
    assert all(x.isfinite().all() for x in found)
    assert not found[0][:, :, [3, 5]].any()


class Trained(nn.Module):
    """Attention of one head whose operands are trained."""

    def __init__(self, causal: bool) -> None:
        super().__init__()
        self.causal = causal
        torch.manual_seed(0)
        self.query, self.key, self.value = (nn.Parameter(torch.randn(1, 1, 50, 8)) for _ in range(3))

    def forward(self) -> Tensor:
        return scaled_dot_product_attention(self.query, self.key, self.value, is_causal=self.causal)


class Attention(nn.Module):
    def __init__(self, causal: bool) -> None:
        super().__init__()
        self.causal = causal

    def forward(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        return scaled_dot_product_attention(query, key, value, is_causal=self.causal)


def half_squares(result: Tensor, target: Tensor) -> Tensor:
    return (result - target).square().sum() / 2


@pytest.mark.parametrize("sites", [2, 3, 4])
@pytest.mark.parametrize("causal", [False, True])
def test_a_step_of_one_head_divided_by_sequence_is_torchs(causal: bool, sites: int) -> None:
    joinsum.init(sites=sites, cluster=CUTTING, plan_cache=False)
    torch._dynamo.reset()
    plain, model, target = Trained(causal), Trained(causal), torch.randn(1, 1, 50, 8)
    optimizer = sgd(plain.parameters())
    step = joinsum.train_step(model, half_squares, sgd(model.parameters()))
    for _ in range(3):
        loss = half_squares(plain(), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        torch.testing.assert_close(step(target), loss.detach(), rtol=1e-5, atol=1e-5)
    plan = str(step.captured(target).planned.choice.plan)
    assert "joinsum::attention;" in plan, plan
    assert "joinsum::attention_backward;" in plan, plan
    assert "query" in divided(model)
    step.sync()
    same(model, plain, 1e-5)


@pytest.mark.parametrize("sites", [2, 3, 4])
@pytest.mark.parametrize("causal", [False, True])
def test_distributed_attention_of_one_head_is_torchs(causal: bool, sites: int) -> None:
    joinsum.init(sites=sites, cluster=CUTTING, plan_cache=False)
    torch._dynamo.reset()
    inputs = tuple(torch.randn(1, 1, 50, 8) for _ in range(3))
    model = joinsum.distribute(Attention(causal), inputs)
    with torch.no_grad():
        torch.testing.assert_close(model(*inputs), Attention(causal)(*inputs), rtol=1e-5, atol=1e-5)


def of_shards(operands: list[Tensor], rows: str, columns: str) -> tuple[Tensor, Tensor]:
    """Attention of a shard of queries to a shard of keys: its share of the whole, and the logarithms."""
    own, others = shard_indices(shard(rows)), shard_indices(shard(columns))
    query, key, value = operands
    _, lse = written_out(query, key, value)
    given = query[:, :, own], key[:, :, others], value[:, :, others]
    options = None, True, 0.3, shard(rows), shard(columns)
    part = ops.attention_lse(*given, *options, query.dtype)
    return ops.attention_of(*given, lse[:, :, own], *options), part


@pytest.mark.parametrize(("rows", "columns"), list(itertools.product(SHARDS, SHARDS)))
def test_shards_of_keys_give_their_share_of_the_attention(rows: str, columns: str) -> None:
    query, key, value = operands()
    own, others = shard_indices(shard(rows)), shard_indices(shard(columns))
    out, lse = of_shards([query, key, value], rows, columns)
    heads = [x[:, :, others].repeat_interleave(2, 1) for x in (key, value)]
    scores = query[:, :, own] @ heads[0].mT * 0.3
    scores = scores.masked_fill(others > own.unsqueeze(1), -torch.inf)
    torch.testing.assert_close(lse, scores.logsumexp(-1), rtol=1e-10, atol=1e-12)
    weights = (scores - written_out(query, key, value)[1][:, :, own].unsqueeze(-1)).exp()
    torch.testing.assert_close(out, weights @ heads[1], rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("boolean", [False, True])
def test_masked_shards_of_keys_add_up_to_the_attention(dtype: torch.dtype, boolean: bool) -> None:
    query, key, value = (x.to(dtype) for x in operands(300))
    keep = torch.rand(12, 300) > 0.3
    keep[3] = False
    keep[5, :150] = False
    mask = keep if boolean else torch.zeros(12, 300, dtype=dtype).masked_fill(~keep, -torch.inf)
    scores = query.double() @ key.double().repeat_interleave(2, 1).mT * 8**-0.5
    scores = scores.masked_fill(~keep, -torch.inf)
    wanted = scores.softmax(-1).nan_to_num(0) @ value.double().repeat_interleave(2, 1)
    lse = torch.full((2, 4, 12), -torch.inf, dtype=torch.float64 if dtype is torch.float64 else torch.float32)
    shards = [(key[:, :, some], value[:, :, some], mask[:, some]) for some in (slice(0, 150), slice(150, 300))]
    for k, v, m in shards:
        lse = torch.logaddexp(lse, ops.attention_lse(query, k, v, m, False, None, [], [], lse.dtype))
    parts = [ops.attention_of(query, k, v, lse, m, False, None, [], []) for k, v, m in shards]
    assert all(part.dtype is dtype and part.isfinite().all() for part in parts)
    tolerance = {torch.float64: 1e-10, torch.float32: 1e-5, torch.bfloat16: 2e-2}[dtype]
    torch.testing.assert_close(sum(parts).double(), wanted, rtol=tolerance, atol=tolerance)
    torch.testing.assert_close(lse.double(), scores.logsumexp(-1), rtol=tolerance, atol=tolerance)


def test_long_shards_of_keys_are_attended_to_by_tiles() -> None:
    torch.manual_seed(0)
    query, key, value = (torch.randn(1, 2, extent, 32) for extent in (900, 1300, 1300))
    whole, whole_lse = ops.attention(query, key, value)
    shards = [(key[:, :, some], value[:, :, some]) for some in (slice(0, 700), slice(700, 1300))]
    options = None, False, None, [], []
    lse = torch.logaddexp(*(ops.attention_lse(query, k, v, *options, torch.float32) for k, v in shards))
    torch.testing.assert_close(lse, whole_lse, rtol=1e-5, atol=1e-5)
    parts = [ops.attention_of(query, k, v, lse, *options) for k, v in shards]
    torch.testing.assert_close(parts[0] + parts[1], whole, rtol=1e-5, atol=1e-5)


# --- operators for GPUs -----------------------------------------------------------------------------------------------

aten = torch.ops.aten


def flash(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, causal: bool) -> Tensor:
    result: Tensor = aten._scaled_dot_product_flash_attention(query, key, value, 0.0, causal)[0]
    return result


def efficient(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, causal: bool) -> Tensor:
    result: Tensor = aten._scaled_dot_product_efficient_attention(query, key, value, mask, True, 0.0, causal)[0]
    return result


def cudnn(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, causal: bool) -> Tensor:
    result: Tensor = aten._scaled_dot_product_cudnn_attention(query, key, value, mask, True, 0.0, causal)[0]
    return result


# torch's CPU build cannot choose these operators, so they are called by name.
@pytest.mark.parametrize("sites", [1, 2, 3])
@pytest.mark.parametrize(
    ("attention", "masked", "causal"),
    [
        (flash, False, False),
        (flash, False, True),
        (efficient, False, True),
        (efficient, True, False),
        (cudnn, False, True),
        (cudnn, True, False),
    ],
)
def test_operators_for_gpus_are_captured_as_attention(
    attention: Callable[..., Tensor], masked: bool, causal: bool, sites: int
) -> None:
    joinsum.init(sites=sites, cluster=CUTTING, plan_cache=False)
    torch._dynamo.reset()
    torch.manual_seed(0)
    given = [torch.randn(2, 4, 6, 8, dtype=torch.float64, requires_grad=True) for _ in range(3)]
    mask = torch.randn(2, 1, 6, 6, dtype=torch.float64).expand(2, 4, 6, 6) if masked else None
    wanted = scaled_dot_product_attention(*given, attn_mask=mask, is_causal=causal)
    found = torch.compile(attention, backend="joinsum")(*given, mask, causal)
    torch.testing.assert_close(found, wanted, rtol=1e-10, atol=1e-10)
    above = torch.randn_like(wanted)
    gradients = [torch.autograd.grad(result, given, above) for result in (found, wanted)]
    for x, y in zip(*gradients, strict=True):
        torch.testing.assert_close(x, y, rtol=1e-10, atol=1e-10)


def test_dropout_in_an_operator_for_gpus_is_refused_by_name() -> None:
    joinsum.init(sites=2, plan_cache=False)
    torch._dynamo.reset()
    query = torch.randn(2, 4, 6, 8)
    call = joinsum.compile(lambda x: aten._scaled_dot_product_flash_attention(x, x, x, 0.5)[0])
    with pytest.raises(joinsum.CaptureError, match=r"dropout inside.*_scaled_dot_product_flash_attention"):
        call(query)
