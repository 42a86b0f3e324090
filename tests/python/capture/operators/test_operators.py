"""Each row of the operator table against torch, on torch's own samples: values, gradients, and parts of what is free.

The samples of a row are those of the OpInfo that `operator_samples.json` names, or a function below.
"""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import joinsum
import pytest
import torch
from capture_by_torch import Captured, Planned
from joinsum.capture import table
from operator_samples import compare, op_infos, samples_of

SAMPLES = int(os.environ.get("JOINSUM_OPERATOR_SAMPLES", "2"))
SITES = [int(each) for each in os.environ.get("JOINSUM_OPERATOR_SITES", "3").split(",")]
OP_INFOS: dict[str, str] = json.loads((Path(__file__).parent / "operator_samples.json").read_text())
A = torch.ops.aten
J = torch.ops.joinsum
SHARD = ([0, 0], [4, 6], [4, 6])  # all of a matrix: offsets, local and global extents


def matrix() -> torch.Tensor:
    return torch.randn(4, 6, requires_grad=True)


def integers() -> torch.Tensor:
    return torch.arange(24).reshape(4, 6)


def images() -> torch.Tensor:
    return torch.randn(2, 3, 5, 4, requires_grad=True)


def grouped(x: torch.Tensor) -> torch.Tensor:
    pytest.importorskip("transformers.integrations.moe")
    weight = x.new_ones(3, 6, 5) * torch.arange(1, 4).view(3, 1, 1)
    result: torch.Tensor = torch.ops.transformers.grouped_mm_fallback(x, weight, torch.tensor([1, 1, 4]))
    return result


def in_groups(x: torch.Tensor) -> torch.Tensor:
    """Products by groups: of rows, of columns, of what is contracted, and batched."""
    ends = torch.tensor([8, 8, 16], dtype=torch.int32)
    stacked = torch.stack([x.T, x.T * 2, x.T * 3])
    by_rows = torch._grouped_mm(x, stacked, offs=ends)
    by_columns = torch._grouped_mm(stacked, torch.cat([x, x], 1), offs=ends)
    contracted = torch._grouped_mm(x.T, x, offs=ends)
    batched = torch._grouped_mm(stacked, stacked.transpose(1, 2))
    found = [by_rows, by_columns, contracted, batched]
    return torch.cat([each.square().flatten() for each in found])


def halves() -> torch.Tensor:
    return (torch.arange(16 * 8).reshape(16, 8) % 3 - 1).bfloat16().requires_grad_()


def volumes() -> torch.Tensor:
    return torch.randn(2, 3, 4, 5, 2, requires_grad=True)


def sampled(x: torch.Tensor) -> torch.Tensor:
    grid = x[:, :, 0, :3, :1].tanh().expand(-1, -1, -1, 3).unsqueeze(2)
    return torch.nn.functional.grid_sample(x, grid, align_corners=False)


