"""Compilers for AOTAutograd: one records each graph and interprets it vertex by vertex, checking what may be divided;
the other runs it by its plan."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from functorch.compile import aot_function, default_partition, make_boxed_func
from joinsum.capture import Recorded, record
from joinsum.capture.captured_graph import CapturedGraph
from joinsum.capture.interpret import interpret
from joinsum.capture.recording.application import operator_name
from joinsum.frontend.program import Program
from torch import fx


class Captured:
    """What the compiled graphs of a function were: the operators that occurred, and the programs."""

    def __init__(self, check: bool = True, replicate: Sequence[str] = (), seed: int = 0) -> None:
        self.operators: set[str] = set()
        self.programs: list[Recorded] = []
        self._check = check
        self._replicate = replicate
        self._seed = seed

    def compiler(self, gm: fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
        """The graph, as a function that interprets its program."""
        self._note(gm)
        program = record(gm, replicate=self._replicate)
        self.programs.append(program)
        (results,) = (node.args[0] for node in gm.graph.nodes if node.op == "output")
        count = len(results) if isinstance(results, (list, tuple)) else 1
        names = [each.name for each in program.inputs if each.position is not None]
        numbers = [node.meta.get("val") for node in gm.graph.nodes if node.op == "output"]
        assert len(numbers) == 1

        def run(*arguments: Any) -> list[Any]:
            tensors = [value for value in arguments if isinstance(value, torch.Tensor)]
            results = interpret(program, tensors, self._seed, self._check)
            outputs: list[Any] = [None] * count
            for output, value in zip(program.outputs, results, strict=True):
                if output.tied is not None:
                    tensors[names.index(output.tied)].copy_(value)
                else:
                    outputs[int(output.name.removeprefix("output."))] = value
            return outputs

        return make_boxed_func(run)

    def _note(self, gm: fx.GraphModule) -> None:
        for node in gm.graph.nodes:
            if isinstance(node.target, torch._ops.OpOverload):
                self.operators.add(operator_name(node.target))

    def of(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function through AOTAutograd, forward and backward."""
        return aot_function(
            function, fw_compiler=self.compiler, bw_compiler=self.compiler, partition_fn=default_partition
        )

    def backend(self, gm: fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
        """The backend of torch.compile that does the same."""
        from torch._dynamo.backends.common import aot_autograd

        compiled: Callable[..., Any] = aot_autograd(
            fw_compiler=self.compiler,
            bw_compiler=self.compiler,
            inference_compiler=self.compiler,
            partition_fn=default_partition,
            keep_inference_input_mutations=True,
        )(gm, inputs)
        return compiled


class Planned(Captured):
    """The same on the sites that there are: graphs run by their plans."""

    def compiler(self, gm: fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
        """The graph, as a function that runs its plan."""
        self._note(gm)
        program = Program(CapturedGraph(gm, inputs))

        def run(*arguments: Any) -> list[Any]:
            program.run(list(arguments))  # from the second run on, operators compute into memory that they are given
            outcome = program.run(list(arguments))
            for position, value in outcome.written.items():
                arguments[position].copy_(value)
            return outcome.results

        return make_boxed_func(run)
