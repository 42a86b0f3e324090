"""`joinsum.explain`: what a plan does, what it costs, and why it was chosen."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypedDict, get_args, overload

from typing_extensions import Unpack

from joinsum.algebra.expression import Expression, NamedSources, build_plan, places_of
from joinsum.algebra.plan import IaPlan, TraPlan
from joinsum.algebra.stored_relation import Place
from joinsum.base.arguments import show
from joinsum.base.errors import PlanError
from joinsum.cluster.cluster import Cluster
from joinsum.cluster.context import context
from joinsum.execution.planned_graph import PlannedGraph
from joinsum.execution.relation import Relation
from joinsum.execution.run import Input, Scalars, sources_of
from joinsum.explanation.analyze import measured_run
from joinsum.explanation.explanation import Explanation
from joinsum.explanation.model_text import ModelExplanation
from joinsum.graphs.graph import Graph
from joinsum.planner.cost import cost as cost_of
from joinsum.planner.optimize import Optimized, optimize_in_process
from joinsum.planner.plan_choice import logical_program
from joinsum.sparse import Plan, Program

__all__ = ["explain"]

# Programs over sparse tensors and their plans, which say all themselves.
Sparse = Program | Plan
Explained = Expression | TraPlan | IaPlan | Optimized | Graph | PlannedGraph


class ExplainOptions(TypedDict, total=False):
    """Options of `joinsum.explain` for relations, graphs and plans, as its documentation lists them."""

    pins: Mapping[str, Place] | None
    minimize: str | None
    cluster: Cluster | None
    without: Sequence[str]
    plans: int | None
    seconds: float | None
    analyze: bool
    inputs: Mapping[str, Input] | None
    scalars: Scalars | None


# Those of the search for a plan, beside `place`.
_OF_SEARCH = ("pins", "minimize", "without", "plans", "seconds")


@overload
def explain(
    x: Explained, place: Mapping[str, Place] | None = None, **options: Unpack[ExplainOptions]
) -> Explanation: ...


@overload
def explain(x: Sparse, *, analyze: bool = False) -> Plan: ...


@overload
def explain(x: Callable[..., Any], *args: Any, baselines: bool = False, **keywords: Any) -> ModelExplanation: ...


def explain(x: Any, *args: Any, baselines: bool = False, **keywords: Any) -> Explanation | ModelExplanation | Plan:
    """What is computed, where tuples are stored and move, what that costs, how the plan was found, which plans lost.

    x         a lazy relation or a logical plan, which is optimised first; a graph of einsums (`joinsum.Graph`),
              which is too, with its outputs pinned to every site; what `joinsum.optimize` found;
              or a physical plan or a planned graph, which is shown as it is: there is no search then. Or a model, a
              function of tensors, or a training step, followed by what it is called with: its plans are a
              `ModelExplanation`, and nothing is computed; the options below are for the others, but a step has an
              `analyze` of its own, see `TrainStep.explain`. Of a `joinsum.sparse.Program`, and of a plan of one (an
              `einsum_plan` of sparse operands is), that plan; `analyze` runs it once in this process, and shows the
              true entries beside the estimated ones
    place, pins, minimize, without, plans, seconds
              of the search, as for `joinsum.optimize`
    cluster   the machine that costs are for; by default the context's
    analyze   runs the plan once, and puts measured bytes, seconds and peak memory beside the predicted ones; on a
              process group all ranks must call, and all get the same figures. Nothing is overwritten
    inputs    for `analyze`: what the plan reads, as for `joinsum.run`; a lazy relation has its own
    scalars   for `analyze`: values of the scalars that kernels name
    baselines of a model, a function or a step: the first plan is compared with the usual baselines (data
              parallel, fully sharded, tensor parallel, sequence split, replicated), at the cost of a search for each

    Without `analyze` a rank of a process group may call alone. Raises PlanError for what does not fit together, and
    whatever the search and the run raise.

    >>> import joinsum
    >>> _ = joinsum.init(sites=4)
    >>> program = joinsum.parse('''tra
    ... input A: f32[64,256]<4,4>
    ... input B: f32[256,64]<4,4>
    ... output C = aggregate[0, 2; add](join[1; 0; matmul](A, B))''')
    >>> explained = joinsum.explain(program, {"A": [1, 1], "B": [0, 0]}, minimize="wire_bytes")
    >>> explained.cost.wire_bytes, explained.exact, explained.alternatives[0].name
    (49152, True, 'rule MM-2')
    >>> print(str(explained).split("\\n\\n")[1].split("\\npeak")[0])
    physical plan: where tuples are stored and move, on 4 sites (2x2)
    node                                    type<frontier>         placement     paper floats  wire B     time
    --------------------------------------  ---------------------  ------------  ------------  ------  -------
    output C
    └─ t2 = shuffle[(0, 0)]                 f32[64,64]<4,4>        (0, 0)               4,096  49,152  59.9 us
       └─ t1 = local_aggregate[0, 2; add]   f32[64,64]<4,4>        (+add, +add)             0       0      0 s
          └─ t0 = local_join[1; 0; matmul]  f32[64@0,64@2]<4,4,4>  (1, 1)                   0       0  5.24 us
             ├─ A = input                   f32[64,256]<4,4>       (1, 1)                   0       0      0 s
             └─ B = input                   f32[256,64]<4,4>       (0, 0)                   0       0      0 s
    total                                                                               4,096  49,152  65.1 us
    """
    if isinstance(x, (*get_args(Explained), *get_args(Sparse))) or not callable(x):
        if baselines:
            raise PlanError(
                "explain: baselines are those of models, functions and training steps; plan_graph has those of a graph"
            )
        if isinstance(x, get_args(Sparse)):
            return _explain_sparse(x, *args, **keywords)
        return _explain_plan(x, *args, **keywords)
    from joinsum.explanation.callables import explain_callable  # imports the compiler's side of torch

    return explain_callable(x, args, keywords, baselines)


def _explain_sparse(x: Sparse, *args: Any, analyze: bool = False, **others: Any) -> Plan:
    """The plan of a program, after a run where that is requested."""
    if args or others:
        given = [*("an argument" for _ in args), *others]
        raise PlanError(f"explain: of sparse programs and their plans there is only analyze=True: given={given}")
    plan = x.plan() if isinstance(x, Program) else x
    if analyze:
        plan.run(analyze=True)
    return plan


def _explain_plan(
    x: Explained, place: Mapping[str, Place] | None = None, **options: Unpack[ExplainOptions]
) -> Explanation:
    """The explanation of a relation, a graph or a plan."""
    unknown = options.keys() - ExplainOptions.__annotations__.keys()
    if unknown:
        raise TypeError(f"explain() got an unexpected keyword argument {min(unknown)!r}")
    inputs, scalars = options.get("inputs"), options.get("scalars")
    search: dict[str, Any] = _set_options({"place": place, **{name: options.get(name) for name in _OF_SEARCH}})
    sources: NamedSources | None = None
    if isinstance(x, Expression):
        if inputs is not None:
            raise PlanError(f"explain: a relation has its own inputs: inputs={show(sorted(inputs))}")
        core, sources = build_plan({"out": x}, {})
        x = TraPlan(core, places_of(sources))
    if isinstance(x, Graph):
        x = _program(x)
        search["pins"] = dict.fromkeys(x.outputs, "replicated") | dict(search.get("pins") or {})
    explained = _explained(x, search, options.get("cluster"))
    if not options.get("analyze", False):
        needless = _set_options({"inputs": inputs, "scalars": scalars})
        if needless:
            raise PlanError(f"explain: data are for analyze=True only: given={list(needless)}")
        return explained
    if sources is None:
        with context().preparing("run"):
            sources = sources_of("explain", explained.plan, inputs or {})
    return replace(explained, measured=measured_run(explained.plan, sources, scalars))


def _set_options(options: Mapping[str, object]) -> dict[str, object]:
    """The options that the caller has set."""
    return {name: value for name, value in options.items() if value not in (None, (), [])}


def _program(graph: Graph) -> TraPlan:
    """The logical plan of a graph of einsums, cut for the sites there are."""
    return logical_program(graph.binary().core, context().sites)


def _explained(x: object, search: Mapping[str, Any], cluster: Cluster | None) -> Explanation:
    if isinstance(x, TraPlan):
        found = optimize_in_process(x, cluster=cluster, **search)
        return Explanation(found.plan, found.cost, x, found)
    if search:
        raise PlanError(f"explain: the plan is chosen already, so nothing is searched: options={list(search)}")
    if isinstance(x, IaPlan):
        return Explanation(x, cost_of(x, cluster))
    if isinstance(x, PlannedGraph):
        return Explanation(x.plan, cost_of(x.plan, cluster), x.program)
    if not isinstance(x, Optimized):
        raise PlanError(f"explain: give a relation, a plan or what joinsum.optimize found: got={type(x).__name__}")
    if cluster is not None:
        raise PlanError(f"explain: the plan was chosen for a cluster already: cluster={show(cluster)}")
    return Explanation(x.plan, x.cost, x.program, x)


def _explain_relation(relation: Relation, **options: Any) -> Explanation:
    """What computing it costs and why: the `Explanation` that `joinsum.explain(self, **options)` returns.

    >>> import joinsum, torch
    >>> _ = joinsum.init(sites=2)
    >>> x = joinsum.relation(torch.ones(4), parts=2, place=[0], name="X")
    >>> print(x.aggregate(keep=[]).explain(minimize="wire_bytes").plan)
    ia on 2
    input X: f32[4]<2> on 2 (0)
    t0 = local_aggregate[; add](X): f32[2]<> on 2 (+add)
    t1 = broadcast[0](t0): f32[2]<> on 2 (*)
    output out = t1
    <BLANKLINE>
    """
    return _explain_plan(relation, **options)


Relation.explain = _explain_relation  # the class is in a room below this one
