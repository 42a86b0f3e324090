"""The same computations in the memory of a GPU: loops of other pairs, einsums, models in one process and with NCCL."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import joinsum
import pytest
import torch
from launch import play
from models import CASES, batches, new_model
from rounding import assert_rounded, rounding
from torch import Tensor
from torch_pairs import PAIRS, wanted
from training import CUTTING, adamw, sgd, train_by_torch

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")]

SHAPES = [(1, 1, 1), (5, 7, 3), (64, 16, 64), (65, 17, 130), (2, 300, 70)]
REAL = [torch.float32, torch.float64, torch.float16, torch.bfloat16]


@pytest.fixture(autouse=True, params=[1, 3])
def sites(request: pytest.FixtureRequest) -> Iterator[int]:
    torch._dynamo.reset()
    torch.backends.cudnn.allow_tf32 = False
    joinsum.init(sites=request.param, cluster=CUTTING if request.param > 1 else None)
    yield request.param
    joinsum.init()


def numbers(*shape: int, dtype: torch.dtype = torch.float64, seed: int = 0) -> Tensor:
    """Numbers that any join takes: none is near zero."""
    generator = torch.Generator().manual_seed(seed)
    if not dtype.is_floating_point:
        return torch.randint(1, 120, shape, generator=generator).to("cuda", dtype)
    values = torch.rand(shape, generator=generator, dtype=torch.float64) + 0.5
    return values.to("cuda", dtype)


# --- einsums ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", REAL, ids=str)
@pytest.mark.parametrize(("join", "agg"), PAIRS)
def test_every_pair_is_torchs_on_floats(join: str, agg: str, dtype: torch.dtype) -> None:
    for rows, inner, columns in SHAPES:
        a, b = numbers(rows, inner, dtype=dtype), numbers(inner, columns, dtype=dtype, seed=1)
        result = joinsum.einsum("ij,jk->ik", a, b, join=join, agg=agg)
        assert isinstance(result, Tensor)
        assert (result.device, result.dtype) == (a.device, dtype)
        near = rounding(dtype, terms=inner)
        torch.testing.assert_close(result, wanted(join, agg, a, b), rtol=near, atol=near)


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.uint8], ids=str)
@pytest.mark.parametrize(("join", "agg"), [pair for pair in PAIRS if "div" not in pair and "logsumexp" not in pair])
def test_every_pair_is_exactly_torchs_on_integers(join: str, agg: str, dtype: torch.dtype) -> None:
    for rows, inner, columns in SHAPES:
        a, b = numbers(rows, inner, dtype=dtype), numbers(inner, columns, dtype=dtype, seed=1)
        result = joinsum.einsum("ij,jk->ik", a, b, join=join, agg=agg)
        assert isinstance(result, Tensor)
        assert torch.equal(result, wanted(join, agg, a, b))


@pytest.mark.parametrize(("join", "agg"), [("add", "min"), ("squared_difference", "sum"), ("mul", "max")])
def test_strides_and_batches_are_followed(join: str, agg: str) -> None:
    a, b = numbers(70, 3, 65).permute(1, 2, 0), numbers(33, 3, 140, seed=1)[..., ::2].transpose(0, 1)
    result = joinsum.einsum("bij,bkj->bik", a, b, join=join, agg=agg)
    wanted = [joinsum.einsum("ij,kj->ik", x.cpu(), y.cpu(), join=join, agg=agg) for x, y in zip(a, b, strict=True)]
    assert isinstance(result, Tensor)
    torch.testing.assert_close(result.cpu(), torch.stack(wanted), rtol=1e-12, atol=1e-12)


def test_infinities_and_nan_are_preserved() -> None:
    a = torch.tensor([[0.0, torch.inf, 3.0], [torch.nan, 1.0, 2.0]], device="cuda")
    b = torch.tensor([[torch.inf, 1.0], [-torch.inf, 2.0], [1.0, 0.5]], device="cuda")
    for join, agg in [("add", "min"), ("add", "max"), ("squared_difference", "sum"), ("mul", "max")]:
        result = joinsum.einsum("ij,jk->ik", a, b, join=join, agg=agg)
        torch.testing.assert_close(result, wanted(join, agg, a, b), equal_nan=True)


@pytest.mark.parametrize("agg", ["argmax", "argmin"])
def test_positions_are_torchs(agg: str) -> None:
    a, b = numbers(9, 40), numbers(40, 5, seed=1)
    joined = a[:, :, None] + b[None]
    assert torch.equal(joinsum.einsum("ij,jk->ik", a, b, join="add", agg=agg), getattr(joined, agg)(1))


def test_products_of_integers_are_exact(sites: int) -> None:
    x, y = (torch.randint(-(2**40), 2**40, shape, device="cuda") for shape in [(70, 50), (50, 90)])
    joined = joinsum.relation(x, parts=[2, 2]).join(joinsum.relation(y, parts=[2, 1]), on=([1], [0]), kernel="matmul")
    result = joined.aggregate(keep=[0, 2], kernel="add").to_tensor()
    assert torch.equal(result.cpu(), x.cpu() @ y.cpu())


@pytest.mark.parametrize("equation", ["ij,jk->ik", "bij,bjk->bik", "ij->ji", "ii->i", "i,j->ij", "ij,jk,kl->il"])
def test_einsums_and_their_gradients_are_torchs(equation: str) -> None:
    left = equation.partition("->")[0].split(",")
    operands = [numbers(*(dict(zip("bijkl", (3, 4, 4, 6, 5), strict=True))[x] for x in letters)) for letters in left]
    gradients = []
    for function in (joinsum.einsum, torch.einsum):
        own = [x.clone().requires_grad_() for x in operands]
        result = function(equation, *own)
        result.sin().sum().backward()
        gradients.append((result.detach(), *(x.grad for x in own)))
    for got, expected in zip(*gradients, strict=True):
        torch.testing.assert_close(got, expected, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize(("join", "agg"), [("add", "max"), ("abs_difference", "sum"), ("add", "logsumexp")])
def test_gradients_of_other_pairs_are_torchs(join: str, agg: str) -> None:
    a, b = numbers(9, 20), numbers(20, 7, seed=1)
    gradients = []
    for function in (
        lambda x, y: joinsum.einsum("ij,jk->ik", x, y, join=join, agg=agg),
        lambda x, y: wanted(join, agg, x, y),
    ):
        own = [x.clone().requires_grad_() for x in (a, b)]
        function(*own).sin().sum().backward()
        gradients.append([x.grad for x in own])
    assert_rounded(gradients[0], gradients[1], torch.float64, terms=40)


# --- models -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("optimizer", [sgd, adamw])
@pytest.mark.parametrize("name", ["mlp", "cnn", "llama"])
def test_steps_are_torchs(name: str, optimizer: Callable[[Any], torch.optim.Optimizer]) -> None:
    plain, planned = (new_model(name, torch.float64).cuda() for _ in range(2))
    data, loss = [(x.cuda(), y.cuda()) for x, y in batches(name, 5, dtype=torch.float64)], CASES[name].loss
    wanted = train_by_torch(plain, loss, optimizer(plain.parameters()), data)
    step = joinsum.train_step(planned, loss, optimizer(planned.parameters()))
    losses = [step(x, y).item() for x, y in data]
    assert losses == pytest.approx(wanted, rel=1e-8)
    step.sync()
    for (key, p), q in zip(plain.state_dict().items(), planned.state_dict().values(), strict=True):
        assert q.device == p.device, key
        torch.testing.assert_close(q, p, rtol=1e-8, atol=1e-8)


def test_a_compiled_and_a_distributed_model_are_torchs() -> None:
    plain = new_model("llama", torch.float64).cuda()
    x = batches("llama", 1, dtype=torch.float64)[0][0].cuda()
    wanted = plain(x)
    torch.testing.assert_close(torch.compile(plain, backend="joinsum")(x), wanted, rtol=1e-9, atol=1e-9)
    distributed = joinsum.distribute(new_model("llama", torch.float64).cuda(), x)
    torch.testing.assert_close(distributed(x), wanted, rtol=1e-9, atol=1e-9)


@pytest.mark.skipif(torch.cuda.is_available() and torch.cuda.mem_get_info()[1] < 8e9, reason="a small GPU")
def test_there_may_be_more_rows_than_blocks_of_a_grid() -> None:
    a, b = numbers((1 << 22) + 100, 2, dtype=torch.float32), numbers(2, 3, dtype=torch.float32, seed=1)
    found = joinsum.einsum("ij,jk->ik", a, b, join="add", agg="min")
    assert torch.equal(found, wanted("add", "min", a, b))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_logarithms_of_sums_of_exponentials_are_torchs_also_of_infinities(dtype: torch.dtype) -> None:
    a, b = 200 * numbers(70, 90, dtype=dtype) - 250, 200 * numbers(90, 40, dtype=dtype, seed=1) - 250
    a[0], a[1, 3], a[2, 4], b[:, 5] = -torch.inf, torch.inf, torch.nan, -torch.inf
    found = joinsum.einsum("ij,jk->ik", a, b, join="add", agg="logsumexp")
    near = rounding(dtype, terms=90)
    torch.testing.assert_close(found, wanted("add", "logsumexp", a, b), rtol=near, atol=near, equal_nan=True)


# --- attention --------------------------------------------------------------------------------------------------------

# Lengths that fill tiles of torch's kernels and that do not; more queries than keys and fewer; odd heads.
LENGTHS = [(128, 128, 64), (77, 77, 32), (40, 90, 16), (90, 40, 16), (33, 50, 5)]


@pytest.mark.parametrize("dtype", REAL, ids=str)
@pytest.mark.parametrize("shared", [1, 2])
@pytest.mark.parametrize("kind", ["whole", "causal", "mask", "boolean"])
def test_attention_and_its_gradients_are_torchs(kind: str, shared: int, dtype: torch.dtype) -> None:
    generator = torch.Generator("cuda").manual_seed(0)
    for queries, keys, extent in LENGTHS:
        shapes = [(2, 4, queries, extent), (2, 4 // shared, keys, extent), (2, 4 // shared, keys, extent)]
        given = [torch.randn(x, generator=generator, device="cuda").to(dtype) for x in shapes]
        mask = None
        if kind == "boolean":
            mask = torch.rand(2, 1, queries, keys, generator=generator, device="cuda") > 0.3
            mask[..., 0] = True
        elif kind == "mask":
            mask = torch.randn(queries, keys, generator=generator, device="cuda").to(dtype)
        above = torch.randn(2, 4, queries, extent, generator=generator, device="cuda").to(dtype)
        out, lse = torch.ops.joinsum.attention(*given, mask, kind == "causal")
        found = torch.ops.joinsum.attention_backward(above, *given, out, lse, mask, kind == "causal")

        exact = [x.double().requires_grad_() for x in given]
        heads = [exact[0], *(x.repeat_interleave(shared, 1) for x in exact[1:])]
        scores = heads[0] @ heads[1].mT * extent**-0.5
        if kind == "causal":
            scores = scores.masked_fill(torch.ones(queries, keys, device="cuda").triu(1).bool(), -torch.inf)
        if mask is not None:
            scores = scores.masked_fill(~mask, -torch.inf) if mask.dtype is torch.bool else scores + mask
        wanted = scores.softmax(-1) @ heads[2]
        gradients = torch.autograd.grad(wanted, exact, above.double())
        near = {torch.float64: 1e-10, torch.float32: 5e-3, torch.float16: 2e-2, torch.bfloat16: 1e-1}[dtype]
        for x, y in zip((out, lse, *found), (wanted, scores.logsumexp(-1), *gradients), strict=True):
            assert x.dtype is (dtype if x is not lse else lse.dtype)
            torch.testing.assert_close(x.double(), y, rtol=near, atol=near)


# Kinds of attention, as they come: heads that share keys, masks, experts, an encoder and a decoder, images, sound.
@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("name", ["llama", "gpt2", "bert", "mixtral", "t5", "vit", "resnet", "wav2vec2", "whisper"])
@pytest.mark.parametrize("way", ["train_step", "torch.compile"])
def test_families_train_as_they_come(name: str, way: str, attention: str, sites: int) -> None:
    families, family_sweep = pytest.importorskip("families"), pytest.importorskip("family_sweep")
    if way == "train_step" and name in ("t5", "mixtral", "whisper", "wav2vec2") and torch.__version__ < "2.13":
        pytest.skip("Dynamo of this torch cannot capture it as one graph")
    trained = family_sweep.train(families.FAMILIES[name], way, attention, sites, "cuda")
    assert trained.result in ("equal", "none"), trained.why


def test_attention_with_dropout_trains() -> None:
    class Layer(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.projection = torch.nn.Linear(16, 48)

        def forward(self, x: Tensor) -> Tensor:
            heads = self.projection(x).unflatten(-1, (3, 2, 8)).permute(2, 0, 3, 1, 4)
            return torch.nn.functional.scaled_dot_product_attention(*heads, dropout_p=0.5, is_causal=True)

    model = Layer().cuda()
    step = joinsum.train_step(model, lambda result, wanted: (result - wanted).square().mean(), sgd(model.parameters()))
    x, wanted = torch.randn(4, 10, 16, device="cuda"), torch.zeros(4, 2, 10, 8, device="cuda")
    losses = [step(x, wanted).item() for _ in range(3)]
    assert all(0 < loss < 10 for loss in losses)


# --- processes --------------------------------------------------------------------------------------------------------


def test_one_rank_of_nccl_computes_what_one_process_does(tmp_path: Path) -> None:
    values = play(1, ["gpu"], tmp_path, 300)
    for scene in ("einsums_are_torchs", "steps_are_torchs", "rates_are_measured"):
        values.values(scene)


def test_doctor_finds_the_gpu() -> None:
    printed = subprocess.run(
        [str(Path(sys.executable).with_name("joinsum")), "doctor"],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    ).stdout
    assert torch.cuda.get_device_name(0) in printed
    assert "ok       nccl" in printed, printed
