"""`joinsum.train_step`: forward, loss, backward and update of a model as one plan."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from joinsum.arguments import integer, show
from joinsum.errors import PlanError
from joinsum.explanation.model_text import ModelExplanation
from joinsum.frontend import runner as runners
from joinsum.frontend.backend import check_devices, names_of_operators
from joinsum.frontend.distribute import check_not_distributed, gather
from joinsum.frontend.distributed_tensor import DistributedTensor, replace_tensor
from joinsum.frontend.parts import BatchParts
from joinsum.frontend.program import Outcome, Program
from joinsum.frontend.stand_ins import Captured, TracedFunction, tensor_names
from joinsum.frontend.torch_internals import aot_compile
from joinsum.frontend.updates import Update, update_of

__all__ = ["TrainStep", "train_step"]

LossFunction = Callable[..., Tensor]
_CLIPPING_GUARD = 1e-6  # torch.nn.utils.clip_grad_norm_'s


@dataclass(frozen=True)
class _Trained:
    """A parameter that a step updates.

    state    what the optimizer keeps for it, in its order
    steps    updates that it has had
    cohort   which of the step's number tensors it reads
    """

    parameter: Tensor
    traits: dict[str, bool]
    state: dict[str, Tensor]
    steps: int
    cohort: int


@dataclass(frozen=True)
class _Call:
    """What the traced function is given besides the batch: tensors, and what decides which operators there are."""

    trained: list[_Trained]
    sums: list[Tensor]
    numbers: list[dict[str, Tensor]]
    last: bool

    def arguments(self) -> tuple[Any, ...]:
        places = [each.parameter for each in self.trained]
        states = [each.state for each in self.trained] if self.last else []
        kinds = [(each.cohort, each.traits) for each in self.trained] if self.last else []
        return places, self.sums, states, self.numbers, kinds, self.last


class TrainStep:
    """A whole training step; `joinsum.train_step` makes one. Call it with a batch; it gives the loss."""

    def __init__(
        self,
        model: torch.nn.Module,
        loss_function: LossFunction | None,
        optimizer: torch.optim.Optimizer,
        max_norm: float | None,
        accumulate: int,
        sharded: bool,
        replicate: Collection[str] = (),
    ) -> None:
        self._replicate = replicate
        self._parts = BatchParts("train_step") if sharded else None
        self._model = model
        self._optimizer = optimizer
        self._accumulate = accumulate
        self._update = update_of(optimizer)
        self._sums: dict[int, Tensor] = {}  # of gradients since the last update, by the parameters' identity
        self._done = 0  # batches since the last update
        self._numbers: dict[Any, Tensor] = {}
        self._names = tensor_names(model)
        self._current: _Call | None = None
        self._ran: _WholeStep | None = None
        function = _traceable(model, loss_function, self._update, max_norm, accumulate)
        self._traced = TracedFunction("train_step", model, function, self._capture)

    def __repr__(self) -> str:
        kind = type(self._optimizer).__name__
        return f"<TrainStep of {type(self._model).__name__} with {kind}>"

    def __call__(self, *batch: Any, **keywords: Any) -> Tensor:
        """The loss of a batch, before the update that it leads to: a tensor without dimensions, on every rank.

        With a loss function, the last positional argument is its target, and the model gets the others; without one,
        the model gets all, and gives the loss itself or a result with an attribute `loss`.
        Raises CaptureError, PlanError, KernelError, TransportError.
        """
        check_not_distributed("train_step", self._model)
        if self._parts is not None:
            batch, keywords = self._parts.joined((batch, keywords))
        call = self._current = self._call()
        try:
            loss, made = self._traced(batch, keywords, *call.arguments())
        finally:
            self._current = None
        self._ran = self._graph()
        if call.last:
            for each, new in zip(call.trained, made, strict=True):
                if new is not None:
                    self._keep(each, *new)
            self._sums = {}
        else:
            places = zip(call.trained, made, strict=True)
            self._sums = {id(each.parameter): new for each, new in places if new is not None}
        self._done = 0 if call.last else self._done + 1
        result: Tensor = loss
        return result

    def sync(self) -> None:
        """Makes the model's parameters and buffers, and the optimizer's state, plain whole tensors. A later step goes
        on from them. All ranks of a process group call."""
        gather(self._model, self._optimizer)

    def state_dict(self) -> dict[str, Any]:
        """The model's and the optimizer's state, whose tensors lie on the sites: `joinsum.save_checkpoint` and
        torch.distributed.checkpoint write them."""
        return {"model": self._model.state_dict(), "optimizer": self._optimizer.state_dict()}

    def captured(self, *batch: Any, **keywords: Any) -> runners.Runner:
        """The step's graph for such a batch, whose `choice` is its plan; nothing is computed, and nothing changes. The
        model's tensors may be fake ones, without memory. Raises what a step raises."""
        if self._parts is not None:
            batch, keywords = self._parts.joined((batch, keywords))
        call = self._current = self._call()
        try:
            self._traced.graph_for(batch, keywords, *call.arguments())
        finally:
            self._current = None
        return self._graph().runner

    def _graph(self) -> _WholeStep:
        """The graph that was called or asked for last."""
        graph = self._traced.chosen
        assert isinstance(graph, _WholeStep)
        return graph

    def explain(self, *batch: Any, baselines: bool = False, **keywords: Any) -> ModelExplanation:
        """The plan of a step: where parameters and state lie, what moves, what takes the time. Nothing is computed.

        batch, keywords   as for the step itself, of which shapes and dtypes count; without them, the step that ran last
        baselines         also prices plans that people make by hand; each costs a search

        Raises PlanError without a batch before the first step, and what a step raises.

        >>> import joinsum, torch
        >>> _ = joinsum.init(sites=2)
        >>> model = torch.nn.Linear(64, 64)
        >>> step = joinsum.train_step(model, torch.nn.functional.mse_loss, torch.optim.SGD(model.parameters(), lr=0.1))
        >>> told = step.explain(torch.ones(8, 64), torch.ones(8, 64))
        >>> told.passes[0].name, "weight" in told.passes[0].inputs
        ('train step', True)
        """
        from joinsum.frontend.explaining import explained

        if batch or keywords:
            self.captured(*batch, **keywords)
            graph = self._graph()
        elif self._ran is not None:
            graph = self._ran
        else:
            raise PlanError("explain: no step has run yet; give it a batch: step.explain(inputs, target)")
        return explained([("train step", graph.runner)], baselines)

    # --- what goes into a call, and what comes out ----------------------------------------------------------------

    def _call(self) -> _Call:
        trained = self._trained()
        unknown = self._sums and any(id(each.parameter) not in self._sums for each in trained)
        if unknown:
            raise PlanError("train_step: parameters began to require gradients between the batches of one update")
        last = self._done + 1 == self._accumulate
        sums = [self._sums[id(each.parameter)] for each in trained] if self._sums else []
        return _Call(trained, sums, self._fill_numbers(trained) if last else [], last)

    def _trained(self) -> list[_Trained]:
        update_of(self._optimizer)  # hooks may have come since
        found: list[_Trained] = []
        cohorts: dict[Any, int] = {}
        for index, group in enumerate(self._optimizer.param_groups):
            traits = dict(self._update.traits(group))
            for p in group["params"]:
                if p.requires_grad:
                    self._check_hooks(p)
                    state, steps = self._state(p, traits)
                    wide = torch.float64 if p.dtype is torch.float64 else torch.float32
                    cohort = cohorts.setdefault((index, steps, wide, p.device), len(cohorts))
                    found.append(_Trained(p, traits, state, steps, cohort))
        if not found:
            raise PlanError("train_step: no parameter of the optimizer requires a gradient")
        self._cohorts = list(cohorts)
        return found

    def _check_hooks(self, p: Tensor) -> None:
        if p._backward_hooks or p._post_accumulate_grad_hooks:
            name = self._names.get(id(p), "of the optimizer alone")
            raise PlanError(
                f"train_step: a parameter has hooks on its gradient, which are no part of a graph: parameter={name}; "
                "remove them, or use joinsum.distribute(model, sample_inputs), which runs them"
            )

    def _state(self, p: Tensor, traits: Mapping[str, bool]) -> tuple[dict[str, Tensor], int]:
        """The optimizer's tensors of a parameter's shape, zeros at first, and the steps so far."""
        known = self._optimizer.state.get(p, {})
        state = {name: known.get(name) for name in self._update.moments(traits)}
        begun = any(isinstance(value, Tensor) for value in state.values())
        filled = {name: _zeros_like(p) if value is None else value for name, value in state.items()}
        return filled, int(known["step"]) if "step" in known else int(begun)

    def _fill_numbers(self, trained: Sequence[_Trained]) -> list[dict[str, Tensor]]:
        """Tensors of one element that hold this step's numbers, for each cohort; the same ones at every step."""
        out = []
        for place, (index, steps, dtype, device) in enumerate(self._cohorts):
            values = self._update.numbers(self._optimizer.param_groups[index], steps + 1)
            for name in values:
                self._numbers.setdefault((place, dtype, device, name), torch.empty((), dtype=dtype, device=device))
            out.append({name: self._numbers[place, dtype, device, name].fill_(x) for name, x in values.items()})
        return out

    def _keep(self, each: _Trained, parameter: Tensor, state: Mapping[str, Tensor]) -> None:
        """Takes what an update made for what it was made from."""
        p = each.parameter
        keep_state(p, parameter)
        if not state and not self._update.counts:
            return
        kept = self._optimizer.state[p]
        for name, new in state.items():
            old = kept.get(name)
            if isinstance(old, DistributedTensor) and isinstance(new, DistributedTensor):
                old.adopt(new)
            else:
                kept[name] = new
        if self._update.counts:
            kept["step"] = torch.tensor(float(each.steps + 1))

    # --- capture --------------------------------------------------------------------------------------------------

    def _capture(self, gm: torch.fx.GraphModule, inputs: Sequence[Any], tensors: Sequence[Any]) -> _WholeStep:
        assert self._current is not None
        names = dict(self._names)
        for i, each in enumerate(self._current.trained):
            names.setdefault(id(each.parameter), f"parameter{i}")
            named = names[id(each.parameter)]
            names |= {id(x): f"{named}.{name}" for name, x in each.state.items()}
        return _WholeStep(gm, inputs, tensors, names, self._current, self._replicate)


