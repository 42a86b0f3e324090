"""Measured rates of a machine: `joinsum.calibrate` measures them, and the cost model prices `seconds` by them."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from functools import cached_property
from typing import Any, TypeVar, get_args, get_type_hints

from joinsum import _C
from joinsum.base.arguments import is_number, show
from joinsum.base.errors import PlanError

__all__ = ["Curve", "Elementwise", "Links", "Products", "Profile", "Reductions", "monotone"]

Row = TypeVar("Row")


@dataclass(frozen=True)
class Curve:
    """Seconds by size: linear between the measured sizes, and along the last piece beyond them; never falls."""

    sizes: tuple[float, ...] = ()
    seconds: tuple[float, ...] = ()

    def lists(self) -> _C.CurveLists:
        """The same for the C++ core."""
        return self.sizes, self.seconds

    def beyond_first(self, factor: float) -> Curve:
        """What each size takes longer than the smallest one, times `factor`."""
        return Curve(self.sizes, tuple(factor * (seconds - self.seconds[0]) for seconds in self.seconds))


@dataclass(frozen=True)
class Links:
    """Seconds of messages that cross the grid axes `axes`, by the bytes of the busiest site in its busier direction.

    all    every site sends to each other site of its sub-grid, in all sub-grids at once
    pair   one site sends to another one, and no other site sends
    """

    axes: tuple[int, ...]
    all: Curve
    pair: Curve


@dataclass(frozen=True)
class Products:
    """Seconds of the matrix products of one dtype for every triple (rows, inner, columns) of `extents`, row-major."""

    dtype: str
    extents: tuple[float, ...]
    seconds: tuple[float, ...]


@dataclass(frozen=True)
class Elementwise:
    """Elementwise kernels whose rows have these facts, by the elements of the result."""

    operands: int
    flops_per_element: int
    domain: str
    element_bytes: int
    seconds: Curve


@dataclass(frozen=True)
class Reductions:
    """Reductions inside an array (`rows`) and of a block's tuples (`keys`), by the elements read."""

    element_bytes: int
    rows: Curve
    keys: Curve


@dataclass(frozen=True)
class Profile:
    """Times of the sites of one machine, measured on all of them at once; `docs/calibration.md` says how they are used.

    run_seconds    of the agreement that opens a run
    node_seconds   of a node that computes nothing; times of kernels are those of a node with one call
    copies         of copies into memory that has been used before, by bytes
    overlap        the fraction of the seconds of messages in which sites can compute, 0 to 1
    quick          whether a short measurement at the start found them, not `joinsum.calibrate`

    >>> flat = Profile(1e-3, 1e-5, copies=Curve((0.0, 1e9), (0.0, 0.1)))
    >>> Profile.of_json(flat.to_json()) == flat
    True
    """

    run_seconds: float
    node_seconds: float
    links: tuple[Links, ...] = ()
    products: tuple[Products, ...] = ()
    elementwise: tuple[Elementwise, ...] = ()
    reductions: tuple[Reductions, ...] = ()
    copies: Curve = Curve()
    overlap: float = 0.0
    quick: bool = False

    @property
    def product_rate(self) -> float | None:
        """Flops per second of the largest float32 product; None if none was measured.

        >>> Profile(0.0, 0.0, products=(Products("f32", (1.0, 100.0), (*[1e-6] * 7, 1e-4)),)).product_rate
        20000000000.0
        """
        sides = [(each.extents[-1], each.seconds[-1]) for each in self.products if each.dtype == "f32"]
        return next((2 * side**3 / seconds for side, seconds in sides), None)

    @cached_property
    def core(self) -> _C.Profile:
        """The same for the C++ core; raises PlanError for curves that fall."""
        core = _C.Profile(self.run_seconds, self.node_seconds, self.overlap)
        for link in self.links:
            core.add_link(link.axes, link.all.lists(), link.pair.lists())
        for table in self.products:
            core.add_products(table.dtype, table.extents, table.seconds)
        for row in self.elementwise:
            core.add_elementwise(
                row.operands, row.flops_per_element, row.domain, row.element_bytes, row.seconds.lists()
            )
        for reduction in self.reductions:
            core.add_reductions(reduction.element_bytes, reduction.rows.lists(), reduction.keys.lists())
        core.set_copies(self.copies.lists())
        return core

    def __str__(self) -> str:
        links = "/".join("".join(map(str, link.axes)) for link in self.links)
        dtypes = "/".join(table.dtype for table in self.products)
        return f"links of axes {links or 'none'}, products {dtypes or 'none'}, {len(self.elementwise)} elementwise"

    def to_json(self) -> dict[str, Any]:
        """As a calibration file holds it."""
        found: dict[str, Any] = _json_of(self)
        return found

    @staticmethod
    def of_json(value: object) -> Profile:
        """The profile that `to_json` described; raises PlanError naming an entry that is missing or of another type."""
        profile = _read(Profile, Reader(value, "profile"))
        _ = profile.core
        return profile


