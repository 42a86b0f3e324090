"""`joinsum.train_step`: forward, loss, backward and update of a model as one plan."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from joinsum import _C
from joinsum.base.arguments import integer, show
from joinsum.base.errors import PlanError
from joinsum.capture.captured_graph import Executable
from joinsum.cluster.context import context
from joinsum.distributed.batch_shards import BatchShards
from joinsum.distributed.distributed_tensor import DistributedTensor, gathered
from joinsum.distributed.first_values import take_first_rank_values
from joinsum.frontend.backend import names_of_operators
from joinsum.frontend.distribute import check_not_distributed, gather
from joinsum.frontend.empty_models import place_parameter
from joinsum.frontend.loss_state import ModelAndLoss, loss_modules
from joinsum.frontend.planned_forward import PlannedForward, check_model, check_values, planned_forward_of
from joinsum.frontend.tracing.computed_weights import computed_weights
from joinsum.frontend.tracing.fake_tensors import Traced, TracedFunction, module_tensors, plain_tensors, tensor_names
from joinsum.frontend.tracing.names import argument_names
from joinsum.frontend.training.loss_scale import LossScale
from joinsum.frontend.training.optimizer_list import OptimizerList
from joinsum.frontend.training.step_arguments import StepArguments, TrainedParameter
from joinsum.frontend.training.step_function import (
    LossFunction,
    Outputs,
    StepOptions,
    step_function,
)
from joinsum.frontend.training.step_graph import StepCapture, StepGraph, keep_state
from joinsum.frontend.training.trained_parameters import OptimizerState, TrainedParameters

__all__ = ["TrainStep", "train_step"]


class TrainStep:
    """A training step, from `joinsum.train_step`: call it with a batch; it updates the model and returns the loss."""

    explain: ClassVar[Callable[..., Any]]  # set by the room of explanations, which is above this one

    def __init__(self, model: torch.nn.Module, optimizers: OptimizerList, options: StepOptions) -> None:
        self._options = options
        self._model = model
        self._optimizers = optimizers
        # Of gradients since the last update, by the parameters' identity; None of parameters that had none.
        self._sums: dict[int, Tensor | None] = {}
        self._done = 0  # batches since the last update
        self._numbers: dict[Any, Tensor] = {}
        trained = {id(p) for group in optimizers.groups for p in group["params"]}
        self._modules = ModelAndLoss(model, loss_modules(options.loss_function, model, trained))
        self._names = tensor_names(self._modules)
        # Trained parameters that no module holds, such as a variable of the loss function. They stay plain tensors.
        self._outside: dict[str, Tensor] = {}
        self._trained: Sequence[TrainedParameter] = ()  # those of the last call
        self._trains_modules = False  # whether the model or the loss function holds some of them
        self._parameters = TrainedParameters(optimizers, self._names)
        self._current: StepArguments | None = None
        self._ran: Executable | None = None
        self._metrics: dict[str, Any] = {}
        scaler = options.scaler
        self._scale = None if scaler is None or not scaler.is_enabled() else LossScale(scaler)
        self._step_capture = StepCapture(
            self._current_arguments,
            self._added_names,
            self._state_names,
            options.outputs in ("sharded", "local"),
            options.replicate,
            lambda: self._trains_modules,
        )
        function = step_function(model, options, computed_weights(self._modules))
        self._forward = PlannedForward("train_step", model, options.shards, options.replicate)
        self._traced = TracedFunction(
            "train_step", self._modules, function, self._capture, self._all_names, differentiates=True
        )

    @property
    def model(self) -> torch.nn.Module:
        """The model that it trains."""
        return self._model

    def __repr__(self) -> str:
        return f"<TrainStep of {type(self._model).__name__} with {self._optimizers}>"

    def __call__(self, *batch: Any, **keywords: Any) -> Any:
        """Runs the step on a batch; returns the loss before the update, a tensor of one element, on every rank, or what
        the loss function returns, detached, with the loss as the first entry of a tuple or the entry `loss` of a
        dictionary. `metrics` says more of the step.

        With a loss function, the last positional argument is the target and the model gets the others. Without one the
        model gets all arguments, and returns the loss, or a result with an attribute or entry `loss`, or a tuple that
        begins with it.
        Raises CaptureError, PlanError, KernelError, TransportError.
        """
        check_not_distributed("train_step", self._model)
        with _C.TorchAllocations(context().store):
            return self._run(batch, keywords)

    @property
    def metrics(self) -> dict[str, Any]:
        """Of the last step, also an attribute of the loss that it returned: `loss`; `learning_rate`, of each parameter
        group a number; `gradient_norm` before clipping, a tensor, if the step made an update and `max_norm` was
        given (`math.inf` clips nothing); with a GradScaler `loss_scale`, and `skipped`, whether the update was."""
        return dict(self._metrics)

    def _run(self, batch: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        batch, keywords = self._options.shards.joined((batch, keywords))
        if planned_forward_of(self._model) is not self._forward:
            self._forward.install()
        if self._ran is None:
            self._read_optimizers()
            take_first_rank_values("train_step", plain_tensors(self._modules) | self._outside)
            self._give_memory(batch, keywords)
            check_values("train_step", self._names, self._modules)
        call = self._current = self._arguments()
        try:
            loss, norm, skipped, others, _ = self._traced(batch, keywords, call.traced())
            graph = self._graph()
            updated, self._ran = graph.take_updated(), graph.executable
        finally:
            self._current = None
        is_skipped = skipped is not None and bool(skipped)
        if call.last:
            for index, (parameter, state) in updated.replaced.items():
                self._store(call.trained[index], parameter, state, is_skipped)
            if not is_skipped:
                self._count(call.trained, updated.indices)
            for each in self._optimizers.all:
                each._opt_called = True  # schedules warn of a step before the first
        self._sums = {}
        if not call.last:
            self._sums |= dict.fromkeys(map(id, call.parameters))
            self._sums |= {id(call.parameters[i]): x for i, (x, _) in updated.replaced.items()}
        self._done = 0 if call.last else self._done + 1
        self._metrics = {"loss": loss, "learning_rate": [float(x["lr"]) for x in self._optimizers.groups]}
        if norm is not None:
            self._metrics["gradient_norm"] = norm
        if self._scale is not None and call.scale is not None:
            self._metrics["loss_scale"] = call.scale.item()
            if call.last:
                self._metrics["skipped"] = is_skipped
                self._scale.update(is_skipped)
        loss.metrics = self.metrics
        return loss if others is None or isinstance(others, Tensor) else self._with_loss(others, loss)

    def _give_memory(self, batch: tuple[Any, ...], keywords: dict[str, Any]) -> None:
        """Stores tensors without memory on the sites, where the plan for this batch wants them."""
        empty = [x for x in module_tensors(self._modules) if x.is_meta]
        if not empty:
            return
        call = self._current = self._arguments()
        try:
            self._traced.graph_for(batch, keywords, call.traced())
            types = self._graph().wanted_types
        finally:
            self._current = None
        for x in empty:
            place_parameter(x, types.get(id(x)))

    def _with_loss(self, others: Any, loss: Tensor) -> Any:
        """The results of a step, its loss in place."""
        if self._options.outputs == "local":
            others = self._options.shards.own_shards(others)
        if isinstance(others, tuple):
            return loss, *others[1:]
        return {"loss": loss, **{name: x for name, x in others.items() if name != "loss"}}

    def evaluate(self, *inputs: Any, **keywords: Any) -> Any:
        """What the model gives for inputs in eval mode and without gradients, computed where the parameters lie; the
        model's mode is as before afterwards. `model(*inputs)` between steps runs so, too, in the model's mode."""
        modes = [(module, module.training) for module in self._model.modules()]
        self._model.eval()
        try:
            with torch.no_grad():
                return self._model(*inputs, **keywords)
        finally:
            for module, training in modes:
                module.training = training

    def sync(self) -> None:
        """Restores plain tensors in the model and the optimizer's state; a later step continues from them. All ranks of
        a process group call."""
        for each in self._optimizers.all:
            gather(self._model, each)
        for module in self._modules.loss_parts():
            gather(module)

    def state_dict(self) -> dict[str, Any]:
        """The state of the model, the optimizer and, if it has any, the loss function, under the entry `loss`, as
        distributed tensors, for `joinsum.save_checkpoint` and torch.distributed.checkpoint."""
        state = {"model": self._model.state_dict(), "optimizer": self._optimizers.state_dict()}
        loss = self._modules.loss_state()
        return state | {"loss": loss} if loss else state

    def captured(self, *batch: Any, **keywords: Any) -> Executable:
        """The step's graph for such a batch, whose `choice` is its plan; nothing is computed, and nothing changes. The
        model's tensors may be fake ones, without memory. Raises what a step raises."""
        batch, keywords = self._options.shards.joined((batch, keywords))
        call = self._current = self._arguments()
        try:
            self._traced.graph_for(batch, keywords, call.traced())
            return self._graph().executable
        finally:
            self._current = None

    def captured_or_last(self, *batch: Any, **keywords: Any) -> Executable:
        """The step's graph for such a batch, as `captured`; without a batch that of the step that ran last. Raises
        PlanError where none has run."""
        if batch or keywords:
            return self.captured(*batch, **keywords)
        if self._ran is None:
            raise PlanError("explain: no step has run yet; give it a batch: step.explain(inputs, target)")
        return self._ran

    def _graph(self) -> StepGraph:
        """The graph of the last call, or of the last `captured`."""
        graph = self._traced.chosen
        assert isinstance(graph, StepGraph)
        return graph

    # --- what goes into a call, and what comes out ----------------------------------------------------------------

    def _arguments(self) -> StepArguments:
        found = self._read_optimizers()
        self._cohorts, self._steps = found.cohorts, found.steps
        unknown = self._sums and any(id(each.parameter) not in self._sums for each in found.trained)
        if unknown:
            raise PlanError("train_step: parameters began to require gradients between the batches of one update")
        last = self._done + 1 == self._options.accumulate
        sums = [self._sums[id(each.parameter)] for each in found.trained] if self._sums else []
        numbers = self._fill_numbers() if last else []
        scale = None if self._scale is None else self._scale.tensor()
        return StepArguments(found.trained, found.hooks, found.state, sums, numbers, last, scale)

    def _read_optimizers(self) -> OptimizerState:
        """The optimizers' state, after which it is known which of their parameters no module holds."""
        found = self._parameters.read()
        if found.trained is not self._trained:
            self._check_complex(found.trained)
            held = set(map(id, module_tensors(self._modules)))
            named = {f"parameter.{i}": each.parameter for i, each in enumerate(found.trained)}
            outside = {name: p for name, p in named.items() if id(p) not in held}
            self._outside = {name: p for name, p in outside.items() if not isinstance(p, DistributedTensor)}
            self._traced.read_elsewhere = set(map(id, self._outside.values()))
            self._trained, self._trains_modules = found.trained, len(outside) < len(named)
        return found

    def _check_complex(self, trained: Sequence[TrainedParameter]) -> None:
        """Raises PlanError for complex parameters whose gradients torch does not clip or scale so."""
        options = {"max_value": self._options.max_value, "scaler": self._scale}
        refused = [name for name, value in options.items() if value is not None]
        names = [self._names.get(id(each.parameter), "?") for each in trained if each.parameter.is_complex()]
        if names and refused:
            raise PlanError(
                "train_step: torch neither clips the elements of complex gradients nor unscales them: "
                f"parameter={names[0]}, option={refused[0]}; leave the option out, or clip by max_norm"
            )

    def _fill_numbers(self) -> list[dict[str, Tensor]]:
        """Tensors of one element that hold this step's numbers, for each cohort; the same ones at every step."""
        out, groups = [], self._optimizers.groups
        for place, each in enumerate(self._cohorts):
            dtype, device = each.dtype, torch.device("cpu") if each.update.fused else each.device
            values = each.update.numbers(groups[each.index], each.steps + 1, each.scalars)
            for name in values:
                self._numbers.setdefault((place, dtype, device, name), torch.empty((), dtype=dtype, device=device))
            out.append({name: self._numbers[place, dtype, device, name].fill_(x) for name, x in values.items()})
        return out

    def _store(self, each: TrainedParameter, parameter: Tensor, state: Mapping[str, Tensor], skipped: bool) -> None:
        """Replaces a parameter and its optimizer state by their updated values. A skipped update begins no state."""
        p = each.parameter
        if id(p) in self._traced.read_elsewhere:
            with torch.no_grad():
                p.copy_(gathered(parameter))
        else:
            keep_state(p, parameter)
        if not state:
            return
        stored = self._optimizers.states[self._cohorts[each.cohort].index][p]
        for name, new in state.items():
            old = stored.get(name)
            if new is old or (skipped and old is None):
                continue
            if isinstance(old, DistributedTensor) and isinstance(new, DistributedTensor):
                old.adopt(new)
            else:
                stored[name] = new

    def _count(self, trained: Sequence[TrainedParameter], updated: Sequence[int]) -> None:
        """Adds this update to the numbers of steps in the optimizer's state."""
        groups, states = self._optimizers.groups, self._optimizers.states
        counted = [index for index in updated if trained[index].update.counts]
        cohorts = [self._cohorts[trained[index].cohort] for index in counted]
        parameters = [trained[index].parameter for index in counted]
        for p, cohort in zip(parameters, cohorts, strict=True) if any(each.scalars for each in self._cohorts) else ():
            new = cohort.update.scalars(groups[cohort.index], cohort.steps + 1, cohort.scalars)
            states[cohort.index][p] |= {name: torch.tensor(x) for name, x in new.items()}
        others = []
        for i in _C.count_steps(parameters, [each.index for each in cohorts], states):
            stored = states[cohorts[i].index][parameters[i]]
            if isinstance(stored.get("step"), Tensor):
                others.append(stored["step"])
            else:
                stored["step"] = torch.tensor(float(self._steps[counted[i]] + 1))
        if others:
            torch._foreach_add_(others, 1)

    # --- capture --------------------------------------------------------------------------------------------------

    def _capture(self, traced: Traced) -> StepGraph:
        return StepGraph(traced, self._step_capture)

    def _current_arguments(self) -> StepArguments:
        assert self._current is not None
        return self._current

    def _state_names(self, arguments: StepArguments) -> dict[int, str]:
        """Names of the model's and the optimizer's tensors: those of `state_dict`, `0.weight.exp_avg`."""
        names = dict(self._names)
        for i, each in enumerate(arguments.trained):
            own = names.setdefault(id(each.parameter), f"parameter.{i}")
            names |= {id(x): f"{own}.{name}" for name, x in zip(each.moments, arguments.state[i], strict=True)}
        return names

    def _added_names(self, arguments: StepArguments) -> dict[int, str]:
        """Names of all state and of the update's numbers."""
        names = self._state_names(arguments)
        for cohort, numbers in zip(self._cohorts, arguments.numbers, strict=False):
            names |= {id(x): f"optimizer.{cohort.index}.{name}" for name, x in numbers.items()}
        return names

    def _all_names(self, args: Sequence[Any], keywords: Mapping[str, Any]) -> dict[int, str]:
        """Names of the batch's tensors, as the forward pass calls them, of the sums of gradients and of the state."""
        (batch, batch_keywords), current = args[:2], self._current_arguments()
        names: dict[int, str] = {}
        if self._options.loss_function is not None:
            batch, names = batch[:-1], argument_names(lambda target: target, batch[-1:], {})
        state = self._state_names(current)
        sums = zip(current.trained, current.sums, strict=False)
        names |= {id(x): f"{state[id(each.parameter)]}.grad" for each, x in sums if x is not None}
        return names | argument_names(self._model.forward, batch, batch_keywords) | state