def _zeros_like(p: Tensor) -> Tensor:
    """Zeros of a parameter's shape that take no memory."""
    return torch.zeros((), dtype=p.dtype, device=p.device).expand(p.shape)


def keep_state(old: Tensor, new: Tensor) -> None:
    """Makes a parameter or buffer be its new value, in blocks."""
    if isinstance(old, DistributedTensor) and isinstance(new, DistributedTensor):
        old.adopt(new)
    else:
        replace_tensor(old, new)


class _WholeStep(Captured):
    """The graph of a step: new values of its state may overwrite the old ones, and stay on the sites."""

    def __init__(
        self,
        gm: torch.fx.GraphModule,
        inputs: Sequence[Any],
        tensors: Sequence[Any],
        names: Mapping[int, str],
        call: _Call,
        replicate: Collection[str],
    ) -> None:
        self._replicate = replicate
        check_devices(inputs)
        runners.rewrite(gm)
        self._program: Program | None = None
        self._graph: tuple[torch.fx.GraphModule, Sequence[Any]] | None = None
        self._input_names = [names.get(id(x), f"input{i}") for i, x in enumerate(tensors)]
        place = {id(x): i for i, x in enumerate(tensors) if isinstance(x, Tensor)}
        self._kept = {i for i, x in enumerate(tensors) if id(x) in names}
        self._sums = [place.get(id(x)) for x in call.sums]
        self._places = [place.get(id(each.parameter)) for each in call.trained]
        self._states = [{name: place.get(id(x)) for name, x in each.state.items()} for each in call.trained]
        self._last = call.last
        self._written: dict[int, Tensor] = {}
        self._call = aot_compile(gm, inputs, self._planned_later, _no_backward)

    def _planned_later(
        self, graph: torch.fx.GraphModule, inputs: Sequence[Any], _: Collection[int]
    ) -> Callable[..., list[Any]]:
        self._graph = graph, list(inputs)
        return self._execute

    def bind(self, structure: Any) -> None:
        """Plans, now that it is known which results are which state."""
        _, made = structure
        ties: dict[int, int | None] = {}
        for i, new in enumerate(made):
            if new is None:
                continue
            if not self._last:
                ties[new.position] = self._sums[i] if self._sums else None
                continue
            parameter, state = new
            ties[parameter.position] = self._places[i]
            ties |= {slot.position: self._states[i][name] for name, slot in state.items()}
        assert self._graph is not None
        graph, inputs = self._graph
        known = {i: into for i, into in ties.items() if into is not None}
        kept = self._kept | {position for position in self._sums if position is not None}
        self._program = Program(
            graph,
            inputs,
            names=self._input_names,
            ties=known,
            stay=ties.keys(),
            state=self._kept,
            kept=kept,
            replicate=self._replicate,
        )
        self._graph = None

    @property
    def runner(self) -> runners.Runner:
        """The graph with its plan."""
        assert self._program is not None
        assert self._program.runner is not None
        return self._program.runner

    def run(self, actual: Sequence[Any]) -> Sequence[Any]:
        self._written = {}
        made: Sequence[Any] = self._call(*actual)
        for position, value in self._written.items():
            keep_state(actual[position], value)
        self._written = {}
        return made

    def _execute(self, args: list[Any]) -> list[Any]:
        assert self._program is not None
        outcome: Outcome = self._program.run(args)
        self._written = outcome.written
        return outcome.results


