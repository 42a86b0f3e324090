"""`joinsum plan`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from joinsum.cli.options import FILE, bytes_of, close_names, exit_codes

if TYPE_CHECKING:
    from joinsum import Cluster, Explanation, IaPlan, TraPlan
    from joinsum._C import JsonGraph
    from joinsum.execution.planned_graph import PlannedGraph
    from joinsum.sparse import Plan, Program

__all__ = ["plan"]

# Part counts by label, or in the order of the labels; or a placement, as text.
Pin = dict[str, int] | list[int] | str

_MOST_SITES = 4096
# Options of graphs alone, of programs alone, of plans for sites, and of sparse inputs.
_OF_GRAPHS = ("objective", "calls", "pin")
_OF_PROGRAMS = ("size", "minimize", "place", "without", "html", "dot")
_OF_SITES = ("sites", "calibration", "memory_limit")
_OF_SPARSE = ("sparse", "dense", "analyze")


class _Wrong(ValueError):
    """An option that does not fit, or a file that cannot be read or written."""


def _named(values: tuple[str, ...], separator: str, form: str, hint: str = "") -> dict[str, str]:
    """Parses a name, the separator and a text in each of the values; each name once."""
    named: dict[str, str] = {}
    for value in values:
        name, _, text = (part.strip() for part in value.partition(separator))
        if not (name and text):
            raise click.BadParameter(f"{value!r} is not of the form {form}")
        if name in named:
            raise click.BadParameter(f"{name} occurs twice{hint.format(name=name)}")
        named[name] = text
    return named


def _pairs(_context: click.Context, _option: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
    return _named(values, "=", "NAME=VALUE")


def _sizes(_context: click.Context, _option: click.Parameter, values: tuple[str, ...]) -> dict[str, int]:
    sizes = {}
    for name, text in _named(values, "=", "NAME=VALUE").items():
        if not text.isdecimal() or int(text) >= 2**63:
            raise click.BadParameter(f"{name}={text} is no size; give a whole number from 0 to 2^63 - 1")
        sizes[name] = int(text)
    return sizes


def _pins(_context: click.Context, _option: click.Parameter, values: tuple[str, ...]) -> dict[str, Pin]:
    """Parses NAME:PARTS: parts by label `i=4,j=2`, one for each label or axis `4,2`, or a placement `(i,*)`."""
    form = "NAME:PARTS, such as Z:i=4,j=2, X:4,1 or 'Z:(i,*)'"
    hint = "; write all its labels in one, as in {name}:i=4,j=2"
    return {name: _pin(name, text) for name, text in _named(values, ":", form, hint).items()}


def _pin(name: str, text: str) -> Pin:
    if text.startswith("("):
        return text
    entries = [entry.strip() for entry in text.split(",")]
    if "=" not in text:
        return [_parts(name, entry) for entry in entries]
    parts: dict[str, int] = {}
    for entry in entries:
        label, equals, number = (part.strip() for part in entry.rpartition("="))
        if not (label and equals):
            raise click.BadParameter(f"{name}: {entry!r} is not of the form LABEL=PARTS")
        if label in parts:
            raise click.BadParameter(f"{name}: label {label} occurs twice")
        parts[label] = _parts(name, number)
    return parts


def _parts(name: str, text: str) -> int:
    if not (text.isascii() and text.isdecimal()) or not 1 <= int(text) < 2**63:
        raise click.BadParameter(f"{name}: {text!r} is no number of parts; give a whole number of at least 1")
    return int(text)


@dataclass(frozen=True)
class _Request:
    """The options of the command."""

    file: Path
    size: Mapping[str, int]
    sites: int | None
    minimize: str | None
    place: Mapping[str, str]
    without: tuple[str, ...]
    objective: str | None
    calls: int | None
    pin: Mapping[str, Pin]
    calibration: Path | None
    memory_limit: int | None
    sparse: Mapping[str, str]
    dense: Mapping[str, str]
    analyze: bool
    as_json: bool
    html: Path | None
    dot: Path | None


@click.command()
@click.argument("file", type=FILE)
@click.option("--size", metavar="NAME=N", multiple=True, callback=_sizes, help="A size that the program names.")
@click.option(
    "--sites",
    type=click.IntRange(min=1, max=_MOST_SITES),
    help="Sites to plan for.  [default: 1; a physical plan says its own]",
)
@click.option(
    "--minimize", type=click.Choice(["seconds", "wire_bytes", "paper_floats"]), help="The cost.  [default: seconds]"
)
@click.option(
    "--place",
    metavar="INPUT=PLACE",
    multiple=True,
    callback=_pairs,
    help="Where an input starts: X=(0,*), X=replicated.",
)
@click.option("--without", metavar="NAME", multiple=True, help="A phase of the optimizer or a rule to leave out.")
@click.option(
    "--objective",
    type=click.Choice(["paper", "wire_bytes", "seconds"]),
    help="Of a graph: elements moved, as the paper counts, or the cost on --sites.  [default: paper]",
)
@click.option(
    "--calls",
    type=click.IntRange(1, 2**31 - 1),
    help="Of a graph, by the paper: kernel calls of each einsum.  [default: 8]",
)
@click.option(
    "--pin",
    metavar="NAME:PARTS",
    multiple=True,
    callback=_pins,
    help="Of a graph: parts of an einsum or output by label, Z:i=4,j=2, of an input by axis, X:4,1; or on --sites what "
    "each axis of their grid divides, 'Z:(i,*)'.",
)
@click.option("--calibration", type=FILE, help="File of `joinsum calibrate`: the machine.  [default: a described one]")
@click.option("--memory-limit", metavar="BYTES", callback=bytes_of, help="Memory of a site, such as 8G.")
@click.option(
    "--sparse",
    metavar="INPUT=FILE",
    multiple=True,
    callback=_pairs,
    help="Of a graph: an input that is sparse, with its entries in FILE (.mtx; .npz of scipy), or statistics of them "
    "(.json; or their number instead of a file). Plans loops and formats of one process, then what --sites divide.",
)
@click.option(
    "--dense", metavar="INPUT=FILE", multiple=True, callback=_pairs, help="Values of a dense input for --analyze: .npy."
)
@click.option(
    "--analyze", is_flag=True, help="With --sparse, or of a sparse program: also run the plan, and print true entries."
)
@click.option("--json", "as_json", is_flag=True, help="Print the explanation as JSON.")
@click.option("--html", type=FILE, metavar="OUT", help="Also write it as a page.")
@click.option("--dot", type=FILE, metavar="OUT", help="Also write the plan as a graph for Graphviz.")
def plan(**values: Any) -> None:
    """Find the cheapest plan of a program, and explain it.

    FILE holds a plan's text, logical (its first line is `tra`) or physical (`ia on 2x2`, which is explained as it is);
    `-` reads the standard input. Sizes in its input lines may be names: `input X: f32[n,64]<p,1>` with --size n=1000
    --size p=4. A file that ends in .json is a graph of einsums, for which partition vectors are chosen; with --sparse
    it is planned as a sparse program of one query for each einsum, and so is a .json file that holds such a program.
    Only --analyze runs anything.
    """
    from joinsum import PlanError
    from joinsum.cli.program import ProgramError, SizeError

    request = _Request(**values)
    with exit_codes({ProgramError: 3, SizeError: 2, _Wrong: 2, PlanError: 4}):
        try:
            _explain(request)
        except OSError as error:
            raise _Wrong(f"plan: {error.strerror}: path={error.filename}") from None


def _explain(request: _Request) -> None:
    if request.file.suffix != ".json":
        _plan_program(request)
    elif _holds_sparse_program(request.file):
        _plan_sparse_program(request)
    elif request.sparse:
        _plan_sparse_graph(request)
    else:
        _plan_graph(request)


def _plan_program(request: _Request) -> None:
    """Prints the explanation of a program, and writes it where requested."""
    from joinsum.cli.program import read_program

    _refuse_options(request, "a program has sites and --minimize; a graph of einsums is a .json file", _OF_GRAPHS)
    _refuse_options(request, "for a graph of einsums, a .json file", _OF_SPARSE)
    explanation = _explained(read_program(request.file, request.size), request)
    if request.html is not None:
        request.html.write_text(explanation.to_html(), encoding="utf-8")
    if request.dot is not None:
        request.dot.write_text(explanation.to_dot(), encoding="utf-8")
    click.echo(explanation.to_json(indent=1) if request.as_json else str(explanation))


def _explained(program: TraPlan | IaPlan, request: _Request) -> Explanation:
    import joinsum

    cluster = _cluster(request)
    if isinstance(program, joinsum.IaPlan):
        _refuse_search(program, request)
        joinsum.init(sites=program.grid.sites, cluster=cluster)
        return joinsum.explain(program)
    joinsum.init(sites=request.sites or 1, cluster=cluster)
    _check_names(request.without)
    _check_places(program, request.place)
    return joinsum.explain(program, request.place, minimize=request.minimize, without=request.without)


def _plan_graph(request: _Request) -> None:
    """Prints the partition vectors of a graph of einsums."""
    from joinsum import PlanError
    from joinsum.cli.program import ProgramError
    from joinsum.graphs.json_form import load_json
    from joinsum.planner.graph_plan import plan_graph

    _refuse_options(request, "not for a graph of einsums, which has --objective", _OF_PROGRAMS)
    _refuse_options(request, "only where inputs are sparse; give --sparse INPUT=FILE", ["dense", "analyze"])
    objective = request.objective or "paper"
    options: dict[str, Any] = {"calls": request.calls}
    if objective == "paper":
        _refuse_options(request, "the paper counts no sites; give --objective wire_bytes or seconds", _OF_SITES)
    else:
        _refuse_options(request, "only the paper counts calls; give --sites", ["calls"])
        options = {"sites": request.sites or 1, "cluster": _cluster(request)}
    try:
        graph = load_json("plan_graph", request.file)
    except PlanError as error:
        raise ProgramError(f"{error}; docs/planner.md has the format") from None
    _check_pins(graph, request.pin, objective)
    found = plan_graph(graph, objective, pins=request.pin or None, **options)
    click.echo(json.dumps(found.to_json()) if request.as_json else str(found))


def _holds_sparse_program(file: Path) -> bool:
    """Whether it is one by its members; what else is wrong with it, its reader says."""
    try:
        value = json.loads(file.read_text(encoding="utf-8"))
    except (ValueError, RecursionError):
        return False
    return isinstance(value, dict) and {"tensors", "queries"} <= value.keys()


def _plan_sparse_program(request: _Request) -> None:
    """Prints the plan of a sparse program."""
    from joinsum import PlanError
    from joinsum.cli.program import ProgramError
    from joinsum.sparse import Program

    _refuse_options(request, "not for a sparse program, which has its tensors", ["sparse", "dense"])
    _refuse_options(request, "not for a sparse program", [*_OF_GRAPHS, *_OF_PROGRAMS])
    try:
        program = Program.from_json(request.file.read_text(encoding="utf-8"))
    except PlanError as error:
        raise ProgramError(f"plan: {error}: file={request.file}; docs/sparse.md has the format") from None
    _print_sparse(program, request)


def _plan_sparse_graph(request: _Request) -> None:
    """Prints the plan of a graph of einsums, some of whose inputs are sparse."""
    from joinsum import KernelError, PlanError
    from joinsum.cli.program import ProgramError
    from joinsum.cli.sparse_inputs import read_inputs
    from joinsum.graphs.json_form import load_json
    from joinsum.graphs.sparse_program import sparse_program

    _refuse_options(request, "not with --sparse", [*_OF_GRAPHS, *_OF_PROGRAMS])
    try:
        graph = load_json("plan", request.file)
        _check_inputs(graph, request)
        program = sparse_program("plan", graph, read_inputs(request.sparse, request.dense))
    except (PlanError, KernelError) as error:
        raise ProgramError(str(error)) from None
    _print_sparse(program, request)


def _check_inputs(graph: JsonGraph, request: _Request) -> None:
    for option, given in (("--sparse", request.sparse), ("--dense", request.dense)):
        for name in given:
            if name not in graph.inputs:
                known = f"inputs=[{', '.join(graph.inputs)}]"
                raise _Wrong(f"{option}: no such input: name={name}, {known}{close_names(name, graph.inputs)}")
    for name in request.dense:
        if name in request.sparse:
            raise _Wrong(f"--dense: the input is sparse by --sparse; give it once: name={name}")


def _print_sparse(program: Program, request: _Request) -> None:
    """Prints the plan of the program, after a run where that is requested, and how sites divide it."""
    import joinsum

    if request.analyze:
        _check_entries(program, request)
    joinsum.init(sites=request.sites or 1, cluster=_cluster(request))
    plan = program.plan()
    if request.analyze:
        plan.run(analyze=True)
    on_sites = plan.site_plan
    if request.as_json:
        data = plan.data() | ({"true_entries": plan.true_entries} if request.analyze else {})
        click.echo(json.dumps(data | ({} if on_sites is None else _site_data(on_sites))))
        return
    click.echo(str(plan))
    if on_sites is not None:
        click.echo(str(on_sites))
    if request.analyze:
        click.echo("\n".join(_measured_lines(plan)))


def _site_data(planned: PlannedGraph) -> dict[str, Any]:
    cost = planned.cost
    return {"site_plan": planned.plan.text, "site_cost": {"seconds": cost.seconds, "wire_bytes": cost.wire_bytes}}


def _measured_lines(plan: Plan) -> list[str]:
    again = [f"planned again by true entries: {', '.join(plan.replanned)}"] if plan.replanned else []
    return [*again, "seconds: " + ", ".join(f"{step} {seconds:.3g}" for step, seconds in plan.seconds.items())]


def _check_entries(program: Program, request: _Request) -> None:
    """A run needs the entries of all tensors."""
    for name, entries in program.handle.tensors.items():
        if entries is not None:
            continue
        remedy = f"--sparse {name}=FILE.mtx (or .npz, or .json with coo)"
        if name not in request.sparse:
            remedy = f"--dense {name}=FILE.npy, or {remedy}" if request.sparse else "coo in the program"
        raise _Wrong(f"--analyze: a run needs all entries; give {remedy}: input={name}")


def _check_pins(graph: JsonGraph, pins: Mapping[str, Pin], objective: str) -> None:
    """Names, labels and forms of pins; whether plans meet them, the search finds."""
    from joinsum.planner.graph_plan import pin_labels

    known = pin_labels(graph)
    for name, pin in pins.items():
        if name not in known:
            raise _Wrong(f"--pin: no such input, einsum or output: name={name}{close_names(name, known)}")
        labels = list(known[name])
        if isinstance(pin, str) and objective == "paper":
            raise _Wrong(f"--pin: the paper's vectors have no placement; give part counts: name={name}")
        if isinstance(pin, list) and len(pin) != len(labels):
            raise _Wrong(f"--pin: one number for each label is needed: name={name}, parts={pin}, labels={labels}")
        unknown = [label for label in pin if label not in labels] if isinstance(pin, dict) else []
        if unknown:
            raise _Wrong(f"--pin: no such label: name={name}, label={unknown[0]}, labels={labels}")


def _refuse_options(request: _Request, reason: str, options: Sequence[str]) -> None:
    for option in options:
        if getattr(request, option):
            raise _Wrong(f"--{option.replace('_', '-')}: {reason}")


def _refuse_search(program: IaPlan, request: _Request) -> None:
    sites = program.grid.sites
    if request.sites not in (None, sites):
        raise _Wrong(f"--sites: the physical plan is for another number: sites={request.sites}, plan={sites}")
    reason = "a physical plan is not searched for; give a logical one (its first line is `tra`)"
    _refuse_options(request, reason, ["minimize", "place", "without"])


def _cluster(request: _Request) -> Cluster:
    """The described or calibrated machine, with the memory limit."""
    from joinsum import Cluster, PlanError
    from joinsum.cluster.calibration import Calibration, cluster_of

    cluster = Cluster()
    if request.calibration is not None:
        text = request.calibration.read_text(encoding="utf-8", errors="replace")
        try:
            cluster = cluster_of(Calibration.of_text(text, str(request.calibration)))
        except PlanError as error:
            raise _Wrong(f"--calibration: {error}") from None
    return replace(cluster, memory_bytes=request.memory_limit)


def _check_names(without: tuple[str, ...]) -> None:
    """Names of phases and rules."""
    import joinsum
    from joinsum import _C

    phases = _C.phase_names()
    known = [*phases, *(rule.name for rule in joinsum.rules())]
    for name in without:
        if name not in known:
            raise _Wrong(
                f"--without: no such phase or rule; phases are {', '.join(phases)}, `joinsum rules` lists the rules: "
                f"name={name}{close_names(name, known)}"
            )


def _check_places(program: TraPlan, places: Mapping[str, str]) -> None:
    """Placements of inputs."""
    import joinsum
    from joinsum import PlanError

    try:
        joinsum.lower(program, places)
    except PlanError as error:
        raise _Wrong(f"--place: {error}") from None
