"""The optimizer from Python: plans run and equal torch, reports tell what was done, wrong arguments are named."""

from __future__ import annotations

from types import SimpleNamespace

import joinsum
import pytest
import torch

PROGRAM = """tra
input X: f32[24,18]<6,6>
input W1: f32[18,30]<6,6>
input W2: f32[30,12]<6,6>
output Y = aggregate[0, 2; add](join[1; 0; matmul](
    transform[relu](aggregate[0, 2; add](join[1; 0; matmul](X, W1))), W2))
"""


REFUTED = SimpleNamespace(kind="refuted", reason="seen by the test")


def tensors() -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(3)
    shapes = {"X": (24, 18), "W1": (18, 30), "W2": (30, 12)}
    return {name: torch.randn(*shape, generator=generator) for name, shape in shapes.items()}


@pytest.mark.parametrize("sites", [1, 2, 3, 4, 6, 8])
@pytest.mark.parametrize("minimize", ["seconds", "wire_bytes", "paper_floats"])
def test_every_candidate_runs_and_equals_torch(sites: int, minimize: str) -> None:
    joinsum.init(sites=sites)
    inputs = tensors()
    wanted = (inputs["X"] @ inputs["W1"]).relu() @ inputs["W2"]
    found = joinsum.optimize(joinsum.parse(PROGRAM), minimize=minimize)
    for candidate in found.candidates:
        result = joinsum.run(candidate.plan, inputs)["Y"].to_tensor()
        torch.testing.assert_close(result, wanted, rtol=1e-5, atol=1e-4)
        assert sum(entry.bytes_sent for entry in joinsum.trace()) == candidate.cost.wire_bytes


def test_candidates_are_ordered_and_none_is_dearer_to_begin_with_than_the_plain_translation() -> None:
    joinsum.init(sites=6)
    found = joinsum.optimize(joinsum.parse(PROGRAM), minimize="wire_bytes")
    baseline = [candidate.name.endswith("(repeats work)") for candidate in found.candidates]
    assert baseline == sorted(baseline)
    bytes_moved = [candidate.cost.wire_bytes for candidate in found.candidates[: baseline.count(False)]]
    assert bytes_moved == sorted(bytes_moved)
    assert found.cost.wire_bytes <= joinsum.cost(joinsum.lower(joinsum.parse(PROGRAM))).wire_bytes
    assert [phase.name for phase in found.phases] == ["lower", "placement", "products", "rewrite"]


def test_inputs_stay_where_they_are_said_to_start() -> None:
    joinsum.init(sites=4)
    found = joinsum.optimize(joinsum.parse(PROGRAM), {"X": [0, 1], "W1": "(1, 0)"})
    assert str(found.plan.inputs["X"]).endswith("(0, 1)")
    assert str(found.plan.inputs["W1"]).endswith("(1, 0)")


@pytest.mark.parametrize("sites", [2, 4, 6])
def test_pinned_values_have_the_pinned_placements(sites: int) -> None:
    joinsum.init(sites=sites)
    axes = len(joinsum.grid().axes)
    rows, columns = f"({', '.join(['0'] * axes)})", f"({', '.join(['1'] * axes)})"
    everywhere = f"({', '.join(['*'] * axes)})"
    inputs = tensors()
    wanted = (inputs["X"] @ inputs["W1"]).relu() @ inputs["W2"]
    for pins in ({"Y": columns}, {"Y": "replicated"}, {"t2": rows}, {"t2": columns}, {"t2": columns, "Y": rows}):
        found = joinsum.optimize(joinsum.parse(PROGRAM), pins=pins, minimize="wire_bytes")
        for candidate in found.candidates:
            if "Y" in pins:
                place = everywhere if pins["Y"] == "replicated" else pins["Y"]
                assert str(candidate.plan.outputs["Y"]).endswith(place), candidate.plan
            if "t2" in pins:
                since = str(candidate.plan).split("relu](")[1].splitlines()
                assert any(": f32[24,30]<6,6>" in line and line.endswith(pins["t2"]) for line in since), candidate.plan
            result = joinsum.run(candidate.plan, inputs)["Y"].to_tensor()
            torch.testing.assert_close(result, wanted, rtol=1e-5, atol=1e-4)