def _no_backward(*_: object) -> Callable[..., Any]:
    raise AssertionError("a whole step has no results that require a gradient")


# --- what is traced ---------------------------------------------------------------------------------------------------


def _traceable(
    model: torch.nn.Module,
    loss_function: LossFunction | None,
    update: Update,
    max_norm: float | None,
    accumulate: int,
) -> Callable[..., Any]:
    """The function that Dynamo sees: of a batch and of all state, without writing into parameters."""
    new = update.new

    def step(
        batch: Any, keywords: Any, places: Any, sums: Any, states: Any, numbers: Any, kinds: Any, last: bool
    ) -> Any:
        if loss_function is None:
            result = model(*batch, **keywords)
            loss = result.loss if hasattr(result, "loss") else result
        else:
            loss = loss_function(model(*batch[:-1], **keywords), batch[-1])
        gradients = torch.autograd.grad(loss / accumulate, places, allow_unused=True)
        with torch.no_grad():
            if sums:
                gradients = [s if g is None else s + g for s, g in zip(sums, gradients, strict=True)]
            if not last:
                return loss.detach(), gradients
            if max_norm is not None:
                gradients = _clipped(gradients, max_norm)
            made = []
            for i, gradient in enumerate(gradients):
                cohort, traits = kinds[i]
                made.append(_updated(new, places[i], gradient, states[i], numbers[cohort], traits))
        return loss.detach(), made

    return step


