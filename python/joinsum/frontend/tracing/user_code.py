"""The user's line in what torch says of a traced call."""

from __future__ import annotations

import os
import re
from pathlib import Path

import torch

__all__ = ["place_in"]

_PLACE = re.compile(r'File "([^"]+)", line (\d+), in (\S+)\n\s*(.*)')
_TORCH = os.path.dirname(torch.__file__)
_PYTHON = re.compile(re.escape(os.path.dirname(os.__file__)) + r"/(?!site-packages/|dist-packages/)").match
_JOINSUM = str(Path(__file__).resolve().parents[2])


def place_in(trace: str) -> str:
    """The innermost line of a stack trace that is none of torch's, of ours or of Python's own modules, with a colon
    before it; empty if there is none.

    >>> place_in('  File "model.py", line 3, in forward\\n    return x + 1\\n')
    ': at model.py:3 in forward, code=return x + 1'
    """
    own = [
        each for each in _PLACE.findall(trace) if not each[0].startswith((_TORCH, _JOINSUM)) and not _PYTHON(each[0])
    ]
    if not own:
        return ""
    file, line, function, source = own[-1]
    return f": at {file}:{line} in {function}, code={source.strip()}"
