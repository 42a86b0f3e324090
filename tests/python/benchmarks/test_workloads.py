"""The work that contenders do: what all workloads have, and the parts that torch has no equal of, against torch."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from pathlib import Path

import joinsum
import pytest
import torch
import torch.distributed as dist
from frame.contenders import check_equal
from torch import nn
from workloads import WORKLOADS, cnn, semirings


@pytest.fixture
def one_rank(tmp_path: Path) -> Iterator[None]:
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.mark.parametrize("workload", WORKLOADS)
def test_joinsum_and_another_contender_do_each_size(workload: str):
    for size in WORKLOADS[workload].sizes:
        contenders = WORKLOADS[workload].contenders(size)
        assert "joinsum" in contenders
        assert len(contenders) > 1


@pytest.mark.parametrize(
    ("workload", "size"),
    [("attention", "step 4096"), ("cnn", "3x16"), ("embeddings", "1e5 sgd"), ("language_model", "gpt-4x256")],
)
@pytest.mark.parametrize("sites", [1, 2])
def test_joinsum_trains_as_torch_does(workload: str, size: str, sites: int, monkeypatch: pytest.MonkeyPatch):
    work = WORKLOADS[workload]
    monkeypatch.setattr(joinsum, "init", functools.partial(joinsum.init, sites=sites))  # what contenders call
    reference, own = work.reference(size), work.contenders(size)["joinsum"]()
    for _ in range(work.checked_steps):
        reference.step()
        own.step()
    check_equal("joinsum", own.result(), reference.result(), work.tolerance)


@pytest.mark.usefixtures("one_rank")
def test_the_batch_norm_of_all_ranks_is_torchs_on_one():
    torch.manual_seed(0)
    inputs, slope = torch.randn(8, 3, 5, 5) * 2 + 1, torch.randn(8, 3, 5, 5)
    results = []
    for norm in (nn.BatchNorm2d(3), cnn._BatchNorm(3)):
        norm.weight.data.copy_(torch.tensor([0.5, 1.0, 2.0]))
        x = inputs.clone().requires_grad_()
        y = norm(x)
        y.backward(slope)
        results.append([y, x.grad, norm.weight.grad, norm.bias.grad, norm.running_mean, norm.running_var])
    for own, expected in zip(results[1], results[0], strict=True):
        torch.testing.assert_close(own, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("aggregation", ["min", "logsumexp"])
def test_tiles_give_the_reduction_of_the_joined_tensor(aggregation: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(semirings, "TILE", 3 * 7)
    a, b, found = torch.randn(4, 7), torch.randn(7, 5), torch.empty(4, 5)
    semirings.tiled(a, b, semirings.Shape(7, aggregation), found)
    joined = a[:, :, None] + b
    torch.testing.assert_close(found, joined.amin(1) if aggregation == "min" else joined.logsumexp(1))
