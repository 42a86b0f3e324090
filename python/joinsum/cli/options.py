"""Options that several commands have: files, numbers of bytes; and how errors end a command."""

from __future__ import annotations

import difflib
import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import click

__all__ = ["FILE", "bytes_of", "close_names", "exit_codes"]

FILE = click.Path(path_type=Path)
_UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}


def bytes_of(_context: click.Context, _option: click.Parameter, value: str | None) -> int | None:
    """Parses a number of bytes: 8G, 512MiB, 1000000."""
    if value is None:
        return None
    text = value.strip().upper().removesuffix("B").removesuffix("I")
    unit = text[-1:] if text[-1:].isalpha() else ""
    try:
        number = float(text.removesuffix(unit)) * _UNITS[unit]
    except (ValueError, KeyError):
        raise click.BadParameter(f"{value!r} is no number of bytes such as 512M or 8G") from None
    if not 1 <= number < 2**63:
        raise click.BadParameter(f"{value!r} is not at least one byte")
    return int(number)


def close_names(name: str, known: Iterable[str]) -> str:
    """The end of a message about an unknown name: known names that are similar.

    >>> close_names("matmu", ["matmul", "relu"]), close_names("zz", ["relu"])
    (', close=[matmul]', '')
    """
    close = difflib.get_close_matches(name, known, n=3, cutoff=0.6)
    return f", close=[{', '.join(close)}]" if close else ""


@contextmanager
def exit_codes(codes: Mapping[type[Exception], int]) -> Iterator[None]:
    """Ends the command for errors of these classes: prints the error and its rank, and exits with the code of the first
    class that fits; with 130 for an interrupt."""
    try:
        yield
    except KeyboardInterrupt:
        sys.exit(130)
    except tuple(codes) as error:
        rank = int(os.environ.get("RANK", "0"))
        click.echo(f"joinsum: {f'rank {rank}: ' if rank else ''}{error}", err=True)
        sys.exit(next(code for kind, code in codes.items() if isinstance(error, kind)))
