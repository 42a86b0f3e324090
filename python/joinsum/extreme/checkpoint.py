"""Files that hold a training run between its epochs.

>>> import pathlib, tempfile, torch
>>> folder = tempfile.TemporaryDirectory()
>>> path = pathlib.Path(folder.name, "run.pt")
>>> save(path, {"epoch": 3, "weights": {"W1": torch.ones(2)}})
>>> load(path)["epoch"]
3
>>> folder.cleanup()
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

import torch

import joinsum

__all__ = ["load", "prepare_path", "save"]

_FORMAT = "joinsum extreme classifier 1"


def save(path: str | os.PathLike[str], content: dict[str, Any]) -> None:
    """Writes `content` (numbers, text, lists, dicts, tensors). A reader finds the old file or the new one.

    Raises OSError where it cannot be written.
    """
    path = Path(path)
    handle, beside = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            torch.save({"format": _FORMAT, **content}, file)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(beside, 0o666 & ~_umask())
        os.replace(beside, path)
    except BaseException:
        os.unlink(beside)
        raise


def load(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Reads what `save` wrote. Nothing in the file is executed. Raises CheckpointError, or OSError as `open` does."""
    try:
        content: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
    except (OSError, MemoryError):
        raise
    except Exception as error:  # torch reads other files as far as it can, and then raises whatever that leads to
        first_line = str(error).strip().splitlines()[:1]
        raise joinsum.CheckpointError(
            f"{os.fspath(path)}: not a checkpoint: cause={' '.join(first_line)[:120]}"
        ) from None
    found = content.get("format") if isinstance(content, dict) else None
    if found != _FORMAT:
        raise joinsum.CheckpointError(
            f"{os.fspath(path)}: not a checkpoint of this program: format={found}, wanted={_FORMAT}"
        )
    del content["format"]
    return content


def prepare_path(path: str | os.PathLike[str]) -> None:
    """Creates the folder of `path` if need be; raises OSError unless a file can be created there now."""
    path = Path(path)
    if path.is_dir():
        raise IsADirectoryError(f"{path}: is a directory")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path.parent):
            pass
    except FileExistsError:
        raise NotADirectoryError(f"{path}: cannot be written: {path.parent} is not a folder") from None
    except OSError as error:
        raise type(error)(f"{path}: cannot be written: {error.strerror or error}") from None


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
