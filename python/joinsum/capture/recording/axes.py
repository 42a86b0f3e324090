"""Axes as products of atomic labels, which split only as far as some operator needs.

An axis of a value is a row-major product of `Dim`s; an axis of one element has none. Each `Dim` refers to an `Atom`,
the class of all dims that operators have identified: when a reshape or a slice needs the atom in factors, it splits in
all values, also in those that were recorded before.

>>> width, bias = Dim(Atom(768)), Dim(Atom(768))
>>> align([width], [bias])
True
>>> heads = split([width], [12, 64])
>>> [dim.extent for dim in leaves([bias])]
[12, 64]
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import pairwise

__all__ = ["Atom", "Axis", "Dim", "align", "extent_of", "fresh", "leaves", "split"]


class Atom:
    """An extent shared by dims that split alike; never one."""

    __slots__ = ("_factors", "_same", "extent")

    def __init__(self, extent: int) -> None:
        self.extent = extent
        self._same: Atom | None = None
        self._factors: tuple[Atom, ...] = ()

    def find(self) -> Atom:
        """The atom that stands for its class; later calls reach it in one step."""
        root = self
        while root._same is not None:
            root = root._same
        atom = self
        while atom._same is not None and atom._same is not root:
            atom._same, atom = root, atom._same
        return root

    @property
    def factors(self) -> tuple[Atom, ...]:
        """The atoms that the class is split into, row-major; empty where it is not split."""
        return self.find()._factors

    def join(self, other: Atom) -> None:
        """Makes two classes one; at most one of them is split."""
        own, other = self.find(), other.find()
        if own is not other:
            if own._factors:
                own, other = other, own
            own._same = other

    def cut(self, inner: int) -> None:
        """Splits an unsplit class into extent / inner times inner."""
        self.find()._factors = (Atom(self.extent // inner), Atom(inner))


class Dim:
    """One occurrence of an atom: a letter of a vertex, and so an axis of its result."""

    __slots__ = ("_dims", "atom")

    def __init__(self, atom: Atom) -> None:
        self.atom = atom
        self._dims: tuple[Dim, ...] = ()

    @property
    def extent(self) -> int:
        """Number of elements along it."""
        return self.atom.extent

    def leaves(self) -> list[Dim]:
        """The unsplit dims that it is the product of, row-major."""
        if not self.atom.factors:
            return [self]
        if not self._dims:
            self._dims = tuple(Dim(factor) for factor in self.atom.factors)
        return leaves(self._dims)


Axis = tuple[Dim, ...]


def leaves(dims: Iterable[Dim]) -> list[Dim]:
    """The unsplit dims that `dims` are products of, row-major."""
    return [leaf for dim in dims for leaf in dim.leaves()]


def extent_of(dims: Iterable[Dim]) -> int:
    """Number of elements along a product of dims; one for none."""
    return math.prod(dim.extent for dim in dims)


def fresh(extent: int) -> Axis:
    """An axis that is identified with no other."""
    return () if extent == 1 else (Dim(Atom(extent)),)


def align(left: Iterable[Dim], right: Iterable[Dim]) -> bool:
    """Identifies two axes of equal extent, splitting atoms where the factors of one are finer.

    False where factors do not nest: 6 × 4 against 8 × 3.
    """
    ours, theirs = leaves(left), leaves(right)
    bounds = sorted([*_bounds(ours), *_bounds(theirs)])
    if extent_of(ours) != extent_of(theirs) or not _nested(bounds):
        return False
    while True:
        a, b = leaves(ours), leaves(theirs)
        differing = next(((x, y) for x, y in zip(reversed(a), reversed(b), strict=False) if x.extent != y.extent), None)
        if differing is None:
            break
        large, small = sorted(differing, key=lambda dim: -dim.extent)
        if large.extent % small.extent != 0:  # an atom that occurs twice has split in both places
            return False
        large.atom.cut(small.extent)
    for x, y in zip(a, b, strict=True):
        x.atom.join(y.atom)
    return True


def split(dims: Iterable[Dim], extents: Sequence[int]) -> list[Axis] | None:
    """The axes of these extents whose product `dims` are; None where factors do not nest.

    >>> [len(axis) for axis in split(fresh(24), [4, 1, 6])]
    [1, 0, 1]
    """
    remaining = leaves(dims)
    wanted = [math.prod(extents[position:]) for position in range(len(extents))]
    if not _nested(sorted([*_bounds(remaining), *(bound for bound in wanted if bound > 1)])):
        return None
    axes: list[Axis] = []
    for extent in reversed(extents):
        axis: list[Dim] = []
        left = extent
        while left > 1:
            last = remaining[-1]
            if left % last.extent != 0:
                if last.extent % left != 0:  # an atom that occurs twice has split in both places
                    return None
                last.atom.cut(left)
                remaining = leaves(remaining)
                continue
            axis.insert(0, remaining.pop())
            left //= last.extent
        axes.insert(0, tuple(axis))
    return axes


def _bounds(dims: Sequence[Dim]) -> list[int]:
    """Numbers of elements in the last dims: of the last one, the last two, ..."""
    return [extent_of(dims[position:]) for position in range(len(dims))]


def _nested(bounds: Sequence[int]) -> bool:
    return all(larger % smaller == 0 for smaller, larger in pairwise(bounds))
