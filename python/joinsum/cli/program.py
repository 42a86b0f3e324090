"""Reading a program from a file: a plan's text, in which sizes may have names."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from pathlib import Path

from joinsum import IaPlan, KernelError, PlanError, TraPlan, parse

__all__ = ["ProgramError", "SizeError", "read_program", "text_of", "with_sizes"]

_INPUT = re.compile(r"^\s*input\s+\w+\s*:\s*(?P<type>\w+[^#]*)")
_BRACKETS = re.compile(r"[\[<][^\]>]*[\]>]")
_NAME = re.compile(r"(?<![\w@])[A-Za-z_]\w*")


class ProgramError(ValueError):
    """A program file that is malformed: the message names the file, the line and the remedy."""


class SizeError(ValueError):
    """A size that is missing, or that no input has."""


def read_program(path: Path, sizes: Mapping[str, int]) -> TraPlan | IaPlan:
    """The plan in the file (`-` is the standard input), with its sizes. Raises ProgramError and SizeError; OSError
    where it cannot be read."""
    name = _name_of(path)
    text = with_sizes(text_of("plan", path), sizes, name)
    try:
        return parse(text)
    except (PlanError, KernelError) as error:
        raise ProgramError(
            f"plan: {error}; correct the program (docs/algebra.md has the language): file={name}"
        ) from None


def text_of(who: str, path: Path) -> str:
    """The text in the file (`-` is the standard input). Raises ProgramError where it is none; OSError where it cannot
    be read."""
    try:
        return sys.stdin.read() if str(path) == "-" else path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ProgramError(f"{who}: not a text file: file={_name_of(path)}, byte={error.start}") from None


def _name_of(path: Path) -> str:
    return "standard input" if str(path) == "-" else str(path)


def with_sizes(text: str, sizes: Mapping[str, int], file: str = "program") -> str:
    """`text` with names in the types of `input` lines replaced by their sizes.

    Raises SizeError for a name without a size, and for a size that no input has.

    >>> with_sizes("tra\\ninput X: f32[n,64]<p,1>\\noutput Y = X", {"n": 100, "p": 4})
    'tra\\ninput X: f32[100,64]<4,1>\\noutput Y = X'
    """
    used: set[str] = set()
    lines = []
    for number, line in enumerate(text.split("\n"), start=1):
        found = _INPUT.match(line)
        if found is None:
            lines.append(line)
            continue

        def size(name: re.Match[str], number: int = number) -> str:
            if name[0] not in sizes:
                raise SizeError(
                    f"--size: one is missing; give --size {name[0]}=N: file={file}, line={number}, size={name[0]}"
                )
            used.add(name[0])
            return str(sizes[name[0]])

        start, end = found.span("type")
        type_ = _BRACKETS.sub(lambda brackets: _NAME.sub(size, brackets[0]), line[start:end])
        lines.append(line[:start] + type_ + line[end:])
    unknown = sorted(set(sizes) - used)
    if unknown:
        raise SizeError(f"--size: no input line has this one: file={file}, size={unknown[0]}")
    return "\n".join(lines)
