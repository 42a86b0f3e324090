"""Graphs of einsums that are planned once and run often."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import NoReturn

import torch

from joinsum.arguments import shape_text, show
from joinsum.compiled_graph import CompiledGraph, check_not_traced, differentiable_run, outside_of_graphs
from joinsum.context import Context, context
from joinsum.contraction_order import Order
from joinsum.cost import PlanCost, cost
from joinsum.dtypes import torch_dtype
from joinsum.einsum_arguments import autocast_dtype, check_operands, check_tensors, read_arguments
from joinsum.einsum_call import EinsumCall, einsum_call, positions
from joinsum.einsum_operations import is_positions, read_operations
from joinsum.einsum_plan import EinsumPlan
from joinsum.errors import PlanError
from joinsum.graph_steps import Step, order_text, steps_of
from joinsum.plan import IaPlan, TraPlan
from joinsum.text_table import count_text, seconds_text, text_table

__all__ = ["PlannedEinsum", "PlannedGraph", "einsum_plan"]


class PlannedGraph:
    """A graph of einsums, planned for the sites there are; `joinsum.Graph.plan` makes one. It prints as a table of
    its steps.

    Calling it with the inputs, in order or by name, gives the outputs by name, in torch's autograd. Raises PlanError
    for inputs of another shape or dtype than planned, naming them, and where `joinsum.init` has set up other sites.
    Inputs `Z.positions` of 64-bit integers, which argmax and argmin take, are not asked for.

    >>> import joinsum, torch
    >>> _ = joinsum.init(sites=2)
    >>> g = joinsum.Graph()
    >>> x, y = g.input("X", (4, 6)), g.input("Y", (6, 4))
    >>> g.output("Z", g.einsum("ij,jk->ik", x, y))
    >>> run = g.plan()
    >>> run(torch.ones(4, 6), torch.ones(6, 4))["Z"].shape
    torch.Size([4, 4])
    >>> run(torch.ones(4, 6), torch.ones(6, 5))
    Traceback (most recent call last):
    ...
    joinsum.PlanError: plan: an input has another shape than planned: input=Y, planned=[6, 4], given=[6, 5]
    """

    def __init__(self, compiled: CompiledGraph) -> None:
        self._compiled = compiled
        _ = compiled.choice  # planned now
        inputs = compiled.recorded.inputs
        self._positions = {name: extents for name, (dtype, extents) in inputs if is_positions(name, dtype)}
        self._asked = {name: each for name, each in inputs if name not in self._positions}

    def __deepcopy__(self, _: object) -> PlannedGraph:
        return self  # nothing in it changes: a copy of a module that has a plan runs the same one

    def __reduce__(self) -> NoReturn:
        raise PlanError(
            "plan: a plan for the sites there are is not pickled; pickle its graph, and plan that where it is loaded, "
            "with joinsum.Graph.from_einsums(graph).plan()"
        )

    @property
    def graph(self) -> EinsumPlan:
        """What is computed."""
        return EinsumPlan(self._compiled.recorded)

    @property
    def binary(self) -> EinsumPlan:
        """The same from einsums of at most two operands, in the order that they are joined."""
        return EinsumPlan(self._compiled.choice.binary)

    @property
    def orders(self) -> dict[str, Order]:
        """In which order vertices of more than two operands are joined, by their names in `graph`, and which orders
        were compared; of joins that are taken from the left there is none."""
        return dict(self._compiled.choice.orders)

    @property
    def program(self) -> TraPlan:
        """The logical plan."""
        return self._compiled.choice.program

    @cached_property
    def plan(self) -> IaPlan:
        """The physical plan; its outputs are on every site."""
        return IaPlan(self._compiled.choice.plan)

    @cached_property
    def cost(self) -> PlanCost:
        """The plan's costs, node by node, on the cluster that it was chosen for."""
        return cost(self.plan, self._here.cluster)

    @cached_property
    def steps(self) -> tuple[Step, ...]:
        """The plan's steps, in order."""
        return steps_of(self._compiled.choice.binary, self.plan, self.cost)

    @property
    def origin(self) -> str:
        """Where the plan comes from: "planned here", and why a kept plan was rejected; or "kept in" and the file."""
        return self._compiled.choice.origin

    @property
    def _here(self) -> Context:
        return self._compiled.here

    @outside_of_graphs
    def __call__(self, *tensors: torch.Tensor, **named: torch.Tensor) -> dict[str, torch.Tensor]:
        """The outputs by name, for all inputs, in their order or by name."""
        with self._here.preparing("run"):
            check_not_traced("plan")
            given = self._by_name(tensors, named)
            self._check(given)
        device = next(iter(given.values())).device
        given |= {name: positions(extents, device) for name, extents in self._positions.items()}
        made = differentiable_run(self._compiled, [given[name] for name in self._compiled.names])
        return dict(zip(self._compiled.outputs, made, strict=True))

    def _by_name(self, tensors: Sequence[torch.Tensor], named: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        names = list(self._asked)
        if len(tensors) > len(names):
            raise PlanError(f"plan: too many inputs: given={len(tensors)}, inputs={names}")
        values = dict(zip(names, tensors, strict=False))
        for name, value in named.items():
            if name not in names or name in values:
                what = "an input is given twice" if name in values else "no such input"
                raise PlanError(f"plan: {what}: input={show(name)}, inputs={names}")
            values[name] = value
        for name in names:
            if name not in values:
                raise PlanError(f"plan: an input is not given: input={name}, inputs={names}")
        return {name: values[name] for name in names}

    def _check_sites(self) -> None:
        if context() is not self._here:
            raise PlanError(f"plan: it was made for other sites; plan again: planned={self._here}, now={context()}")

    def _check(self, given: Mapping[str, torch.Tensor]) -> None:
        self._check_sites()
        for name, (dtype, extents) in self._asked.items():
            tensor = given[name]
            if not isinstance(tensor, torch.Tensor):
                raise PlanError(f"plan: an input is a tensor: input={name}, given={type(tensor).__name__}")
            _check_shape("input", name, tensor, extents)
            if tensor.dtype is not torch_dtype(dtype):
                raise PlanError(
                    f"plan: an input has another dtype than planned: input={name}, planned={torch_dtype(dtype)}, "
                    f"given={tensor.dtype}"
                )
        check_tensors("plan", {f"input {name}": tensor for name, tensor in given.items()})

    def __repr__(self) -> str:
        here, total = self._here, self.cost
        names = f"{', '.join(self._asked)} -> {', '.join(self._compiled.outputs)}"
        title = f"plan of {names}, on {here.sites} site{'s' if here.sites > 1 else ''} ({here.grid}), {self.origin}"
        compared = "; ".join(f"{name}: {order}" for name, order in self.orders.items())
        order = text_table(["einsum", "labels", "operands"], order_text(self._compiled.choice.binary))
        said = f"order ({compared})" if compared else "order"
        header = ["step", "operation", "parts", "placement", "wire B", "time"]
        rows = [_row(step) for step in self.steps]
        rows.append(["total", "", "", "", count_text(total.wire_bytes), seconds_text(total.seconds)])
        return f"{title}\n{said}\n{order}\nsteps\n{text_table(header, rows, right=range(4, 6))}"


def _row(step: Step) -> list[str]:
    parts = " ".join(f"{label}={count}" for label, count in step.parts.items())
    figures = [count_text(step.wire_bytes), seconds_text(step.seconds)]
    return [step.name, f"{step.operation}({', '.join(step.inputs)})", parts, step.placement, *figures]


def _check_shape(kind: str, name: object, tensor: torch.Tensor, planned: Sequence[int]) -> None:
    if list(tensor.shape) != list(planned):
        raise PlanError(
            f"plan: an {kind} has another shape than planned: {kind}={name}, planned={list(planned)}, "
            f"given={shape_text(tensor)}"
        )


class PlannedEinsum(PlannedGraph):
    """One einsum, planned for operands of certain shapes and dtypes; `joinsum.einsum_plan` makes one."""

    def __init__(
        self, call: EinsumCall, equation: str, shapes: Sequence[Sequence[int]], dtypes: Sequence[torch.dtype]
    ) -> None:
        super().__init__(call.compiled)
        self._call = call
        self._equation = equation
        self._shapes = [list(shape) for shape in shapes]
        self._dtypes = list(dtypes)

    @outside_of_graphs
    def __call__(self, *tensors: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        """The result for operands of the shapes and dtypes that were planned."""
        with self._here.preparing("run"):
            check_not_traced("plan")
            self._check_operands(tensors)
        return self._call.run(tensors)

    def _check_operands(self, tensors: Sequence[torch.Tensor]) -> None:
        self._check_sites()
        if len(tensors) != len(self._shapes):
            raise PlanError(f"plan: another number of operands: planned={len(self._shapes)}, given={len(tensors)}")
        planned = zip(check_operands("plan", tensors), self._shapes, self._dtypes, strict=True)
        for i, (tensor, shape, dtype) in enumerate(planned):
            _check_shape("operand", i, tensor, shape)
            if tensor.dtype is not dtype:
                raise PlanError(
                    f"plan: an operand has another dtype than planned: operand={i}, planned={dtype}, "
                    f"given={tensor.dtype}"
                )

    def __repr__(self) -> str:
        return f"{self._equation}\n{super().__repr__()}"


def einsum_plan(
    *arguments: object,
    dtype: torch.dtype = torch.float32,
    join: str = "mul",
    agg: str = "sum",
    extents: Mapping[str, int] | None = None,
    cache: bool = True,
) -> PlannedEinsum:
    """Plans an einsum once, to run it often: the plan is called with the operands.

    equation             as `joinsum.einsum`'s, in both of its forms: `einsum_plan((4, 5), [0, 1], (5, 6), [1, 2])`
    operands             tensors, of which shape and dtype are read and nothing else (they may be without data, on
                         "meta"), or shapes
    dtype                of the operands that are given as shapes
    join, agg, extents   as `joinsum.einsum`'s
    cache                whether the plan may come from memory, or the user's cache folder, and is kept there

    Its table says in which order the einsums of two operands are taken; then, for each step of the physical plan, the
    partition vector (into how many parts the sites divide each label), where the result lies, and the bytes and seconds
    that it is predicted to take. On a process group all ranks call. On one site, too, joinsum's own plan runs;
    `joinsum.einsum` asks torch there.
    Raises PlanError, KernelError as `joinsum.einsum`.

    >>> import joinsum, torch
    >>> _ = joinsum.init(sites=4)
    >>> run = joinsum.einsum_plan("ij,jk->ik", (512, 2048), (2048, 512), cache=False)
    >>> run
    ij,jk->ik
    plan of x0, x1 -> z, on 4 sites (2x2), planned here
    order
    einsum  labels     operands
    ------  ---------  --------
    (1)     ij,jk->ik  x0, x1
    steps
    step   operation                                      parts        placement     wire B     time
    -----  ---------------------------------------------  -----------  ---------  ---------  -------
    t0     local_join[1; 0; contract[ab,bc->ac]](x0, x1)  i=4 j=1 k=1  (0, 0)             0  2.68 ms
    t1     local_aggregate[0, 2; add](t0)                 i=4 k=1      (0, 0)             0      0 s
    t2     broadcast[0, 1](t1)                            i=1 k=1      (*, *)     3,145,728   679 us
    total                                                                         3,145,728  3.36 ms
    >>> x, y = torch.rand(512, 2048), torch.rand(2048, 512)
    >>> torch.allclose(run(x, y), x @ y, rtol=1e-4)
    True
    """
    here = context()
    with here.preparing("einsum"):
        equation, operands = read_arguments(arguments, "einsum_plan", shapes=True)
        operations = read_operations("einsum_plan", join, agg, extents)
        shapes = [_shape(i, operand) for i, operand in enumerate(operands)]
        dtypes = [x.dtype if isinstance(x, torch.Tensor) else dtype for x in operands]
        places = [x.device for x in operands if isinstance(x, torch.Tensor) and not x.is_meta]
        device = places[0] if places else here.device

    def make() -> PlannedEinsum:
        with here.preparing("einsum"):
            call = einsum_call(equation, shapes, dtypes, operations, device=device, kept=cache)
        return PlannedEinsum(call, equation, shapes, dtypes)

    key = ("einsum_plan", equation, operations, autocast_dtype(device), *shapes, *dtypes)
    return here.remembered(key, make) if cache else make()


def _shape(position: int, operand: object) -> tuple[int, ...]:
    if isinstance(operand, torch.Tensor):
        return operand.shape
    good = isinstance(operand, Sequence) and not isinstance(operand, str)
    if not good or not all(isinstance(n, int) and not isinstance(n, bool) and n >= 0 for n in operand):  # type: ignore[attr-defined]
        raise PlanError(
            f"einsum_plan: an operand is a tensor, or a shape such as (4, 5): operand={position}, given={show(operand)}"
        )
    return tuple(operand)  # type: ignore[arg-type]
