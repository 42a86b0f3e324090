"""A two-layer classifier for very many labels: ten equations of the tensor relational algebra, and two plans for them.

X [n, d] holds points, Y [n, l] their labels (0 or 1), W1 [d, h] and W2 [h, l] the weights; there are no biases. The
scores of a point are relu(X W1) W2; the loss of a batch is binary cross entropy, summed over labels and averaged over
points. `step_program` is a training step; `step_plan` writes its plans, with a placement for each relation; `choose`
prices both. `joinsum.extreme.classifier` runs them.

Source: TRA paper, section 5.4 (the step, TRA-DP and TRA-MP) and tables 7 to 9 (its experiments); where the printed
program has slips, `docs/deviations.md` has the corrections.

>>> import joinsum
>>> paper = Training("sgd", loss=False)
>>> choose(Sizes(1000, 597540, 1000, 14588), sites=5, by="paper_floats", training=paper).chosen
'model'
>>> choose(Sizes(10000, 1600, 100000, 10), sites=5, by="paper_floats", training=paper).chosen
'data'
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeAlias

import joinsum

__all__ = [
    "FIGURES",
    "PLANS",
    "Decision",
    "Sizes",
    "Training",
    "catch_up_plan",
    "choose",
    "figure_text",
    "of_rows",
    "scores_plan",
    "step_plan",
    "step_program",
]

FIGURES = ("seconds", "wire_bytes", "paper_floats")
_SECONDS = ((1e-6, 1e-9, "ns"), (1e-3, 1e-6, "us"), (1.0, 1e-3, "ms"))  # (below, unit in seconds, its name)


class Sizes(NamedTuple):
    """n, d, h and l: points of a batch, features, hidden units and labels; all at least 1.

    `entries` is about how many elements of X are not 0 in a batch; with it X is sparse, and without it dense.
    """

    points: int
    features: int
    hidden: int
    labels: int
    entries: int | None = None


@dataclass(frozen=True)
class Training:
    """What a step does besides the gradients: it updates the weights, and returns the loss if `loss` is true.

    `optimizer` is `adam` (Kingma and Ba, arXiv 1412.6980, algorithm 1) or plain `sgd`; `rate` is the learning rate,
    `first` and `second` are Adam's β₁ and β₂. Raises PlanError for another optimizer.
    """

    optimizer: str = "adam"
    rate: float = 2e-2
    first: float = 0.9
    second: float = 0.999
    epsilon: float = 1e-8
    loss: bool = True

    def __post_init__(self) -> None:
        if self.optimizer not in ("adam", "sgd"):
            raise joinsum.PlanError(f"training: no such optimizer: optimizer={self.optimizer}, known=[adam, sgd]")

    @property
    def moments(self) -> tuple[str, ...]:
        """The optimizer's state for each weight, by the ending of its name."""
        return ("_first", "_second") if self.optimizer == "adam" else ()


_ADAM = Training()


@dataclass(frozen=True)
class _Strategy:
    """Where relations live, and which of them move.

    splits   by input: the key dimension that every axis of the grid splits
    moves    by relation: the operator it goes through before the uses that the equations write in braces
    """

    title: str
    splits: Mapping[str, int]
    moves: Mapping[str, str]
    moved: str


_ENDS = {"loss_sum": "broadcast", "Z2": "broadcast"}
_STRATEGIES = {
    "data": _Strategy(
        "data parallel",
        {"X": 0, "Y": 0, "W1": 0, "W2": 0},
        {"W1": "broadcast", "W2": "broadcast", "G1": "shuffle[0]", "G2": "shuffle[0]", **_ENDS},
        "weights and gradients of (D + L) × H = ({features:,} + {labels:,}) × {hidden:,}",
    ),
    "model": _Strategy(
        "model parallel",
        {"X": 1, "Y": 1, "W1": 0, "W2": 1},
        {"Z1": "broadcast", "B1": "broadcast", **_ENDS},
        "two partial results of N × H = {points:,} × {hidden:,}",
    ),
}
PLANS = tuple(_STRATEGIES)

_SCORES = (
    ("Z1", "agg[0, 2; add](join[1; 0; matmul](X, {W1}))"),
    ("A1", "transform[relu]({Z1})"),
    ("Z2", "agg[0, 2; add](join[1; 0; matmul](A1, {W2}))"),
)
_LOSS = (("loss_sum", "agg[; add](transform[total](join[0, 1; 0, 1; bce_with_logits](Z2, Y)))"),)


