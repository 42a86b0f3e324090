"""Claims about reading an optimizer before each step: what has changed is seen, and the rest is not made again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import joinsum
import pytest
import torch
from joinsum import _C
from joinsum.frontend.training.optimizer_list import OptimizerList
from joinsum.frontend.training.trained_parameters import TrainedParameters
from torch import Tensor, nn


def reader() -> tuple[torch.optim.Optimizer, list[Tensor], TrainedParameters]:
    """An AdamW of three parameters in two groups after one step, and what reads it."""
    parameters: list[Tensor] = [nn.Parameter(torch.ones(n)) for n in (2, 3, 2)]
    optimizer = torch.optim.AdamW([{"params": parameters[:2]}, {"params": parameters[2:], "lr": 0.5}])
    for p in parameters:
        p.grad = torch.ones_like(p)
    optimizer.step()
    return optimizer, parameters, TrainedParameters(OptimizerList(optimizer), {id(parameters[0]): "first"})


def _grow(optimizer: Any, p: Any) -> None:
    optimizer.add_param_group({"params": [nn.Parameter(torch.ones(2))]})


def _replace(optimizer: Any, p: Any) -> None:
    new = nn.Parameter(torch.ones(2))
    optimizer.param_groups[0]["params"][0], optimizer.state[new] = new, optimizer.state.pop(p)


def _widen(optimizer: Any, p: Any) -> None:
    p.grad, p.data = None, p.data.double()


CHANGES: dict[str, Callable[[Any, Any], Any]] = {
    "a group more": _grow,
    "another parameter": _replace,
    "another dtype": _widen,
    "a frozen parameter": lambda _, p: p.requires_grad_(False),
    "a trait": lambda optimizer, _: optimizer.param_groups[1].update(amsgrad=True),
    "another trait": lambda optimizer, _: optimizer.param_groups[0].update(maximize=True),
    "a moment of another dtype": lambda optimizer, p: optimizer.state[p].update(exp_avg=torch.ones(2).double()),
    "steps of one parameter": lambda optimizer, p: optimizer.state[p]["step"].fill_(7),
}


@pytest.mark.parametrize("change", CHANGES)
def test_what_decides_the_operators_is_read_again_when_it_changes(change: str) -> None:
    optimizer, (p, *_), parameters = reader()
    before = parameters.read()
    assert parameters.read().trained is before.trained
    CHANGES[change](optimizer, p)
    after = parameters.read()
    assert after.trained is not before.trained
    fresh = TrainedParameters(OptimizerList(optimizer), {}).read()
    assert [each.parameter is other.parameter for each, other in zip(after.trained, fresh.trained, strict=True)]
    assert [(x.traits, x.moments, x.cohort) for x in after.trained] == [
        (x.traits, x.moments, x.cohort) for x in fresh.trained
    ]
    assert (after.steps, after.cohorts) == (fresh.steps, fresh.cohorts)


def test_values_are_those_of_now_though_the_parameters_are_the_same() -> None:
    optimizer, (p, *_), parameters = reader()
    before = parameters.read()
    moment = optimizer.state[p]["exp_avg"] = torch.zeros(2)
    for state in optimizer.state.values():
        state["step"] += 1
    after = parameters.read()
    assert after.trained is before.trained
    assert after.state[0][0] is moment
    assert (before.steps, after.steps) == ([1, 1, 1], [2, 2, 2])
    assert [(each.index, each.steps) for each in after.cohorts] == [(0, 2), (1, 2)]


def test_no_reference_to_the_optimizers_state_remains() -> None:
    optimizer, (p, *_), parameters = reader()
    _ = parameters.read()
    assert not [x for x in _reachable(parameters) if x is optimizer.state[p]["exp_avg"]]


def _reachable(root: Any) -> list[Any]:
    """The tensors in the reader's own attributes, to any depth of lists and tuples."""
    found, pending = [], [value for name, value in vars(root).items() if name != "_optimizer"]
    while pending:
        value = pending.pop()
        if isinstance(value, Tensor):
            found.append(value)
        elif isinstance(value, (list, tuple)):
            pending += value
        elif hasattr(value, "__dataclass_fields__"):
            pending += vars(value).values()
    return found


