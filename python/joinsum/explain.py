"""Telling what a plan does, what it costs, and why it was chosen."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, get_args, overload

from joinsum.arguments import show
from joinsum.cluster import Cluster
from joinsum.context import context
from joinsum.cost import cost as cost_of
from joinsum.einsum_plan import EinsumPlan
from joinsum.errors import PlanError
from joinsum.explanation import Explanation
from joinsum.explanation.analyze import measured_run
from joinsum.expression import Expression, NamedSources, build_plan
from joinsum.graph import Graph
from joinsum.graph_choice import logical_program
from joinsum.optimize import Optimized, optimize_here
from joinsum.plan import IaPlan, TraPlan
from joinsum.planned_graph import PlannedGraph
from joinsum.run import Input, Scalars, sources_of
from joinsum.stored import Place

if TYPE_CHECKING:
    from joinsum.explanation.model_text import ModelExplanation

__all__ = ["explain"]

Explained = Expression | TraPlan | IaPlan | Optimized | Graph | EinsumPlan | PlannedGraph


@overload
def explain(
    x: Explained,
    place: Mapping[str, Place] | None = None,
    *,
    pins: Mapping[str, Place] | None = None,
    minimize: str | None = None,
    cluster: Cluster | None = None,
    without: Sequence[str] = (),
    plans: int | None = None,
    seconds: float | None = None,
    analyze: bool = False,
    inputs: Mapping[str, Input] | None = None,
    scalars: Scalars | None = None,
) -> Explanation: ...


@overload
def explain(x: Callable[..., Any], *args: Any, baselines: bool = False, **keywords: Any) -> ModelExplanation: ...


def explain(x: Any, *args: Any, baselines: bool = False, **keywords: Any) -> Explanation | ModelExplanation:
    """What is computed, where tuples lie and move, what that costs, how the plan was found and what lost against it.

    x         a lazy relation or a logical plan, which is optimised first; a graph of einsums (`joinsum.Graph`,
              `joinsum.EinsumPlan`), which is too, with its outputs pinned to every site; what `joinsum.optimize` found;
              or a physical plan or a planned graph, which is shown as it is: there is no search then. Or a model, a
              function of tensors, or a training step, followed by what it is called with: its plans are told as a
              `ModelExplanation`, and nothing is computed; the options below are for the others
    place, pins, minimize, without, plans, seconds
              of the search, as for `joinsum.optimize`
    cluster   the machine that costs are for; by default the context's
    analyze   runs the plan once, and puts measured bytes, seconds and peak memory beside the predicted ones; on a
              process group all ranks must call, and all get the same figures. Nothing is overwritten
    inputs    for `analyze`: what the plan reads, as for `joinsum.run`; a lazy relation has its own
    scalars   for `analyze`: values of the scalars that kernels name
    baselines of a model, a function or a step: the first plan is compared with those that people make by hand (data
              parallel, fully sharded, tensor parallel, sequence split, replicated), at the cost of a search for each

    Without `analyze` a rank of a process group may call alone. Raises PlanError for what does not fit together, and
    whatever the search and the run raise.

    >>> import joinsum
    >>> _ = joinsum.init(sites=4)
    >>> program = joinsum.parse('''tra
    ... input A: f32[64,256]<4,4>
    ... input B: f32[256,64]<4,4>
    ... output C = aggregate[0, 2; add](join[1; 0; matmul](A, B))''')
    >>> told = joinsum.explain(program, {"A": [1, 1], "B": [0, 0]}, minimize="wire_bytes")
    >>> told.cost.wire_bytes, told.exact, told.alternatives[0].name
    (49152, True, 'rule MM-2')
    >>> print(str(told).split("\\n\\n")[1].split("\\npeak")[0])
    physical plan: where tuples lie and move, on 4 sites (2x2)
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
    if isinstance(x, get_args(Explained)) or not callable(x):
        if baselines:
            raise PlanError(
                "explain: baselines are told of models, functions and training steps; of a graph by plan_graph"
            )
        return _explain_plan(x, *args, **keywords)
    from joinsum.frontend.explaining import explain_callable

    return explain_callable(x, args, keywords, baselines)


def _explain_plan(
    x: Explained,
    place: Mapping[str, Place] | None = None,
    *,
    pins: Mapping[str, Place] | None = None,
    minimize: str | None = None,
    cluster: Cluster | None = None,
    without: Sequence[str] = (),
    plans: int | None = None,
    seconds: float | None = None,
    analyze: bool = False,
    inputs: Mapping[str, Input] | None = None,
    scalars: Scalars | None = None,
) -> Explanation:
    """Of a relation, a graph or a plan; `explain` says what is given."""
    sources: NamedSources | None = None
    if isinstance(x, Expression):
        if inputs is not None:
            raise PlanError(f"explain: a relation has its own inputs: inputs={show(sorted(inputs))}")
        core, sources = build_plan({"out": x}, {})
        x = TraPlan(core, {name: source.place for name, source in sources.items() if source.place is not None})
    if isinstance(x, (Graph, EinsumPlan)):
        x = _program(x)
        pins = dict.fromkeys(x.outputs, "replicated") | dict(pins or {})
    options = {
        "place": place,
        "pins": pins,
        "minimize": minimize,
        "without": without or None,
        "plans": plans,
        "seconds": seconds,
    }
    search = _given(options)
    told = _explained(x, search, cluster)
    if not analyze:
        needless = _given({"inputs": inputs, "scalars": scalars})
        if needless:
            raise PlanError(f"explain: data are for analyze=True only: given={list(needless)}")
        return told
    if sources is None:
        with context().preparing("run"):
            sources = sources_of("explain", told.plan, inputs or {})
    return replace(told, measured=measured_run(told.plan, sources, scalars))


def _given(options: Mapping[str, object]) -> dict[str, object]:
    return {name: value for name, value in options.items() if value is not None}


def _program(x: Graph | EinsumPlan) -> TraPlan:
    """The logical plan of a graph of einsums, cut for the sites there are."""
    graph = x.einsums if isinstance(x, Graph) else x
    return logical_program(graph.binary().core, context().sites)


def _explained(x: object, search: Mapping[str, Any], cluster: Cluster | None) -> Explanation:
    if isinstance(x, TraPlan):
        found = optimize_here(x, cluster=cluster, **search)
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