def _gradients(mean: str) -> tuple[tuple[str, str], ...]:
    """The equations from the scores to both gradients; `mean` divides by the number of points, or does nothing.

    The division applies to A1 and E1, which are small; by linearity that is the gradient divided.
    """
    return (
        ("A2", "transform[sigmoid](Z2)"),
        ("E2", "join[0, 1; 0, 1; sub](A2, Y)"),
        ("G2", f"agg[1, 2; add](join[0; 0; matmul_tn]({mean.format('A1')}, E2))"),
        ("B1", "agg[0, 2; add](join[1; 1; matmul_nt](E2, {W2}))"),
        ("M1", "transform[relu_derivative](A1)"),
        ("E1", "join[0, 1; 0, 1; mul](M1, {B1})"),
        ("G1", f"agg[1, 2; add](join[0; 0; matmul_tn](X, {mean.format('E1')}))"),
    )


_Equations: TypeAlias = tuple[tuple[str, str], ...]


def _adam(weight: str, gradient: str, training: Training) -> _Equations:
    first, second = float(training.first), float(training.second)
    direction = f"adam_direction[{float(training.rate)}, {first}, {second}, {float(training.epsilon)}, $step]"
    return (
        (f"{weight}_first_new", f"join[0, 1; 0, 1; adam_first[{first}]]({weight}_first, {{{gradient}}})"),
        (f"{weight}_second_new", f"join[0, 1; 0, 1; adam_second[{second}]]({weight}_second, {{{gradient}}})"),
        (f"{weight}_direction", f"join[0, 1; 0, 1; {direction}]({weight}_first_new, {weight}_second_new)"),
        (f"{weight}_new", f"join[0, 1; 0, 1; sub]({weight}, {weight}_direction)"),
    )


_STATE = ("W1", "W1_first", "W1_second", "W1_done")


def _adam_of_rows(operator: str, further: Mapping[str, str], training: Training) -> _Equations:
    """Equations of an operator that takes the rows of W1, which a batch touches, further by Adam: `W1_new` and so on.

    further   letters of its operands after W1 and its state, by name
    """
    letters = {**dict.fromkeys(_STATE[:3], "ih"), "W1_done": "i", **further}
    axes = [f"%{place}{{{','.join(each)}}}" for place, each in enumerate(letters.values())]
    constants = [float(each) for each in (training.rate, training.first, training.second, training.epsilon)]
    arguments = ", ".join([*axes, *map(str, constants)])
    rows = "{i,h}"
    call = (
        f"joinsum::{operator}; {','.join(letters.values())} -> ih:f32, ih:f32, ih:f32, i:i64; "
        f"({arguments}) -> {rows}, {rows}, {rows}, {{i}}; undivided=nh; flops=16.0 nih"
    )
    operands = ", ".join(letters)
    return tuple((f"{name}_new", f"call[{place}; {call}]({operands})") for place, name in enumerate(_STATE))


def _sgd(weight: str, gradient: str, training: Training, points: int) -> tuple[tuple[str, str], ...]:
    rate = float(training.rate) / points
    return ((f"{weight}_new", f"join[0, 1; 0, 1; sub]({weight}, transform[scale[{rate}]]({{{gradient}}}))"),)


class _Program(NamedTuple):
    """Types of the inputs by name, then equations and outputs as (name, expression)."""

    inputs: dict[str, str]
    equations: tuple[tuple[str, str], ...]
    outputs: tuple[tuple[str, str], ...]


def _step(sizes: Sizes, parts: int, training: Training) -> _Program:
    mean = "{}" if training.optimizer == "sgd" else f"transform[scale[{1 / sizes.points}]]({{}})"
    equations = (*_SCORES, *(_LOSS if training.loss else ()), *_gradients(mean))
    for weight, gradient in (("W2", "G2"), ("W1", "G1")):
        by_adam = training.optimizer == "adam"
        equations += _adam(weight, gradient, training) if by_adam else _sgd(weight, gradient, training, sizes.points)
    # Plans run towards their outputs in this order: the loss goes first, so that the sigmoid may overwrite the scores;
    # W1 goes next, as B1 below it needs W2 as it was.
    state = [weight + ending for weight in ("W1", "W2") for ending in ("", *training.moments)]
    outputs = (
        *((("loss", "{loss_sum}"),) if training.loss else ()),
        *((f"{name} -> {name}", f"{name}_new") for name in state),
    )
    return _Program(_inputs(sizes, parts, training.moments), equations, outputs)


