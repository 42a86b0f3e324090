"""The call of an operator of torch's dispatcher on blocks, as data, and its text.

    output; function; operand letters -> result letters:dtype, ...; (arguments) -> groups of each result; key=value; ...

>>> rows = CallResult("ab", torch.float32, ("a", "b"))
>>> call = Call(0, "aten::_softmax", ("ab",), (rows,), (Block(0, ("a", "b")), 1, False), (), whole="b")
>>> call.text
'0; aten::_softmax; ab -> ab:f32; (%0{a,b}, 1, false) -> {a,b}; whole=b'
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch

from joinsum.dtypes import dtype_name
from joinsum.errors import PlanError

__all__ = ["Argument", "Block", "Call", "CallResult", "LocalExtent", "Offset"]


@dataclass(frozen=True)
class Block:
    """An operand as the operator sees it: a group of letters is one axis, row-major; an empty one has one element."""

    operand: int
    groups: tuple[str, ...]


@dataclass(frozen=True)
class LocalExtent:
    """Number of elements along a product of letters in the block at hand."""

    letters: str


@dataclass(frozen=True)
class Offset:
    """Global index of the first element along a letter in the block at hand."""

    letter: str


Argument = Block | LocalExtent | Offset | int | float | bool | str | torch.dtype | None | Sequence["Argument"]


@dataclass(frozen=True)
class CallResult:
    """A result: its letters, dtype, and the axes in which the operator gives it."""

    letters: str
    dtype: torch.dtype
    groups: tuple[str, ...]


@dataclass(frozen=True)
class Call:
    """An operator and how blocks of its operands and results belong together.

    output     which of the results
    function   name of the operator: `aten::embedding`, `aten::sum.dim_IntList`
    operands   letters of each operand
    whole      letters that are never divided
    same       letters of which results that lack them do not depend on the part at hand
    fold       kernels that fold the partial results where a letter is divided that no result has
    extents    of the letters that no operand has
    flops      work as coefficients of products of letters
    uncut      operands, and the call of them that has the same result where no letter is divided that it needs whole
    """

    output: int
    function: str
    operands: tuple[str, ...]
    results: tuple[CallResult, ...]
    arguments: tuple[Argument, ...]
    keywords: tuple[tuple[str, Argument], ...] = ()
    whole: str = ""
    fold: Mapping[str, str] = field(default_factory=dict)
    extents: Mapping[str, int] = field(default_factory=dict)
    flops: tuple[tuple[int, str], ...] = ()
    same: str = ""
    uncut: tuple[tuple[int, ...], Call] | None = None

    @property
    def letters(self) -> str:
        """All letters, each once."""
        texts = [*self.operands, *(result.letters for result in self.results)]
        return "".join(dict.fromkeys("".join(texts)))

    @property
    def free(self) -> str:
        """The letters along which blocks belong to each other one by one."""
        return "".join(letter for letter in self.letters if letter not in self.whole and letter not in self.fold)

    @property
    def text(self) -> str:
        """The call as the C++ core reads it."""
        results = ", ".join(f"{each.letters}:{dtype_name('capture', each.dtype)}" for each in self.results)
        keywords = [f"{name}={_argument(value)}" for name, value in self.keywords]
        arguments = ", ".join([*map(_argument, self.arguments), *keywords])
        groups = ", ".join(_groups(each.groups) for each in self.results)
        parts = [str(self.output), self.function, f"{','.join(self.operands)} -> {results}"]
        parts.append(f"({arguments}) -> {groups}")
        if self.whole:
            parts.append(f"whole={self.whole}")
        if self.same:
            parts.append(f"same={self.same}")
        if self.fold:
            parts.append("fold " + " ".join(f"{letter}={kernel}" for letter, kernel in self.fold.items()))
        if self.extents:
            parts.append("extents " + " ".join(f"{letter}={extent}" for letter, extent in self.extents.items()))
        if self.flops:
            parts.append("flops=" + " + ".join(f"{count} {letters}".rstrip() for count, letters in self.flops))
        if self.uncut is not None:
            operands, once = self.uncut
            parts.append(f"uncut ({','.join(map(str, operands))}) {{{once.text}}}")
        return "; ".join(parts)


def _groups(groups: Sequence[str]) -> str:
    return "{" + ",".join(group or "1" for group in groups) + "}"


def _argument(value: Argument) -> str:
    if isinstance(value, Block):
        return f"%{value.operand}{_groups(value.groups)}"
    if isinstance(value, LocalExtent):
        return f"|{value.letters}|" if value.letters else "1"
    if isinstance(value, Offset):
        return f"@{value.letter}"
    if value is None or isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, torch.dtype):
        return dtype_name("capture", value)
    if isinstance(value, float):
        return _number(value)
    if isinstance(value, int):
        return str(value)
    if isinstance(value, str):
        if "'" in value:
            raise PlanError(f"capture: text in a call has no quotes: text={value}")
        return f"'{value}'"
    return "[" + ", ".join(_argument(each) for each in value) + "]"


def _number(value: float) -> str:
    if math.isnan(value):
        return "nan"
    if math.isinf(value):
        return "inf" if value > 0 else "-inf"
    return repr(value)
