"""Measured rates of a machine: what `joinsum.calibrate` finds, a calibration file keeps and `seconds` is priced by."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from joinsum import _C
from joinsum.arguments import show
from joinsum.errors import PlanError

__all__ = ["Curve", "Elementwise", "Folds", "Links", "Products", "Profile", "monotone"]


@dataclass(frozen=True)
class Curve:
    """Seconds by size: linear between the measured sizes, and along the last piece beyond them; never falls."""

    sizes: tuple[float, ...] = ()
    seconds: tuple[float, ...] = ()

    def lists(self) -> _C.CurveLists:
        """The same for the C++ core."""
        return self.sizes, self.seconds


@dataclass(frozen=True)
class Links:
    """A stage of messages that cross the grid axes `axes`, by the bytes of the busiest site in its busier direction.

    all    every site sends to each other one of its sub-group, in all sub-groups at once
    pair   one site sends to one other one, and nobody else to anybody
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
class Folds:
    """Folds inside an array (`rows`) and of a block's tuples (`keys`), by the elements read."""

    element_bytes: int
    rows: Curve
    keys: Curve


@dataclass(frozen=True)
class Profile:
    """What the sites of one machine take, measured on all of them at once; `docs/calibration.md` says how it is used.

    run_seconds    the agreement that opens a run
    node_seconds   a node that computes nothing; seconds of kernels are those of a node with one call
    copies         copies into new memory, by bytes

    >>> flat = Profile(1e-3, 1e-5, copies=Curve((0.0, 1e9), (0.0, 0.1)))
    >>> Profile.of_json(flat.to_json()) == flat
    True
    """

    run_seconds: float
    node_seconds: float
    links: tuple[Links, ...] = ()
    products: tuple[Products, ...] = ()
    elementwise: tuple[Elementwise, ...] = ()
    folds: tuple[Folds, ...] = ()
    copies: Curve = Curve()

    @cached_property
    def core(self) -> _C.Profile:
        """The same for the C++ core; raises PlanError for curves that fall."""
        core = _C.Profile(self.run_seconds, self.node_seconds)
        for link in self.links:
            core.add_link(link.axes, link.all.lists(), link.pair.lists())
        for table in self.products:
            core.add_products(table.dtype, table.extents, table.seconds)
        for row in self.elementwise:
            core.add_elementwise(
                row.operands, row.flops_per_element, row.domain, row.element_bytes, row.seconds.lists()
            )
        for fold in self.folds:
            core.add_folds(fold.element_bytes, fold.rows.lists(), fold.keys.lists())
        core.set_copies(self.copies.lists())
        return core

    def __str__(self) -> str:
        links = "/".join("".join(map(str, link.axes)) for link in self.links)
        dtypes = "/".join(table.dtype for table in self.products)
        return f"links of axes {links or 'none'}, products {dtypes or 'none'}, {len(self.elementwise)} elementwise"

    def to_json(self) -> dict[str, Any]:
        """As a calibration file holds it."""
        return {
            "run_seconds": self.run_seconds,
            "node_seconds": self.node_seconds,
            "links": [
                {"axes": list(link.axes), "all": _points(link.all), "pair": _points(link.pair)} for link in self.links
            ],
            "products": [
                {"dtype": table.dtype, "extents": list(table.extents), "seconds": list(table.seconds)}
                for table in self.products
            ],
            "elementwise": [
                {
                    "operands": row.operands,
                    "flops_per_element": row.flops_per_element,
                    "domain": row.domain,
                    "element_bytes": row.element_bytes,
                    "seconds": _points(row.seconds),
                }
                for row in self.elementwise
            ],
            "folds": [
                {"element_bytes": fold.element_bytes, "rows": _points(fold.rows), "keys": _points(fold.keys)}
                for fold in self.folds
            ],
            "copies": _points(self.copies),
        }

    @staticmethod
    def of_json(value: object) -> Profile:
        """Reads what `to_json` gives; raises PlanError naming the place of what is missing or of another kind."""
        reader = Reader(value, "profile")
        profile = Profile(
            reader.number("run_seconds"),
            reader.number("node_seconds"),
            tuple(
                Links(tuple(map(int, link.numbers("axes"))), link.curve("all"), link.curve("pair"))
                for link in reader.each("links")
            ),
            tuple(
                Products(table.text("dtype"), table.numbers("extents"), table.numbers("seconds"))
                for table in reader.each("products")
            ),
            tuple(
                Elementwise(
                    int(row.number("operands")),
                    int(row.number("flops_per_element")),
                    row.text("domain"),
                    int(row.number("element_bytes")),
                    row.curve("seconds"),
                )
                for row in reader.each("elementwise")
            ),
            tuple(
                Folds(int(fold.number("element_bytes")), fold.curve("rows"), fold.curve("keys"))
                for fold in reader.each("folds")
            ),
            reader.curve("copies"),
        )
        _ = profile.core
        return profile


def _points(curve: Curve) -> list[list[float]]:
    return [[size, seconds] for size, seconds in zip(curve.sizes, curve.seconds, strict=True)]


class Reader:
    """Entries of a JSON object, with the place of what does not fit."""

    def __init__(self, value: object, place: str) -> None:
        if not isinstance(value, Mapping):
            raise PlanError(f"{place}: an object is wanted: got={show(value)}")
        self._value = value
        self.place = place

    def get(self, name: str) -> Any:
        """The entry of that name."""
        if name not in self._value:
            raise PlanError(f"{self.place}.{name}: it is missing: entries={show(list(self._value))}")
        return self._value[name]

    def number(self, name: str) -> float:
        """A number."""
        return _number(self.get(name), f"{self.place}.{name}")

    def text(self, name: str) -> str:
        """A text."""
        value = self.get(name)
        if not isinstance(value, str):
            raise PlanError(f"{self.place}.{name}: a text is wanted: got={show(value)}")
        return value

    def entries(self, name: str) -> list[Any]:
        """A list."""
        value = self.get(name)
        if not isinstance(value, list):
            raise PlanError(f"{self.place}.{name}: a list is wanted: got={show(value)}")
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
                raise PlanError(f"{place}: a size and its seconds are wanted: got={show(point)}")
            points.append((_number(point[0], place), _number(point[1], place)))
        return Curve(tuple(size for size, _ in points), tuple(seconds for _, seconds in points))


def _number(value: object, place: str) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise PlanError(f"{place}: a number is wanted: got={show(value)}")
    return float(value)


def monotone(values: Sequence[float]) -> list[float]:
    """The nearest list, by squares, that never falls: neighbours that fall become their mean.

    Source: Ayer, Brunk, Ewing, Reid, Silverman, An empirical distribution function for sampling with incomplete
    information, 1955 (pool adjacent violators).

    >>> monotone([1.0, 3.0, 2.0, 4.0])
    [1.0, 2.5, 2.5, 4.0]
    """
    pools: list[tuple[float, int]] = []
    for value in values:
        pools.append((value, 1))
        while len(pools) > 1 and pools[-2][0] > pools[-1][0]:
            (a, n), (b, m) = pools[-2:]
            pools[-2:] = [((a * n + b * m) / (n + m), n + m)]
    return [mean for mean, count in pools for _ in range(count)]
