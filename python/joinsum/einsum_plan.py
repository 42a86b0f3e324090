"""Graphs of einsums as values: text, JSON, gradients, and what they become in the algebra."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch

from joinsum import _C
from joinsum.arguments import integer
from joinsum.contraction_order import paths_of
from joinsum.dtypes import torch_dtype
from joinsum.errors import PlanError
from joinsum.graph_json import utf8
from joinsum.plan import TraPlan

__all__ = ["EinsumPlan"]


class EinsumPlan:
    """A graph of einsums with named inputs and outputs: what is computed, without cuts or sites; immutable.

    `parse` makes one of text, `from_json` of JSON. Each vertex is Z[labels] = ⊕ over the labels that Z lacks of
    ⊗(X[labels], Y[labels], ...). Source: EinDecomp, section 3.

    >>> import joinsum
    >>> graph = joinsum.EinsumPlan.parse('''einsum
    ... input X: f32[4,5]
    ... input Y: f32[5,6]
    ... output Z = einsum[ij,jk->ik; mul; add](X, Y)''')
    >>> print(graph)
    einsum
    input X: f32[4,5]
    input Y: f32[5,6]
    t0 = einsum[ij,jk->ik; mul; add](X, Y): f32[4,6]
    output Z = t0
    <BLANKLINE>
    >>> print(graph.gradient(["X"]))
    einsum
    input d_Z: f32[4,6]
    input Y: f32[5,6]
    t0 = einsum[ik,jk->ij; mul; add](d_Z, Y): f32[4,5]
    output d_X = t0
    <BLANKLINE>
    """

    def __init__(self, core: _C.EinsumPlan) -> None:
        self._core = core

    @property
    def core(self) -> _C.EinsumPlan:
        """The C++ plan."""
        return self._core

    def __reduce__(self) -> tuple[Callable[[str], EinsumPlan], tuple[str]]:
        return EinsumPlan.parse, (self.text,)  # copies and pickles

    @property
    def inputs(self) -> dict[str, tuple[torch.dtype, tuple[int, ...]]]:
        """Dtypes and extents of the inputs by name, in the order of first use."""
        return {name: (torch_dtype(dtype), tuple(extents)) for name, (dtype, extents) in self._core.inputs}

    @property
    def outputs(self) -> dict[str, tuple[torch.dtype, tuple[int, ...]]]:
        """Dtypes and extents of the outputs by name."""
        return {name: (torch_dtype(dtype), tuple(extents)) for name, (dtype, extents) in self._core.outputs}

    @property
    def text(self) -> str:
        """Printed form; `parse` reads it. Equal plans print alike."""
        return str(self._core)

    def __str__(self) -> str:
        return self.text

    def __hash__(self) -> int:
        return hash(self._core)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, EinsumPlan) and bool(self._core == other._core)

    def __repr__(self) -> str:
        return f"<EinsumPlan {', '.join(self.inputs)} -> {', '.join(self.outputs)}>\n{self.text}"

    @staticmethod
    def parse(text: str) -> EinsumPlan:
        """Reads a plan, whose first line is `einsum`. Raises PlanError, or KernelError for an unknown kernel."""
        if not isinstance(text, str):
            raise PlanError(f"parse: a plan is text: got={type(text).__name__}")
        return EinsumPlan(_C.EinsumPlan.parse(text))

    def gradient(self, of: Sequence[str]) -> EinsumPlan:
        """The plan of the gradients for these inputs: from the inputs and, for each output Z, `d_Z`, to `d_X`.

        Einsums again, so it has a gradient too. As torch's: ties of max and min share equally, complex gradients are
        the conjugate ones. Raises PlanError.
        """
        return EinsumPlan(self._core.gradient(list(of)))

    def binary(self) -> EinsumPlan:
        """The same plan from einsums of at most two operands, in the order that opt_einsum proposes."""
        return EinsumPlan(self._core.binary(paths_of(self._core)))

    def lower(self, sites: int) -> TraPlan:
        """The logical plan over tuples: each label cut evenly in `sites` parts, or in elements if these are fewer.

        >>> import joinsum
        >>> graph = joinsum.EinsumPlan.parse("einsum\\ninput X: f32[4,5]\\noutput Z = einsum[ij->j; square; add](X)")
        >>> print(graph.lower(sites=2))
        tra
        input X: f32[4,5]<2,2>
        t0 = transform[square](X): f32[4,5]<2,2>
        t1 = transform[reduce_add[ab->b]](t0): f32[5@1]<2,2>
        t2 = aggregate[1; add](t1): f32[5]<2>
        output Z = t2
        <BLANKLINE>
        """
        plan = self.binary().core
        return TraPlan(plan.lower(plan.even_cuts(integer("lower", "sites", sites))))

    def interpret(self, inputs: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """What the plan means, element by element and in float64, by the definition alone: slow; tests compare with it.

        >>> import joinsum, torch
        >>> graph = joinsum.EinsumPlan.parse("einsum\\ninput X: f32[2,2]\\noutput Z = einsum[ii->; id; add](X)")
        >>> graph.interpret({"X": torch.tensor([[1., 2.], [3., 4.]])})
        {'Z': tensor(5., dtype=torch.float64)}
        """
        arrays = {name: _C.Array(tensor.detach()) for name, tensor in inputs.items()}
        return {name: array.tensor() for name, array in self._core.interpret(arrays, {}).items()}

    # --- JSON ---------------------------------------------------------------------------------------------------------

    def to_json(self) -> str:
        """The plan as JSON, which `from_json` reads.

        >>> import joinsum
        >>> graph = joinsum.EinsumPlan.parse("einsum\\ninput X: f32[4,5]\\noutput Z = einsum[ij->j; id; max](X)")
        >>> print(graph.to_json())
        {
          "inputs": {"X": [4, 5]},
          "ops": [
            {"name": "t0", "inputs": ["X"], "in_labels": ["ij"], "out_labels": "j", "join": "id", "agg": "max"}
          ],
          "outputs": {"Z": "t0"}
        }
        """
        return _C.EinsumGraph.of_plan(self._core).write_json()

    @staticmethod
    def from_json(text: str) -> EinsumPlan:
        """Reads a graph in the form that `joinsum.graph_json` and docs/einsum_graph.schema.json describe.

        `{"inputs": {name: [extents]}, "ops": [...], "outputs": [names of ops]}`, an op being `{"name", "inputs":
        [names], "in_labels": ["ij", "jk"], "out_labels": "ik", "join": "mul", "agg": "sum"}`. An op Z of argmax or
        argmin becomes its vertices, and adds an input `Z.positions` (`make_vertex` in `joinsum.einsum_operations`).
        Raises PlanError, or KernelError for a kernel, with the JSON path of what is wrong.

        >>> import joinsum
        >>> joinsum.EinsumPlan.from_json('{"inputs": {"X": [4, 5]}, "ops": [{"name": "Z"}], "outputs": ["Z"]}')
        Traceback (most recent call last):
        ...
        joinsum.PlanError: json: a field is missing: at=$.ops[0], field='inputs'
        """
        if not isinstance(text, str):
            raise PlanError(f"json: a graph is text: got={type(text).__name__}")
        return EinsumPlan(_C.EinsumGraph.read_json(utf8(text), "json", "", True).plan())
