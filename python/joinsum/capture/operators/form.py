"""How the axes of an operator belong together, as text: a rule of the operator table that is data.

    n c *s, o c *k -> n o *t

Operands in the order of the schema's tensors, then results. A name stands for an axis, axes of one name are one label;
`*s` is any number of axes, `1` an axis of one element, `1*s` as many of those as `*s` has, and `(g c)` an axis that is
the product of two labels. An operand that is left out in a call is left out of the form.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from joinsum.capture.application import Application
from joinsum.capture.axes import Axis, extent_of
from joinsum.capture.recorder import Arguments, Each, Labels, Names, Recorder, Result, Shown, Size, Value

__all__ = ["Form", "tensor_names"]

_TOKEN = re.compile(r"\([^()]*\)|\S+")
_OTHER_KEYWORDS = ("layout", "device", "pin_memory", "memory_format", "generator")
Axes = list[Names]  # names whose product each axis is


@dataclass(frozen=True)
class Form:
    """A rule for a call of the operator on blocks.

    text     as above
    whole    names that are never divided
    fold     name=kernel of names that leave partial results where they are divided: `"v=add"`
    sizes    the names of which an argument holds the local extents: {"normalized_shape": "*n"}
    counts   integer arguments that are the number of groups, the extent of a name in a product: {"groups": "g"}
    lists    list arguments with an entry for each axis of a star: {"n": "normalized_shape"}
    same     names of which results that lack them do not depend on the part at hand
    parts    arguments that tell the part of a name at hand: {"offsets": "offset v", "local": "local v"}
    flops    work: coefficients and names, as in `"2 n o c *k *t"`
    """

    text: str
    whole: str = ""
    fold: str = ""
    sizes: Mapping[str, str] = field(default_factory=dict)
    counts: Mapping[str, str] = field(default_factory=dict)
    flops: str = ""
    lists: Mapping[str, str] = field(default_factory=dict)
    parts: Mapping[str, str] = field(default_factory=dict)
    same: str = ""

    @property
    def described(self) -> str:
        """The form in words, for the table of operators.

        >>> Form("n c *s -> n c *t", whole="*s *t").described
        '`n c *s -> n c *t`, whole: *s *t'
        """
        texts = [f"`{self.text}`"]
        texts += [f"whole: {self.whole}"] if self.whole else []
        texts += [f"fold: {self.fold}"] if self.fold else []
        return ", ".join(texts)

    def __call__(self, recorder: Recorder, application: Application) -> list[Value | None]:
        """The results of the operator."""
        given = [(name, value) for name, value in application.arguments.items() if isinstance(value, Value)]
        left, _, right = self.text.partition("->")
        texts = dict(zip(tensor_names(application), left.split(","), strict=False))
        known = {name: application.number(argument) for argument, name in self.counts.items()}
        fitted: list[tuple[str, Value, Axes]] = []
        stars = {star: len(application.numbers(argument)) for star, argument in self.lists.items()}
        for name, value in given:
            if name not in texts:
                application.refuse(f"its rule has no form of the tensor {name}")
            axes = _axes(texts[name], len(value.axes), stars)
            if axes is None:
                application.refuse(
                    f"its rule does not fit a tensor of {len(value.axes)} axes: rule={texts[name].strip()}"
                )
            if any(not names and extent != 1 for names, extent in zip(axes, value.shape, strict=True)):
                application.refuse(f"its rule has one element where there are more: shape={list(value.shape)}")
            fitted.append((name, value, axes))
        for _, value, axes in fitted:
            _learn_plain(axes, value.shape, known)
        for each, made in zip(right.split(","), application.results, strict=False):
            _learn_plain(_products(each, stars), made[0] if made is not None else (), known)
        bound = [(name, _divided(recorder, value, axes, known), axes) for name, value, axes in fitted]
        results = self._results(application, right, stars, known)
        return self._call(recorder, application, bound, results, stars)

    def _results(
        self, application: Application, text: str, stars: dict[str, int], known: dict[str, int]
    ) -> list[Result | None]:
        results: list[Result | None] = []
        for each, made in zip(text.split(","), application.results, strict=False):
            if made is None:
                results.append(None)
                continue
            shape, dtype = made
            axes = _axes(each, len(shape), stars)
            if axes is None:
                application.refuse(f"its rule does not fit a result of {len(shape)} axes: rule={each.strip()}")
            for names, extent in zip(axes, shape, strict=True):
                _learn(names, extent, known)
            results.append(Result(dtype, axes, dict(known)))
        return results

    def _call(
        self,
        recorder: Recorder,
        application: Application,
        bound: Sequence[tuple[str, Value, Axes]],
        results: Sequence[Result | None],
        stars: Mapping[str, int],
    ) -> list[Value | None]:
        places = {name: (number, axes) for number, (name, _, axes) in enumerate(bound)}

        def arguments(labels: Labels) -> Arguments:
            shown: dict[str, object] = {}
            for name, (number, axes) in places.items():
                shown[name] = Shown(number, _seen(labels, bound[number][1], axes))
            for name, text in self.sizes.items():
                sizes: list[object] = [Size(tuple(labels.all(each))) for each in _products(text, stars)]
                listed = isinstance(application.arguments[name], (list, tuple))
                shown[name] = sizes if listed else sizes[0]
            for name, each in self.counts.items():
                shown[name] = Size(labels.axis(each))
            for name, part in self.parts.items():
                what, _, of = part.partition(" ")
                shown[name] = Each(what, tuple(labels.all(_names(of, stars))))
            return call_arguments(application, shown)

        operands = [(value, [name for names in axes for name in names]) for _, value, axes in bound]
        made = recorder.call(
            application.name,
            operands,
            [result for result in results if result is not None],
            arguments,
            _names(self.whole, stars),
            {
                name: each[1]
                for each in (text.split("=") for text in self.fold.split())
                for name in _names(each[0], stars)
            },
            _work(self.flops, stars),
            _names(self.same, stars),
        )
        found = iter(made)
        return [None if result is None else next(found) for result in results]


def tensor_names(application: Application) -> list[str]:
    """Names of the operator's arguments that are one tensor, in the order of its schema.

    Numbers in the place of tensors do not count.
    """
    return [each.name for each in application.operator._schema.arguments if "Tensor" in str(each.type)]


def call_arguments(application: Application, shown: Mapping[str, object]) -> Arguments:
    """All arguments of the operator, by position and by name, where `shown` says what stands for some of them."""
    schema = application.operator._schema.arguments
    values = {each.name: shown.get(each.name, application.arguments[each.name]) for each in schema}
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


def _seen(labels: Labels, value: Value, axes: Axes) -> tuple[Axis, ...]:
    """The axes of an operand as the operator sees them; one element where it broadcasts."""
    given = iter(value.axes)
    seen: list[Axis] = []
    for names in axes:
        seen.append(tuple(dim for name in names if extent_of(next(given)) > 1 for dim in labels.axis(name)))
    return tuple(seen)


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


def _learn(names: Names, extent: int, known: dict[str, int]) -> None:
    """The extent of the one name of an axis that is not known."""
    for name in names:
        if name in known and extent % known[name] == 0 and len(names) > 1:
            extent //= known[name]
    unknown = [name for name in names if name not in known]
    if len(unknown) == 1:
        known[unknown[0]] = extent


def _learn_plain(axes: Axes, shape: Sequence[int], known: dict[str, int]) -> None:
    """Learns the extents of axes of one name: another tensor may have them in a product."""
    for names, extent in zip(axes, shape, strict=False):
        if len(names) == 1:
            _learn(names, extent, known)


def _divided(recorder: Recorder, value: Value, axes: Axes, known: dict[str, int]) -> Value:
    """`value` with an axis for each name."""
    shape: list[int] = []
    for names, extent in zip(axes, value.shape, strict=True):
        _learn(names, extent, known)
        shape += [known[name] for name in names] if len(names) > 1 else [extent] * len(names)
    return value if len(shape) == len(value.axes) else recorder.reshaped(value, shape)
