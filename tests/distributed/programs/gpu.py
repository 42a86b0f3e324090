"""Scenes on GPUs: one site per rank, blocks in the ranks' GPUs, NCCL between them."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import joinsum
import torch
import torch.distributed as dist
from stage import Scenes, scene
from torch import Tensor

sys.path.insert(0, str(Path(__file__).parents[2] / "support"))
from models import CASES, batches, new_model
from training import adamw, train_by_torch

SCENES: Scenes = {}


@scene(SCENES)
def einsums_are_torchs() -> str:
    current = joinsum.init()
    assert current.device.type == "cuda"
    assert "nccl" in dist.get_backend_config()
    generator = torch.Generator("cuda").manual_seed(0)
    x, y = (torch.rand(90, 90, generator=generator, device="cuda", dtype=torch.float64) for _ in range(2))
    for join, agg, wanted in [
        ("mul", "sum", x @ y),
        ("add", "min", (x[:, :, None] + y[None]).amin(1)),
        ("add", "logsumexp", (x[:, :, None] + y[None]).logsumexp(1)),
    ]:
        got = joinsum.einsum("ij,jk->ik", x, y, join=join, agg=agg)
        assert isinstance(got, Tensor)
        torch.testing.assert_close(got, wanted, rtol=1e-10, atol=1e-10)
    return str(current.device)


@scene(SCENES)
def steps_are_torchs() -> list[float]:
    joinsum.init()
    plain, planned = (new_model("llama", torch.float64).cuda() for _ in range(2))
    data = [(x.cuda(), y.cuda()) for x, y in batches("llama", 5, dtype=torch.float64)]
    loss = CASES["llama"].loss
    wanted = train_by_torch(plain, loss, adamw(plain.parameters()), data)
    step = joinsum.train_step(planned, loss, adamw(planned.parameters()))
    losses = [step(x, y).item() for x, y in data]
    torch.testing.assert_close(torch.tensor(losses), torch.tensor(wanted), rtol=1e-8, atol=0)
    return losses


@scene(SCENES)
def rates_are_measured() -> str:
    os.environ["JOINSUM_PLAN_CACHE"] = "0"
    cluster = joinsum.init().cluster
    assert cluster.flops_per_second > 1e11, cluster
    return str(cluster)
