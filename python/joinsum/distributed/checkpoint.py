"""Checkpoints of models and optimizers: written on some number of sites, read on any other, or into plain tensors."""

from __future__ import annotations

import json
import os
import re
import secrets
import shutil
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.filesystem import FileSystemWriter
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save

from joinsum.base.errors import CheckpointError, TransportError
from joinsum.cluster.context import Context, context
from joinsum.distributed.checkpoint_files import CheckedReader
from joinsum.distributed.flattened_state import check_same, flattened_optimizer, named_state, restore_optimizer

__all__ = ["load_checkpoint", "save_checkpoint"]

_CURRENT = "current.json"
_FORMAT = "joinsum checkpoint 1"
_OURS = re.compile(r"\.?joinsum-[0-9a-f]{16}(\.part|\.json)?")
Path_ = str | os.PathLike[str]


def save_checkpoint(
    folder: Path_,
    model: torch.nn.Module,
    optimizer: torch.optim.Optimizer | None = None,
    extra: Mapping[str, Any] | None = None,
) -> None:
    """Writes a model, an optimizer's state and counters, and `extra` (numbers, text, lists, dicts), each site its own
    blocks, in the format of torch.distributed.checkpoint: `torch.distributed.checkpoint.load` reads the subfolder that
    the folder's `current.json` calls "data", into {"model": model.state_dict()}. A tied tensor has all of its names.

    folder   created if it does not exist; all ranks of a process group see the same one

    The folder holds the last complete checkpoint at any time, however the program ends: a new one is written beside it
    and replaces it in one step. All ranks of a process group call.
    Raises OSError where it cannot be written, TypeError for an `extra` that JSON has no form of, CheckpointError for
    sparse tensors.

    >>> import joinsum, tempfile, torch
    >>> model = torch.nn.Linear(2, 1)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     joinsum.save_checkpoint(folder, model, extra={"epoch": 3})
    ...     joinsum.load_checkpoint(folder, model)
    {'epoch': 3}
    """
    current = context()
    tensors = {f"model.{name}": tensor for name, _, tensor in named_state(model)}
    groups: list[Any] = []
    if optimizer is not None:
        optimizer_tensors, groups = flattened_optimizer(model, optimizer)
        tensors |= optimizer_tensors
    sparse = [name for name, tensor in tensors.items() if tensor.layout is not torch.strided]
    if sparse:
        raise CheckpointError(
            f"save_checkpoint: sparse tensors are not written: first={sparse[0]}, count={len(sparse)}; momentum of a "
            "table with sparse gradients is sparse: update it by SGD without momentum, Adagrad or SparseAdam"
        )
    folder = Path(folder)
    name = current.from_first_site("save_checkpoint", f"joinsum-{secrets.token_hex(8)}")
    beside = folder / f".{name}.part"
    first = 0 in current.local_sites
    _on_first_site(current, lambda: beside.mkdir(parents=True))
    note = {"extra": dict(extra or {}), "groups": groups}
    try:
        _write(current, tensors, beside)
        _on_first_site(current, lambda: _finish(folder, beside, name, note))
    except BaseException:
        if first:
            shutil.rmtree(beside, ignore_errors=True)
        raise


def load_checkpoint(
    folder: Path_, model: torch.nn.Module, optimizer: torch.optim.Optimizer | None = None
) -> dict[str, Any]:
    """Reads what `save_checkpoint` wrote, on any number of sites, into a distributed or plain model; returns `extra`.

    All is read and checked before anything changes, and nothing that the files say is run. Raises CheckpointError,
    naming the folder: for tensors that the checkpoint or the model lacks (all of them are listed), other shapes, and
    files that are missing or cut off.
    """
    current = context()
    folder = Path(folder)
    data, note = _current(folder)
    metadata = _read_metadata(data)
    named = list(named_state(model))
    wanted = {f"model.{name}": tensor for name, first, tensor in named if name == first}
    again = {f"model.{name}" for name, first, _ in named if name != first}
    if optimizer is not None:
        optimizer_tensors, _ = flattened_optimizer(model, optimizer, metadata, note["groups"])
        wanted |= optimizer_tensors
    saved = {
        name: f"{list(each.size)} {each.properties.dtype}"
        for name, each in metadata.items()
        if (optimizer is not None or not name.startswith("optimizer.")) and name not in again
    }
    needed = {name: f"{list(tensor.shape)} {tensor.dtype}" for name, tensor in wanted.items()}
    check_same(f"{folder}: a checkpoint of something else", saved, needed)
    fresh = {name: torch.empty_like(tensor, memory_format=torch.contiguous_format) for name, tensor in wanted.items()}
    _read(current, fresh, data)
    with torch.no_grad():
        for name, tensor in wanted.items():
            if not name.startswith("optimizer."):
                tensor.copy_(fresh[name])
        if optimizer is not None:
            restore_optimizer(model, optimizer, fresh, note["groups"])
    extra: dict[str, Any] = note["extra"]
    return extra