def of_rows(sizes: Sizes, plan: str, training: Training) -> bool:
    """Whether a step of the plan changes only the rows of W1 that its batch touches, after `catch_up_plan` has taken
    these through the steps that they have missed. The state has the last step of each row, `W1_done`, and the inputs
    the number of the step, `steps`."""
    return sizes.entries is not None and plan == "model" and training.optimizer == "adam"


def _step_of_rows(sizes: Sizes, parts: int, training: Training) -> _Program:
    """The step whose gradient of W1 has the rows that the batch touches."""
    mean = f"transform[scale[{1 / sizes.points}]]({{}})"
    gradients = [each for each in _gradients(mean) if each[0] != "G1"]
    operands = {"X": "ni", "E1_mean": "nh", "steps": ""}
    equations = (
        *_SCORES,
        *(_LOSS if training.loss else ()),
        *gradients,
        ("E1_mean", mean.format("E1")),
        *_adam("W2", "G2", training),
        *_adam_of_rows("adam_rows_update", operands, training),
    )
    state = [*_STATE, *("W2" + ending for ending in ("", *training.moments))]
    outputs = (
        *((("loss", "{loss_sum}"),) if training.loss else ()),
        *((f"{name} -> {name}", f"{name}_new") for name in state),
    )
    return _Program(_inputs(sizes, parts, training.moments) | _inputs_of_rows(sizes, parts), equations, outputs)


def _inputs_of_rows(sizes: Sizes, parts: int) -> dict[str, str]:
    return {"W1_done": f"i64[{sizes.features}]<{min(sizes.features, parts)}>", "steps": "f32[]<>"}


def catch_up_plan(sizes: Sizes, sites: int, training: Training = _ADAM) -> str:
    """Returns the plan that takes the rows of W1 which X touches up to the step before `steps`, in the layout of a step
    that changes rows alone (`of_rows`)."""
    inputs = _inputs(sizes, sites, training.moments) | _inputs_of_rows(sizes, sites)
    inputs = {name: kind for name, kind in inputs.items() if name in (*_STATE, "X", "steps")}
    equations = _adam_of_rows("adam_rows_catch_up", {"X": "ni", "steps": ""}, training)
    outputs = tuple((f"{name} -> {name}", f"{name}_new") for name in _STATE)
    return _physical(_Program(inputs, equations, outputs), _STRATEGIES["model"], sites)


def _scores(sizes: Sizes, parts: int) -> _Program:
    inputs = _inputs(sizes, parts, ())
    del inputs["Y"]
    return _Program(inputs, _SCORES, (("scores", "{Z2}"),))


def _inputs(sizes: Sizes, parts: int, moments: tuple[str, ...]) -> dict[str, str]:
    """Every dimension is cut into `parts` even tiles, or into as many as it has elements."""
    for name, size in (*sizes._asdict().items(), ("parts", parts)):
        if name == "entries" and (size is None or (size == 0 and type(size) is int)):
            continue
        if isinstance(size, bool) or not isinstance(size, int) or size < 1:
            raise joinsum.PlanError(f"extreme_classifier: a size is a positive integer: {name}={size!r}")
    n, d, h, l, entries = sizes  # noqa: E741
    shapes = {"X": (n, d), "Y": (n, l), "W1": (d, h), "W2": (h, l)}
    shapes.update({weight + ending: shapes[weight] for weight in ("W1", "W2") for ending in moments})
    types = {
        name: f"f32[{rows},{columns}]<{min(rows, parts)},{min(columns, parts)}>"
        for name, (rows, columns) in shapes.items()
    }
    if entries is not None:
        types["X"] += f" sparse{{{entries}}}"
    return types


_BRACED = re.compile(r"\{(\w+)\}")


def _logical(program: _Program) -> str:
    lines = ["tra", *(f"input {name}: {kind}" for name, kind in program.inputs.items())]
    lines += [f"{name} = {expression}" for name, expression in program.equations]
    lines += [f"output {name} = {expression}" for name, expression in program.outputs]
    return _BRACED.sub(r"\1", "\n".join(lines)) + "\n"


