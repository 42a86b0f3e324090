"""The command line: what each command prints, and how each mistake ends."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import joinsum
import jsonschema
import pytest
from click.testing import CliRunner, Result
from joinsum.cli import main
from joinsum.cli.doctor import Finding
from joinsum.explanation.document import schema

PLANS = Path(__file__).parents[2] / "plans"
SIZED = "tra\ninput X: f32[n,64]<p,1>  # n points\noutput Y = aggregate[0; add](X)\n"
MATMUL = str(PLANS / "matmul.tra")
GRAPH = str(PLANS / "product.json")


def call(*arguments: object, stdin: str | None = None) -> Result:
    return CliRunner().invoke(main, [str(argument) for argument in arguments], input=stdin)


def printed(*arguments: object, stdin: str | None = None) -> str:
    done = call(*arguments, stdin=stdin)
    assert done.exit_code == 0, done.output
    return done.output


# --- plan -------------------------------------------------------------------------------------------------------------


def test_plan_prints_the_explanation() -> None:
    output = printed("plan", MATMUL, "--sites", 4, "--place", "A=(1,1)", "--minimize", "wire_bytes")
    joinsum.init(sites=4)
    explained = joinsum.explain(joinsum.parse(Path(MATMUL).read_text()), {"A": [1, 1]}, minimize="wire_bytes")
    assert output == f"{explained}\n"


def test_plan_prints_json_that_follows_the_schema() -> None:
    value = json.loads(printed("plan", MATMUL, "--sites", 4, "--json"))
    jsonschema.validate(value, schema())
    assert value["sites"] == {"count": 4, "grid": [2, 2]}


def test_plan_writes_page_and_graph(tmp_path: Path) -> None:
    printed("plan", MATMUL, "--sites", 2, "--html", tmp_path / "plan.html", "--dot", tmp_path / "plan.dot")
    assert (tmp_path / "plan.html").read_text().startswith("<!doctype html>")
    assert (tmp_path / "plan.dot").read_text().startswith("digraph plan {")


def test_plan_replaces_sizes_and_reads_the_standard_input() -> None:
    output = printed("plan", "-", "--size", "n=1000", "--size", "p=4", stdin=SIZED)
    assert "input X: f32[1000,64]<4,1>" in output


def test_plan_chooses_partition_vectors_of_a_graph_of_einsums() -> None:
    output = printed("plan", GRAPH, "--objective", "paper", "--calls", 16, "--json")
    assert json.loads(output) == {
        "plan": {"Z": {"i": 4, "j": 2, "k": 2}},
        "cost": 448,
        "exact": True,
        "lower_bound": 448,
    }
    assert "plan of 1 einsums for 8 calls each" in printed("plan", GRAPH)


@pytest.mark.parametrize(
    ("pins", "vector"),
    [
        (["Z:i=2,k=8"], {"i": 2, "j": 1, "k": 8}),
        (["Z:2,4,2"], {"i": 2, "j": 4, "k": 2}),
        (["Z:j=4", "X:1,4"], {"i": 1, "j": 4, "k": 4}),
        (["Product:i=8,k=2"], {"i": 8, "j": 1, "k": 2}),
    ],
)
def test_plan_obeys_pins_of_einsums_inputs_and_outputs(pins: list[str], vector: dict[str, int], tmp_path: Path) -> None:
    graph = json.loads(Path(GRAPH).read_text())
    graph["outputs"] = {"Product": "Z"}
    file = tmp_path / "graph.json"
    file.write_text(json.dumps(graph))
    arguments = [part for pin in pins for part in ("--pin", pin)]
    found = json.loads(printed("plan", file, "--calls", 16, "--json", *arguments))
    wanted: dict[str, Any] = {}
    for pin in pins:
        name, parts = pin.split(":")
        pairs = [each.split("=") for each in parts.split(",") if "=" in each]
        by_label = {label: int(number) for label, number in pairs}
        wanted[name] = by_label or [int(number) for number in parts.split(",")]
    assert found == joinsum.plan_graph(graph, calls=16, pins=wanted).to_json()
    assert found["plan"]["Z"] == vector


def test_plan_obeys_pinned_placements() -> None:
    arguments = ("plan", GRAPH, "--objective", "wire_bytes", "--sites", 4, "--json")
    placed = json.loads(printed(*arguments, "--pin", "Z:(k,*)", "--pin", "X: 4, 1"))
    assert placed["placements"] == {"Z": "(k, *)"}
    assert placed["inputs"]["X"] == "(0, 0)"
    assert placed["cost"] == 4 * 48 * 4  # every site needs all of X, and has 16 of 64 elements of 4 bytes


def test_plan_names_the_smallest_set_of_pins_that_contradict() -> None:
    done = call("plan", GRAPH, "--pin", "X:1,1", "--pin", "Z:i=4,j=1,k=4")
    assert done.exit_code == 4
    assert done.output.rstrip().endswith("change or remove one of them: pins=[Z.i=4, Z.k=4]")


def test_plan_of_a_graph_that_no_memory_holds_ends_with_4() -> None:
    done = call("plan", GRAPH, "--objective", "wire_bytes", "--sites", 2, "--memory-limit", "1")
    assert done.exit_code == 4
    assert "no plan fits a site's memory" in done.output


def test_plan_explains_a_physical_plan_on_its_own_sites() -> None:
    assert "on 3 sites (3)" in printed("plan", PLANS / "gather.ia")


def test_plan_leaves_out_the_named_rules_and_phases() -> None:
    output = printed("plan", MATMUL, "--sites", 4, "--without", "products", "--without", "R2-4")
    assert "products" not in output
    assert "MM-" not in output


def test_plan_prices_a_calibrated_machine(tmp_path: Path) -> None:
    file = tmp_path / "calibration.json"
    printed("calibrate", "--seconds", 0.05, "--path", file)
    output = printed("plan", MATMUL, "--calibration", file)
    assert "costs are for calibrated " in output
    assert "ships" not in output


@pytest.mark.parametrize(
    ("arguments", "stdin", "code", "message"),
    [
        (["-"], "", 3, "a plan begins with `tra`, or with `ia on` and a grid"),
        (
            ["-"],
            "hello",
            3,
            "first word='hello'; correct the program (docs/algebra.md has the language)",
        ),
        (["-"], "tra\ninput X: f32[4,4]<2>\noutput Y = Z", 3, "line=3"),
        (["-"], "tra\ninput X: f32[4]<2>\noutput Y = transform[rellu](X)", 3, "unknown name: name=rellu"),
        (
            ["-"],
            "tra\ninput X: f32[4,6]<2,3>\ninput W: f32[5,4]<3,2>\n"
            "output Y = aggregate[0, 2; add](join[1; 0; matmul](X, W))",
            3,
            "line=4",
        ),
        (["-", "--size", "n=10"], SIZED, 2, "--size: one is missing; give --size p=N: file=standard input, line=2"),
        (["-", "--size", "n=1", "--size", "p=1", "--size", "m=2"], SIZED, 2, "no input line has this one: file=stand"),
        (["-", "--size", "n=ten"], SIZED, 2, "n=ten is no size; give a whole number"),
        (["-", "--size", f"n={2**63}"], SIZED, 2, "is no size; give a whole number from 0 to 2^63 - 1"),
        (["-", "--calls", str(2**31)], SIZED, 2, "'--calls': 2147483648 is not in the range"),
        (["-", "--size", "n=1", "--size", "n=2"], SIZED, 2, "n occurs twice"),
        (["-", "--size", "n"], SIZED, 2, "'n' is not of the form NAME=VALUE"),
        (["/nowhere/plan.tra"], None, 2, "plan: No such file or directory: path=/nowhere/plan.tra"),
        ([], None, 2, "Missing argument 'FILE'"),
        ([MATMUL, "--sites", "0"], None, 2, "0 is not in the range 1<=x<=4096"),
        ([MATMUL, "--without", "R9-9"], None, 2, "--without: no such phase or rule; phases are lower, placement, "),
        ([MATMUL, "--without", "rewritte"], None, 2, "name=rewritte, close=[rewrite]"),
        ([MATMUL, "--place", "Z=(0)"], None, 2, "--place: lower: a placement for an unknown input: input='Z'"),
        ([MATMUL, "--place", "A=(7)", "--sites", "2"], None, 2, "--place: input A: placement"),
        ([MATMUL, "--minimize", "bytes"], None, 2, "'bytes' is not one of"),
        ([MATMUL, "--calls", "4"], None, 2, "--calls: a program has sites and --minimize; a graph of einsums is"),
        ([GRAPH, "--sites", "4"], None, 2, "--sites: the paper counts no sites; give --objective wire_bytes"),
        ([GRAPH, "--calls", "0"], None, 2, "0 is not in the range"),
        ([GRAPH, "--pin", "Z"], None, 2, "'Z' is not of the form NAME:PARTS, such as Z:i=4,j=2"),
        ([GRAPH, "--pin", "Z:i=4", "--pin", "Z:j=2"], None, 2, "Z occurs twice; write all its labels in one"),
        ([GRAPH, "--pin", "Z:i=4,i=2"], None, 2, "Z: label i occurs twice"),
        ([GRAPH, "--pin", "Z:i=4,2"], None, 2, "Z: '2' is not of the form LABEL=PARTS"),
        ([GRAPH, "--pin", "Z:i=0"], None, 2, "Z: '0' is no number of parts; give a whole number of at least 1"),
        ([GRAPH, "--pin", "ZZ:i=4"], None, 2, "--pin: no such input, einsum or output: name=ZZ, close=[Z]"),
        ([GRAPH, "--pin", "Z:q=4"], None, 2, "--pin: no such label: name=Z, label=q, labels=['i', 'j', 'k']"),
        ([GRAPH, "--pin", "X:4"], None, 2, "--pin: one number for each label is needed: name=X, parts=[4], labels="),
        ([GRAPH, "--pin", "Z:(i,*)"], None, 2, "--pin: the paper's vectors have no placement; give part counts"),
        ([MATMUL, "--pin", "Z:i=4"], None, 2, "--pin: a program has sites and --minimize; a graph of einsums is"),
        ([MATMUL, "--memory-limit", "1K"], None, 4, "no plan that was found fits a site's memory; use more sites"),
        ([MATMUL, "--calibration", "/nowhere/c.json"], None, 2, "No such file or directory: path=/nowhere/c.json"),
        ([MATMUL, "--calibration", MATMUL], None, 2, "--calibration: calibration: the file is cut off or damaged"),
        ([MATMUL, "--html", "/nowhere/plan.html"], None, 2, "No such file or directory: path=/nowhere/plan.html"),
        ([str(PLANS / "gather.ia"), "--sites", "2"], None, 2, "--sites: the physical plan is for another number"),
        ([str(PLANS / "gather.ia"), "--without", "lower"], None, 2, "--without: a physical plan is not searched for"),
    ],
)
def test_plan_says_what_is_wrong_and_where(arguments: list[str], stdin: str | None, code: int, message: str) -> None:
    done = call("plan", *arguments, stdin=stdin)
    assert done.exit_code == code, done.output
    assert message in done.output
    assert "Traceback" not in done.output


def test_a_file_that_is_no_text_is_malformed(tmp_path: Path) -> None:
    (tmp_path / "plan").write_bytes(b"tra\xff")
    done = call("plan", tmp_path / "plan")
    assert (done.exit_code, "not a text file" in done.output) == (3, True)


def test_a_calibration_with_unreadable_bytes_is_damaged(tmp_path: Path) -> None:
    (tmp_path / "c.json").write_bytes(b"\xff")
    assert call("plan", MATMUL, "--calibration", tmp_path / "c.json").exit_code == 2


# --- tables -----------------------------------------------------------------------------------------------------------


def test_rules_lists_every_rule_and_shows_one_in_full() -> None:
    output = printed("rules")
    assert all(rule.name in output and rule.law in output for rule in joinsum.rules())
    merge = joinsum.rules()[0]
    assert [line.split(maxsplit=1)[1] for line in printed("rules", merge.name).splitlines()] == [
        merge.name,
        merge.law,
        merge.when,
        merge.source,
    ]


def test_kernels_lists_every_kernel_and_shows_one_in_full() -> None:
    output = printed("kernels")
    assert all(row.name in output for row in joinsum.kernels())
    assert "matrix product AB" in printed("kernels", "matmul")
    assert json.loads(printed("kernels", "matmul", "--json"))[0]["operands"] == 2


@pytest.mark.parametrize(("command", "name", "close"), [("rules", "R1-111", "R1-1"), ("kernels", "matmull", "matmul")])
def test_an_unknown_name_is_wrong_usage(command: str, name: str, close: str) -> None:
    done = call(command, name)
    assert done.exit_code == 2
    assert f"name={name}, close=[{close}" in done.output


# --- doctor -----------------------------------------------------------------------------------------------------------


@pytest.mark.distributed
def test_the_doctor_tries_the_transports_and_names_what_is_missing() -> None:
    output = printed("doctor")
    for part in ("ok       loopback: 4 sites", "ok       gloo: 2 processes", "matplotlib:", "calibration:", "nccl:"):
        assert part in output
    lines = output.splitlines()
    for line, following in zip(lines, [*lines[1:], ""], strict=True):
        if line.startswith(("missing", "broken")):
            assert following.strip().startswith("remedy: ")


@pytest.mark.parametrize(
    ("suits", "faster", "setting", "expected"),
    [
        (False, False, "", ("ok", "torch's library")),
        (True, True, "", ("ok", "OpenBLAS multiplies")),
        (True, False, "0", ("ok", "JOINSUM_OPENBLAS=0")),
        (True, False, "", ("missing", "OpenBLAS, which is faster")),
    ],
)
def test_the_doctor_says_what_multiplies(
    monkeypatch: pytest.MonkeyPatch, suits: bool, faster: bool, setting: str, expected: tuple[str, str]
) -> None:
    monkeypatch.setattr(joinsum._C, "openblas_suits_processor", lambda: suits)
    monkeypatch.setattr(joinsum._C, "openblas_is_faster", lambda: faster)
    monkeypatch.setenv("JOINSUM_OPENBLAS", setting)
    found = sys.modules["joinsum.cli.doctor"]._products()
    assert found.state == expected[0]
    assert expected[1] in found.found
    assert bool(found.remedy) == (found.state == "missing")


def test_what_joinsum_needs_and_lacks_ends_the_doctor_with_1(monkeypatch: pytest.MonkeyPatch) -> None:
    broken = [Finding("torch", "broken", "not installed", "pip install torch"), Finding("rich", "ok", "13")]
    monkeypatch.setattr(sys.modules["joinsum.cli.doctor"], "findings", lambda: iter(broken))
    done = call("doctor")
    assert done.exit_code == 1
    assert "broken   torch: not installed\n         remedy: pip install torch" in done.output


# --- the program ------------------------------------------------------------------------------------------------------


def test_the_module_is_the_command() -> None:
    command = [sys.executable, "-m", "joinsum.cli", "rules", "R1-1"]
    assert "F[a](F[b] R)" in subprocess.run(command, capture_output=True, text=True, check=True).stdout
