"""The call of an operator of torch's dispatcher on blocks, as data and as text.

    output; function; operand letters -> result letters:dtype, ...; (arguments) -> groups of each result; key=value; ...

>>> rows = CallResult("ab", torch.float32, ("a", "b"))
>>> call = Call(0, "aten::_softmax", ("ab",), (rows,), (Block(0, ("a", "b")), 1, False), (), undivided="b")
>>> call.text
'0; aten::_softmax; ab -> ab:f32; (%0{a,b}, 1, false) -> {a,b}; undivided=b'
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch

from joinsum.base.dtypes import dtype_name
from joinsum.base.errors import PlanError

__all__ = ["Argument", "Block", "Call", "CallResult", "LocalExtent", "Offset"]


@dataclass(frozen=True)
class Block:
    """An operand, reshaped for the operator: a group of letters is one axis, row-major; of one element if empty."""

    operand: int
    groups: tuple[str, ...]


@dataclass(frozen=True)
class LocalExtent:
    """Number of elements along a product of letters in the local block."""

    letters: str


@dataclass(frozen=True)
class Offset:
    """Global index of the first element along a letter in the local block."""

    letter: str


Argument = Block | LocalExtent | Offset | int | float | bool | str | torch.dtype | None | Sequence["Argument"]


@dataclass(frozen=True)
class CallResult:
    """A result: its letters and dtype, and the axes that it has when the operator returns it."""

    letters: str
    dtype: torch.dtype
    groups: tuple[str, ...]


@dataclass(frozen=True)
class Call:
    """An operator and how blocks of its operands and results belong together.

    output        which of the results
    function      name of the operator: `aten::embedding`, `aten::sum.dim_IntList`
    operands      letters of each operand
    undivided     letters that are never divided
    same          letters of which results that lack them do not depend: any shard of them gives the same results
    reduce        kernels that reduce the partial results where a letter is divided that no result has
    extents       of the letters that no operand has
    flops         work as coefficients of products of letters
    undecomposed  operands, and the undecomposed call of them that has the same result where no letter that it mixes is
                  divided
    """

    output: int
    function: str
    operands: tuple[str, ...]
    results: tuple[CallResult, ...]
    arguments: tuple[Argument, ...]
    keywords: tuple[tuple[str, Argument], ...] = ()
    undivided: str = ""
    reduce: Mapping[str, str] = field(default_factory=dict)
    extents: Mapping[str, int] = field(default_factory=dict)
    flops: tuple[tuple[int, str], ...] = ()
    same: str = ""
    undecomposed: tuple[tuple[int, ...], Call] | None = None

    @property
    def letters(self) -> str:
        """All letters, each once."""
        texts = [*self.operands, *(result.letters for result in self.results)]
        return "".join(dict.fromkeys("".join(texts)))

    @property
    def divisible(self) -> str:
        """The letters along which operands may be divided."""
        return "".join(letter for letter in self.letters if letter not in self.undivided)

    @property
    def text(self) -> str:
        """The call as the C++ core reads it."""
        results = ", ".join(f"{each.letters}:{dtype_name('capture', each.dtype)}" for each in self.results)
        keywords = [f"{name}={_argument(value)}" for name, value in self.keywords]
        arguments = ", ".join([*map(_argument, self.arguments), *keywords])
        groups = ", ".join(_groups(each.groups) for each in self.results)
        fields = [str(self.output), self.function, f"{','.join(self.operands)} -> {results}"]
        fields.append(f"({arguments}) -> {groups}")
        fields += [f"undivided={self.undivided}"] if self.undivided else []
        fields += [f"same={self.same}"] if self.same else []
        for name, values in (("reduce", self.reduce), ("extents", self.extents)):
            if values:
                fields.append(f"{name} " + " ".join(f"{letter}={value}" for letter, value in values.items()))
        if self.flops:
            fields.append("flops=" + " + ".join(f"{count} {letters}".rstrip() for count, letters in self.flops))
        if self.undecomposed is not None:
            operands, undecomposed = self.undecomposed
            fields.append(f"undecomposed ({','.join(map(str, operands))}) {{{undecomposed.text}}}")
        return "; ".join(fields)


def _groups(groups: Sequence[str]) -> str:
    return "{" + ",".join(group or "1" for group in groups) + "}"


def _argument(value: Argument) -> str:
    if isinstance(value, Block):
        return f"%{value.operand}{_groups(value.groups)}"
    if isinstance(value, LocalExtent):
        return f"|{value.letters}|" if value.letters else "1"
    if isinstance(value, Offset):
        return f"@{value.letter}"
    if value is None or isinstance(value, (bool, int, float)):
        return str(value).lower()
    if isinstance(value, torch.dtype):
        return dtype_name("capture", value)
    if isinstance(value, str):
        if "'" in value:
            raise PlanError(f"capture: text in a call has no quotes: text={value}")
        return f"'{value}'"
    return "[" + ", ".join(_argument(each) for each in value) + "]"
