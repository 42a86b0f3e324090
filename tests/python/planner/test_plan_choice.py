"""Plans for measured rates: equal where short measurements differ a little, and about the fastest."""

from __future__ import annotations

import random
from dataclasses import replace

import joinsum
import pytest
import torch
from joinsum.cluster.profile import Curve, Elementwise, Links, Products, Profile, Reductions, monotone
from training import rare

EXTENTS = (1.0, 32.0, 512.0)


def linear(first: float, each: float, *sizes: float) -> Curve:
    """Seconds of a start, and of each unit of the size."""
    return Curve(sizes, tuple(first + each * size for size in sizes))


def profile(latency: float, bytes_per_second: float, quick: bool = True) -> Profile:
    """A described machine of four sites with a core each."""
    link = linear(latency, 1 / bytes_per_second, 4096, 65536, 1048576)
    copies = linear(1e-6, 1e-10, 4096, 1048576)
    operations = linear(1e-5, 4e-10, 256, 524288)
    products = [2e-5 + 2 * a * b * c / 8e10 for a in EXTENTS for b in EXTENTS for c in EXTENTS]
    return Profile(
        run_seconds=1e-4,
        node_seconds=1e-5,
        links=tuple(Links(axes, link, link) for axes in ((0,), (1,), (0, 1))),
        products=(Products("f32", EXTENTS, tuple(products)),),
        elementwise=tuple(Elementwise(n, 1, domain, 4, operations) for n in (1, 2) for domain in ("any", "ordered")),
        reductions=(Reductions(4, operations, operations),),
        copies=copies,
        quick=quick,
    )


def disturbed(found: Profile, seed: int) -> Profile:
    """The profile of another measurement: every time is up to a tenth longer or shorter."""
    generator = random.Random(seed)

    def times(seconds: tuple[float, ...]) -> tuple[float, ...]:
        return tuple(each * generator.uniform(0.9, 1.1) for each in seconds)

    def curve(of: Curve) -> Curve:
        return Curve(of.sizes, tuple(monotone(times(of.seconds))))

    return replace(
        found,
        links=tuple(Links(link.axes, curve(link.all), curve(link.pair)) for link in found.links),
        products=tuple(replace(each, seconds=times(each.seconds)) for each in found.products),
        elementwise=tuple(replace(each, seconds=curve(each.seconds)) for each in found.elementwise),
        reductions=tuple(
            Reductions(each.element_bytes, curve(each.rows), curve(each.keys)) for each in found.reductions
        ),
        copies=curve(found.copies),
    )


def chosen(found: Profile, latency: float, bytes_per_second: float) -> str:
    """The plan of a training step on four sites with these rates."""
    cluster = joinsum.Cluster("here", 8e10, bytes_per_second, latency, profile=found)
    joinsum.init(sites=4, cluster=cluster, plan_cache=False)
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(256, 512), torch.nn.GELU(), torch.nn.Linear(512, 384))
    step = joinsum.train_step(model, torch.nn.functional.mse_loss, torch.optim.AdamW(model.parameters()))
    return str(step.captured(torch.ones(256, 256), torch.ones(256, 384)).planned.choice.plan)


def seconds(plan: str, found: Profile, latency: float, bytes_per_second: float) -> float:
    cluster = joinsum.Cluster("here", 8e10, bytes_per_second, latency, profile=found)
    return joinsum.cost(joinsum.parse(plan), cluster).seconds


@pytest.mark.parametrize(("latency", "bytes_per_second"), [(1e-4, 1e9), rare(1e-3, 1.2e8), rare(2e-5, 3e9)])
def test_measurements_of_one_machine_give_one_plan(latency: float, bytes_per_second: float) -> None:
    found = profile(latency, bytes_per_second)
    plans = {chosen(disturbed(found, seed), latency, bytes_per_second) for seed in range(6)}
    assert len(plans) == 1


@pytest.mark.parametrize(("latency", "bytes_per_second"), [(1e-4, 1e9), (1e-3, 1.2e8), (1e-4, 3e10), (3e-4, 3.2e8)])
def test_the_plan_is_about_as_fast_as_that_of_a_calibrated_machine(latency: float, bytes_per_second: float) -> None:
    found = profile(latency, bytes_per_second)
    plan = chosen(found, latency, bytes_per_second)
    exact = chosen(replace(found, quick=False), latency, bytes_per_second)
    rates = found, latency, bytes_per_second
    assert seconds(exact, *rates) <= seconds(plan, *rates) <= 1.05 * seconds(exact, *rates)
