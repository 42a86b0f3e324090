"""What the frontend uses of torch's private modules, but for the partition of a graph into its passes (partition.py).
The package allows torch 2.11 to 2.13; tests run with 2.13 only."""

from __future__ import annotations

import functools
import gc
import logging
import re
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from typing import Any

import torch
import torch._functorch.config
import torch.fx.experimental._config
from torch._dynamo import maybe_mark_dynamic
from torch._dynamo.backends.common import aot_autograd
from torch._dynamo.exc import (
    BackendCompilerFailed,
    FailOnRecompileLimitHit,
    InternalTorchDynamoError,
    ShortenTraceback,
    TorchDynamoException,
    TorchRuntimeError,
    Unsupported,
    UserError,
    exceptions_allowed_to_be_fallback,
)
from torch._dynamo.source import AttrSource, DictGetItemSource, GetItemSource, TensorPropertySource
from torch._guards import ChainedSource, TracingContext
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.fx._lazy_graph_module import _LazyGraphModule
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.overrides import _get_current_function_mode_stack
from torch.utils import checkpoint

from joinsum.base.errors import CaptureError, Error
from joinsum.capture.decompositions.attention import GPU_ATTENTION
from joinsum.capture.decompositions.composed import COMPOSED
from joinsum.capture.decompositions.random_draws import RANDOM_DRAWS
from joinsum.cluster.context import context
from joinsum.frontend.tracing.assertions import assert_tensors
from joinsum.frontend.tracing.data_dependence import check_sizes
from joinsum.frontend.tracing.draws import check_draws
from joinsum.frontend.tracing.margins import compose_margins
from joinsum.frontend.tracing.mixed_precision import MIXED_PRECISION
from joinsum.frontend.tracing.partition import SAVED, partition
from joinsum.frontend.tracing.resizing import resize_by_kernels

__all__ = [
    "BackendCompilerFailed",
    "FakeTensor",
    "FakeTensors",
    "GraphCompiler",
    "HandledByDynamo",
    "RefusedByDynamo",
    "TorchRuntimeError",
    "aot_compile",
    "aten_graph",
    "backward_names",
    "both_passes",
    "break_of",
    "check_differentiated_once",
    "function_modes",
    "function_results",
    "graph_examples",
    "is_batched",
    "is_transforming",
    "module_of",
    "placeholder_names",
    "tracing_all",
    "unwrapped",
    "with_own_code",
    "without_collections",
    "wrap_checkpointed",
]

# Errors of Dynamo for a program that cannot be captured as one graph.
RefusedByDynamo = (
    Unsupported,
    UserError,
    TorchRuntimeError,
    InternalTorchDynamoError,
    FailOnRecompileLimitHit,
    GuardOnDataDependentSymNode,
)

# What Dynamo handles itself where compiling a graph raises it, as by a graph break.
HandledByDynamo: tuple[type[Exception], ...] = (TorchDynamoException, *exceptions_allowed_to_be_fallback)

# Takes a graph of ATen operators, its example inputs, and the positions of results that only the backward pass reads;
# returns a function of the list of inputs, which it may empty.
GraphCompiler = Callable[[torch.fx.GraphModule, Sequence[Any], frozenset[int]], Callable[..., Any]]

function_modes: Callable[[], list[Any]] = _get_current_function_mode_stack

_DECOMPOSITIONS = MIXED_PRECISION | GPU_ATTENTION | RANDOM_DRAWS | COMPOSED