def bag(x: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.embedding_bag(torch.arange(24).reshape(4, 6) % 4, x)


def attention(x: torch.Tensor) -> torch.Tensor:
    causal, plain = (
        torch.nn.functional.scaled_dot_product_attention(x, x * 2, x * 3, is_causal=causal) for causal in (True, False)
    )
    return causal + plain


def complex_numbers(x: torch.Tensor) -> torch.Tensor:
    return torch.complex(x, x * 2 + 1)


def positive(x: torch.Tensor) -> torch.Tensor:
    """A lower triangle with a positive diagonal."""
    return x[:, :4].tril() + 9 * torch.eye(4)


# Rows and columns of the entries of a sparse matrix.
def places() -> tuple[torch.Tensor, torch.Tensor]:
    return torch.arange(6) * 3 % 4, torch.arange(6) * 5 % 4


# What no OpInfo reaches: a function of one tensor, and the tensor.
def numbers() -> list[torch.Tensor]:
    """Learning rate, 1 - beta, eps, decay and step of an update."""
    return [torch.tensor(x) for x in (0.1, 0.2, 0.01, 1e-3, 0.3, 2.0)]


def read(x: torch.Tensor) -> torch.Tensor:
    """Rows of a table of four, as a lookup has them."""
    return (x > 100).long()[:, :1] + torch.tensor([[3], [0], [3], [2]])


DIRECT: dict[str, tuple[Callable[[torch.Tensor], Any], Callable[[], torch.Tensor]]] = {
    "joinsum::einsum": (lambda x: torch.ops.joinsum.einsum("ab,cb->ac", [x, x * 2]), matrix),
    "joinsum::einsum_graph": (
        lambda x: torch.ops.joinsum.einsum_graph(
            "einsum\ninput x: f32[4,6]\noutput z = einsum[ab,cb->ac; mul; add](x, x)", [x]
        )[0],
        matrix,
    ),
    "joinsum::dropout": (lambda x: J.dropout(x, (x > 100).sum(), 0.5, 3, *SHARD)[0], lambda: torch.randn(4, 6)),
    "joinsum::uniform": (lambda x: x * J.uniform((x > 100).sum(), 0, [4, 6], *SHARD, torch.float32), matrix),
    "joinsum::normal": (lambda x: x * J.normal((x > 100).sum(), 1, [4, 6], *SHARD, torch.float32), matrix),
    "joinsum::integers": (lambda x: x * J.integers((x > 100).sum(), 2, -3, 9, [4, 6], *SHARD, torch.int32), matrix),
    "joinsum::cross_entropy": (
        lambda x: sum(each.sum() for each in J.cross_entropy(x, (x > 0).sum(1) % 6, None, 1, 2)),
        lambda: torch.randn(4, 6),
    ),
    "joinsum::cross_entropy_backward": (
        lambda x: J.cross_entropy_backward(
            x[0, 0], x, (x > 0).sum(1) % 6, 2, *J.cross_entropy(x, (x > 0).sum(1) % 6, x[0].exp(), 2, 2)[1:]
        ),
        lambda: torch.randn(4, 6),
    ),
    "joinsum::attention": (lambda x: J.attention(x, x * 2, x * 3)[0], lambda: torch.randn(2, 3, 5, 4)),
    "joinsum::attention_backward": (
        lambda x: sum(J.attention_backward(x.exp(), x, x * 2, x * 3, *J.attention(x, x * 2, x * 3))),
        lambda: torch.randn(2, 3, 5, 4),
    ),
    "joinsum::fused": (
        lambda x: x * sum(J.fused([x.detach(), x[0].detach()], "mul x0 x1; add t0 0.5; exp t1 -> t1 t2 t0")),
        matrix,
    ),
    "joinsum::rms_norm": (lambda x: J.rms_norm(x, [6], x[0], 0.1)[0], matrix),
    "joinsum::rms_norm_grad_input": (lambda x: J.rms_norm(x, [6], None, 0.1)[0], matrix),
    "joinsum::rms_norm_grad_weight": (lambda x: J.rms_norm(x * 2, [6], x[0], 0.1)[0], matrix),
    "joinsum::resize": (
        lambda x: J.resize(x, [7, 4], "bilinear", False, None),
        lambda: torch.randn(2, 3, 5, 6),
    ),
    "joinsum::resize_backward": (
        lambda x: J.resize_backward(x, [2, 3, 4, 9], "nearest", False, None),
        lambda: torch.randn(2, 3, 5, 6),
    ),
    "joinsum::sparse_mm": (lambda x: J.sparse_mm(*places(), x[0] * x[1, 0], x, 5), matrix),
    "joinsum::sparse_mm_values": (
        lambda x: J.sparse_mm_values(*places(), (x * x[0, 0])[:, :4].exp(), x[:, 2:]),
        matrix,
    ),
    "joinsum::adam_update": (
        lambda x: sum(J.adam_update(x, x + 1, x * 2, x * x, *numbers(), True, False)),
        lambda: torch.randn(4, 6),
    ),
    "joinsum::amsgrad_update": (
        lambda x: sum(J.amsgrad_update(x, x + 1, x * 2, x * x, x.abs(), *numbers(), False, True)),
        lambda: torch.randn(4, 6),
    ),
    "joinsum::sgd_lookup_update": (
        lambda x: J.sgd_lookup_update(x, x[:, None].sin(), read(x), numbers()[0], 2, True),
        lambda: torch.randn(4, 6),
    ),
    "joinsum::adagrad_lookup_update": (
        lambda x: sum(J.adagrad_lookup_update(x, x * x, x[:, None].sin(), read(x), *numbers()[:2], 2, False)),
        lambda: torch.randn(4, 6),
    ),
    "joinsum::sparse_adam_lookup_update": (
        lambda x: sum(
            J.sparse_adam_lookup_update(x, x * 2, x * x, x[:, None].sin(), read(x), *numbers()[:4], -1, False)
        ),
        lambda: torch.randn(4, 6),
    ),
    "joinsum::checked": (
        lambda x: torch.where(torch.ops.joinsum.checked((x < 100).all(), "too large"), x, 0.0),
        matrix,
    ),
    "joinsum::checked_factors": (
        lambda x: x * torch.ops.joinsum.checked_factors(A.linalg_inv_ex(x[:, :4])[1], "inv", True),
        matrix,
    ),
    "aten::cholesky_inverse": (lambda x: torch.cholesky_inverse(positive(x)), matrix),
    "aten::cholesky_solve": (lambda x: torch.cholesky_solve(x, positive(x)), matrix),
    "aten::linalg_eig": (lambda x: x[0, :4] * A.linalg_eig(x[:, :4].detach())[0].abs(), matrix),
    "aten::special_zeta.other_scalar": (lambda x: x * torch.special.zeta(x.detach().abs() + 2, 1.5), matrix),
    "aten::special_zeta.self_scalar": (lambda x: x * torch.special.zeta(3.0, x.detach().abs() + 1), matrix),
    "aten::copysign.Scalar": (lambda x: torch.copysign(x, -1.0), matrix),
    "aten::_trilinear": (lambda x: torch.nn.functional.bilinear(x, x * 2, x.sin().reshape(1, 4, 6).mT @ x), matrix),
    **{
        f"aten::_upsample_{kind}2d_aa{end}": (
            lambda x, kind=kind: torch.nn.functional.interpolate(x, size=(3, 7), mode=kind, antialias=True),  # type: ignore[misc]
            images,
        )
        for kind in ("bilinear", "bicubic")
        for end in ("", "_backward")
    },
    **{
        f"aten::fractional_max_pool{rank}d{end}": (
            lambda x, rank=rank: getattr(A, f"fractional_max_pool{rank}d")(  # type: ignore[misc]
                x,
                [2] * rank,
                [2] * rank,
                torch.linspace(0, 0.9, x.shape[0] * x.shape[1] * rank).reshape(*x.shape[:2], rank),
            )[0],
            images if rank == 2 else lambda: torch.randn(2, 3, 4, 5, 4, requires_grad=True),
        )
        for rank in (2, 3)
        for end in ("", "_backward")
    },
    "aten::view_as_real": (lambda x: torch.view_as_real(complex_numbers(x)), matrix),
    "aten::angle": (lambda x: complex_numbers(x).angle(), matrix),
    "aten::_conj": (lambda x: (complex_numbers(x).conj() * complex_numbers(x)).real, matrix),
    "aten::_conj_physical": (lambda x: (A.conj_physical(complex_numbers(x)) * complex_numbers(x)).real, matrix),
    "aten::_neg_view": (lambda x: complex_numbers(x).conj().imag * x, matrix),
    "transformers::grouped_mm_fallback": (grouped, matrix),
    "transformers::grouped_mm_fallback_backward": (grouped, matrix),
    "prims::fma": (lambda x: torch.ops.prims.fma(x, x, x), lambda: torch.randn(4, 6)),
    "prims::convert_element_type": (
        lambda x: torch.ops.prims.convert_element_type(x, torch.float64),
        lambda: torch.randn(4, 6),
    ),
    "aten::_native_batch_norm_legit.no_stats": (
        lambda x: A._native_batch_norm_legit.no_stats(x, None, None, True, 0.1, 1e-5)[0],
        images,
    ),
    "aten::_weight_norm_interface": (lambda x: torch._weight_norm(x, torch.ones(4, 1)), matrix),
    "aten::_weight_norm_interface_backward": (lambda x: torch._weight_norm(x, torch.ones(1, 6), 1), matrix),
    "aten::_scaled_dot_product_flash_attention_for_cpu": (attention, images),
    "aten::_scaled_dot_product_flash_attention_for_cpu_backward": (attention, images),
    "aten::_embedding_bag": (bag, matrix),
    "aten::_embedding_bag_backward": (bag, matrix),
    "aten::as_strided_scatter": (
        lambda x: A.as_strided_scatter(x * 2, x[0, :4].reshape(2, 2), [2, 2], [6, 2], 1),
        matrix,
    ),
    "aten::_grouped_mm": (in_groups, halves),
    "aten::polygamma": (lambda x: A.polygamma(1, x.abs() + 1), matrix),
    "aten::norm.ScalarOpt_dim": (lambda x: torch.nn.functional.pairwise_distance(x, x.flip(0)), matrix),
    "aten::im2col": (lambda x: torch.nn.functional.unfold(x, (3, 2), stride=2, padding=1), images),
    "aten::col2im": (lambda x: torch.nn.functional.fold(x.flatten(2).repeat(1, 4, 1), (6, 5), 2), images),
    "aten::unfold_backward": (lambda x: x.unfold(1, 3, 2) ** 2, matrix),
    "aten::grid_sampler_3d": (sampled, volumes),
    "aten::grid_sampler_3d_backward": (sampled, volumes),
    "aten::index_fill.int_Tensor": (
        lambda x: A.index_fill.int_Tensor(x, 1, torch.tensor([1, 3]), x[0, 0].detach()),
        matrix,
    ),
    "aten::searchsorted.Tensor": (
        lambda x: A.searchsorted.Tensor(x.cumsum(1), x) + A.searchsorted.Tensor(x[0].cumsum(0), x, right=True),
        lambda: torch.rand(4, 6),
    ),
    "aten::all.dims": (lambda x: A.all.dims(x > -1, [0]), matrix),
    "aten::any.dims": (lambda x: A.any.dims(x > 1, [0]), matrix),
    "aten::arange.start": (lambda x: x + A.arange.start(2, 8), matrix),
    "aten::bitwise_and.Scalar": (lambda x: A.bitwise_and.Scalar(x, 3), integers),
    "aten::bitwise_or.Scalar": (lambda x: A.bitwise_or.Scalar(x, 3), integers),
    "aten::bitwise_xor.Scalar": (lambda x: A.bitwise_xor.Scalar(x, 3), integers),
    "aten::clamp_max": (lambda x: A.clamp_max(x, 0.3), matrix),
    "aten::diagonal_copy": (lambda x: A.diagonal_copy(x), matrix),
    "aten::diagonal_backward": (lambda x: torch.diagonal(x, 1).cos().diag_embed(), matrix),
    "aten::diag_embed": (lambda x: torch.diag_embed(x, 1), matrix),
    "aten::div.Scalar_mode": (lambda x: A.div.Scalar_mode(x, 3, rounding_mode="floor"), matrix),
    "aten::expand_copy": (lambda x: A.expand_copy(x, [2, 4, 6]), matrix),
    "aten::fill.Tensor": (lambda x: x + A.fill.Tensor(x, torch.tensor(3.0)), matrix),
    "aten::floor_divide.Scalar": (lambda x: A.floor_divide.Scalar(x, 3), integers),
    "aten::fmod.Scalar": (lambda x: A.fmod.Scalar(x, 0.4), matrix),
    "aten::heaviside": (lambda x: A.heaviside(x, x.detach()), lambda: torch.randn(4, 6)),
    "aten::histc": (lambda x: A.histc(x), lambda: torch.randn(4, 6)),
    "aten::_efficientzerotensor": (lambda x: A.sgn(x), matrix),
    "aten::_new_zeros_with_same_feature_meta": (
        lambda x: x + A._new_zeros_with_same_feature_meta(x.detach(), x.detach()),
        matrix,
    ),
    "aten::i0": (lambda x: A.i0(x), lambda: torch.randn(4, 6)),
    "aten::index_copy": (lambda x: A.index_copy(x, 1, torch.tensor([1, 3]), torch.ones(4, 2)), matrix),
    "aten::index_fill.int_Scalar": (lambda x: A.index_fill.int_Scalar(x, 1, torch.tensor([1, 3]), 2.0), matrix),
    "aten::masked_fill.Tensor": (lambda x: A.masked_fill.Tensor(x, x > 0, torch.tensor(2.0)), matrix),
    "aten::_safe_softmax": (lambda x: A._safe_softmax(x, 1), matrix),
    "aten::eye": (lambda x: x @ A.eye(6), matrix),
    "aten::eye.m": (lambda x: x @ A.eye.m(6, 4), matrix),
    "aten::max": (lambda x: A.max(x), matrix),
    "aten::min": (lambda x: A.min(x), matrix),
    "aten::min.dim": (lambda x: A.min.dim(x, 1)[0], matrix),
    "aten::median.dim": (lambda x: A.median.dim(x, 1)[0], matrix),
    "aten::scatter_reduce.two": (
        lambda x: A.scatter_reduce.two(x, 1, torch.tensor([[0, 2, 2]] * 4), x[:, :3] * 2, "amax"),
        matrix,
    ),
    "aten::squeeze.dims": (lambda x: A.squeeze.dims(x.unsqueeze(1), [1]) * 2, matrix),
    "aten::round.decimals": (lambda x: A.round.decimals(x, decimals=1), matrix),
    "aten::select_backward": (lambda x: A.select_backward(x, [4, 3, 6], 1, 2), matrix),
    "aten::unsafe_split.Tensor": (lambda x: A.unsafe_split.Tensor(x, 2, 1)[1], matrix),
    **{
        f"aten::{kind}_pad{rank}d{end}": (
            lambda x, kind=kind, rank=rank: torch.nn.functional.pad(  # type: ignore[misc]
                x, (1, 1, 2, 1, 0, 1)[: 2 * rank], mode="reflect" if kind == "reflection" else "replicate"
            ),
            (
                lambda rank=rank: (
                    volumes() if rank == 3 else images() if rank == 2 else images().flatten(2).detach().requires_grad_()
                )
            ),  # type: ignore[misc]
        )
        for kind in ("reflection", "replication")
        for rank in (1, 2, 3)
        for end in ("", "_backward")
    },
}

# Rows whose results are random or undefined: their shapes are compared, and shards with the full result.
UNDETERMINED = {
    "aten::native_dropout": (lambda x: torch.dropout(x, 0.5, True), matrix),
    "aten::native_dropout_backward": (lambda x: torch.dropout(x, 0.5, True), matrix),
    "aten::rand": (lambda x: A.rand([3, 4]), matrix),
    "aten::rand_like": (lambda x: A.rand_like(x), matrix),
    "aten::randn": (lambda x: A.randn([3, 4]), matrix),
    "aten::randn_like": (lambda x: A.randn_like(x), matrix),
    "aten::randint": (lambda x: A.randint(9, [3, 4]), matrix),
    "aten::randint.low": (lambda x: A.randint.low(3, 9, [3, 4]), matrix),
    "aten::bernoulli": (lambda x: torch.bernoulli(torch.sigmoid(x.detach())), matrix),
    "aten::bernoulli.p": (lambda x: A.bernoulli.p(x.detach(), 0.3), matrix),
    "aten::empty.memory_format": (lambda x: A.empty.memory_format([3, 4]), matrix),
    "aten::empty_like": (lambda x: A.empty_like(x), matrix),
    "aten::empty_permuted": (lambda x: A.empty_permuted([3, 4], [1, 0]), matrix),
    "aten::empty_strided": (lambda x: A.empty_strided([3, 4], [4, 1]), matrix),
    "aten::new_empty": (lambda x: A.new_empty(x, [3, 4]), matrix),
    "aten::new_empty_strided": (lambda x: A.new_empty_strided(x, [3, 4], [4, 1]), matrix),
}


@functools.cache
def of_op_info(name: str, sites: int, samples: int) -> frozenset[str]:
    """Compares samples of an OpInfo; the operators that occurred. Without sites they are evaluated."""
    seen: set[str] = set()
    for function, given in samples_of(op_infos()[name], samples):
        seen |= compare(function, given, Planned() if sites else Captured())
    return frozenset(seen)


def of_samples(row: str, sites: int) -> frozenset[str]:
    """The same for a row's OpInfo, with more samples where the row is not in the first ones."""
    seen = of_op_info(OP_INFOS[row], sites, SAMPLES)
    return seen if row in seen else of_op_info(OP_INFOS[row], sites, 4 * SAMPLES)


@pytest.mark.slow
@pytest.mark.parametrize("row", [row.name for row in table()])
def test_a_row_gives_what_torch_gives(row: str) -> None:
    torch.manual_seed(0)
    if row in UNDETERMINED:
        function, make = UNDETERMINED[row]
        captured, given = Captured(), make()
        found, expected = captured.of(function)(given), function(given)
        assert (found.shape, found.dtype) == (expected.shape, expected.dtype)
        if found.requires_grad:
            found.sum().backward()
        seen = captured.operators
    elif row in DIRECT:
        function, make = DIRECT[row]
        seen = compare(lambda x: [function(x)], [make()], Captured())
    else:
        seen = set(of_samples(row, 0))
    assert row in seen


@pytest.fixture
def sites(request: pytest.FixtureRequest) -> Iterator[int]:
    """Sites so slow and links so fast that even small tensors are divided."""
    joinsum.init(
        sites=request.param, cluster=joinsum.Cluster("slow sites, fast links", 1e6, 1e12, 1e-9), plan_cache=False
    )
    yield request.param
    joinsum.init()


# Rows of functions, which have one sample each, also run on one site.
@pytest.mark.slow
@pytest.mark.parametrize(
    ("row", "sites"),
    [
        (row.name, sites)
        for row in table()
        if row.name not in UNDETERMINED
        for sites in sorted({*SITES, *([1] if row.name in DIRECT else [])})
    ],
    indirect=["sites"],
)
def test_a_row_gives_what_torch_gives_on_the_sites(row: str, sites: int) -> None:
    torch.manual_seed(0)
    if row in DIRECT:
        function, make = DIRECT[row]
        seen = compare(lambda x: [function(x)], [make()], Planned())
    else:
        seen = set(of_samples(row, sites))
    assert row in seen


def test_every_row_has_samples_and_every_sample_a_row() -> None:
    names, sampled = {row.name for row in table()}, {*OP_INFOS, *DIRECT, *UNDETERMINED}
    place = "operator_samples.json, or DIRECT in test_operators.py, in tests/python/capture/operators"
    assert not names - sampled, f"name the OpInfo in {place}: rows without samples={sorted(names - sampled)}"
    assert not sampled - names, f"take them out of {place}: samples without a row={sorted(sampled - names)}"


def test_a_label_that_must_not_be_divided_is_found() -> None:
    """The check of parts fails where a rule says that a softmax does not mix its rows."""

    @torch.library.custom_op("joinsum_test::mixed", mutates_args=())
    def mixed(x: torch.Tensor) -> torch.Tensor:
        return torch.softmax(x, -1)

    @mixed.register_fake
    def _(x: torch.Tensor) -> torch.Tensor:
        return torch.empty_like(x)

    joinsum.register_operator("joinsum_test::mixed", "a b -> a b")
    try:
        with pytest.raises(AssertionError, match="on shards along"):
            Captured().of(torch.ops.joinsum_test.mixed)(torch.randn(4, 6))
        joinsum.unregister_operator("joinsum_test::mixed")
        joinsum.register_operator("joinsum_test::mixed", "a b -> a b", undivided="b")
        x = torch.randn(4, 6)
        torch.testing.assert_close(Captured().of(torch.ops.joinsum_test.mixed)(x), torch.softmax(x, -1))
    finally:
        joinsum.unregister_operator("joinsum_test::mixed")


@pytest.mark.parametrize("operator", [torch.ops.aten.any, torch.ops.aten.all])
def test_any_and_all_of_uint8_are_uint8(operator: torch._ops.OpOverloadPacket) -> None:
    x = torch.tensor([[1, 0, 3], [2, 0, 0]], dtype=torch.uint8)
    assert torch.equal(Captured().of(operator.dim)(x, 0), operator.dim(x, 0))
    assert torch.equal(Captured().of(operator.default)(x), operator.default(x))


def cross(x: torch.Tensor) -> torch.Tensor:
    return torch.linalg.cross(x, x * 2)


def test_an_operator_without_a_rule_is_refused_with_line_shapes_and_remedies() -> None:
    compiled = torch.compile(cross, backend=Captured().backend, fullgraph=True)
    with pytest.raises(Exception, match="linalg_cross") as raised:
        compiled(torch.ones(4, 3))
    message = str(raised.value)
    for part in ("test_operators.py", "torch.linalg.cross(x, x * 2)", "[4, 3]", "register_operator", "replicate="):
        assert part in message


def test_no_label_of_a_replicated_operator_is_divided() -> None:
    captured = Captured(replicate=["aten::linalg_cross"])
    x = torch.randn(4, 3)
    torch.testing.assert_close(captured.of(cross)(x), cross(x))
    calls = [vertex.call for vertex in captured.programs[0].vertices if vertex.call is not None]
    (replicated,) = (call for call in calls if call.function == "aten::linalg_cross")
    assert set(replicated.undivided) == set(replicated.result) | set("".join(replicated.operands))
