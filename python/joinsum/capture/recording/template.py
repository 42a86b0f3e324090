"""A recorded program for other sizes than those that it was recorded with, without recording it again."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from joinsum import _C
from joinsum.base.errors import Error
from joinsum.capture.recording.recorded import Factor, Recorded, Signature
from joinsum.capture.recording.recorder import Recorder, is_uniform
from joinsum.capture.recording.symbolic_numbers import Place, SymbolicNumber, SymbolicNumbers
from joinsum.capture.recording.values import InputDraft, Recipe

__all__ = ["Resized", "Template", "template_of"]

# Marks are consecutive numbers from the first of these on for which no mark is a number of the program.
_FIRST_MARKS = (50021, 70061, 30011, 90071, 500009)
_log = logging.getLogger("joinsum")


@dataclass(frozen=True)
class Resized:
    """A program for other sizes: what it takes and gives, and its graph for the planner."""

    signature: Signature
    graph: _C.EinsumPlan


class Template:
    """A program in which marks stand for the numbers that depend on sizes.

    numbers   the symbolic numbers of its recording
    marked    the program with marks
    marks     for each mark the place of the number that it stands for
    recipes   of the constants that depend on sizes, by name
    uniform   constants of equal elements that depend on sizes, each with the element
    """

    def __init__(
        self,
        numbers: SymbolicNumbers,
        marked: Recorded,
        marks: Mapping[int, int],
        recipes: Mapping[str, Recipe],
        uniform: Sequence[tuple[Recipe, torch.Tensor]],
    ) -> None:
        self._numbers, self._marked, self._marks = numbers, marked, marks
        self._recipes, self._uniform = recipes, uniform
        self._pieces: dict[frozenset[str], list[str]] = {}

    def at(self, sizes: Mapping[str, int], laid_out: Collection[str] = ()) -> Resized | None:
        """The program for sizes, by the names of symbols; None where it is not the same but for numbers.

        laid_out   outputs that get the user's axes
        """
        numbers = self._numbers.at(sizes)
        if numbers is None or not all(_has_elements(recipe(numbers), element) for recipe, element in self._uniform):
            return None
        values = {mark: numbers[place] for mark, place in self._marks.items()}
        graph = _C.EinsumPlan.parse(self._text(values, frozenset(laid_out)))
        return Resized(self._signature(values, numbers), graph)

    def stands_for(self, recorded: Recorded) -> bool:
        """Whether the program for the recorded sizes is this one."""
        numbers = self._numbers.values
        return self._text({mark: numbers[place] for mark, place in self._marks.items()}, frozenset()) == str(
            recorded.graph()
        )

    def _text(self, values: Mapping[int, Any], laid_out: frozenset[str]) -> str:
        """The graph's text, with numbers in place of marks."""
        if laid_out not in self._pieces:
            marks = "|".join(map(str, self._marks))
            text = str(self._marked.graph(laid_out))
            self._pieces[laid_out] = re.split(rf"(?<![\w.])((?:{marks})(?:\.0)?)(?![\w.])", text) if marks else [text]
        texts = {str(mark): str(value) for mark, value in values.items()}
        texts |= {f"{mark}.0": repr(float(value)) for mark, value in values.items()}
        pieces = list(self._pieces[laid_out])  # every second one is a mark
        pieces[1::2] = [texts[mark] for mark in pieces[1::2]]
        return "".join(pieces)

    def _signature(self, values: Mapping[int, Any], numbers: Sequence[Any]) -> Signature:
        def of(extents: tuple[int, ...]) -> tuple[int, ...]:
            return tuple([values.get(extent, extent) for extent in extents])

        def factors(axis: tuple[Factor, ...]) -> tuple[Factor, ...]:
            return tuple([Factor(each.dim, values.get(each.extent, each.extent)) for each in axis])

        marked = self._marked
        return Signature(
            tuple([replace(each, shape=of(each.shape), axes=tuple(map(of, each.axes))) for each in marked.inputs]),
            tuple([replace(each, axes=tuple(map(factors, each.axes))) for each in marked.outputs]),
            {**marked.constants, **{name: recipe(numbers).detach() for name, recipe in self._recipes.items()}},
            marked.seed,
        )


def template_of(
    recorder: Recorder,
    numbers: SymbolicNumbers,
    recorded: Recorded,
    resolve: Callable[[Callable[[Any], Any]], Recorded],
) -> Template | None:
    """The template of a program; None where there is none, which the logger `joinsum` says.

    resolve   resolves the drafts of the program, given what stands for a symbolic number
    """
    stand_ins = numbers.representatives()
    found = set(map(int, re.findall(r"\d{1,18}", str(recorded.graph()))))
    first = next((first for first in _FIRST_MARKS if found.isdisjoint(range(first, first + len(stand_ins)))), None)
    if first is None:
        _log.debug("a program has no template: its numbers include all marks")
        return None
    used: dict[int, int] = {}

    def mark(value: Any) -> Any:
        if not isinstance(value, SymbolicNumber):
            return value
        stand_in, kind = stand_ins[value.place.number], type(value.value)
        if not isinstance(stand_in, Place):
            return kind(stand_in)
        used[first + stand_in.number] = stand_in.number
        return kind(first + stand_in.number)

    try:
        marked = resolve(mark)
        drafts = (each.draft for each in recorder.inputs)
        recipes = {
            draft.name: draft.recipe
            for draft in drafts
            if isinstance(draft, InputDraft) and draft.recipe is not None and draft.name in recorded.constants
        }
        template = Template(numbers, marked, used, recipes, list(recorder.uniform))
        if template.stands_for(recorded):
            return template
        _log.debug("a program has no template: with its own numbers it is another program")
    except Error as error:
        _log.debug("a program has no template: %s", error)
    return None


def _has_elements(tensor: torch.Tensor, element: torch.Tensor) -> bool:
    """Whether all elements of a tensor are this one."""
    return tensor.numel() > 0 and is_uniform(torch.cat([element.reshape(1), tensor.reshape(-1)]))
