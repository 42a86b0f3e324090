"""`joinsum plan` of graphs with sparse inputs and of sparse programs: what it prints, and how each mistake ends."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import numpy
import pytest
import scipy.io
import scipy.sparse
from click.testing import CliRunner, Result
from joinsum.cli import main
from joinsum.sparse import Program, SparseTensor

PLANS = Path(__file__).parents[2] / "plans"
PRODUCT = PLANS / "product.json"
EDGES = [[0, 1], [0, 2], [1, 2], [1, 3], [2, 3], [3, 0]]
SIZE = 400


def op(name: str, inputs: list[str], in_labels: list[str], out_labels: str, **others: str) -> dict[str, Any]:
    return {"name": name, "inputs": inputs, "in_labels": in_labels, "out_labels": out_labels} | others


# A product, taken where M is, and its sums weighed by a dense vector.
MASKED = {
    "inputs": {"A": [SIZE, SIZE], "M": [SIZE, SIZE], "w": [SIZE]},
    "ops": [
        op("product", ["A", "A"], ["ij", "jk"], "ik", agg="sum"),
        op("masked", ["product", "M"], ["ik", "ik"], "ik"),
        op("sums", ["masked", "w"], ["ik", "k"], "i", agg="sum"),
    ],
    "outputs": ["sums"],
}


def call(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["plan", *map(str, arguments)])


def printed(*arguments: object) -> str:
    done = call(*arguments)
    assert (done.exit_code, done.stderr) == (0, ""), done.output
    return done.stdout


def written(file: Path, value: Any) -> Path:
    file.write_text(value if isinstance(value, str) else json.dumps(value))
    return file


@pytest.fixture
def matrices() -> dict[str, Any]:
    random = numpy.random.default_rng(0)
    pattern = scipy.sparse.random_array((SIZE, SIZE), density=0.005, rng=random, format="csr")
    mask = scipy.sparse.random_array((SIZE, SIZE), density=0.1, rng=random, format="csr")
    return {"A": pattern, "M": mask, "w": random.random(SIZE)}


@pytest.fixture
def masked(tmp_path: Path, matrices: dict[str, Any]) -> list[object]:
    """The arguments of a call that has all values."""
    scipy.io.mmwrite(tmp_path / "a.mtx", matrices["A"])
    scipy.sparse.save_npz(tmp_path / "m.npz", matrices["M"])
    numpy.save(tmp_path / "w.npy", matrices["w"])
    sparse = ("--sparse", f"A={tmp_path / 'a.mtx'}", "--sparse", f"M={tmp_path / 'm.npz'}")
    return [written(tmp_path / "graph.json", MASKED), *sparse, "--dense", f"w={tmp_path / 'w.npy'}"]


# --- graphs -----------------------------------------------------------------------------------------------------------


def test_the_plan_of_a_graph_has_a_query_for_each_operation() -> None:
    output = printed(PLANS / "triangles.json", "--sparse", f"E={PLANS / 'edges.mtx'}")
    leaf = ["in", "E", ["i", "j"]]
    queries = [
        {
            "name": "paths",
            "expr": ["agg", "+", ["j"], ["map", "*", [leaf, ["in", "E", ["j", "k"]]]]],
            "output": ["i", "k"],
        },
        {
            "name": "triangles",
            "expr": ["agg", "+", ["k"], ["map", "*", [["in", "paths", ["i", "k"]], ["in", "E", ["k", "i"]]]]],
            "output": ["i"],
        },
    ]
    program = Program({"tensors": {"E": SparseTensor.from_edges(EDGES, 4)}, "queries": queries})
    assert output == f"{program.plan()}\n"


def test_entries_are_estimated_and_counted_and_levels_have_formats(
    masked: list[object], matrices: dict[str, Any]
) -> None:
    plan = json.loads(printed(*masked, "--json"))
    assert "true_entries" not in plan
    assert [query["name"] for query in plan["logical"]] == ["product", "masked", "sums"]
    formats = {query["name"]: query["formats"] for query in plan["physical"]}
    # A dense result stores all its elements, but those that differ from the fill count.
    assert formats["sums"] == ["dense"]
    found = json.loads(printed(*masked, "--json", "--analyze"))
    product = matrices["A"] @ matrices["A"]
    masked_by_m = product.multiply(matrices["M"]).tocsr()
    nonempty_rows = numpy.count_nonzero(numpy.diff(masked_by_m.indptr))
    counts = {"product": product.nnz, "masked": masked_by_m.nnz, "sums": nonempty_rows}
    assert found["true_entries"] == counts
    assert set(found["seconds"]) == {"plan", "compile", "run"}
    assert {name: found[name] for name in plan if name != "seconds"} == {
        name: plan[name] for name in plan if name != "seconds"
    }


def test_a_run_prints_true_entries_beside_the_estimated_ones_and_seconds_of_each_step(masked: list[object]) -> None:
    lines = printed(*masked, "--analyze").splitlines()
    plan = printed(*masked).splitlines()
    assert [re.sub(r" \(true \d+\)", "", line) for line in lines[: len(plan)]] == plan
    assert sum("(true " in line for line in lines) == 3
    number = r"[0-9.]+(e-\d+)?"
    assert re.fullmatch(f"seconds: plan {number}, compile {number}, run {number}", lines[-1])


def test_queries_whose_loops_follow_true_entries_are_named(tmp_path: Path) -> None:
    """A has only the columns, and B only the rows, that the other lacks: no estimator but the exact one sees it."""
    shape = [600, 600]
    product = op("P", ["A", "B"], ["ij", "jk"], "ik", agg="sum")
    graph = {"inputs": dict.fromkeys("ABC", shape), "outputs": ["Q"]} | {
        "ops": [product, op("Q", ["P", "C"], ["ik", "kl"], "il", agg="sum")]
    }
    arguments: list[object] = [written(tmp_path / "graph.json", graph)]
    for name, rows in {"A": range(300), "B": range(300, 600), "C": range(600)}.items():
        file = written(tmp_path / f"{name}.json", {"coo": [[i, i, 1] for i in rows]})
        arguments += ["--sparse", f"{name}={file}"]
    output = printed(*arguments, "--analyze")
    assert "    entries 300 (true 0) of 300" in output
    assert "\nplanned again by true entries: Q\nseconds: plan " in output


@pytest.mark.parametrize("statistics", [{"nnz": 40, "degrees": [[[1], [0], 1]]}, {"nnz": 40}, 40])
def test_statistics_are_in_a_file_or_a_number_of_entries(statistics: Any, tmp_path: Path) -> None:
    graph = {"inputs": {"X": [80, 80], "Y": [80, 80]}} | {
        "ops": [op("Z", ["X", "Y"], ["ij", "jk"], "ik", agg="sum")],
        "outputs": ["Z"],
    }
    told = statistics if isinstance(statistics, int) else written(tmp_path / "x.json", statistics)
    plan = json.loads(
        printed(written(tmp_path / "graph.json", graph), "--sparse", f"X={told}", "--sparse", "Y=30", "--json")
    )
    tensor = statistics if isinstance(statistics, dict) else {"nnz": statistics}
    expr = ["agg", "+", ["j"], ["map", "*", [["in", "X", ["i", "j"]], ["in", "Y", ["j", "k"]]]]]
    program = Program(
        {
            "tensors": {"X": {"shape": [80, 80]} | tensor, "Y": {"shape": [80, 80], "nnz": 30}},
            "queries": [{"name": "Z", "expr": expr, "output": ["i", "k"]}],
        }
    )
    assert plan["logical"] == program.plan().data()["logical"]


@pytest.mark.parametrize("dtype", ["f2", "i1", "?", ">f8", "u4"])
def test_values_may_have_any_real_dtype(dtype: str, tmp_path: Path) -> None:
    arguments = ("--sparse", f"X={PLANS / 'edges.mtx'}", "--dense", f"Y={tmp_path / 'y.npy'}")
    graph = json.loads(PRODUCT.read_text()) | {"inputs": {"X": [4, 4], "Y": [4, 8]}}
    numpy.save(tmp_path / "y.npy", numpy.asfortranarray(numpy.ones((4, 8)).astype(dtype)))
    value = json.loads(printed(written(tmp_path / "graph.json", graph), *arguments, "--analyze", "--json"))
    assert value["true_entries"] == {"Z": 32}


# --- sparse programs --------------------------------------------------------------------------------------------------

PROGRAM = {
    "tensors": {"E": {"shape": [4, 4], "coo": [[*edge, 1] for edge in EDGES]}},
    "queries": [{"name": "sums", "expr": ["agg", "+", ["j"], ["in", "E", ["i", "j"]]], "output": ["i"]}],
}


def test_a_file_with_a_sparse_program_is_planned_as_the_command_sparse_plans_it(tmp_path: Path) -> None:
    file = written(tmp_path / "program.json", PROGRAM)
    assert printed(file) == CliRunner().invoke(main, ["sparse", str(file)]).stdout
    assert "entries 4 (true 4) of 6" in printed(file, "--analyze")
    assert json.loads(printed(file, "--analyze", "--json"))["true_entries"] == {"sums": 4}


# --- mistakes ---------------------------------------------------------------------------------------------------------

X = ("--sparse", "X=12")


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--analyze"], 2, "--analyze: only where inputs are sparse; give --sparse INPUT=FILE"),
        (["--dense", "Y=y.npy"], 2, "--dense: only where inputs are sparse; give --sparse INPUT=FILE"),
        (["--sparse", "X"], 2, "'X' is not of the form NAME=VALUE"),
        ([*X, *X], 2, "X occurs twice"),
        ([*X, "--dense", "Y=y.npy", "--dense", "Y=y.npy"], 2, "Y occurs twice"),
        (["--sparse", "XX=12"], 2, "--sparse: no such input: name=XX, inputs=[X, Y], close=[X]"),
        (["--sparse", "Z=12"], 2, "--sparse: no such input: name=Z, inputs=[X, Y]"),
        ([*X, "--dense", "Z=y.npy"], 2, "--dense: no such input: name=Z, inputs=[X, Y]"),
        ([*X, "--dense", "X=y.npy"], 2, "--dense: the input is sparse by --sparse; give it once: name=X"),
        (["--sparse", "X=x.txt"], 2, "'x.txt' is neither a number of entries nor a file whose name ends in .mtx, .npz"),
        (["--sparse", "X=-1"], 2, "'-1' is neither a number of entries nor a file"),
        (["--sparse", "X=/nowhere/x.mtx"], 2, "plan: No such file or directory: path=/nowhere/x.mtx"),
        ([*X, "--dense", "Y=/nowhere/y.npy"], 2, "plan: No such file or directory: path=/nowhere/y.npy"),
        ([*X, "--analyze"], 2, "--analyze: a run needs all entries; give --sparse X=FILE.mtx (or .npz, or .json with "),
        (["--sparse", "X=65"], 3, "more entries than elements, or less than none: tensor=X, nnz=65, shape=[8, 8]"),
        ([*X, "--objective", "paper"], 2, "--objective: not with --sparse"),
        ([*X, "--calls", "4"], 2, "--calls: not with --sparse"),
        ([*X, "--pin", "Z:i=2"], 2, "--pin: not with --sparse"),
        ([*X, "--size", "n=4"], 2, "--size: not with --sparse"),
        ([*X, "--minimize", "seconds"], 2, "--minimize: not with --sparse"),
        ([*X, "--place", "X=replicated"], 2, "--place: not with --sparse"),
        ([*X, "--without", "lower"], 2, "--without: not with --sparse"),
        ([*X, "--html", "plan.html"], 2, "--html: not with --sparse"),
        ([*X, "--dot", "plan.dot"], 2, "--dot: not with --sparse"),
    ],
)
def test_wrong_options_are_named(arguments: list[str], code: int, message: str) -> None:
    done = call(PRODUCT, *arguments)
    assert (done.exit_code, done.stdout) == (code, ""), done.output
    assert message in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("option", ["--sparse=X=12", "--dense=X=x.npy", "--analyze"])
def test_a_plan_s_text_has_no_sparse_inputs(option: str) -> None:
    done = call(PLANS / "matmul.tra", option)
    assert (done.exit_code, "for a graph of einsums, a .json file" in done.stderr) == (2, True)


SHAPE = "plan: an input has another shape than in the graph: input=X, shape=[4, 4], graph=[8, 8]"


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("x.mtx", (PLANS / "edges.mtx").read_text(), SHAPE),
        ("x.mtx", "hello", "--sparse X: from_matrix_market: no file in the Matrix Market format: path="),
        ("x.mtx.gz", "hello", "--sparse X: the file is malformed: file="),
        ("x.npz", "hello", "error=scipy.sparse.save_npz did not write it"),
        ("x.npz", "", "error=scipy.sparse.save_npz did not write it"),
        ("x.json", "{", "--sparse X: the file is malformed: file="),
        ("x.json", "[12]", "--sparse X: statistics are an object with nnz, or coo: file="),
        ("x.json", "[" * 100_000, "--sparse X: the file is malformed: file="),
        ("x.json", '{"nnz": 12, "shape": [4, 4]}', SHAPE),
        ("x.json", '{"fill": 0}', "neither entries nor their number: at=$.tensors.X; give coo or nnz"),
        ("x.json", '{"nnz": "many"}', """no number, "inf" or "-inf": at=$.tensors.X.nnz, value='many'"""),
        ("x.json", '{"nnz": NaN}', "NaN is no value: at=$.tensors.X.nnz"),
        ("x.json", '{"nnz": 1, "size": 2}', "unknown members: at=$.tensors.X, members=['size']"),
        (
            "x.json",
            '{"nnz": 1, "degrees": [[[0], [2], 1]]}',
            "a degree's axis is out of range: tensor=X, axis=2, rank=2",
        ),
        ("x.json", '{"coo": [[0, 8, 1]]}', "coordinate=8, size=8: at=$.tensors.X.coo"),
    ],
)
def test_malformed_files_of_sparse_inputs_are_named(name: str, content: str, message: str, tmp_path: Path) -> None:
    done = call(PRODUCT, "--sparse", f"X={written(tmp_path / name, content)}")
    assert (done.exit_code, done.stdout) == (3, ""), done.output
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_malformed_files_of_numpy_and_scipy_are_named(tmp_path: Path) -> None:
    scipy.sparse.save_npz(tmp_path / "x.npz", scipy.sparse.coo_array(numpy.eye(8)))
    (tmp_path / "cut.npz").write_bytes((tmp_path / "x.npz").read_bytes()[:200])
    numpy.savez(tmp_path / "other.npz", numpy.eye(8))
    for name in ("cut", "other"):
        done = call(PRODUCT, "--sparse", f"X={tmp_path / name}.npz")
        assert (done.exit_code, "--sparse X: the file is malformed: file=" in done.stderr) == (3, True), done.output
    numpy.save(tmp_path / "shape.npy", numpy.zeros(8))
    numpy.save(tmp_path / "complex.npy", numpy.zeros((8, 8), complex))
    numpy.save(tmp_path / "objects.npy", numpy.array([{}], object))
    written(tmp_path / "text.npy", "hello, world")
    for name, message in {
        "shape": "plan: an input has another shape than in the graph: input=Y, shape=[8], graph=[8, 8]",
        "complex": "--dense Y: values are real numbers: file=",
        "objects": "--dense Y: the file is malformed: file=",
        "text": "error=the magic string is not correct",
    }.items():
        done = call(PRODUCT, *X, "--dense", f"Y={tmp_path / name}.npy")
        assert (done.exit_code, message in done.stderr) == (3, True), done.output


@pytest.mark.parametrize("name", ["x.mtx", "x.npz"])
def test_without_scipy_its_files_name_the_remedy(name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for module in ("scipy.io", "scipy.sparse"):
        monkeypatch.setitem(sys.modules, module, None)
    done = call(PRODUCT, "--sparse", f"X={written(tmp_path / name, '')}")
    assert (done.exit_code, "not installed; run `pip install scipy`" in done.stderr) == (3, True), done.output


def test_values_that_a_run_lacks_are_named(tmp_path: Path) -> None:
    scipy.io.mmwrite(tmp_path / "x.mtx", scipy.sparse.coo_array(numpy.eye(8)))
    done = call(PRODUCT, "--sparse", f"X={tmp_path / 'x.mtx'}", "--analyze")
    assert done.exit_code == 2
    assert "--analyze: a run needs all entries; give --dense Y=FILE.npy, or --sparse Y=FILE.mtx" in done.stderr
    statistics = PROGRAM | {"tensors": {"E": {"shape": [4, 4], "nnz": 6}}}
    done = call(written(tmp_path / "program.json", statistics), "--analyze")
    assert done.exit_code == 2
    assert "--analyze: a run needs all entries; give coo in the program: input=E" in done.stderr


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"join": "squared"}, "plan: kernel: unknown name: name=squared"),
        ({"agg": "argmax"}, "sparse operands cannot be reduced by agg='argmax'"),
        ({"in_labels": ["ij", "jkl"]}, "plan: an operand has 2 axes but 3 labels: at="),
    ],
)
def test_graphs_without_a_sparse_program_are_malformed(changes: dict[str, Any], message: str, tmp_path: Path) -> None:
    graph = json.loads(PRODUCT.read_text())
    graph["ops"][0] |= changes
    done = call(written(tmp_path / "graph.json", graph), *X)
    assert (done.exit_code, message in done.stderr, "at=$.ops[0]" in done.stderr) == (3, True, True), done.output


@pytest.mark.parametrize(
    ("value", "arguments", "code", "message"),
    [
        (PROGRAM | {"queries": []}, [], 3, "plan: sparse program: no query: file="),
        (PROGRAM | {"more": 1}, [], 3, "unknown members: at=$, members=['more']: file="),
        (PROGRAM, ["--sparse", "E=6"], 2, "--sparse: not for a sparse program, which has its tensors"),
        (PROGRAM, ["--dense", "E=e.npy"], 2, "--dense: not for a sparse program, which has its tensors"),
        (PROGRAM, ["--objective", "paper"], 2, "--objective: not for a sparse program"),
        (PROGRAM, ["--html", "plan.html"], 2, "--html: not for a sparse program"),
    ],
)
def test_mistakes_of_sparse_programs_are_named(
    value: Any, arguments: list[str], code: int, message: str, tmp_path: Path
) -> None:
    done = call(written(tmp_path / "program.json", value), *arguments)
    assert (done.exit_code, done.stdout) == (code, ""), done.output
    assert message in done.stderr


@pytest.mark.parametrize("form", ["a graph", "a program"])
def test_sites_divide_the_queries(tmp_path: Path, form: str) -> None:
    edges = {"shape": [SIZE, SIZE], "nnz": 20_000}
    graph = written(tmp_path / "graph.json", MASKED)
    query = {"name": "q", "expr": ["agg", "+", ["j"], ["in", "A", ["i", "j"]]], "output": ["i"]}
    program = written(tmp_path / "program.json", {"tensors": {"A": edges}, "queries": [query]})
    given = [program] if form == "a program" else [graph, "--sparse", "A=800", "--sparse", "M=16000"]
    text = printed(*given, "--sites", 4)
    assert text.startswith(printed(*given).split("\nplan of")[0].strip())
    assert "on 4 sites (2x2)" in text
    data = json.loads(printed(*given, "--sites", 4, "--json"))
    assert data["site_plan"].startswith("ia on 2x2")
    assert data["site_cost"]["seconds"] > 0
    assert "site_plan" not in json.loads(printed(*given, "--json"))