def _on_first_site(current: Context, work: Callable[[], None]) -> None:
    """Runs `work` on the first site; the others wait, and raise if it failed."""
    status, failure = "done", None
    if 0 in current.local_sites:
        try:
            work()
        except Exception as error:
            status, failure = f"{type(error).__name__}: {error}", error
    first = current.from_first_site("save_checkpoint", status)
    if failure is not None:
        raise failure
    if first != "done":
        raise OSError(f"save_checkpoint: the first site could not write: cause={first}")


# --- files ------------------------------------------------------------------------------------------------------------


def _write(current: Context, tensors: Mapping[str, torch.Tensor], folder: Path) -> None:
    writer = FileSystemWriter(folder)
    try:
        with _without_group_warning(), _losses_named(current, "save_checkpoint"):
            save(dict(tensors), storage_writer=writer, process_group=current.group, no_dist=current.group is None)
    except CheckpointException as error:  # no Exception, and of all ranks
        raise OSError(f"{folder}: cannot be written: cause={_cause(error)}") from error


def _read(current: Context, tensors: dict[str, torch.Tensor], folder: Path) -> None:
    try:
        reader = CheckedReader(folder)
        with _without_group_warning(), _losses_named(current, "load_checkpoint"):
            load(tensors, storage_reader=reader, process_group=current.group, no_dist=current.group is None)
    except TransportError:
        raise
    except (CheckpointException, Exception) as error:  # whatever reading damaged files leads to
        raise CheckpointError(f"{folder}: cannot be read: cause={_cause(error)}") from error


@contextmanager
def _losses_named(current: Context, who: str) -> Iterator[None]:
    """Raises TransportError where torch's own collectives fail, as joinsum's do where a site is lost."""
    try:
        yield
    except RuntimeError as error:
        if current.single_process or not (isinstance(error, dist.DistError) or "gloo" in str(error).lower()):
            raise
        current.from_first_site(who, "")  # names the site that is lost
        raise TransportError(f"{who}: torch.distributed failed: cause={_cause(error)}") from error


@contextmanager
def _without_group_warning() -> Iterator[None]:
    """Silences torch's warning that there is no process group: on loopback there is none."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="torch.distributed is disabled")
        yield


def _cause(error: BaseException) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"


def _finish(folder: Path, beside: Path, name: str, note: Mapping[str, Any]) -> None:
    """Makes the checkpoint that was written beside the folder's the current one, and removes the others."""
    files = {path.name: path.stat().st_size for path in sorted(beside.iterdir())}
    text = json.dumps({"format": _FORMAT, "data": name, "files": files, **note})
    for path in beside.iterdir():
        _flush(path)
    os.rename(beside, folder / name)
    written = folder / f".{name}.json"
    written.write_text(text)
    _flush(written)
    os.replace(written, folder / _CURRENT)
    _flush(folder)
    for path in folder.iterdir():
        leftover = path.name != name and _OURS.fullmatch(path.name) is not None
        if leftover and path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        elif leftover:
            path.unlink(missing_ok=True)


def _flush(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _current(folder: Path) -> tuple[Path, dict[str, Any]]:
    """The folder's checkpoint and its metadata; all of its files exist with their sizes."""
    try:
        note: dict[str, Any] = json.loads((folder / _CURRENT).read_text())
    except FileNotFoundError:
        raise CheckpointError(f"{folder}: no checkpoint there: missing={_CURRENT}") from None
    except (ValueError, UnicodeDecodeError) as error:
        raise CheckpointError(f"{folder}: not a checkpoint: file={_CURRENT}, cause={error}") from None
    if not isinstance(note, dict) or note.get("format") != _FORMAT:
        found = note.get("format") if isinstance(note, dict) else type(note).__name__
        raise CheckpointError(f"{folder}: not a checkpoint of this program: format={found}, wanted={_FORMAT}")
    if _OURS.fullmatch(str(note.get("data"))) is None or not isinstance(note.get("files"), dict):
        raise CheckpointError(f"{folder}: not a checkpoint: file={_CURRENT}, data={note.get('data')}")
    data = folder / str(note["data"])
    if data.resolve().parent != folder.resolve():
        raise CheckpointError(f"{folder}: its data are outside of the folder: data={data.resolve()}")
    for name, size in note["files"].items():
        if Path(name).name != name:
            raise CheckpointError(f"{folder}: a file is outside of its folder: file={name}")
        found = (data / name).stat().st_size if (data / name).exists() else None
        if found != size:
            what = "a file is missing" if found is None else "a file is cut off or damaged"
            raise CheckpointError(f"{folder}: {what}: file={data.name}/{name}, bytes={found}, wanted={size}")
    return data, note


def _read_metadata(data: Path) -> dict[str, Any]:
    try:
        return dict(CheckedReader(data).read_metadata().state_dict_metadata)
    except CheckpointError as error:
        raise CheckpointError(f"{data}: {error}") from None
    except Exception as error:  # whatever reading damaged files leads to
        raise CheckpointError(f"{data}: not a checkpoint: cause={type(error).__name__}: {error}") from error