def aot_compile(
    gm: torch.fx.GraphModule, example_inputs: Sequence[Any], forward: GraphCompiler, backward: GraphCompiler
) -> Callable[..., Any]:
    """Compiles a Dynamo graph, as graphs of ATen operators, by `forward` (also graphs without a gradient) and
    `backward`; the result is in autograd. Besides what torch always decomposes, norms of mixed precision are,
    attention on GPUs with dropout inside or gradients of its mask, random draws, and operators without a rule that
    torch composes. Raises CaptureError for draws that are not supported."""
    check_draws(gm)
    _compose_attention(gm)
    compose_margins(gm)
    resize_by_kernels(gm)
    assert_tensors(gm)

    uses_onednn = torch._C._get_mkldnn_enabled()

    def compiler(compile_graph: GraphCompiler) -> Callable[..., Any]:
        def compiled(graph: torch.fx.GraphModule, inputs: Sequence[Any]) -> Any:
            check_sizes(graph.graph)
            _donate_nothing()
            with _onednn(uses_onednn):
                run = compile_graph(graph, inputs, graph.meta.get(SAVED, frozenset()))

            def boxed(args: list[Any]) -> Any:
                return run(args)

            boxed._boxed_call = True  # type: ignore[attr-defined]  # torch passes a list and keeps no reference to its items
            return boxed

        return compiled

    compile_both = aot_autograd(
        fw_compiler=compiler(forward),
        bw_compiler=compiler(backward),
        inference_compiler=compiler(forward),
        decompositions=_DECOMPOSITIONS,
        partition_fn=partition,
        keep_inference_input_mutations=True,
    )
    # Without oneDNN, recurrent layers are traced as the operators of each time step instead of one of its operators.
    # Tokens that order side effects are inside the graph: as inputs and results they would shift the places of others.
    options = {"donated_buffer": False, "unlift_effect_tokens": True}
    with _without_remat_pass(), _onednn(False), torch._functorch.config.patch(options):
        return compile_both(gm, list(example_inputs))


def _compose_attention(gm: torch.fx.GraphModule) -> None:
    """Attention that torch's kernels for GPUs would compute with random numbers of their own, or with a gradient of its
    mask, is composed of products and a softmax, as torch composes it on the CPU."""
    changed = False
    for node in gm.graph.find_nodes(op="call_function", target=torch.nn.functional.scaled_dot_product_attention):
        given = dict(zip(_OF_ATTENTION, node.args, strict=False)) | node.kwargs
        mask = given.get("attn_mask")
        learned = isinstance(mask, torch.fx.Node) and getattr(mask.meta.get("example_value"), "requires_grad", False)
        query = given["query"]
        on_gpu = isinstance(query, torch.fx.Node) and getattr(query.meta.get("example_value"), "is_cuda", False)
        if on_gpu and (learned or given.get("dropout_p", 0.0) != 0.0):
            node.target = _composed_attention
            changed = True
    if changed:
        gm.recompile()


# The gradient of the first rejects symbolic sizes, and the second reads a value, already while Dynamo traces, before
# there is a graph. As torch's own decompositions do, these act in all traces of the process that use torch's Python
# dispatcher.
_AFFINE_GRID, _COV = torch.ops.aten.affine_grid_generator.default, torch.ops.aten.cov.default
for _operator, _key in (
    (_AFFINE_GRID, torch._C.DispatchKey.Autograd),
    (_COV, torch._C.DispatchKey.CompositeImplicitAutograd),
):
    if _key not in _operator.py_kernels:
        _operator.py_impl(_key)(COMPOSED[_operator])

_OF_ATTENTION = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal")


def _composed_attention(*args: Any, **kwargs: Any) -> torch.Tensor:
    with sdpa_kernel(SDPBackend.MATH):
        return torch.nn.functional.scaled_dot_product_attention(*args, **kwargs)


def aten_graph(function: Callable[..., Any], examples: Sequence[torch.Tensor]) -> torch.fx.Graph:
    """The ATen operators that a function of fake tensors calls, without a gradient; it writes into nothing."""
    with torch.no_grad():
        return make_fx(function, decomposition_table=_DECOMPOSITIONS)(*examples).graph


def module_of(graph: torch.fx.Graph, attributes: torch.fx.GraphModule) -> torch.fx.GraphModule:
    """A graph with the attributes of another module; its Python code is generated when it first runs."""
    return _LazyGraphModule(attributes, graph)


def function_results() -> range:
    """Positions of a function's results among those of the graph that is being compiled: new values of inputs that the
    graph does not write itself come before, and what the backward pass needs after. None are known where torch makes
    some of them from common tensors after the run."""
    tracing = TracingContext.try_get()
    metadata = None if tracing is None else tracing.fw_metadata
    if metadata is None or metadata.num_intermediate_bases:
        return range(0)
    first = len(metadata.mutated_inp_runtime_indices)
    return range(first, first + len(metadata.output_info))