def test_hooks_after_the_accumulation_of_a_gradient_are_refused_whenever_they_come() -> None:
    _, (p, *_), parameters = reader()
    _ = parameters.read()
    hook = p.register_post_accumulate_grad_hook(lambda *_: None)
    with pytest.raises(joinsum.PlanError, match=r"hooks on its accumulated gradient, .*parameter=first"):
        parameters.read()
    hook.remove()
    _ = parameters.read()


def test_hooks_on_gradients_are_read() -> None:
    _, (p, *others), parameters = reader()
    assert parameters.read().hooks == []
    hook = p.register_hook(double := lambda g: 2 * g)
    assert parameters.read().hooks == [[double], *([] for _ in others)]
    hook.remove()
    assert parameters.read().hooks == []


def test_forms_of_tensors_are_equal_where_class_shape_dtype_and_gradients_are() -> None:
    x = torch.ones(2, 3)
    same = _C.tensor_forms([x, nn.Parameter(torch.zeros(4))])
    assert same == _C.tensor_forms([torch.zeros(2, 3), nn.Parameter(torch.ones(4))])
    others = [torch.ones(3, 2), torch.ones(6), x.double(), x.clone().requires_grad_(), nn.Parameter(x)]
    assert len({_C.tensor_forms([each]) for each in [x, *others]}) == 6
    assert _C.tensor_forms([x]) != _C.tensor_forms([x, x])
    with pytest.raises(TypeError, match="another object"):
        _C.tensor_forms([1.0])


def test_hooks_are_found() -> None:
    plain, before, after, removed = (nn.Parameter(torch.ones(2)) for _ in range(4))
    before.register_hook(lambda g: g)
    after.register_post_accumulate_grad_hook(lambda p: None)
    removed.register_hook(lambda g: g).remove()
    assert _C.hooked([plain, before, after, removed]) == ([1], [2])


def test_state_is_read_as_it_is_stored() -> None:
    p, q, r, s = (nn.Parameter(torch.ones(2)) for _ in range(4))
    x, y = torch.ones(2), torch.zeros(2)
    first: dict[Any, Any] = {
        p: {"step": torch.tensor(3.0), "a": x, "b": y},
        q: {"step": 5, "a": x, "b": None},
        r: {"a": y},
    }
    second: dict[Any, Any] = {s: {"step": torch.tensor(2, dtype=torch.int64)}}
    names = [("a", "b"), ("a", "b"), ("a",), ("b",)]
    values, steps, lacking = _C.read_state([p, q, r, s], [0, 0, 1, 2], [first, first, second], names)
    assert steps == [3, 5, 1, 2]
    assert lacking == [1, 3]
    assert values[0][0] is x
    assert values[0][1] is y
    assert values[1][1] is None
    assert values[2][0] is y
    assert values[3] == (None,)
    assert _C.read_state([p, s], [1, 1], [first, second], [(), ()])[1] == [0, 2]
    with pytest.raises(TypeError, match="state is a dictionary"):
        _C.read_state([p], [0], [[1]], [()])


def test_steps_are_counted_in_place() -> None:
    p, q, r = (nn.Parameter(torch.ones(2)) for _ in range(3))
    own = torch.tensor(3.0)
    state: dict[Any, Any] = {p: {"step": own}, q: {"step": 4}, r: {"step": torch.tensor(1.0, dtype=torch.float64)}}
    version = own._version
    assert _C.count_steps([p, q, r], [0, 0, 0], [state]) == [1, 2]
    assert state[p]["step"] is own
    assert own.item() == 4.0
    assert own._version > version
    assert state[q]["step"] == 4
    assert state[r]["step"].item() == 1.0
