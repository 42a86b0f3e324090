"""Libraries that Python packages bring, which the C++ core opens."""

from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path

__all__ = ["openblas"]


def openblas() -> str:
    """The shared library of the package scipy_openblas32; empty where it is not installed, or JOINSUM_OPENBLAS=0 in the
    environment turns it off.

    >>> Path(openblas()).is_file() or openblas() == ""
    True
    """
    found = None if os.environ.get("JOINSUM_OPENBLAS") == "0" else find_spec("scipy_openblas32")
    if found is None or found.origin is None:
        return ""
    library = Path(found.origin).parent / "lib" / "libscipy_openblas.so"
    return str(library) if library.is_file() else ""
