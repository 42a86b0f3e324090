"""How the axes of an operator belong together, as text: a rule of the operator table that is data.

    n c *s, o c *k -> n o *t

Operands in the order of the schema's tensors, then results. A name stands for an axis, axes of one name are one label;
`*s` is any number of axes, `1` an axis of one element, `1*s` as many of those as `*s` has, and `(g c)` an axis that is
the product of two labels. The pattern of an operand does not count in calls that leave the operand out.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import torch

from joinsum.base.errors import CaptureError
from joinsum.capture.recording.application import Application, TensorType, source_line
from joinsum.capture.recording.axes import Axis, extent_of
from joinsum.capture.recording.values import (
    Arguments,
    BlockDraft,
    ExtentDraft,
    Names,
    Result,
    ShardDraft,
    Value,
)
from joinsum.capture.recording.vertices import CallRule, Labels, call_operator, reshaped
from joinsum.capture.rules.row import Results

__all__ = ["Form", "call_arguments", "form_of", "shard_of"]

_TOKEN = re.compile(r"\([^()]*\)|\S+")
_OTHER_KEYWORDS = ("layout", "device", "pin_memory", "memory_format", "generator")
Axes = list[Names]  # names whose product each axis is


def shard_of(names: str) -> dict[str, str]:
    """`Form.shards` of an operator that takes `offsets`, `local` and global `extents` of the shard along some names."""
    return {"offsets": f"offset {names}", "local": f"local {names}", "extents": f"extent {names}"}


def form_of(operands: Sequence[Names], results: Sequence[Names], undivided: Names = (), sizes: str = "") -> Form:
    """A form of the names of axes; `sizes` is the argument that holds the extents of the first result.

    >>> form_of([["a", "b"]], [["b", "a"]], ["b"]).described
    '`a b -> b a`, undivided: b'
    """
    left, right = (", ".join(" ".join(names) for names in side) for side in (operands, results))
    return Form(f"{left} -> {right}", " ".join(undivided), sizes={sizes: " ".join(results[0])} if sizes else {})


class _Operand(NamedTuple):
    name: str
    value: Value
    axes: Axes

    def split(self, extents: Mapping[str, int]) -> _Operand:
        """The operand with an axis for each name."""
        pairs = list(zip(self.axes, self.value.shape, strict=True))
        shape = [extents[name] if len(names) > 1 else extent for names, extent in pairs for name in names]
        return self if len(shape) == len(pairs) else self._replace(value=reshaped(self.value, shape))


@dataclass(frozen=True)
class Form:
    """A rule for a call of the operator on blocks.

    pattern    as above
    undivided  names that are never divided
    reduce     name=kernel of names that leave partial results where they are divided: `"v=add"`
    sizes      arguments that hold local extents, and the names of these: {"normalized_shape": "*n"}
    counts     integer arguments that are the number of groups, the extent of a name in a product: {"groups": "g"}
    flops      work: coefficients and names, as in `"2 n o c *k *t"`
    lists      list arguments with an entry for each axis of a star: {"n": "normalized_shape"}
    shards     arguments that describe the shard of a name: {"offsets": "offset v", "local": "local v"}
    same       names of which results that lack them do not depend: any shard of them gives the same results
    stored     names of each result in the order in which the operator stores it: `"b l h e, b h l"`; empty where that
               is the order of its axes
    """

    pattern: str
    undivided: str = ""
    reduce: str = ""
    sizes: Mapping[str, str] = field(default_factory=dict)
    counts: Mapping[str, str] = field(default_factory=dict)
    flops: str = ""
    lists: Mapping[str, str] = field(default_factory=dict)
    shards: Mapping[str, str] = field(default_factory=dict)
    same: str = ""
    stored: str = ""

    @property
    def described(self) -> str:
        """The form in words, for the table of operators.

        >>> Form("n c *s -> n c *t", undivided="*s *t").described
        '`n c *s -> n c *t`, undivided: *s *t'
        """
        texts = [f"`{self.pattern}`"]
        texts += [f"undivided: {self.undivided}"] if self.undivided else []
        texts += [f"reduce: {self.reduce}"] if self.reduce else []
        return ", ".join(texts)

    def apply(
        self,
        application: Application,
        operator: torch._ops.OpOverload,
        arguments: Mapping[str, object],
        *results: TensorType,
    ) -> list[Value]:
        """The results, all of them tensors, of another operator in the place of `application`."""
        return [value for value in self(application.of(operator, arguments, *results)) if value is not None]

    def __call__(self, application: Application) -> Results:
        """The results of the operator."""
        left, _, right = self.pattern.partition("->")
        stars = {star: len(application.numbers(argument)) for star, argument in self.lists.items()}
        operands = _operands(application, left, stars)
        stored = self.stored.split(",") if self.stored else [""] * (right.count(",") + 1)
        results = [
            None if kind is None else (_fitted(application, text, kind[0], stars), kind, _names(order, stars))
            for text, kind, order in zip(right.split(","), application.results, stored, strict=False)
        ]
        extents = {name: application.number(argument) for argument, name in self.counts.items()}
        shapes = [(axes, value.shape) for _, value, axes in operands]
        _solve([*shapes, *((each[0], each[1][0]) for each in results if each is not None)], extents)
        operands = [each.split(extents) for each in operands]
        values = call_operator(
            application.name,
            [(value, [name for names in axes for name in names]) for _, value, axes in operands],
            [Result(dtype, axes, extents, order) for axes, (_, dtype), order in filter(None, results)],
            lambda labels: self._arguments(application, operands, stars, labels),
            self._call_rule(stars),
        )
        remaining = iter(values)
        return [None if each is None else next(remaining) for each in results]

    def _call_rule(self, stars: Mapping[str, int]) -> CallRule:
        pairs = [text.split("=") for text in self.reduce.split()]
        reduce = {name: kernel for names, kernel in pairs for name in _names(names, stars)}
        return CallRule(_names(self.undivided, stars), reduce, _names(self.same, stars), _work(self.flops, stars))

    def _arguments(
        self, application: Application, operands: Sequence[_Operand], stars: Mapping[str, int], labels: Labels
    ) -> Arguments:
        drafts: dict[str, object] = {}
        for number, (name, value, axes) in enumerate(operands):
            drafts[name] = BlockDraft(number, _block_axes(labels, value, axes))
        for name, text in self.sizes.items():
            sizes: list[object] = [ExtentDraft(tuple(labels.all(each))) for each in _products(text, stars)]
            drafts[name] = sizes if isinstance(application.arguments[name], (list, tuple)) else sizes[0]
        for name, each in self.counts.items():
            drafts[name] = ExtentDraft(labels.axis(each))
        for name, shard in self.shards.items():
            what, _, of = shard.partition(" ")
            drafts[name] = ShardDraft(what, tuple(labels.all(_names(of, stars))))
        return call_arguments(application, drafts)


def call_arguments(application: Application, drafts: Mapping[str, object]) -> Arguments:
    """All arguments of the operator, by position and by name, some of them replaced by drafts."""
    schema = application.operator._schema.arguments
    values = {each.name: drafts.get(each.name, application.arguments[each.name]) for each in schema}
    for name, value in values.items():
        if isinstance(value, complex):
            raise CaptureError(
                f"capture: a complex number is no argument of a call: operator={application.name}, {name}={value}, "
                f"at={source_line(application.node)}; multiply by torch.tensor({value}) instead"
            )
    positional = [each.name for each in schema if not each.kwarg_only]
    defaults = {each.name: each.default_value for each in schema if each.has_default_value()}
    while positional and positional[-1] in defaults and values[positional[-1]] == defaults[positional[-1]]:
        positional.pop()
    keywords = {
        each.name: values[each.name]
        for each in schema
        if each.kwarg_only and each.name not in _OTHER_KEYWORDS and values[each.name] != defaults.get(each.name)
    }
    return [values[name] for name in positional], keywords


def _block_axes(labels: Labels, value: Value, axes: Axes) -> tuple[Axis, ...]:
    """The axes of an operand as the operator gets them; one element where it broadcasts."""
    own = iter(value.axes)
    present = [[name for name in names if extent_of(next(own)) > 1] for names in axes]
    return tuple(tuple(labels.all(names)) for names in present)


def _operands(application: Application, text: str, stars: dict[str, int]) -> list[_Operand]:
    texts = dict(zip(application.tensor_arguments(), text.split(","), strict=False))
    operands: list[_Operand] = []
    for name, value in application.tensors():
        if name not in texts:
            application.refuse(f"its rule has no form of the tensor {name}")
        axes = _fitted(application, texts[name], value.shape, stars)
        if any(not names and extent != 1 for names, extent in zip(axes, value.shape, strict=True)):
            application.refuse(f"its rule has one element where there are more: shape={list(value.shape)}")
        operands.append(_Operand(name, value, axes))
    return operands


def _fitted(application: Application, text: str, shape: Sequence[int], stars: dict[str, int]) -> Axes:
    """The names of the axes of a tensor of this shape; refuses the operator where they do not fit."""
    axes = _axes(text, len(shape), stars)
    if axes is None:
        application.refuse(f"its rule does not fit a tensor of {len(shape)} axes: rule={text.strip()}")
    return axes


def _axes(text: str, rank: int, stars: dict[str, int]) -> Axes | None:
    """The names of `rank` axes; learns how many axes a star stands for. None where they do not fit.

    >>> _axes("n *s (g c)", 4, {})
    [['n'], ['s0'], ['s1'], ['g', 'c']]
    """
    tokens = _TOKEN.findall(text)
    unknown = [token for token in tokens if token.startswith("*") and token[1:] not in stars]
    fixed = sum(stars.get(token.lstrip("1*"), 0) if "*" in token else 1 for token in tokens)
    if len(unknown) == 1 and rank >= fixed:
        stars[unknown[0][1:]] = rank - fixed
    elif unknown or fixed != rank:
        return None
    return _products(text, stars)


def _products(text: str, stars: Mapping[str, int]) -> Axes:
    axes: Axes = []
    for token in _TOKEN.findall(text):
        if token.startswith("*"):
            axes += [[f"{token[1:]}{number}"] for number in range(stars.get(token[1:], 0))]
        elif token.startswith("1*"):
            axes += [[] for _ in range(stars.get(token[2:], 0))]
        elif token.startswith("("):
            axes.append(token[1:-1].split())
        else:
            axes.append([] if token == "1" else [token])
    return axes


def _names(text: str, stars: Mapping[str, int]) -> list[str]:
    return [name for names in _products(text, stars) for name in names]


def _work(text: str, stars: Mapping[str, int]) -> list[tuple[int, Names]]:
    """`"4 b h + b"` as coefficients and names."""
    terms: list[tuple[int, Names]] = []
    for term in text.split("+") if text else ():
        count, _, names = term.strip().partition(" ")
        terms.append((int(count), _names(names, stars)))
    return terms


def _solve(tensors: Sequence[tuple[Axes, Sequence[int]]], extents: dict[str, int]) -> None:
    """Adds the extents of names: those of axes of one name, then of products in which one name is unknown.

    >>> extents = {"g": 2}
    >>> _solve([([["n"], ["g", "c"]], [5, 6])], extents)
    >>> extents
    {'g': 2, 'n': 5, 'c': 3}
    """
    axes = [axis for names, shape in tensors for axis in zip(names, shape, strict=True)]
    for names, extent in sorted(axes, key=lambda axis: len(axis[0])):
        unknown = [name for name in names if name not in extents]
        if len(unknown) == 1:
            extents[unknown[0]] = extent // math.prod(extents[name] for name in names if name in extents)
