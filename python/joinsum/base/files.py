"""Files that are written completely or not at all."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

__all__ = ["replaced_atomically", "write_atomically"]


@contextmanager
def replaced_atomically(path: Path) -> Iterator[str]:
    """A temporary file beside `path`, which replaces it at the end; removed where the body raises. A reader finds the
    old file or the new one, never an incomplete one. Raises OSError where it cannot be written."""
    number, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    os.close(number)
    try:
        yield name
        os.replace(name, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(name)
        raise


def write_atomically(path: Path, text: str) -> None:
    """Writes a text file, and its folder if there is none. Raises OSError where it cannot be written."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with replaced_atomically(path) as name:
        Path(name).write_text(text, encoding="utf-8")
