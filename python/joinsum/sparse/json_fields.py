"""Parts of programs as JSON has them, checked; errors name the place."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from joinsum.base.arguments import show
from joinsum.base.errors import PlanError

__all__ = ["extent_at", "list_at", "object_at", "without_duplicates"]


def object_at(value: object, place: str, needed: set[str], optional: set[str]) -> dict[str, Any]:
    """An object with these members; raises PlanError naming the place."""
    if not isinstance(value, Mapping):
        raise PlanError(f"sparse program: an object is needed: at={place}, value={show(value)}")
    missing = needed - set(value)
    if missing:
        raise PlanError(f"sparse program: missing: at={place}, members={sorted(missing)}")
    unknown = set(value) - needed - optional
    if unknown:
        raise PlanError(f"sparse program: unknown members: at={place}, members={sorted(map(str, unknown))}")
    return dict(value)


def extent_at(value: object, place: str) -> int:
    """An extent, or the number of an axis; raises PlanError naming the place."""
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**62:
        raise PlanError(f"sparse program: no extent, a whole number below 2^62: at={place}, value={show(value)}")
    return value


def list_at(value: object, place: str) -> list[Any]:
    """A list; raises PlanError naming the place."""
    if not isinstance(value, (list, tuple)):
        raise PlanError(f"sparse program: a list is needed: at={place}, value={show(value)}")
    return list(value)


def without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """The members of a JSON object; raises PlanError for one that stands twice."""
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise PlanError(f"sparse program: an object has a name twice: name={name}")
        found[name] = value
    return found
