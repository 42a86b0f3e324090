"""Programs that were made for other sizes from a template, beside those that are recorded for these sizes."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace

import pytest
import torch
from joinsum import _C
from joinsum.capture.captured_graph import CapturedGraph
from joinsum.capture.planned_program import PlannedProgram, StoredInputs
from joinsum.capture.recording.recorded import Signature

__all__ = ["assert_same", "compare_with_recordings"]


def compare_with_recordings(patch: pytest.MonkeyPatch) -> list[bool]:
    """From now on each program that a template gives is also recorded, and both have to be the same. Gives a list with
    an entry for each program for other sizes: whether it has the plan of the other sizes."""
    made: list[bool] = []
    plain = PlannedProgram.resized

    def resized(
        self: PlannedProgram, sizes: Mapping[str, int], stored: StoredInputs, graph: Callable[[], CapturedGraph]
    ) -> PlannedProgram | None:
        program = plain(self, sizes, stored, graph)
        found = None if self.template is None else self.template.at(sizes, self._stay)
        if found is not None:
            recorded, _ = replace(self._how, stored=stored.as_recorded(self._how.stored)).recorded(graph())
            assert_same(found.signature, found.graph, recorded, recorded.graph(self._stay))
        made.append(program is not None)
        return program

    patch.setattr(PlannedProgram, "resized", resized)
    return made


def assert_same(found: Signature, graph: _C.EinsumPlan, wanted: Signature, wanted_graph: _C.EinsumPlan) -> None:
    """Both compute the same; constants may have other names, as some are left out where they repeat others."""
    names, others = (_by_first_use(str(each)) for each in (graph, wanted_graph))
    lines = zip(_renamed(str(graph), names), _renamed(str(wanted_graph), others), strict=True)
    different = [pair for pair in lines if pair[0] != pair[1]]
    assert not different, "\n".join(map("\n".join, different[:4]))
    inputs = [replace(each, name=names.get(each.name, each.name)) for each in found.inputs if each.name in str(graph)]
    expected = [
        replace(each, name=others.get(each.name, each.name)) for each in wanted.inputs if each.name in str(wanted_graph)
    ]
    assert inputs == expected
    assert found.outputs == wanted.outputs
    assert found.seed == wanted.seed
    values = {others[name]: value for name, value in wanted.constants.items() if name in others}
    for name, constant in found.constants.items():
        if name in names:
            torch.testing.assert_close(constant, values[names[name]], rtol=0, atol=0, equal_nan=True)


def _by_first_use(text: str) -> dict[str, str]:
    """Names of constants in a graph's text, with new ones by their order."""
    found = dict.fromkeys(re.findall(r"\bconstant\.\d+\b", text))
    return {name: f"constant {place}" for place, name in enumerate(found)}


def _renamed(text: str, names: Mapping[str, str]) -> list[str]:
    return re.sub(r"\bconstant\.\d+\b", lambda name: names[name[0]], text).splitlines()
