"""Scenes: sites that disagree all raise, within seconds, and can go on; a slow site is no error."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

import joinsum
import torch
import torch.distributed as dist
from stage import Scenes, enter, error_of, on_group, rank, ranks, scene

SCENES: Scenes = {}
SOON = 20.0  # a name server that does not answer holds a connection of torch's store for 5 s


def product(size: int = 6) -> torch.Tensor:
    x = joinsum.relation(torch.ones(size, 4), parts=(3, 2))
    y = joinsum.relation(torch.ones(4, 5), parts=(2, 2))
    return x.join(y, on=([1], [0]), kernel="matmul").aggregate(keep=[0, 2]).to_tensor()


def check_usable() -> None:
    assert torch.equal(product(), torch.full((6, 5), 4.0))


def check_difference(error: tuple[str, str, float], start: str) -> str:
    name, text, seconds = error
    assert name == "TransportError", error
    assert text.startswith(start), error
    assert seconds < SOON, error
    return text


@scene(SCENES)
def different_plans_are_named_by_their_first_different_line() -> str:
    enter(on_group())
    last = ranks() - 1
    kernel = "relu" if rank() == last else "negate"
    plan = joinsum.parse(f"tra\ninput X: f32[6]<3>\na = transform[scale[2]](X)\noutput Z = transform[{kernel}](a)")
    error = error_of(lambda: joinsum.run(plan, {"X": torch.ones(6)}))
    wanted = "t1 = transform[{}](t0): f32[6]<3>"
    text = check_difference(error, "run: sites differ: line=4, site 0: " + wanted.format("negate"))
    assert f", site {last}: " + wanted.format("relu") in text, text
    check_usable()
    return text


@scene(SCENES)
def a_longer_plan_is_told_from_its_beginning() -> str:
    enter(on_group())
    more = "\noutput Y = X" if rank() == 0 else ""
    plan = joinsum.parse("tra\ninput X: f32[6]<3>\noutput Z = X" + more)
    text = check_difference(
        error_of(lambda: joinsum.run(plan, {"X": torch.ones(6)})),
        "run: sites differ: line=4, site 0: output Y = X, site 1: ",
    )
    check_usable()
    return text


@scene(SCENES)
def different_input_types_are_named() -> list[str]:
    enter(on_group())
    texts = []
    odd = rank() == 1
    for mine, other, shown in [
        (torch.ones(7, 4) if odd else torch.ones(6, 4), (3, 2), "f32[7,4]<3,2>"),
        (torch.ones(6, 4, dtype=torch.float64) if odd else torch.ones(6, 4), (3, 2), "f64[6,4]<3,2>"),
        (torch.ones(6, 4), (2, 2) if odd else (3, 2), "f32[6,4]<2,2>"),
    ]:
        lazy = joinsum.relation(mine, parts=other, name="X").transform("relu")
        text = check_difference(error_of(lazy.tuples), "run: sites differ: line=2, site 0: input X: f32[6,4]<3,2>")
        assert f", site 1: input X: {shown}" in text, text
        texts.append(text)
    check_usable()
    return texts


@scene(SCENES)
def rank_0_plans_for_all_and_its_errors_are_everyones() -> list[object]:
    enter(on_group())
    planners = []
    core = joinsum._C.optimize
    joinsum._C.optimize = lambda *arguments: planners.append(rank()) or core(*arguments)
    try:
        program = joinsum.parse(
            "tra\ninput A: f32[6,4]<3,2>\ninput B: f32[4,5]<2,2>\n"
            "output C = aggregate[0, 2; add](join[1; 0; matmul](A, B))"
        )
        found = joinsum.optimize(program, {"A": [0], "B": [0]}, seconds=60.0)
        tight = joinsum.Cluster("tight", memory_bytes=10)
        name, text, seconds = error_of(lambda: joinsum.optimize(program, cluster=tight))
    finally:
        joinsum._C.optimize = core
    assert planners == ([0, 0] if rank() == 0 else []), planners
    assert (name, seconds < SOON) == ("PlanError", True)
    inputs = {"A": torch.ones(6, 4), "B": torch.ones(4, 5)}
    for candidate in found.candidates:
        assert torch.equal(joinsum.run(candidate.plan, inputs)["C"].to_tensor(), torch.full((6, 5), 4.0))
    check_usable()
    rules = [[step.rule for step in candidate.rules] for candidate in found.candidates]
    return [text, [str(candidate.plan) for candidate in found.candidates], rules]


@scene(SCENES)
def a_program_with_a_lookup_table_is_planned_by_rank_0() -> list[list[float]]:
    enter(on_group())
    turned = joinsum.relation(torch.arange(6.0), parts=3).rekey(lambda i: joinsum.lookup([2, 0, 1], i))
    arrays = [array.tolist() for _, array in turned.tuples()]
    assert arrays == [[2.0, 3.0], [4.0, 5.0], [0.0, 1.0]]
    return arrays


@scene(SCENES)
def different_objectives_are_named() -> str:
    enter(on_group())
    program = joinsum.parse("tra\ninput X: f32[6]<3>\noutput Z = aggregate[; add](X)")
    minimize = "seconds" if rank() == 0 else "wire_bytes"
    text = check_difference(
        error_of(lambda: joinsum.optimize(program, minimize=minimize)),
        "optimize: sites differ: line=6, site 0: minimize=seconds, site 1: minimize=wire_bytes",
    )
    check_usable()
    return text


@scene(SCENES)
def different_scalars_are_named() -> str:
    enter(on_group())
    plan = joinsum.parse("tra\ninput X: f32[6]<3>\noutput Z = transform[scale[$rate]](X)")
    rate = 0.25 if rank() == 1 else 0.5
    text = check_difference(
        error_of(lambda: joinsum.run(plan, {"X": torch.ones(6)}, {"rate": rate})),
        "run: sites differ: line=5, site 0: scalar rate = 0.5, site 1: scalar rate = 0.25",
    )
    check_usable()
    return text


@scene(SCENES)
def different_reductions_are_named() -> list[str]:
    """Of parameters, which users log on one rank: another operator, another tensor, or none."""
    enter(on_group())
    w, v = (joinsum.DistributedTensor.of(torch.ones(shape), parts=ranks(), place=[0]) for shape in (8, 12))
    first = rank() == 0
    odd: dict[str, tuple[Callable[[], object], str]] = {
        "operator": (w.sum if first else w.max, "agree: sites make different calls: site 0: aten.sum.default"),
        "tensor": (w.norm if first else v.norm, "norm: sites differ: line=2, site 0: a tensor of shape=[8]"),
        "call": (w.norm if first else product, "agree: sites make different calls: site 0: norm, site 1: run"),
    }
    return [check_difference(error_of(call), text) for call, text in odd.values()]


@scene(SCENES)
def a_tensor_that_all_have_is_reduced_without_a_message() -> float:
    enter(on_group())
    w = joinsum.DistributedTensor.of(torch.arange(6.0), place="replicated")
    if rank() == 0:
        assert w.full_tensor().tolist() == [0, 1, 2, 3, 4, 5]
        assert (float(w.sum()), float(w.max()), float(w.mean())) == (15, 5, 2.5)
    return float(w.norm())


@scene(SCENES)
def different_calls_are_named() -> str:
    transport = enter(on_group())._transport
    call = product if rank() == 0 else lambda: transport.all_reduce_max([1.0])
    text = check_difference(error_of(call), "agree: sites make different calls: site 0: run, site 1: all_reduce_max")
    check_usable()
    return text


@scene(SCENES)
def a_wrong_argument_on_every_site_stops_none_of_them() -> None:
    enter(on_group())
    plan = joinsum.parse("tra\ninput X: f32[6]<3>\noutput Z = X")
    name, text, _ = error_of(lambda: joinsum.run(plan, {"X": torch.ones(5)}))
    assert name == "PlanError", text
    check_usable()


@scene(SCENES)
def a_wrong_argument_on_one_site_is_an_error_on_all() -> list[str]:
    enter(on_group())
    odd = rank() == 1
    plan = joinsum.parse("tra\ninput X: f32[6]<3>\noutput Z = transform[scale[$rate]](X)")
    texts = []
    for x, scalars, reason in [
        (torch.ones(5) if odd else torch.ones(6), {"rate": 1.0}, "run: input X: it has another shape"),
        (torch.ones(6), {"rate": "fast"} if odd else {"rate": 1.0}, "run: a scalar is a real number by name"),
        (torch.ones(6), {} if odd else {"rate": 1.0}, "run: sites differ: line=5, site 0: scalar rate = 1"),
    ]:
        name, text, seconds = error_of(partial(joinsum.run, plan, {"X": x}, scalars))
        if odd and not reason.startswith("run: sites differ"):
            assert name == "PlanError", (name, text)
            assert text.startswith(reason), text
        else:
            assert name == "TransportError", (name, text)
            assert text.startswith("run: sites differ: line="), text
            assert reason in text, text
        assert seconds < SOON, seconds
        check_usable()
        texts.append(text)
    return texts


@scene(SCENES)
def a_wrong_argument_of_a_sparse_call_on_one_site_is_an_error_on_all() -> int:
    enter(on_group())
    odd = rank() == 1
    x = torch.ones(40, 40)
    x[1] = 0
    a = joinsum.SparseTensor.from_torch(x, levels="csr")
    sums = {"name": "y", "expr": ["agg", "+", ["j"], ["in", "a", ["i", "j"]]], "output": ["i"]}
    program = joinsum.sparse.Program({"tensors": {"a": a}, "queries": [sums]})
    calls: list[Callable[[], object]] = [
        lambda: joinsum.einsum("ij,jk->ik", a, torch.ones(41 if odd else 40, 3)),
        lambda: joinsum.einsum("ij,jk->ik", a, a, join="nope" if odd else "mul"),
        lambda: joinsum.einsum("ij,jk->ik", a, a, agg="nope" if odd else "sum"),
        lambda: joinsum.einsum("ij,jk->ik", a, torch.ones(40, 3, dtype=torch.float16 if odd else torch.float32)),
        lambda: joinsum.einsum("ij,jk->ik", a, a, out_format="nope" if odd else "csr"),
        lambda: program.run(engine="nope" if odd else "automatic"),
        lambda: program.run(search="nope" if odd else "greedy"),
    ]
    for number, call in enumerate(calls):
        name, text, seconds = error_of(call)
        assert name == ("PlanError" if odd else "TransportError"), (number, name, text)
        assert odd or "site 1: (no plan) PlanError: " in text, (number, text)
        assert seconds < SOON, (number, seconds)
        check_usable()
    return len(calls)


@scene(SCENES)
def a_slow_site_is_no_error() -> list[float]:
    """Between runs, and in the middle of one, for twice the time that a site may be silent. Its group is its own:
    an error there would end the pairs of the group."""
    timeout = 4.0  # more than a busy machine suspends a process for
    enter(on_group(timeout=timeout, group=dist.new_group()))
    joinsum.register_kernel("idle", idle, shape=lambda shape: shape)
    plan = joinsum.parse(
        f"ia on {joinsum.grid()}\ninput X: i64[9,9]<4,4> (0)\n"
        "output Z = shuffle[0](local_map[(k0, k1); idle](shuffle[1](X)))"
    )
    x = torch.arange(81).reshape(9, 9)
    seconds = []
    for pause in ("before", "within"):
        idle.seconds = 2 * timeout if pause == "within" and rank() == 0 else 0.0
        if pause == "before" and rank() == 0:
            time.sleep(2 * timeout)
        start = time.monotonic()
        outputs = joinsum.run(plan, {"X": x})
        seconds.append(round(time.monotonic() - start, 2))
        assert torch.equal(outputs["Z"].to_tensor(), x)
    assert rank() == 0 or min(seconds) >= 1.5 * timeout, seconds
    return seconds


class _Idle:
    """A kernel whose next call takes its time."""

    seconds = 0.0

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        time.sleep(self.seconds)
        self.seconds = 0.0
        return x.clone()


idle = _Idle()