def test_a_tied_output_is_pinned_where_its_input_starts() -> None:
    joinsum.init(sites=2)
    program = joinsum.parse("tra\ninput W: f32[4,4]<2,2>\noutput W2 -> W = transform[relu](W)")
    found = joinsum.optimize(program, pins={"W2": [1]})
    assert all(str(candidate.plan.inputs["W"]).endswith("(1)") for candidate in found.candidates)
    with pytest.raises(joinsum.PlanError, match="a tied output ends where its input starts"):
        joinsum.optimize(program, {"W": [0]}, pins={"W2": [1]})


@pytest.mark.parametrize("value", ["1", "0"])
def test_the_environment_can_have_every_candidate_verified(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JOINSUM_VERIFY", value)
    joinsum.init(sites=4)
    found = joinsum.optimize(joinsum.parse(PROGRAM), minimize="wire_bytes")
    assert all(joinsum.verify(candidate.plan, joinsum.parse(PROGRAM)).accepted for candidate in found.candidates)
    called = []
    monkeypatch.setattr(joinsum._C, "verify", lambda *arguments: called.append(arguments) or REFUTED)
    if value == "1":
        with pytest.raises(joinsum.InternalError, match="refuted: seen by the test"):
            joinsum.lower(joinsum.parse(PROGRAM))
    else:
        joinsum.lower(joinsum.parse(PROGRAM))
    assert len(called) == int(value)


def test_the_report_shows_plan_candidates_and_costs() -> None:
    joinsum.init(sites=4)
    text = repr(joinsum.optimize(joinsum.parse(PROGRAM), minimize="wire_bytes"))
    for part in ("plan of least wire_bytes", "ia on 2x2", "plans considered", "divide ", " more", "peak"):
        assert part in text


def test_phases_and_rules_can_be_left_out() -> None:
    joinsum.init(sites=4)
    program = joinsum.parse(PROGRAM)
    plain = joinsum.optimize(program, without=["placement", "products", "rewrite"])
    assert [candidate.name for candidate in plain.candidates] == ["operator by operator"]
    without_rule = joinsum.optimize(program, without=["R2-4"])
    assert all(step.rule != "R2-4" for candidate in without_rule.candidates for step in candidate.rules)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"minimize": "bytes"}, "optimize: no such cost: minimize=bytes"),
        ({"without": ["R9-9"]}, "optimize: no such phase or rule: name='R9-9', phases=['lower', 'placement',"),
        ({"without": "rewrite"}, "optimize: names to leave out are a list"),
        ({"plans": 0}, "optimize: at least one plan"),
        ({"seconds": -1}, "optimize: a limit is a number of seconds"),
        ({"place": {"Z": "replicated"}}, "optimize: a placement for an unknown input"),
        (
            {"cluster": joinsum.Cluster("small", memory_bytes=10)},
            "optimize: no plan that was found fits a site's memory;",
        ),
        ({"pins": {"t99": [0]}}, "optimize: no such value to pin; the names are those of"),
        ({"pins": {"X": [0]}}, "optimize: an input is placed by where it starts, not by a pin: pin=X"),
        ({"pins": {"Y": [2]}}, "pin Y: placement (2): "),
        ({"pins": {"Y": [0], "t4": [1]}}, "optimize: pins of one value differ: pin="),
        ({"cluster": "fast"}, "optimize: a cluster is a joinsum.Cluster"),
    ],
)
def test_wrong_arguments_are_named(arguments: dict[str, object], message: str) -> None:
    joinsum.init(sites=2)
    with pytest.raises(joinsum.PlanError) as error:
        joinsum.optimize(joinsum.parse(PROGRAM), **arguments)  # type: ignore[arg-type]
    assert str(error.value).startswith(message)


def test_a_physical_plan_is_refused() -> None:
    with pytest.raises(joinsum.PlanError, match="not a logical plan"):
        joinsum.optimize(joinsum.lower(joinsum.parse(PROGRAM)))  # type: ignore[arg-type]