def _physical(program: _Program, strategy: _Strategy, sites: int) -> str:
    """The same equations on a grid: inputs are placed; relations in braces are moved before their first such use."""
    grid = joinsum.Grid.of_sites(sites)
    lines = [f"ia on {grid}"]
    for name, kind in program.inputs.items():
        states = ", ".join([str(strategy.splits.get(name.split("_")[0], "*"))] * len(grid.axes))
        lines.append(f"input {name}: {kind} on {grid} ({states})")
    moved: set[str] = set()
    for statement in [*program.equations, *((f"output {name}", expression) for name, expression in program.outputs)]:
        name, expression = statement
        if expression.startswith("call["):  # its braces are those of axes
            lines.append(f"{name} = {expression}")
            continue
        for relation in _BRACED.findall(expression):
            if relation in strategy.moves and relation not in moved:
                moved.add(relation)
                lines.append(f"{relation}_moved = {strategy.moves[relation]}({relation})")
        expression = _BRACED.sub(lambda at: at[1] + "_moved" * (at[1] in moved), expression)
        lines.append(f"{name} = {expression.replace('transform[', 'map[(k0, k1); ')}")
    return "\n".join(lines) + "\n"


def step_program(sizes: Sizes, parts: int, training: Training = _ADAM) -> str:
    """Returns the step as text of the logical algebra: no sites, every dimension cut into `parts` tiles.

    Inputs are X, Y, the weights W1 and W2 and, for Adam, their moments `W1_first`, `W1_second`, ...; outputs of the
    same names are tied to them. The output `loss` is the sum over points. Adam reads the scalar `step`, which counts
    from 1. `Training("sgd", loss=False)` gives the paper's ten equations, the learning rate being divided by n.
    Raises PlanError for sizes below 1.

    >>> for line in step_program(Sizes(8, 4, 6, 10), 2, Training("sgd", rate=0.5, loss=False)).splitlines()[5:]:
    ...     print(line)
    Z1 = agg[0, 2; add](join[1; 0; matmul](X, W1))
    A1 = transform[relu](Z1)
    Z2 = agg[0, 2; add](join[1; 0; matmul](A1, W2))
    A2 = transform[sigmoid](Z2)
    E2 = join[0, 1; 0, 1; sub](A2, Y)
    G2 = agg[1, 2; add](join[0; 0; matmul_tn](A1, E2))
    B1 = agg[0, 2; add](join[1; 1; matmul_nt](E2, W2))
    M1 = transform[relu_derivative](A1)
    E1 = join[0, 1; 0, 1; mul](M1, B1)
    G1 = agg[1, 2; add](join[0; 0; matmul_tn](X, E1))
    W2_new = join[0, 1; 0, 1; sub](W2, transform[scale[0.0625]](G2))
    W1_new = join[0, 1; 0, 1; sub](W1, transform[scale[0.0625]](G1))
    output W1 -> W1 = W1_new
    output W2 -> W2 = W2_new
    """
    return _logical(_step(sizes, parts, training))


def step_plan(sizes: Sizes, sites: int, plan: str, training: Training = _ADAM) -> str:
    """Returns the step as text of the physical algebra, in one of the two plans.

    data    TRA-DP: points, and for storage weights, are split over sites. A step gives every site all weights
            (broadcast) and sums the gradients where the weights are stored (shuffle)
    model   TRA-MP: features and labels, and weights with them, are split. A step sums two partial results of n x h and
            gives every site the sums; weights and gradients never move

    Inputs and outputs are those of `step_program`; all dimensions are cut into as many tiles as there are sites. Where
    X is sparse, the model plan with Adam changes the rows of W1 that the batch touches, and has two inputs more
    (`of_rows`). Raises PlanError for another plan. Source: TRA paper, section 5.4.
    """
    program = _step_of_rows if of_rows(sizes, plan, training) else _step
    return _physical(program(sizes, sites, training), _strategy("step_plan", plan), sites)


def scores_plan(sizes: Sizes, sites: int, plan: str) -> str:
    """Returns the plan from X, W1 and W2, in the layout of the step of `plan`, to `scores` [n, l] on every site.

    `plan` is `data` or `model`. Raises PlanError for another one.
    """
    return _physical(_scores(sizes, sites), _strategy("scores_plan", plan), sites)


def _strategy(who: str, plan: str) -> _Strategy:
    if plan not in _STRATEGIES:
        raise joinsum.PlanError(f"{who}: no such plan: plan={plan}, plans={list(_STRATEGIES)}")
    return _STRATEGIES[plan]


