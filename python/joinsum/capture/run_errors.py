"""What the core says of a captured graph that ranks do not agree on, or whose run fails, in the user's words."""

from __future__ import annotations

import re
from collections.abc import Mapping

from joinsum.base.errors import TransportError

__all__ = ["in_users_words"]

_OPERATOR_FAILS = re.compile(r"^call: torch's operator fails: operator=([\w:.]+), error=(.*), call=", re.DOTALL)
_OUT_OF_RANGE = re.compile(r"an index is out of range: index=(-?\d+), extent=(\d+)")
_OF_CLASSES = {"joinsum::class_scores", "joinsum::cross_entropy"}
_CALLS = re.compile(r"^agree: sites make different calls: site (\d+): (run|capture), site (\d+): (run|capture)\b")

_OWN_BATCH = (
    'pass the same batch on all ranks, or each rank its own with data="sharded", an option of joinsum.train_step and '
    "joinsum.distribute"
)


def in_users_words(error: BaseException, data: Mapping[str, str]) -> Exception | None:
    """The error that users read in place of one of the core's; None where that says it well.

    data   the inputs that are this rank's batch: by name, shape and dtype
    """
    if isinstance(error, TransportError):
        return _of_different_inputs(str(error), data) or _of_different_calls(str(error), data)
    return _of_wrong_index(str(error)) if isinstance(error, IndexError) else None


def _of_different_inputs(said: str, data: Mapping[str, str]) -> TransportError | None:
    """Where the first line that differs is that of one input on both sites.

    >>> said = "run: sites differ: line=2, site 0: input x: [8], site 1: input x: [6]"
    >>> str(_of_different_inputs(said, {"x": "[8]"})).partition(";")[0]
    'capture: the ranks passed different inputs: input=x, site 0: [8], site 1: [6]'
    """
    for name in data:
        line = rf"site (\d+): input {re.escape(name)}: (.*)"
        found = re.search(f"{line}, {line}", said)
        if found is not None:
            values = "site {}: {}, site {}: {}".format(*found.groups())
            return TransportError(f"capture: the ranks passed different inputs: input={name}, {values}; {_OWN_BATCH}")
    return None


def _of_different_calls(said: str, data: Mapping[str, str]) -> TransportError | None:
    """Where one rank captures a graph and another one runs a graph that it has, as for batches of different sizes."""
    found = _CALLS.match(said)
    if found is None:
        return None
    sites = {call: site for site, call in (found.groups()[:2], found.groups()[2:])}
    own = ", ".join(f"{name}={value}" for name, value in data.items() if not value.startswith("[] "))
    return TransportError(
        f"capture: the ranks make different calls: site {sites['capture']} captures a graph for new inputs, or has "
        f"raised an error, and site {sites['run']} runs a graph that it captured before; the inputs of this rank: "
        f"{own}; {_OWN_BATCH}"
    )


def _of_wrong_index(said: str) -> IndexError | None:
    """Where torch's operator in a call rejects an index.

    >>> call = "call: torch's operator fails: operator=joinsum::{}, error=capture: {}, call=0; ab,a -> a:f32"
    >>> _of_wrong_index(call.format("class_scores", "an index is out of range: index=7, extent=4"))
    IndexError('capture: a label is out of range: label=7, classes=4; labels are the numbers from 0 to 3')
    >>> _of_wrong_index(call.format("embedding_shard", "an index is out of range: index=7, extent=4"))
    IndexError('capture: an index is out of range: index=7, extent=4, operator=joinsum::embedding_shard')
    """
    found = _OPERATOR_FAILS.match(said)
    if found is None:
        return None
    operator, reason = found.groups()
    index = _OUT_OF_RANGE.search(reason)
    if index is not None and operator in _OF_CLASSES:
        label, classes = map(int, index.groups())
        return IndexError(
            f"capture: a label is out of range: label={label}, classes={classes}; labels are the numbers from 0 to "
            f"{classes - 1}"
        )
    separator = ", " if index is not None else ": "
    return IndexError(f"capture: {reason.removeprefix('capture: ')}{separator}operator={operator}")
