"""A two-layer classifier for very many labels, trained on the sites of `joinsum.init`.

`joinsum.extreme.plans` has the plans of a step; `joinsum train` is the program.

>>> import joinsum
>>> from joinsum.extreme.classifier import Classifier, Sizes, choose
>>> choose(Sizes(points=256, features=17671, hidden=256, labels=17860), sites=4).chosen
'model'
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast

import torch

import joinsum
from joinsum.extreme.plans import (
    PLANS,
    Decision,
    Sizes,
    Training,
    catch_up_plan,
    choose,
    of_rows,
    scores_plan,
    step_plan,
    step_program,
)

__all__ = [
    "Classifier",
    "Decision",
    "Sizes",
    "Training",
    "choose",
    "scores_plan",
    "step_plan",
    "step_program",
]

_ADAM = Training()


class Classifier:
    """The classifier in training: weights and moments stay on the sites, placed as the plan wants them, between steps.

    sizes      of a full batch; for a batch of another size the same plan is built at its first use
    plan       `data`, `model`, or `auto`: what `choose` takes for these sizes and sites, by seconds
    training   optimizer and its constants
    seed       W1 ~ N(0, 1) and then W2 ~ N(0, 1/h) are drawn from `torch.Generator().manual_seed(seed)`

    On a process group every rank makes the same calls with the same batches.

    >>> import joinsum, torch
    >>> _ = joinsum.init(sites=4)
    >>> classifier = Classifier(Sizes(points=8, features=6, hidden=5, labels=7), plan="model")
    >>> x, y = torch.ones(8, 6), torch.eye(8, 7)
    >>> losses = [classifier.step(x, y) for _ in range(20)]
    >>> losses[-1] < losses[0], classifier.steps, classifier.scores(x).shape
    (True, 20, torch.Size([8, 7]))
    """

    def __init__(self, sizes: Sizes, plan: str = "auto", training: Training = _ADAM, seed: int = 0) -> None:
        self.sizes = sizes
        self.training = replace(training, loss=True)
        self.plan = choose(sizes, joinsum.sites(), training=self.training).chosen if plan == "auto" else plan
        if self.plan not in PLANS:
            raise joinsum.PlanError(f"classifier: no such plan: plan={plan}, plans={['auto', *PLANS]}")
        self.steps = 0
        self._plans: dict[tuple[str, int], joinsum.IaPlan] = {}
        self._state: dict[str, joinsum.StoredRelation] = {}
        self.load_state_dict({"steps": 0, **_initial_weights(sizes, self.training, seed)})

    def step(self, x: torch.Tensor, y: torch.Tensor) -> float:
        """Trains on a batch, x float32 [n, d] and y float32 [n, l] of 0 and 1; returns its loss before the step. x is
        sparse (`joinsum.SparseTensor`, or a sparse layout of torch's) where the sizes have entries.

        Raises PlanError for other shapes or dtypes.
        """
        plan = self._plan("step", len(x))
        self._catch_up(x)
        scalars = {"step": float(self.steps + 1)} if self.training.moments else {}
        outputs = joinsum.run(plan, {"X": x, "Y": y, **self._state, **self._numbers()}, scalars)
        ((_, loss),) = outputs.pop("loss").local_tuples()
        self._state = outputs
        self.steps += 1
        return loss.item() / len(x)

    def scores(self, x: torch.Tensor) -> torch.Tensor:
        """Returns the scores float32 [n, l] of x float32 [n, d]: logits, so above 0 means more likely than not."""
        self._catch_up(x)
        weights = {name: self._state[name] for name in ("W1", "W2")}
        return joinsum.run(self._plan("scores", len(x)), {"X": x, **weights})["scores"].to_tensor()

    def state_dict(self) -> dict[str, Any]:
        """Returns `steps` and unsharded tensors: `W1` [d, h], `W2` [h, l] and, for Adam, their moments by name."""
        every = torch.arange(self.sizes.features)
        places = torch.stack([torch.zeros_like(every), every])
        self._catch_up(
            torch.sparse_coo_tensor(places, torch.ones(len(every)), is_coalesced=True, check_invariants=False)
        )
        return {"steps": self.steps, **{name: self._state[name].to_tensor() for name in self._names}}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Takes what `state_dict` gave, of a classifier with any plan and sites; the tensors stay the caller's.

        Raises PlanError, and changes nothing, where a tensor is missing, left over or of another shape.
        """
        wanted = _state_shapes(self.sizes, self.training)
        shapes = {name: tuple(value.shape) for name, value in state.items() if name != "steps"}
        for name in (*wanted, *shapes, "steps"):
            if name not in state or shapes.get(name) != wanted.get(name):
                raise joinsum.PlanError(
                    f"load_state_dict: state does not fit the classifier: name={name}, "
                    f"found={shapes.get(name)}, wanted={wanted.get(name, 'none' if name in shapes else 'a number')}"
                )
        steps = int(state["steps"])
        tensors = {name: state[name] for name in wanted}
        if self._of_rows:
            tensors["W1_done"] = torch.full((self.sizes.features,), steps)
        self._state = self._placed(tensors)
        self.steps = steps

    @property
    def _names(self) -> list[str]:
        """What users see of the state."""
        return list(_state_shapes(self.sizes, self.training))

    @property
    def _of_rows(self) -> bool:
        return of_rows(self.sizes, self.plan, self.training)

    def _numbers(self) -> dict[str, torch.Tensor]:
        """The number of the step to come, where the plan reads it as an input."""
        return {"steps": torch.tensor(float(self.steps + 1))} if self._of_rows else {}

    def _catch_up(self, x: torch.Tensor) -> None:
        """Takes the rows of W1 that `x` touches through the steps that they have missed."""
        if not self._of_rows or self.steps == 0:
            return
        plan = self._plan("catch_up", len(x))
        state = {name: self._state[name] for name in dict(plan.inputs) if name in self._state}
        self._state |= joinsum.run(plan, {"X": x, **state, **self._numbers()})

    def _placed(self, tensors: dict[str, torch.Tensor]) -> dict[str, joinsum.StoredRelation]:
        """Copies in the layout that the plan wants. A run makes them, into blocks as those of its own results, so that
        training from loaded state is bit for bit as from state that was never saved."""
        types = self._plan("step", self.sizes.points).inputs
        inputs = [f"input {name}: {types[name]}" for name in tensors]
        outputs = [f"output {name} -> {name} = {name}" for name in tensors]
        return joinsum.run(joinsum.parse("\n".join([f"ia on {joinsum.grid()}", *inputs, *outputs])), tensors)

    def _plan(self, kind: str, points: int) -> joinsum.IaPlan:
        """Plans are cached by batch size: an epoch has two of them."""
        if (kind, points) not in self._plans:
            sizes = self.sizes._replace(points=points)
            arguments = (sizes, joinsum.sites(), self.plan)
            texts = {
                "step": lambda: step_plan(*arguments, self.training),
                "scores": lambda: scores_plan(*arguments),
                "catch_up": lambda: catch_up_plan(sizes, joinsum.sites(), self.training),
            }
            self._plans[kind, points] = cast(joinsum.IaPlan, joinsum.parse(texts[kind]()))
        return self._plans[kind, points]


def _state_shapes(sizes: Sizes, training: Training) -> dict[str, tuple[int, int]]:
    shapes = {"W1": (sizes.features, sizes.hidden), "W2": (sizes.hidden, sizes.labels)}
    return {weight + ending: shapes[weight] for weight in shapes for ending in ("", *training.moments)}


def _initial_weights(sizes: Sizes, training: Training, seed: int) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    weights = {
        "W1": torch.randn(sizes.features, sizes.hidden, generator=generator),
        "W2": torch.randn(sizes.hidden, sizes.labels, generator=generator) / sizes.hidden**0.5,
    }
    return {
        name: weights.get(name, torch.zeros(1).expand(shape)) for name, shape in _state_shapes(sizes, training).items()
    }