def train_step(
    model: torch.nn.Module,
    loss_function: LossFunction | None,
    optimizer: torch.optim.Optimizer | Sequence[torch.optim.Optimizer],
    *,
    max_norm: float | None = None,
    norm_type: float = 2.0,
    max_value: float | None = None,
    accumulate: int = 1,
    reduction: Literal["mean", "sum"] = "mean",
    scaler: torch.amp.GradScaler | None = None,
    data: Literal["whole", "sharded"] = "whole",
    outputs: Outputs | None = None,
    autocast: torch.dtype | None = None,
    replicate: Collection[str] = (),
) -> TrainStep:
    """Captures forward, loss, backward and update as one graph with one plan; `step(*batch)` runs it and returns the
    loss.

    loss_function   a function of the model's result and the target, which is the batch's last entry. It returns the
                    loss, or a tuple or dictionary whose first entry or entry `loss` it is; None if the model returns
                    one of these, or a result with an attribute `loss`. Parameters of the optimizer that it reads are
                    trained, too; those and the buffers of a module are stored as the model's
    optimizer       of torch.optim: any whose update is elementwise, Adafactor or Muon, with any options and parameter
                    groups, or a subclass that changes numbers alone; or a list of them for different parameters, such
                    as Muon for matrices and AdamW for the rest
    max_norm        clips the gradients to this norm, as torch.nn.utils.clip_grad_norm_ does
    norm_type       which norm that is: 2, 1, `math.inf` or another positive number
    max_value       clips each element of the gradients, as torch.nn.utils.clip_grad_value_ does
    accumulate      number of batches whose gradients make one update
    reduction       the update's gradient is the "mean" of those of its batches, or their "sum", for losses that are
                    divided by the number of samples or tokens of all of its batches already
    scaler          scales the loss for half precision, as torch has it: an update whose gradients are not finite is
                    skipped, and the scale adapts. Gradients are unscaled before they are clipped
    data            "whole": every rank passes the same batch. "sharded": each rank of a process group passes its own
                    shard, of any length; the batch is their concatenation along the first axis of each tensor, and the
                    loss is that of the full batch. In a process with all sites the shard is the batch
    outputs         what else a step returns: "gathered", whole tensors on every rank; "sharded", distributed tensors in
                    the plan's layout; "local", this rank's shard of those whose first axis is the batch's, with
                    data="sharded". By default "gathered" for a loss function that returns more than the loss, and
                    nothing of a model's own result
    autocast        a narrower type for forward pass and loss, as torch.autocast has it: torch.bfloat16
    replicate       operators that joinsum has no rule for, such as `"aten::special_bessel_j0"`: every site runs them on
                    unsharded tensors

    Parameters, buffers and the optimizer's state stay on the sites between steps, as `joinsum.DistributedTensor`s in
    the model and the optimizer, with the same keys of `state_dict`; `step.sync()` restores plain tensors. A learning
    rate schedule changes the groups' options as usual, without a new plan. Parameters that do not require a gradient,
    or get none, do not change. Losses and parameters equal torch's up to rounding, which Adam magnifies where gradients
    vanish.

    On a process group all ranks call. Raises CaptureError for a model that is not one graph or has an operator that is
    not captured; PlanError, with a remedy, for other optimizers. A step raises PlanError where the optimizer has none
    of the model's parameters and the loss depends on none of those that it has.
    Source: EinDecomp paper, section 9.

        step = joinsum.train_step(model, loss_function, torch.optim.AdamW(model.parameters(), lr=1e-3))
        for inputs, target in batches:
            loss = step(inputs, target)
    """
    check_model("train_step", model)
    if loss_function is not None and not callable(loss_function):
        raise PlanError(f"train_step: a loss function is callable, or None: got={show(loss_function)}")
    if max_norm is not None and not max_norm > 0:
        raise PlanError(f"train_step: gradients are clipped to a positive norm: max_norm={max_norm}")
    count = integer("train_step", "accumulate", accumulate)
    if count < 1:
        raise PlanError(f"train_step: at least one batch makes an update: accumulate={count}")
    if reduction not in ("mean", "sum"):
        raise PlanError(f"train_step: gradients of batches make a mean or a sum: reduction={show(reduction)}")
    if scaler is not None and not isinstance(scaler, torch.amp.GradScaler):
        raise PlanError(f"train_step: a scaler is a torch.amp.GradScaler: got={show(scaler)}")
    if max_value is not None and not max_value > 0:
        raise PlanError(f"train_step: elements are clipped to a positive value: max_value={max_value}")
    if max_value is not None and max_norm is not None:
        raise PlanError("train_step: gradients are clipped by norm or by value: give max_norm or max_value")
    if not norm_type > 0:
        raise PlanError(f"train_step: a norm is 2, 1, math.inf or another positive number: norm_type={norm_type}")
    if outputs not in (None, "gathered", "sharded", "local"):
        raise PlanError(f"train_step: results are gathered, sharded or local: outputs={show(outputs)}")
    if outputs == "local" and data != "sharded":
        raise PlanError('train_step: a rank has a shard of its own only with data="sharded": outputs=local')
    options = StepOptions(
        loss_function=loss_function,
        shards=BatchShards("train_step", data),
        max_norm=None if max_norm is None else float(max_norm),
        norm_type=float(norm_type),
        max_value=None if max_value is None else float(max_value),
        accumulate=count,
        reduction=reduction,
        scaler=scaler,
        outputs=outputs,
        autocast=autocast,
        replicate=names_of_operators("train_step", replicate),
    )
    return TrainStep(model, OptimizerList(optimizer), options)
