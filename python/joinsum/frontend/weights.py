"""Full weights as safetensors files."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from joinsum.checkpoint import CheckpointError
from joinsum.context import context
from joinsum.frontend.distributed_tensor import gathered

__all__ = ["load_safetensors", "save_safetensors"]


def save_safetensors(path: str | os.PathLike[str], model: torch.nn.Module) -> None:
    """Writes the model's whole weights as one file, by their names in `state_dict`; a shared tensor once, by its first
    name, with the others in the file's metadata, as Hugging Face's tools read and write it.

    The file is the old one or the new one at any time. All ranks of a process group call, the first one writes.
    Raises OSError where it cannot be written.

    >>> import joinsum, pathlib, tempfile, torch
    >>> model = torch.nn.Linear(2, 1)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     joinsum.save_safetensors(pathlib.Path(folder, "model.safetensors"), model)
    ...     joinsum.load_safetensors(pathlib.Path(folder, "model.safetensors"), model)
    """
    here = context()
    tensors: dict[str, torch.Tensor] = {}
    metadata = {"format": "pt"}
    for name, kept, tensor in _names(model):
        if name != kept:
            metadata[name] = kept
            continue
        whole = gathered(tensor)  # on all ranks, one after another
        if 0 in here.local_sites:
            tensors[name] = whole.contiguous().clone()
    if 0 not in here.local_sites:
        return
    path = Path(path)
    handle, beside = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    os.close(handle)
    try:
        save_file(tensors, beside, metadata=metadata)
        os.replace(beside, path)
    except BaseException:
        os.unlink(beside)
        raise


def load_safetensors(path: str | os.PathLike[str], model: torch.nn.Module) -> None:
    """Reads whole weights into a distributed or plain model; every rank of a process group reads the file.

    Raises CheckpointError for a file that is none or is cut off, and for other names or shapes than the model's, all of
    them listed; the model then is as before. Raises OSError as `open` does.
    """
    path = Path(path)
    try:
        with open(path, "rb"):
            tensors = load_file(path)
    except SafetensorError as error:
        raise CheckpointError(f"{path}: not a safetensors file, or cut off: cause={error}") from None
    names = list(_names(model))
    first = {name: kept for name, kept, _ in names}
    given = {first.get(name, name) for name in tensors}
    wanted = {kept: tensor for name, kept, tensor in names if name == kept}
    missing, unexpected = sorted(wanted.keys() - given), sorted(given - wanted.keys())
    sources = {first.get(name, name): tensor for name, tensor in tensors.items()}
    other = [
        f"{name}: file={list(sources[name].shape)}, model={list(tensor.shape)}"
        for name, tensor in wanted.items()
        if name in sources and sources[name].shape != tensor.shape
    ]
    if missing or unexpected or other:
        raise CheckpointError(
            f"{path}: weights of another model: missing={missing}, unexpected={unexpected}, other shapes={other}"
        )
    with torch.no_grad():
        for name, tensor in wanted.items():
            tensor.copy_(sources[name].to(tensor.dtype))


def _names(model: torch.nn.Module) -> list[tuple[str, str, torch.Tensor]]:
    """(name, first name of the same tensor, tensor) for all of the model's state."""
    first: dict[int, str] = {}
    out = []
    for name, tensor in model.state_dict(keep_vars=True).items():
        if isinstance(tensor, torch.Tensor):
            out.append((name, first.setdefault(id(tensor), name), tensor.detach()))
    return out
