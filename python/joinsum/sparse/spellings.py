"""Names of the levels of a sparse tensor: one format for each, or the spelling of a known layout such as `"csr"`."""

from __future__ import annotations

from collections.abc import Sequence

from joinsum.base.arguments import integers, show
from joinsum.base.errors import PlanError

__all__ = ["FORMATS", "Levels", "levels_of"]

FORMATS = ("dense", "bytemap", "sorted_list", "hash")

# A format for all levels, the name of a layout, or a format for each level.
Levels = str | Sequence[str]

# Spellings for tensors of one rank: formats, and the axis of each level.
_OF_RANK = {
    "csr": (["dense", "sorted_list"], [0, 1]),
    "csc": (["dense", "sorted_list"], [1, 0]),
    "dcsr": (["sorted_list", "sorted_list"], [0, 1]),
    "dcsc": (["sorted_list", "sorted_list"], [1, 0]),
    "bsr": (["dense", "sorted_list", "dense", "dense"], [0, 1, 2, 3]),
}
# Spellings for tensors of any rank: the format of every level.
_OF_ANY_RANK = {"coo": "sorted_list", "csf": "sorted_list", **{name: name for name in FORMATS}}


def levels_of(who: str, levels: object, order: object, rank: int) -> tuple[list[str], list[int]]:
    """The format and the axis of each level of a tensor of that rank.

    >>> levels_of("with_levels", "csc", None, 2)
    (['dense', 'sorted_list'], [1, 0])
    >>> levels_of("with_levels", ["dense", "hash"], (1, 0), 2)
    (['dense', 'hash'], [1, 0])
    """
    axes = list(range(rank)) if order is None else integers(who, "order", order)
    if sorted(axes) != list(range(rank)):
        raise PlanError(f"{who}: the order is no permutation of the axes: order={axes}, rank={rank}")
    if not isinstance(levels, str):
        return _each(who, levels, rank), axes
    if levels in _OF_ANY_RANK:
        return [_OF_ANY_RANK[levels]] * rank, axes
    if levels not in _OF_RANK:
        names = ", ".join([*_OF_ANY_RANK, *_OF_RANK])
        raise PlanError(f"{who}: no such levels: levels={show(levels)}, names=[{names}], or a list of formats")
    formats, own = _OF_RANK[levels]
    if len(own) != rank:
        raise PlanError(f"{who}: the levels are of tensors of another rank: levels={levels}, rank={rank}")
    if order is not None and axes != own:
        raise PlanError(f"{who}: the levels name an order of their own: levels={levels}, order={axes}, its own={own}")
    return list(formats), list(own)


def _each(who: str, levels: object, rank: int) -> list[str]:
    if not isinstance(levels, Sequence):
        raise PlanError(f"{who}: levels are a name, or a list of formats: levels={show(levels)}")
    formats = list(levels)
    for name in formats:
        if name not in FORMATS:
            raise PlanError(f"{who}: no such level format: name={show(name)}, formats=[{', '.join(FORMATS)}]")
    if len(formats) != rank:
        raise PlanError(f"{who}: each axis needs one level: levels={formats}, rank={rank}")
    return formats