def _donate_nothing() -> None:
    """Declares that the backward pass being compiled overwrites none of its inputs, so `retain_graph=True` works."""
    tracing = TracingContext.try_get()
    if tracing is not None and tracing.fw_metadata is not None:
        tracing.fw_metadata.bw_donated_idxs = []


def is_transforming() -> bool:
    """Whether a transform of torch.func runs the calling code."""
    return torch._C._functorch.peek_interpreter_stack() is not None


def is_batched(values: Sequence[Any]) -> bool:
    """Whether gradients are those of several results at once, as in `autograd.grad(..., is_grads_batched=True)`."""
    functorch = torch._C._functorch
    tensors = [x for x in values if isinstance(x, torch.Tensor)]
    return any(functorch.is_legacy_batchedtensor(x) or functorch.is_batchedtensor(x) for x in tensors)


def check_differentiated_once(results: Sequence[Any], message: str) -> None:
    """Makes a second derivative raise CaptureError with this message.

    results   those of a function from `aot_compile`
    """
    node = next(filter(None, map(_compiled_node, results)), None)

    def refuse(_: Any) -> None:
        raise CaptureError(message)

    def mark(gradients: Sequence[Any], _: Any) -> None:
        second = next((x.grad_fn for x in gradients if x is not None and x.grad_fn is not None), None)
        if second is not None:  # one for all gradients
            second.register_prehook(refuse)

    if node is not None:
        node.register_hook(mark)


def _compiled_node(result: Any) -> Any:
    """The node of autograd that runs a compiled backward pass: that of a result, or of the tensor that it views."""
    node = result.grad_fn if isinstance(result, torch.Tensor) else None
    if node is not None and not hasattr(node, "_forward_cls") and node.next_functions:
        node = node.next_functions[0][0]
    return node if hasattr(getattr(node, "_forward_cls", None), "_double_backward") else None


def both_passes() -> AbstractContextManager[None]:
    """Compiles the backward graph together with the forward graph instead of at its first use."""
    patched: AbstractContextManager[None] = torch._functorch.config.patch(force_non_lazy_backward_lowering=True)
    return patched


def break_of(gm: torch.fx.GraphModule) -> str | None:
    """The line of the graph break that ended or began this graph; None if it is the whole function's."""
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
def _onednn(enabled: bool) -> Iterator[None]:
    """Lets torch use oneDNN, or not."""
    before = torch._C._get_mkldnn_enabled()
    torch._C._set_mkldnn_enabled(enabled)
    try:
        yield
    finally:
        torch._C._set_mkldnn_enabled(before)


def _without_remat_pass() -> AbstractContextManager[None]:
    """Switches off torch's pass that rematerializes checkpointed layers in a training step's graph: it rejects
    attention. Versions before 2.13 have no such pass."""
    option = "remat_using_tags_for_fwd_loss_bwd_graph"
    settings = torch._functorch.config
    return settings.patch({option: False}) if hasattr(settings, option) else nullcontext()


_TRACING = {
    "trace_autograd_ops": True,
    "allow_rnn": True,
    "recompile_limit": 64,
    "accumulated_recompile_limit": 1024,
    "run_gc_after_compile": False,
    "skip_nnmodule_hook_guards": False,
}


def _logging_methods() -> set[Callable[..., Any]]:
    """The methods of loggers that write messages, also those that libraries add to the class, as `warning_once`."""
    return {x for name, x in vars(logging.Logger).items() if name.startswith(_WRITING) and callable(x)}


_WRITING = ("debug", "info", "warn", "error", "exception", "critical", "fatal", "log")


if torch.__version__ < "2.13":
    # Before, torch could not write such functions to its record of a compilation, and logged an error at each.
    logging.getLogger("torch._dynamo.metrics_context").addFilter(
        lambda record: "logging compilation metrics" not in str(record.msg)
    )