@dataclass(frozen=True)
class Decision:
    """Which plan to run, and why.

    chosen    `data` or `model`
    by        the figure that decided: `seconds`, `wire_bytes` or `paper_floats`
    costs     of both plans for one step: `paper_floats`, `wire_bytes`, `seconds`, `peak_bytes` of the fullest site
    refused   by plan: why it cannot run at all (more memory than a site has)
    reason    the choice in a sentence
    """

    chosen: str
    by: str
    costs: Mapping[str, joinsum.PlanCost]
    refused: Mapping[str, str]
    reason: str


def choose(
    sizes: Sizes,
    sites: int,
    by: str = "seconds",
    cluster: joinsum.Cluster | None = None,
    training: Training = _ADAM,
) -> Decision:
    """Prices both plans of one step and takes the cheaper one; nothing of these sizes is allocated.

    `cluster` is the machine whose `seconds` count and whose memory limits the plans; by default the one of
    `joinsum.init`. Equal figures are decided by flops of the busiest site, then by peak bytes, then for `data`.
    Raises PlanError where neither plan fits the memory, and for another figure.

    >>> decision = choose(Sizes(256, 17671, 256, 17860), sites=4, by="wire_bytes")
    >>> decision.chosen, {plan: cost.wire_bytes for plan, cost in decision.costs.items()}
    ('model', {'data': 218302488, 'model': 3145752})
    """
    if by not in FIGURES:
        raise joinsum.PlanError(f"choose: no such figure: by={by}, figures={list(FIGURES)}")
    cluster = joinsum.context().cluster if cluster is None else cluster
    costs, refused = {}, {}
    for name in PLANS:
        plan = joinsum.parse(step_plan(sizes, sites, name, training))
        costs[name] = joinsum.cost(plan, replace(cluster, memory_bytes=None))
        try:
            joinsum.cost(plan, cluster)
        except joinsum.PlanError as error:
            refused[name] = str(error)
    if len(refused) == len(costs):
        raise joinsum.PlanError(f"choose: no plan fits the memory of a site: {'; '.join(refused.values())}")

    def rank(name: str) -> tuple[object, ...]:
        return name in refused, *(getattr(costs[name], figure) for figure in (by, *_TIES))

    chosen = min(costs, key=rank)
    return Decision(chosen, by, costs, refused, _reason(chosen, by, costs, refused, sizes))


# What decides between plans of equal cost, in this order.
_TIES = {"flops": "it needs fewer flops", "peak_bytes": "it needs less memory"}


def _reason(
    chosen: str, by: str, costs: Mapping[str, joinsum.PlanCost], refused: Mapping[str, str], sizes: Sizes
) -> str:
    (other,) = set(costs) - {chosen}
    title, other_title = _STRATEGIES[chosen].title, _STRATEGIES[other].title
    if other in refused:
        return f"{title}, because {other_title} does not fit: {refused[other]}"
    own, others = (getattr(costs[plan], by) for plan in (chosen, other))
    if own == others:
        differs = [name for name in _TIES if getattr(costs[chosen], name) != getattr(costs[other], name)]
        why = _TIES[differs[0]] if differs else "it is listed first"
        return f"{title}, because both plans cost {figure_text(by, own)} and {why}"
    moves = [_STRATEGIES[plan].moved.format(**sizes._asdict()) for plan in (chosen, other)]
    return (
        f"{title}, because a step costs {figure_text(by, own)} against {figure_text(by, others)}: "
        f"it moves {moves[0]}, not {moves[1]}"
    )


def figure_text(figure: str, value: float) -> str:
    """A figure of a cost with its unit.

    >>> figure_text("wire_bytes", 3 << 19), figure_text("paper_floats", 3.67e9), figure_text("seconds", 0.0031)
    ('1.5 MiB', '3.67e+09 floats', '3.1 ms')
    """
    if figure == "seconds":
        scale, unit = next(((scale, unit) for limit, scale, unit in _SECONDS if value < limit), (1.0, "s"))
        return f"{value / scale:.3g} {unit}"
    if figure == "paper_floats":
        return f"{value:.3g} floats"
    power = 0
    while value >= 1000 and power < 4:
        value, power = value / 1024, power + 1
    return f"{value:.3g} {('B', 'KiB', 'MiB', 'GiB', 'TiB')[power]}"
