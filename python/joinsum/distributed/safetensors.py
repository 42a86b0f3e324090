"""Unsharded weights as safetensors files."""

from __future__ import annotations

import os
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from joinsum.base.errors import CheckpointError
from joinsum.base.files import replaced_atomically
from joinsum.cluster.context import context
from joinsum.distributed.distributed_tensor import gathered
from joinsum.distributed.flattened_state import check_same, named_state

__all__ = ["load_safetensors", "save_safetensors"]


def save_safetensors(path: str | os.PathLike[str], model: torch.nn.Module) -> None:
    """Writes the model's unsharded weights as one file, by their names in `state_dict`; a shared tensor once, by its
    first name, with the others in the file's metadata, as Hugging Face's tools read and write it.

    A reader finds the old file or the new one. All ranks of a process group call, the first one writes.
    Raises OSError where it cannot be written.

    >>> import joinsum, pathlib, tempfile, torch
    >>> model = torch.nn.Linear(2, 1)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     joinsum.save_safetensors(pathlib.Path(folder, "model.safetensors"), model)
    ...     joinsum.load_safetensors(pathlib.Path(folder, "model.safetensors"), model)
    """
    current = context()
    tensors: dict[str, torch.Tensor] = {}
    metadata = {"format": "pt"}
    for name, first, tensor in named_state(model):
        if name != first:
            metadata[name] = first
            continue
        full = gathered(tensor)  # on all ranks, one after another
        if 0 in current.local_sites:
            tensors[name] = full.contiguous().clone()
    if 0 in current.local_sites:
        with replaced_atomically(Path(path)) as beside:
            save_file(tensors, beside, metadata=metadata)


def load_safetensors(path: str | os.PathLike[str], model: torch.nn.Module) -> None:
    """Reads unsharded weights into a distributed or plain model; every rank of a process group reads the file.

    Raises CheckpointError for a file that is none or is cut off, and for other names or shapes than the model's, all of
    them listed; the model then is as before. Raises OSError as `open` does.
    """
    path = Path(path)
    try:
        with open(path, "rb"):
            tensors = load_file(path)
    except SafetensorError as error:
        raise CheckpointError(f"{path}: not a safetensors file, or cut off: cause={error}") from None
    names = named_state(model)
    first = {name: shared for name, shared, _ in names}
    wanted = {name: tensor for name, shared, tensor in names if name == shared}
    sources = {first.get(name, name): tensor for name, tensor in tensors.items()}
    shapes = [{name: str(list(tensor.shape)) for name, tensor in each.items()} for each in (sources, wanted)]
    check_same(f"{path}: weights of another model", *shapes)
    with torch.no_grad():
        for name, tensor in wanted.items():
            tensor.copy_(sources[name].to(tensor.dtype))