@contextmanager
def tracing_all() -> Iterator[None]:
    """Lets Dynamo capture `torch.autograd.grad` and recurrent layers, and compile a graph for each batch shape.
    Encoder layers are traced as their operators instead of torch's fused operator for inference."""
    dynamo, symbols, attention = torch._dynamo.config, torch.fx.experimental._config, torch.backends.mha
    loggers = {"ignore_logging_functions": dynamo.ignore_logging_functions | _logging_methods()}
    fused = attention.get_fastpath_enabled()
    attention.set_fastpath_enabled(False)
    try:
        # Otherwise a batch of eight sequences of length eight has one symbol for both.
        with _set(dynamo, _TRACING | loggers), _set(symbols, {"use_duck_shape": False}):
            yield
    finally:
        attention.set_fastpath_enabled(fused)


@contextmanager
def _set(settings: Any, values: Mapping[str, Any]) -> Iterator[None]:
    """Sets options of a configuration of torch's. It may be in each step: assignments to torch's configurations take 20
    us each, as they prepare their hash anew, which only caches on disk read."""
    overrides = [settings._config[name].user_override for name in values]
    if all(isinstance(each, ContextVar) for each in overrides):
        tokens = [each.set(value) for each, value in zip(overrides, values.values(), strict=True)]
        try:
            yield
        finally:
            for each, token in zip(overrides, tokens, strict=True):
                each.reset(token)
        return
    before = [getattr(settings, name) for name in values]  # torch 2.12 and before
    try:
        for name, value in values.items():
            setattr(settings, name, value)
        yield
    finally:
        for name, value in zip(values, before, strict=True):
            setattr(settings, name, value)


def _calling(function: Callable[..., Any]) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return call


def with_own_code(function: Callable[..., Any]) -> Callable[..., Any]:
    """A copy of a function or method whose graphs Dynamo counts and limits by themselves: it does so for each code
    object, which all models of a class share, and those of transformers even their wrappers'. One of torch's own, as
    `nn.Sequential.forward`, is called by a function of ours, where Dynamo would have one for all."""
    if torch._dynamo.trace_rules.check(function.forward if isinstance(function, torch.nn.Module) else function):
        return with_own_code(_calling(function))
    plain = function.__func__ if isinstance(function, types.MethodType) else function
    if not isinstance(plain, types.FunctionType):
        return function
    code = plain.__code__.replace()
    copied = types.FunctionType(code, plain.__globals__, plain.__name__, plain.__defaults__, plain.__closure__)
    copied.__kwdefaults__ = plain.__kwdefaults__
    copied.__dict__.update(plain.__dict__)
    return types.MethodType(copied, function.__self__) if isinstance(function, types.MethodType) else copied


