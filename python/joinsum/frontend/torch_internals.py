"""All that joinsum takes from torch's private modules, for its ways in; tested with the versions that it allows."""

from __future__ import annotations

import functools
import gc
import operator
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
import torch._functorch.config
from torch._dynamo.backends.common import aot_autograd
from torch._dynamo.exc import (
    BackendCompilerFailed,
    FailOnRecompileLimitHit,
    InternalTorchDynamoError,
    TorchRuntimeError,
    Unsupported,
    UserError,
)
from torch._functorch.partitioners import default_partition
from torch._guards import TracingContext
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.overrides import _get_current_function_mode_stack
from torch.utils import _pytree as pytree
from torch.utils import checkpoint
from torch.utils.checkpoint import CheckpointPolicy

from joinsum.frontend.mixed_widths import MIXED_WIDTHS

__all__ = [
    "BackendCompilerFailed",
    "FakeTensor",
    "GraphCompiler",
    "RefusedByDynamo",
    "TorchRuntimeError",
    "aot_compile",
    "both_passes",
    "break_of",
    "function_modes",
    "graph_examples",
    "stand_ins",
    "tracing_all",
    "tree_leaves",
    "tree_map",
    "without_collections",
    "wrap_checkpointed",
]

# What Dynamo raises where a program cannot be one graph.
RefusedByDynamo = (Unsupported, UserError, TorchRuntimeError, InternalTorchDynamoError, FailOnRecompileLimitHit)

# Of a graph of ATen operators, its example inputs, and the results that only the backward pass reads; makes a function
# of the list of inputs, which may empty it.
GraphCompiler = Callable[[torch.fx.GraphModule, Sequence[Any], frozenset[int]], Callable[..., Any]]

tree_leaves: Callable[..., list[Any]] = pytree.tree_leaves
function_modes: Callable[[], list[Any]] = _get_current_function_mode_stack

_LEAVES = frozenset({int, float, bool, str, type(None)})

_SAVED = "joinsum.saved"


def tree_map(function: Callable[[Any], Any], tree: Any) -> Any:
    """`function` of every leaf, in the same structure: torch's `tree_map`, at once where that is lists, tuples and
    dictionaries.

    >>> tree_map(lambda x: x + 1, {"a": [1, 2], "b": (3,)})
    {'a': [2, 3], 'b': (4,)}
    """
    kind = type(tree)
    if kind in _LEAVES or isinstance(tree, torch.Tensor):
        return function(tree)
    if kind is list:
        return [tree_map(function, each) for each in tree]
    if kind is tuple:
        return tuple([tree_map(function, each) for each in tree])
    if kind is dict:
        return {key: tree_map(function, each) for key, each in tree.items()}
    return pytree.tree_map(function, tree)


def aot_compile(
    gm: torch.fx.GraphModule, example_inputs: Sequence[Any], forward: GraphCompiler, backward: GraphCompiler
) -> Callable[..., Any]:
    """A Dynamo graph as graphs of raw ATen operators, compiled by `forward` (which also gets graphs without a
    gradient) and `backward`, in autograd; beyond what torch always does only norms of mixed widths are decomposed."""

    def compiler(compile_graph: GraphCompiler) -> Callable[..., Any]:
        def compiled(graph: torch.fx.GraphModule, inputs: Sequence[Any]) -> Any:
            _keep_buffers()
            run = compile_graph(graph, inputs, graph.meta.get(_SAVED, frozenset()))

            def boxed(args: list[Any]) -> Any:
                return run(args)

            boxed._boxed_call = True  # type: ignore[attr-defined]  # torch gives a list, of which it keeps nothing
            return boxed

        return compiled

    made = aot_autograd(
        fw_compiler=compiler(forward),
        bw_compiler=compiler(backward),
        inference_compiler=compiler(forward),
        decompositions=MIXED_WIDTHS,
        partition_fn=_partition,
        keep_inference_input_mutations=True,
    )
    with _nothing_recomputed(), _plain_operators(), torch._functorch.config.patch(donated_buffer=False):
        return made(gm, list(example_inputs))


def _keep_buffers() -> None:
    """Says that the backward pass that is being compiled overwrites nothing, so that `retain_graph=True` may run it
    again."""
    tracing = TracingContext.try_get()
    if tracing is not None and tracing.fw_metadata is not None:
        tracing.fw_metadata.bw_donated_idxs = []


def both_passes() -> AbstractContextManager[None]:
    """The backward graph is compiled with the forward graph, not when it is first needed."""
    made: AbstractContextManager[None] = torch._functorch.config.patch(force_non_lazy_backward_lowering=True)
    return made


def break_of(gm: torch.fx.GraphModule) -> str | None:
    """The line where Dynamo has ended this graph before the end of the function, or began it after the beginning."""
    reason = getattr(gm, "compile_subgraph_reason", None)
    if reason is None or not reason.user_stack:
        return None
    last = reason.user_stack[-1]
    resumed = _RESUMED.match(last.name)
    if resumed is not None:
        return f"{last.filename}:{resumed[2]} in {resumed[1]}"
    return f"{last.filename}:{last.lineno} in {last.name}" if reason.graph_break else None


_RESUMED = re.compile(r"torch_dynamo_resume_in_(.*)_at_(\d+)$")


