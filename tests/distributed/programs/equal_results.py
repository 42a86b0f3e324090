"""Scenes: the same plan gives the same tuples and the same bytes on loopback and on a process group."""

from __future__ import annotations

import re
from collections.abc import Iterator

import joinsum
import torch
from joinsum.base.dtypes import torch_dtype
from plans import OPERATORS, Case, random_case, written_cases
from stage import Outputs, Scenes, enter, everywhere, on_group, on_loopback, scene

SCENES: Scenes = {}
RANDOM_PLANS = 25


def cases(dtype: str, torch_dtype: torch.dtype) -> Iterator[Case]:
    enter(on_loopback())
    grid = str(joinsum.grid())
    yield from written_cases(dtype, grid)
    for seed in range(RANDOM_PLANS):
        yield random_case(seed, torch_dtype)


def outputs_of(case: Case) -> Outputs:
    """All tuples of all outputs; `joinsum.trace()` then still shows the run."""
    outputs = joinsum.run(case.plan, {name: tensor.clone() for name, tensor in case.inputs.items()})
    return {name: stored.tuples() for name, stored in outputs.items()}


def check_equal(case: Case, one: Outputs, other: Outputs, tolerance: float = 0.0) -> None:
    assert one.keys() == other.keys()
    for name in one:
        assert [key for key, _ in one[name]] == [key for key, _ in other[name]], f"{case.name}: keys of {name}"
        for (key, x), (_, y) in zip(one[name], other[name], strict=True):
            assert (x.dtype, x.shape) == (y.dtype, y.shape), f"{case.name}: {name}{key}"
            close = torch.equal(x, y) if tolerance == 0 else torch.allclose(x, y, rtol=tolerance, atol=tolerance)
            assert close, f"{case.name}: {name}{key}: {x} {y}\n{case.plan}"


@scene(SCENES)
def integers_are_equal_to_the_bit() -> int:
    loopback = on_loopback()
    group = on_group()
    all_cases = list(cases("i64", torch.int64))
    for case in all_cases:
        enter(loopback)
        expected = outputs_of(case)
        enter(group)
        check_equal(case, outputs_of(case), expected)
    return len(all_cases)


@scene(SCENES)
def floats_are_equal_from_run_to_run_and_close_to_loopback() -> None:
    loopback = on_loopback()
    groups = [on_group("never"), on_group("always")]
    for case in cases("f32", torch.float32):
        enter(loopback)
        expected = outputs_of(case)
        for group in groups:
            enter(group)
            first = outputs_of(case)
            check_equal(case, outputs_of(case), first)
            check_equal(case, first, expected, tolerance=1e-4)


@scene(SCENES)
def other_dtypes_travel_unchanged() -> None:
    loopback = on_loopback()
    group = on_group()
    x = torch.arange(35).reshape(7, 5)
    for dtype in ("bool", "u8", "i16", "i32", "f16", "bf16", "f64", "c64", "c128"):
        text = f"ia on {loopback.grid}\ninput X: {dtype}[7,5]<3,2> ({', '.join('0' for _ in loopback.grid.axes)})\n"
        plan = joinsum.parse(text + "output Y = broadcast(X)\noutput Z = shuffle[1](X)")
        relation = plan.inputs["X"].relation
        value = (x % 2 if dtype == "bool" else x).to(torch_dtype(relation.dtype))
        if value.is_complex():
            value = (value * (1 + 2j)).conj()
        case = Case(dtype, plan, {"X": value})
        enter(loopback)
        expected = outputs_of(case)
        enter(group)
        check_equal(case, outputs_of(case), expected)


@scene(SCENES)
def cost_is_what_the_transport_counts_to_the_byte() -> dict[str, int]:
    """On loopback, by messages alone, and by the group's collectives wherever there is one."""
    loopback = on_loopback()
    contexts = {"loopback": loopback, "never": on_group("never"), "always": on_group("always")}
    moved = dict.fromkeys(contexts, 0)
    for case in cases("i64", torch.int64):
        for name, context in contexts.items():
            enter(context)
            lowered = case.plan if isinstance(case.plan, joinsum.IaPlan) else joinsum.lower(case.plan)
            priced = joinsum.cost(lowered).wire_bytes
            joinsum.run(lowered, dict(case.inputs))
            sent = sum(entry.bytes_sent for entry in joinsum.trace())
            received = sum(entry.bytes_received for entry in joinsum.trace())
            if context is not loopback:
                sent, received = everywhere(sent), everywhere(received)
            assert sent == received == priced, f"{case.name} on {name}: {sent} {received} {priced}\n{lowered}"
            moved[name] += sent
    return moved


@scene(SCENES)
def every_operator_was_run() -> None:
    enter(on_loopback())
    seen = set()
    for case in cases("i64", torch.int64):
        lowered = case.plan if isinstance(case.plan, joinsum.IaPlan) else joinsum.lower(case.plan)
        seen |= {word for word in OPERATORS if re.search(rf"= {word}[\[(]", lowered.text)}
    assert seen == OPERATORS, OPERATORS - seen


@scene(SCENES)
def state_is_updated_step_by_step() -> None:
    text = "tra\ninput W: f32[6]<3>\ninput G: f32[6]<3>\noutput V -> W = join[0; 0; sub](W, transform[scale[$rate]](G))"
    results = []
    for context in (on_loopback(), on_group()):
        enter(context)
        state: object = torch.zeros(6)
        for _ in range(3):
            outputs = joinsum.run(joinsum.parse(text), {"W": state, "G": torch.arange(6.0)}, {"rate": 0.5})
            state = outputs["V"]
        results.append(outputs["V"].to_tensor())
    assert torch.equal(results[0], results[1])
    assert torch.equal(results[0], -1.5 * torch.arange(6.0))


@scene(SCENES)
def measured_rates_are_the_same_everywhere() -> None:
    cluster = joinsum.init(timeout=60.0).cluster
    rates = torch.tensor(
        [cluster.flops_per_second, cluster.bytes_per_second, cluster.latency_seconds], dtype=torch.float64
    )
    first = rates.clone()
    torch.distributed.broadcast(first, 0)
    assert torch.equal(rates, first)
    assert rates.min() > 0