def _updated(new: Any, p: Tensor, gradient: Tensor | None, state: Any, numbers: Any, traits: Any) -> Any:
    """The parameter and its state after an update; floats of half width are updated in single precision."""
    if gradient is None:
        return None
    if p.dtype is torch.float32 or p.dtype is torch.float64:
        return new(p, gradient, state, numbers, traits)
    wide = {name: value.float() for name, value in state.items()}
    parameter, made = new(p.float(), gradient.float(), wide, numbers, traits)
    return parameter.to(p.dtype), {name: value.to(p.dtype) for name, value in made.items()}


def _clipped(gradients: Sequence[Tensor | None], max_norm: float) -> list[Tensor | None]:
    """Gradients whose norm, of all of them together, is at most that; as torch.nn.utils.clip_grad_norm_."""
    squares = [(g.float() if g.dtype is not torch.float64 else g).square().sum() for g in gradients if g is not None]
    total = squares[0]
    for square in squares[1:]:
        total = total + square
    scale = torch.clamp(max_norm / (total.sqrt() + _CLIPPING_GUARD), max=1.0)
    return [None if g is None else (g * scale).to(g.dtype) for g in gradients]


def train_step(
    model: torch.nn.Module,
    loss_function: LossFunction | None,
    optimizer: torch.optim.Optimizer,
    *,
    max_norm: float | None = None,
    accumulate: int = 1,
    data: Literal["whole", "sharded"] = "whole",
    replicate: Collection[str] = (),
) -> TrainStep:
    """Forward, loss, backward and update as one graph, planned together; `step(*batch)` runs it and gives the loss.

    loss_function   of the model's result and the target, which is the batch's last entry; None where the model gives
                    the loss, or a result with an attribute `loss`
    optimizer       SGD, Adam or AdamW of torch.optim, with any options and parameter groups
    max_norm        the gradients' norm is clipped to it, as torch.nn.utils.clip_grad_norm_ does
    accumulate      batches whose mean gradient makes one update
    data            "whole": every rank gives the same batch. "sharded": each rank of a process group gives its own
                    part, all of one shape; the batch is the parts one after another along the first axis of each
                    tensor, and the loss is that of all of it. In a process with all sites the part is the batch
    replicate       operators that joinsum has no rule for, as `"aten::linalg_inv_ex"`: each site runs them on whole
                    tensors

    Parameters, buffers and the optimizer's state stay on the sites between steps, as `joinsum.DistributedTensor`s, in
    the model and the optimizer, which keep the keys of their `state_dict`; `step.sync()` makes them plain. A schedule
    changes the groups' options as usual, and no plan. Parameters that do not require a gradient, or get none, stay.
    Losses and parameters are torch's up to rounding; Adam magnifies that where gradients vanish.

    On a process group all ranks call. Raises CaptureError for a model that is not one graph, or has
    an operator that is not captured; PlanError for another optimizer, naming the remedy.
    Source: EinDecomp paper, section 9.

        step = joinsum.train_step(model, loss_function, torch.optim.AdamW(model.parameters(), lr=1e-3))
        for inputs, target in batches:
            loss = step(inputs, target)
    """
    if not isinstance(model, torch.nn.Module):
        raise PlanError(f"train_step: a model is a torch.nn.Module: got={show(model)}")
    if loss_function is not None and not callable(loss_function):
        raise PlanError(f"train_step: a loss function is callable, or None: got={show(loss_function)}")
    if max_norm is not None and not max_norm > 0:
        raise PlanError(f"train_step: gradients are clipped to a positive norm: max_norm={max_norm}")
    count = integer("train_step", "accumulate", accumulate)
    if count < 1:
        raise PlanError(f"train_step: at least one batch makes an update: accumulate={count}")
    if data not in ("whole", "sharded"):
        raise PlanError(f"train_step: batches are whole or sharded: data={show(data)}")
    norm = None if max_norm is None else float(max_norm)
    named = names_of_operators("train_step", replicate)
    return TrainStep(model, loss_function, optimizer, norm, count, data == "sharded", named)