def _json_of(value: Any) -> Any:
    if isinstance(value, Curve):
        return [[size, seconds] for size, seconds in zip(value.sizes, value.seconds, strict=True)]
    if is_dataclass(value):
        return {each.name: _json_of(getattr(value, each.name)) for each in fields(value)}
    return [_json_of(each) for each in value] if isinstance(value, tuple) else value


def _read(kind: type[Row], reader: Reader) -> Row:
    """An object of the dataclass `kind`, whose fields are numbers, texts, truth values, curves, and lists of numbers or
    of rows."""
    readers: dict[Any, Callable[[str], Any]] = {
        float: reader.number,
        bool: reader.truth,
        int: lambda name: int(reader.number(name)),
        str: reader.text,
        Curve: reader.curve,
        tuple[float, ...]: reader.numbers,
        tuple[int, ...]: lambda name: tuple(map(int, reader.numbers(name))),
    }
    found = {}
    for name, annotation in get_type_hints(kind).items():
        if annotation in readers:
            found[name] = readers[annotation](name)
        else:
            found[name] = tuple(_read(get_args(annotation)[0], each) for each in reader.each(name))
    return kind(**found)


class Reader:
    """Entries of a JSON object; errors name the entry that does not fit."""

    def __init__(self, value: object, place: str) -> None:
        if not isinstance(value, Mapping):
            raise PlanError(f"{place}: expected an object: got={show(value)}")
        self._value = value
        self.place = place

    def get(self, name: str) -> Any:
        """The entry of that name."""
        if name not in self._value:
            raise PlanError(f"{self.place}.{name}: missing: entries={show(list(self._value))}")
        return self._value[name]

    def number(self, name: str) -> float:
        """A number."""
        return _number(self.get(name), f"{self.place}.{name}")

    def text(self, name: str) -> str:
        """A text."""
        value = self.get(name)
        if not isinstance(value, str):
            raise PlanError(f"{self.place}.{name}: expected a text: got={show(value)}")
        return value

    def truth(self, name: str) -> bool:
        """True or false."""
        value = self.get(name)
        if not isinstance(value, bool):
            raise PlanError(f"{self.place}.{name}: expected true or false: got={show(value)}")
        return value

    def entries(self, name: str) -> list[Any]:
        """A list."""
        value = self.get(name)
        if not isinstance(value, list):
            raise PlanError(f"{self.place}.{name}: expected a list: got={show(value)}")
        return value

    def numbers(self, name: str) -> tuple[float, ...]:
        """A list of numbers."""
        return tuple(_number(value, f"{self.place}.{name}[{i}]") for i, value in enumerate(self.entries(name)))

    def each(self, name: str) -> list[Reader]:
        """A list of objects."""
        return [Reader(value, f"{self.place}.{name}[{i}]") for i, value in enumerate(self.entries(name))]

    def curve(self, name: str) -> Curve:
        """A list of pairs."""
        points = []
        for i, point in enumerate(self.entries(name)):
            place = f"{self.place}.{name}[{i}]"
            if not isinstance(point, list) or len(point) != 2:
                raise PlanError(f"{place}: expected a size and its seconds: got={show(point)}")
            points.append((_number(point[0], place), _number(point[1], place)))
        return Curve(tuple(size for size, _ in points), tuple(seconds for _, seconds in points))


def _number(value: object, place: str) -> float:
    if not is_number(value):
        raise PlanError(f"{place}: expected a number: got={show(value)}")
    return float(value)


def monotone(values: Sequence[float]) -> list[float]:
    """The largest list that never falls and has no larger values: what a disturbance has made longer than the time of
    more work is that time.

    >>> monotone([1.0, 3.0, 2.0, 4.0])
    [1.0, 2.0, 2.0, 4.0]
    """
    return list(itertools.accumulate(reversed(values), min))[::-1]
