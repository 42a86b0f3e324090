"""Claims about the partition of a graph into its passes: random numbers, assertions, and sizes that depend on data."""

from __future__ import annotations

from collections.abc import Callable

import joinsum
import pytest
import torch
from joinsum.frontend.tracing.partition import partition
from torch import Tensor, fx, nn
from torch.nn import functional
from ways_in import OUTPUTS, WAYS, Layer


@pytest.fixture(autouse=True)
def two_sites() -> None:
    torch._dynamo.reset()
    joinsum.init(sites=2)


EVERY_WAY = WAYS | {
    "torch.compile": lambda model, x: torch.compile(model, backend="joinsum", fullgraph=True)(x),
}


def straight_through(x: Tensor) -> Tensor:
    return torch.distributions.OneHotCategoricalStraightThrough(logits=x).rsample()


def drawn_classes(x: Tensor) -> Tensor:
    drawn = torch.distributions.Categorical(logits=x)
    return functional.one_hot(drawn.sample(), OUTPUTS) * drawn.probs


@pytest.mark.parametrize("way", EVERY_WAY)
@pytest.mark.parametrize("draw", [straight_through, drawn_classes], ids=lambda draw: draw.__name__)
def test_assertions_about_drawn_classes_do_not_draw_again(draw: Callable[[Tensor], Tensor], way: str) -> None:
    model, x = Layer(draw), torch.randn(5, 4)
    drawn = EVERY_WAY[way](model, x)
    if way != "train_step":
        assert drawn.shape == (5, OUTPUTS)
        assert bool(((drawn > 0).sum(1) == 1).all())


@pytest.mark.parametrize("way", ["distribute", "compile"])
def test_gradients_pass_straight_through_drawn_classes(way: str) -> None:
    model, plain, x = Layer(straight_through), Layer(lambda x: x.softmax(-1)), torch.randn(5, 4)
    weights = torch.arange(OUTPUTS, dtype=torch.float32)
    (WAYS[way](model, x) * weights).sum().backward()
    (plain(x) * weights).sum().backward()
    gradient = model.layer.weight.grad
    assert gradient is not None
    full = gradient.full_tensor() if isinstance(gradient, joinsum.DistributedTensor) else gradient
    torch.testing.assert_close(full, plain.layer.weight.grad, rtol=1e-5, atol=1e-6)


def test_an_assertion_still_fails_in_the_forward_pass() -> None:
    compiled = joinsum.compile(lambda x: functional.one_hot((x * 3).long(), 2) * x[..., None])
    with pytest.raises(Exception, match="must be smaller than num_classes"):
        compiled(torch.ones(4, requires_grad=True))


def joint_graph() -> fx.GraphModule:
    """A joint graph with an assertion about random numbers, which the gradient does not depend on."""
    graph = fx.Graph()
    x, tangent = graph.placeholder("primals_1"), graph.placeholder("tangents_1")
    drawn = graph.call_function(torch.ops.aten.rand_like.default, (x,))
    graph.call_function(torch.ops.aten._assert_async.msg, (drawn, "it is zero"))
    out, slope = (graph.call_function(torch.ops.aten.mul.Tensor, (each, 2)) for each in (x, tangent))
    graph.output([out, slope])
    for node in graph.nodes:
        node.meta["val"] = torch.empty(4)
        node.meta["stack_trace"] = '  File "model.py", line 3, in forward\n    return torch.rand_like(x)\n'
    return fx.GraphModule(nn.Module(), graph)


def operators_of(gm: fx.GraphModule) -> list[str]:
    return [str(node.target) for node in gm.graph.nodes if node.op == "call_function"]


def test_what_the_forward_pass_asserts_the_backward_pass_does_not() -> None:
    forward, backward = partition(joint_graph(), [], num_fwd_outputs=1)
    assert operators_of(forward) == ["aten.rand_like.default", "aten._assert_async.msg", "aten.mul.Tensor"]
    assert operators_of(backward) == ["aten.mul.Tensor"]


def test_random_numbers_that_the_backward_pass_would_draw_again_are_refused_with_the_line() -> None:
    joint = joint_graph()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("joinsum.frontend.tracing.partition.default_partition", lambda *_, **__: (joint, joint))
        patch.setattr("joinsum.frontend.tracing.partition._ASSERTIONS", ())
        with pytest.raises(
            joinsum.CaptureError, match=r'numbers: operator=aten::rand_like, at=File "model.py", line 3'
        ):
            partition(joint, [], num_fwd_outputs=1)


def test_dropout_works_where_torchs_own_random_numbers_are_asked_for() -> None:
    with torch._inductor.config.patch(fallback_random=True):
        compiled = joinsum.compile(lambda x: functional.dropout(x, 0.5) * x)
        x = torch.ones(8, requires_grad=True)
        y = compiled(x)
        y.sum().backward()
    torch.testing.assert_close(x.grad, 2 * y.detach())
