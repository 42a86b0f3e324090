"""Sets of elements that are united step by step: union-find."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, TypeVar

__all__ = ["DisjointSets"]

Element = TypeVar("Element", bound=Hashable)


class DisjointSets(Generic[Element]):
    """Each element is in a set of its own until sets are united.

    >>> sets = DisjointSets[str]()
    >>> sets.unite("a", "b")
    >>> sets.unite("b", "c")
    >>> sets.find("c"), sets.find("d")
    ('a', 'd')
    """

    def __init__(self) -> None:
        self._above: dict[Element, Element] = {}

    def find(self, element: Element) -> Element:
        """The element that represents the set."""
        while (above := self._above.get(element, element)) != element:
            self._above[element] = self._above.get(above, above)  # halves the path of later searches
            element = self._above[element]
        return element

    def unite(self, first: Element, second: Element) -> None:
        """Makes one set of two; what represented the first represents it."""
        first, second = self.find(first), self.find(second)
        if first != second:
            self._above[second] = first
