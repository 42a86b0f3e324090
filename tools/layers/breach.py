"""What both languages' checks share: a breach, the table of floors as a lookup, and circles as breaches."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from layers.circles import shortest_circle
from layers.floors import APART, Floor

__all__ = ["Breach", "Reference", "circles", "wrong_floor"]


@dataclass(frozen=True)
class Breach:
    file: str
    line: int
    message: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.message}"


@dataclass(frozen=True)
class Reference:
    """A line of `file` that reaches `target`, another file of the project."""

    file: str
    line: int
    target: str


def wrong_floor(floors: Sequence[Floor], source: str, target: str) -> str:
    """What is wrong with a file of folder `source` reaching a file of folder `target`; nothing if it is right."""
    order = {floor.folder: level for level, floor in enumerate(floors)}
    if source == target:
        return ""
    allowed = floors[order[source]].only
    if allowed is not None and target not in allowed:
        return f"{source} must not reach {target} (allowed: {', '.join(sorted(allowed))})"
    if order[target] > order[source]:
        return f"{source} must not reach {target}, a higher floor"
    if any({_top(source), _top(target)} == set(pair) for pair in APART):
        return f"{source} must not reach {target}: neither of {_top(source)} and {_top(target)} knows the other"
    return ""


def _top(folder: str) -> str:
    return folder.split("/")[0]


def circles(references: Sequence[Reference], folders: Mapping[str, str]) -> Iterator[Breach]:
    """The shortest circle of files, and the shortest one of folders; `folders` gives each file's."""
    for kind, name in (("files", dict.fromkeys(folders)), ("folders", dict(folders))):
        at: dict[tuple[str, str], Reference] = {}
        edges: dict[str, set[str]] = {}
        for reference in references:
            ends = tuple(name[file] or file for file in (reference.file, reference.target))
            source, target = ends
            if source != target:
                edges.setdefault(source, set()).add(target)
                at.setdefault((source, target), reference)
        circle = shortest_circle(edges)
        if circle:
            first = at[circle[0], circle[1]]
            yield Breach(first.file, first.line, f"a circle of {kind}: {' -> '.join(circle)}")
