"""The partition of a joint graph into those of the forward and of the backward pass: torch's default one, in which the
backward pass neither draws random numbers nor asserts what the forward pass has asserted."""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch._functorch.partitioners import default_partition
from torch.utils.checkpoint import CheckpointPolicy

from joinsum.base.errors import CaptureError
from joinsum.capture.recording.application import is_random, operator_name, source_line
from joinsum.frontend.tracing.data_dependence import check_sizes

__all__ = ["SAVED", "partition"]

# In the metadata of the forward graph: the positions of results that only the backward pass reads.
SAVED = "joinsum.saved"


def partition(joint: torch.fx.GraphModule, inputs: Any, *, num_fwd_outputs: int, **options: Any) -> Any:
    """torch's default partition; also records which results of the forward graph are saved for the backward graph."""
    check_sizes(joint.graph)
    _save_random_results(joint.graph)
    forward, backward = default_partition(joint, inputs, num_fwd_outputs=num_fwd_outputs, **options)
    _assert_once(forward.graph, backward)
    _check_random_results(forward.graph, backward.graph)
    check_sizes(backward.graph, joint.graph)
    results: Any = forward.graph.output_node().args[0]
    tokens = sum(map(_is_token, results))  # torch removes them from the results
    forward.meta[SAVED] = frozenset(range(num_fwd_outputs - tokens, len(list(results)) - tokens))
    return forward, backward


def _assert_once(forward: torch.fx.Graph, backward: torch.fx.GraphModule) -> None:
    """Removes from the backward graph the assertions that the forward graph makes, with all that only they read: torch
    puts operators without results in both. Random numbers that nothing reads go, too, whatever torch's setting."""
    names = {node.name for node in forward.nodes}
    for node in list(backward.graph.nodes):
        if node.target in _ASSERTIONS and node.name in names:
            backward.graph.erase_node(node)
    backward.graph.eliminate_dead_code(lambda node: node.is_impure(impure_random=False))
    backward.recompile()


_ASSERTIONS = (
    torch.ops.aten._assert_async.default,
    torch.ops.aten._assert_async.msg,
    torch.ops.aten._linalg_check_errors.default,
)


def _check_random_results(forward: torch.fx.Graph, backward: torch.fx.Graph) -> None:
    """Raises CaptureError for random numbers of the forward pass that the backward pass would draw anew."""
    drawn = {node.name for node in _random_nodes(forward)}
    again = next((node for node in _random_nodes(backward) if node.name in drawn), None)
    if again is not None:
        raise CaptureError(
            f"capture: the backward pass would use other random numbers: operator={operator_name(again.target)}, "
            f"at={source_line(again)}; draw them before the captured code and pass them as an argument"
        )


def _is_token(result: Any) -> bool:
    """Whether a result is the token that orders side effects."""
    made = result.args[0] if isinstance(result, torch.fx.Node) and result.target is operator.getitem else None
    return isinstance(made, torch.fx.Node) and made.target is torch.ops.higher_order.with_effects


def _save_random_results(graph: torch.fx.Graph) -> None:
    """Marks the results of random operators as saved for the backward pass, also in checkpointed layers. torch would
    recompute them from the state of its generator, on which our random numbers do not depend. Attention counts as
    random."""
    for node in _random_nodes(graph):
        # The partition saves tensors; for an operator with several results these are its `getitem` nodes.
        for each in [node, *(user for user in node.users if user.target is operator.getitem)]:
            if "recompute" in each.meta:
                each.meta["recompute"] = CheckpointPolicy.MUST_SAVE


def _random_nodes(graph: torch.fx.Graph) -> list[Any]:
    return [node for node in graph.nodes if is_random(node.target)]