@contextmanager
def _plain_operators() -> Iterator[None]:
    """Recurrent layers are traced as products and maps of each step, not as one operator of oneDNN's."""
    before = torch._C._get_mkldnn_enabled()
    torch._C._set_mkldnn_enabled(False)
    try:
        yield
    finally:
        torch._C._set_mkldnn_enabled(before)


def _nothing_recomputed() -> AbstractContextManager[None]:
    """torch's own pass that recomputes checkpointed layers in a whole step is off: that is for the plan to decide, and
    it refuses attention. Versions before 2.13 have no such pass."""
    option = "remat_using_tags_for_fwd_loss_bwd_graph"
    settings = torch._functorch.config
    return settings.patch({option: False}) if hasattr(settings, option) else nullcontext()


def _partition(joint: torch.fx.GraphModule, inputs: Any, *, num_fwd_outputs: int, **options: Any) -> Any:
    """torch's default partition; the forward graph notes which of its results are there for the backward graph."""
    _keep_draws(joint.graph)
    forward, backward = default_partition(joint, inputs, num_fwd_outputs=num_fwd_outputs, **options)
    again = {node.name for node in _draws(forward.graph)} & {node.name for node in _draws(backward.graph)}
    assert not again, f"the backward pass would draw other numbers: {sorted(again)}"
    results: Any = forward.graph.output_node().args[0]
    forward.meta[_SAVED] = frozenset(range(num_fwd_outputs, len(list(results))))
    return forward, backward


def _keep_draws(graph: torch.fx.Graph) -> None:
    """What random operators give is kept for the backward pass in checkpointed layers too: torch would draw it again
    with the state of its own generator, which has no part in the numbers here. Attention counts as random."""
    for node in _draws(graph):
        # The partition keeps tensors; of an operator with several results these are what is taken from it.
        for each in [node, *(user for user in node.users if user.target is operator.getitem)]:
            if "recompute" in each.meta:
                each.meta["recompute"] = CheckpointPolicy.MUST_SAVE


def _draws(graph: torch.fx.Graph) -> list[torch.fx.Node]:
    return [node for node in graph.nodes if torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ())]


_TRACING = {"trace_autograd_ops": True, "allow_rnn": True, "recompile_limit": 64, "accumulated_recompile_limit": 1024}


@contextmanager
def tracing_all() -> Iterator[None]:
    """Dynamo takes `torch.autograd.grad` and recurrent layers into the graph, and keeps as many graphs as a run has
    batch shapes. Encoder layers are what they compute, not one operator of torch's for inference."""
    settings, attention = torch._dynamo.config, torch.backends.mha
    before = [(name, getattr(settings, name)) for name in _TRACING]
    fused = attention.get_fastpath_enabled()
    try:
        for name, value in _TRACING.items():
            setattr(settings, name, value)
        attention.set_fastpath_enabled(False)
        yield
    finally:
        for name, value in before:
            setattr(settings, name, value)
        attention.set_fastpath_enabled(fused)


@contextmanager
def without_collections() -> Iterator[None]:
    """Python looks for no cycles among objects meanwhile: a graph that is being traced is many, all of them alive."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def wrap_checkpointed(wrap: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
    """From now on `torch.utils.checkpoint` takes `wrap(function)` for each function that it is given, which it also
    calls when it computes again."""
    computed_again = checkpoint._checkpoint_without_reentrant_generator

    @functools.wraps(computed_again)
    def without_reentrance(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        return computed_again(wrap(function), *args, **kwargs)

    class Reentrant(checkpoint.CheckpointFunction):
        @staticmethod
        def forward(ctx: Any, run_function: Callable[..., Any], *args: Any) -> Any:
            return super(Reentrant, Reentrant).forward(ctx, wrap(run_function), *args)

    checkpoint._checkpoint_without_reentrant_generator = without_reentrance  # type: ignore[assignment]
    checkpoint.CheckpointFunction = Reentrant  # type: ignore[misc]


class stand_ins:
    """Tensors without memory that stand for others: of the same shape, strides, dtype and device."""

    def __init__(self) -> None:
        self._mode = FakeTensorMode(allow_non_fake_inputs=True)

    def of(self, tensor: torch.Tensor) -> torch.Tensor:
        """A plain tensor's; the same `requires_grad`, and a parameter for a parameter."""
        # What repeats along an axis, or lies in blocks, is seen as any tensor.
        dense = type(tensor) in (torch.Tensor, torch.nn.Parameter) and 0 not in tensor.stride()
        with self._mode, torch.no_grad():
            if dense:
                made = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=tensor.device)
            else:
                made = torch.empty(tensor.shape, dtype=tensor.dtype, device=tensor.device)
        if isinstance(tensor, torch.nn.Parameter):
            return torch.nn.Parameter(made, requires_grad=tensor.requires_grad)
        return made.requires_grad_(tensor.requires_grad)


def graph_examples(gm: torch.fx.GraphModule) -> list[Any]:
    """What Dynamo saw for each placeholder of its graph: the tensors themselves, numbers, or None."""
    out = []
    for node in gm.graph.find_nodes(op="placeholder"):
        argument = node.meta.get("grapharg")
        out.append(None if argument is None else argument.example)
    return out
