"""Claims about names: plans and errors call parameters, inputs and modules as the user's code does."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import joinsum
import pytest
import torch
from joinsum.capture import executable
from joinsum.capture.captured_graph import CapturedGraph, Executable
from torch import Tensor, nn


class Block(nn.Module):
    def __init__(self, width: int, waves: bool = False) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(width, width), nn.ReLU())
        self.register_buffer("shift", torch.ones(width))
        self.waves = waves

    def forward(self, x: Tensor) -> Tensor:
        result = self.net(x) + self.shift
        return torch.special.bessel_j0(result) if self.waves else result  # type: ignore[no-any-return]


class Model(nn.Module):
    """Nested modules, tied parameters, a dictionary, a tuple, and keyword arguments."""

    def __init__(self, waves: bool = False) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([Block(4), Block(4, waves)])
        self.scales = nn.ParameterList([torch.ones(4)])
        self.head = nn.Linear(4, 4, bias=False)
        self.tail = nn.Linear(4, 4, bias=False)
        self.tail.weight = self.head.weight

    def forward(self, batch: dict[str, Tensor], pair: tuple[Tensor, Tensor], *, mask: Tensor | None = None) -> Tensor:
        x = batch["ids"] * pair[1] + pair[0]
        for block in self.blocks:
            x = block(x)
        x = self.tail(torch.tanh(self.head(x * self.scales[0])))
        return x if mask is None else x * mask


PARAMETERS = {
    "blocks.0.net.0.weight",
    "blocks.0.net.0.bias",
    "blocks.0.shift",
    "blocks.1.net.0.weight",
    "blocks.1.net.0.bias",
    "blocks.1.shift",
    "scales.0",
    "head.weight",
}
INPUTS = {"batch.ids", "pair.0", "pair.1", "mask"}


def arguments() -> tuple[tuple[Any, ...], dict[str, Any]]:
    return ({"ids": torch.rand(4, 4)}, (torch.rand(4, 4), torch.rand(4, 4))), {"mask": torch.rand(4, 4)}


@pytest.fixture(autouse=True)
def two_sites() -> Iterator[None]:
    torch._dynamo.reset()
    joinsum.init(sites=2)
    yield
    joinsum.init()


@pytest.fixture
def called(monkeypatch: pytest.MonkeyPatch) -> list[Sequence[str]]:
    """The names of the inputs of each graph that is compiled."""
    found: list[Sequence[str]] = []
    original = executable.compile_fx

    def noting(graph: CapturedGraph) -> Executable:
        assert graph.names is not None
        found.append(graph.names)
        return original(graph)

    monkeypatch.setattr(executable, "compile_fx", noting)
    return found


def variables(names: Any) -> set[str]:
    """The names without those of constants."""
    return {name for name in names if not name.startswith("constant.")}


def test_explain_of_a_model_names_what_it_reads_as_state_dict_and_the_signature_do() -> None:
    args, keywords = arguments()
    explained = joinsum.explain(Model(), *args, **keywords)
    assert variables(explained.passes[0].inputs) == PARAMETERS | INPUTS
    assert Model().state_dict().keys() >= PARAMETERS


def test_the_backward_pass_calls_parameters_as_the_forward_pass_does() -> None:
    model, x = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4)), torch.rand(4, 4)
    explained = joinsum.explain(model, x)
    assert variables(explained.passes[0].inputs) == {"0.weight", "0.bias", "1.weight", "1.bias", "input"}
    assert {"1.weight", "gradient.0", "input"} <= explained.passes[1].inputs.keys()


def test_a_distributed_model_names_what_it_reads_as_state_dict_and_the_signature_do(
    called: list[Sequence[str]],
) -> None:
    args, keywords = arguments()
    model = joinsum.distribute(Model(), args, keywords)
    assert {name for name in called[0] if not name.endswith(".size")} == PARAMETERS | INPUTS
    assert variables(joinsum.explain(model, *args, **keywords).passes[0].inputs) == PARAMETERS | INPUTS


def test_a_training_step_names_state_inputs_target_and_the_optimizers_numbers() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    step = joinsum.train_step(model, nn.functional.mse_loss, torch.optim.Adam(model.parameters()))
    names = variables(step.explain(torch.rand(8, 4), torch.rand(8, 4)).passes[0].inputs)
    state = {f"{name}{ending}" for name in model.state_dict() for ending in ("", ".exp_avg", ".exp_avg_sq")}
    assert state | {"input", "target"} <= names
    assert all(name.startswith("optimizer.0.") for name in names - state - {"input", "target"})


def test_a_training_step_names_arguments_of_the_forward_pass() -> None:
    model = Model()
    step = joinsum.train_step(model, nn.functional.mse_loss, torch.optim.SGD(model.parameters(), lr=0.1))
    args, keywords = arguments()
    names = variables(step.explain(*args, torch.rand(4, 4), **keywords).passes[0].inputs)
    assert PARAMETERS | INPUTS | {"target"} <= names


def test_a_compiled_model_names_what_it_reads_as_state_dict_and_the_signature_do(called: list[Sequence[str]]) -> None:
    args, keywords = arguments()
    joinsum.compile(Model())(*args, **keywords)
    assert {name for name in called[0] if not name.endswith(".size")} == PARAMETERS | INPUTS


def test_a_compiled_function_names_arguments_and_the_models_that_it_reads(called: list[Sequence[str]]) -> None:
    model = nn.Sequential(nn.Linear(4, 4))

    @joinsum.compile
    def predicted(rows: Tensor, *, bias: Tensor) -> Tensor:
        return model(rows) + bias  # type: ignore[no-any-return]

    predicted(torch.rand(4, 4), bias=torch.rand(4))
    assert set(called[0]) == {"model.0.weight", "model.0.bias", "rows", "bias"}


def test_the_backend_of_torch_compile_names_what_a_model_reads(called: list[Sequence[str]]) -> None:
    args, keywords = arguments()
    torch.compile(Model(), backend="joinsum", fullgraph=True)(*args, **keywords).sum().backward()
    assert {name for name in called[0] if not name.endswith(".size")} == PARAMETERS | INPUTS
    assert called[1] is not None
    assert "head.weight" in called[1]


def test_an_operator_that_is_not_captured_is_named_with_its_module() -> None:
    args, keywords = arguments()
    where = r"operator=aten::special_bessel_j0, .*module=blocks\.1, at=.*bessel_j0"
    with pytest.raises(joinsum.CaptureError, match=where):
        joinsum.explain(Model(waves=True), *args, **keywords)
    with pytest.raises(joinsum.CaptureError, match=where):
        joinsum.compile(Model(waves=True))(*args, **keywords)


def test_explanations_show_names_and_ranges_of_numbers() -> None:
    model = nn.Sequential(*(nn.Linear(4, 4, bias=False) for _ in range(3)))
    text = str(joinsum.explain(model, torch.rand(4, 4)).passes[0])
    assert "\n{0..2}.weight " in text
    assert "\ninput " in text
    assert "x*." not in text