@contextmanager
def without_collections() -> Iterator[None]:
    """Suspends Python's cyclic garbage collector: tracing creates many objects, all of them alive."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def wrap_checkpointed(wrap: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
    """Makes `torch.utils.checkpoint` call `wrap(function)` in place of each checkpointed function, also when it
    recomputes."""
    original = checkpoint._checkpoint_without_reentrant_generator

    @functools.wraps(original)
    def without_reentrance(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        return original(wrap(function), *args, **kwargs)

    class Reentrant(checkpoint.CheckpointFunction):
        @staticmethod
        def forward(ctx: Any, run_function: Callable[..., Any], *args: Any) -> Any:
            return super(Reentrant, Reentrant).forward(ctx, wrap(run_function), *args)

    checkpoint._checkpoint_without_reentrant_generator = without_reentrance  # type: ignore[assignment]
    checkpoint.CheckpointFunction = Reentrant  # type: ignore[misc]


class _Unwrapped(ShortenTraceback):
    """What Dynamo raises as it is where a backend raises it. Dynamo adds to its `args`, but not to its text."""

    def __init__(self, error: Error) -> None:
        super().__init__(str(error), first_useful_frame=None)
        self._plain = type(error), str(error)

    def __str__(self) -> str:
        return self._plain[1]

    def __reduce__(self) -> tuple[Any, ...]:
        return self._plain[0], (self._plain[1],)

    def remove_dynamo_frames(self) -> Any:
        raise self  # Dynamo would raise it without its cause


@functools.cache
def _unwrapped_class(kind: Any) -> type[Any]:
    return type(kind.__name__, (_Unwrapped, kind), {"__module__": kind.__module__, "__doc__": kind.__doc__})


def unwrapped(error: Error) -> Error:
    """The error as one of its class that a backend of torch.compile may raise: torch does not wrap it in its own."""
    kind: Any = type(error)
    found: Error = _unwrapped_class(kind)(error)
    found.__dict__.update({name: value for name, value in vars(error).items() if name not in vars(found)})
    return found.with_traceback(error.__traceback__)


class FakeTensors:
    """Creates fake tensors, which have shape, strides, dtype and device but no memory."""

    def __init__(self) -> None:
        self._mode = FakeTensorMode(allow_non_fake_inputs=True)

    def of(self, tensor: torch.Tensor) -> torch.Tensor:
        """The fake tensor of a tensor, with its `requires_grad`; a parameter for a parameter."""
        # Expanded, distributed and sparse tensors get contiguous strides.
        plain = type(tensor) in (torch.Tensor, torch.nn.Parameter) and tensor.layout is torch.strided
        dense = plain and 0 not in tensor.stride()
        device = context().device if tensor.is_meta else tensor.device  # where it will be stored
        with self._mode, torch.no_grad():
            if dense:
                fake = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=device)
            else:
                fake = torch.empty(tensor.shape, dtype=tensor.dtype, device=device)
        if isinstance(tensor, torch.nn.Parameter):
            return torch.nn.Parameter(fake, requires_grad=tensor.requires_grad)
        return fake.requires_grad_(tensor.requires_grad)

    def of_batch(self, tensor: torch.Tensor, axes: int | None = None) -> torch.Tensor:
        """The same for a batch, whose size and length are symbols in captured graphs: of so many axes, by default the
        first, and the second of whole numbers and of tensors of three axes."""
        fake = self.of(tensor)
        if axes is None:
            axes = 2 if tensor.dim() == 3 or not tensor.is_floating_point() else 1
        maybe_mark_dynamic(fake, list(range(min(axes, tensor.dim()))))
        return fake


# Attributes of a module that hold tensors and modules but do not occur in the names of `state_dict`.
_HOLDERS = frozenset({"_modules", "_parameters", "_buffers"})

_AOT_NAME = re.compile(r"(primals|tangents)_(\d+)")


def placeholder_names(gm: torch.fx.GraphModule) -> list[str]:
    """The user's names of the tensors of a Dynamo graph's placeholders: `x`, `batch.ids`, `0.weight` of the module
    whose forward pass it is, `model.0.weight` of a module that a function reads; of a size, `x.size`."""
    out = []
    for node in gm.graph.find_nodes(op="placeholder"):
        argument = node.meta.get("grapharg")
        path = [] if argument is None else _source_path(argument.source)
        of = [] if argument is None or not isinstance(argument.source, TensorPropertySource) else ["size"]
        out.append(".".join([*path, *of]) or str(node.name))
    return out


def _source_path(source: Any) -> list[str]:
    """The attributes and keys from a local or global variable to a tensor, without `self`."""
    steps: list[str] = []
    while isinstance(source, ChainedSource):
        if isinstance(source, AttrSource) and source.member not in _HOLDERS:
            steps.append(source.member)
        elif isinstance(source, (GetItemSource, DictGetItemSource)):
            steps.append(str(source.index))
        source = source.base
    root = getattr(source, "local_name", None) or getattr(source, "global_name", "")
    return [*([] if root == "self" else [root]), *reversed(steps)] if root else []


def backward_names(gm: torch.fx.GraphModule, names: Sequence[str]) -> list[str]:
    """Names of a backward graph's placeholders: `names` for inputs of the forward graph, `gradient.0` and so on for
    gradients of its results, and the nodes' own names for intermediate values."""
    out = []
    for node in gm.graph.find_nodes(op="placeholder"):
        found = _AOT_NAME.fullmatch(node.name)
        number = int(found[2]) - 1 if found is not None else 0
        if found is None or (found[1] == "primals" and number >= len(names)):
            out.append(str(node.name))
        else:
            out.append(names[number] if found[1] == "primals" else f"gradient.{number}")
    return out


def graph_examples(gm: torch.fx.GraphModule) -> list[Any]:
    """Dynamo's example for each placeholder of its graph: a tensor, a number, or None."""
    out = []
    for node in gm.graph.find_nodes(op="placeholder"):
        argument = node.meta.get("grapharg")
        out.append(None if argument is None else argument.example)
    return out
