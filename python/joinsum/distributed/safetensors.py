"""Unsharded weights as safetensors files."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch.distributed.checkpoint.metadata import MetadataIndex

from joinsum.base.arguments import show
from joinsum.base.errors import CheckpointError, PlanError
from joinsum.base.files import replaced_atomically
from joinsum.cluster.context import context
from joinsum.distributed.distributed_tensor import DistributedTensor, gathered
from joinsum.distributed.flattened_state import check_same, named_state

__all__ = ["load_safetensors", "save_safetensors"]

_FORMAT = {"format": "pt"}  # Hugging Face's tools refuse files without it
_INDEX = "model.safetensors.index.json"


def save_safetensors(
    path: str | os.PathLike[str], model: torch.nn.Module, metadata: Mapping[str, str] | None = None
) -> None:
    """Writes the model's unsharded weights as one file, by their names in `state_dict`; a shared tensor once, by its
    first name, with the others in the file's metadata, as Hugging Face's tools read and write it.

    metadata   texts to write beside the weights, under names that are none of a tensor's

    A reader finds the old file or the new one. All ranks of a process group call, the first one writes.
    Raises OSError where it cannot be written, and PlanError for metadata that are not texts by such names.

    >>> import joinsum, pathlib, tempfile, torch
    >>> model = torch.nn.Linear(2, 1)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     joinsum.save_safetensors(pathlib.Path(folder, "model.safetensors"), model, {"epoch": "3"})
    ...     joinsum.load_safetensors(pathlib.Path(folder, "model.safetensors"), model)
    {'epoch': '3'}
    """
    current = context()
    tensors: dict[str, torch.Tensor] = {}
    names = named_state(model)
    shared = {name: first for name, first, _ in names if name != first}
    own = _checked(dict(metadata or {}), {name for name, _, _ in names})
    for name, first, tensor in names:
        if name != first:
            continue
        full = gathered(tensor)  # on all ranks, one after another
        if 0 in current.local_sites:
            tensors[name] = full.contiguous().clone()
    if 0 in current.local_sites:
        with replaced_atomically(Path(path)) as beside:
            save_file(tensors, beside, metadata=_FORMAT | own | shared)


def _checked(metadata: dict[str, str], names: set[str]) -> dict[str, str]:
    for key, value in metadata.items():
        if not isinstance(key, str) or not isinstance(value, str):
            raise PlanError(f"save_safetensors: metadata are texts: name={show(key)}, value={show(value)}")
        if key in names or key in _FORMAT:
            raise PlanError(f"save_safetensors: metadata need another name: name={show(key)}")
    return metadata


def load_safetensors(path: str | os.PathLike[str], model: torch.nn.Module) -> dict[str, str]:
    """Reads unsharded weights into a distributed or plain model; every rank of a process group reads the files, and
    calls together with the others for a distributed one. Returns the files' metadata, without what the format itself
    writes there.

    path   a file; a folder with `model.safetensors`, or else with several files and `model.safetensors.index.json`, as
           Hugging Face's `save_pretrained` writes them; or that index itself. An index names files beside it

    One tensor is read after the other, and of a distributed one the ranges that this rank stores.
    Raises CheckpointError for a file that is none or is cut off, for an index that names files elsewhere, and for other
    names or shapes than the model's in all files together, all of them listed; the model then is as before. Raises
    PlanError for tensors on the device "meta", which have no memory before `joinsum.distribute`, and OSError as `open`
    does; of a distributed model then TransportError on the other ranks.
    """
    names = named_state(model)
    first = {name: shared for name, shared, _ in names}
    wanted = {name: tensor for name, shared, tensor in names if name == shared}
    distributed = any(isinstance(tensor, DistributedTensor) for tensor in wanted.values())
    with _told_to_all(distributed):
        files = _Files(Path(path))
        _check(str(path), files.tensors, first, wanted)
    with _told_to_all(distributed), torch.no_grad():
        for file in files.paths:
            with _opened(file) as source:
                for name, (own, _) in files.tensors.items():
                    if own == file:
                        _read(source, name, wanted[first[name]])
    return {key: value for key, value in files.metadata.items() if key not in _FORMAT and key not in first}


@contextmanager
def _told_to_all(distributed: bool) -> Iterator[None]:
    """Raises TransportError where it has failed on another rank; collective for a distributed model."""
    if not distributed:
        yield
        return
    current = context()
    with current.preparing("load_safetensors"):
        yield
    if not current.single_process:
        current.transport.agree("load_safetensors", "the files can be read")


def _check(
    path: str,
    files: Mapping[str, tuple[Path, list[int]]],
    first: Mapping[str, str],
    wanted: Mapping[str, torch.Tensor],
) -> None:
    """Raises for tensors in files that are not those of a model, by their first names."""
    empty = [name for name, tensor in wanted.items() if tensor.is_meta]
    if empty:
        raise PlanError(
            f'load_safetensors: tensors on the device "meta" have no memory: first={empty[0]}, count={len(empty)}; '
            "call joinsum.distribute(model, ...) before"
        )
    saved = {first.get(name, name): str(shape) for name, (_, shape) in files.items()}
    needed = {name: str(list(tensor.shape)) for name, tensor in wanted.items()}
    check_same(f"{path}: weights of another model", saved, needed)
    for name, (_, shape) in files.items():
        if str(shape) != needed[first[name]]:
            raise CheckpointError(f"{path}: weights of another model: name={name}, shape={shape}")


class _Files:
    """The headers of the files at a path.

    paths      the files
    tensors    by name the file of a tensor, and its shape
    metadata   texts of all files
    """

    def __init__(self, path: Path) -> None:
        self.tensors: dict[str, tuple[Path, list[int]]] = {}
        self.metadata: dict[str, str] = {}
        index = path
        if path.is_dir():  # as transformers does, which may leave an old index there
            index = path / "model.safetensors"
            if not index.exists() and (path / _INDEX).exists():
                index = path / _INDEX
        places = _places(index) if index.suffix == ".json" else {}
        self.paths = sorted(set(places.values())) or [index]
        for file in self.paths:
            self._add(file)
        for name, file in places.items():
            if name not in self.tensors or self.tensors[name][0] != file:
                raise CheckpointError(f"{index}: a tensor is not where the index says: tensor={name}, file={file.name}")

    def _add(self, file: Path) -> None:
        with _opened(file) as source:
            self.metadata |= source.metadata() or {}
            for name in source.keys():  # noqa: SIM118 - no dictionary
                if name in self.tensors:
                    raise CheckpointError(
                        f"{file.parent}: a tensor is in two files: tensor={name}, "
                        f"files={[self.tensors[name][0].name, file.name]}"
                    )
                self.tensors[name] = file, list(source.get_slice(name).get_shape())


def _places(index: Path) -> dict[str, Path]:
    """By name the file of each tensor. Raises CheckpointError for an index that names files elsewhere."""
    try:
        names = json.loads(index.read_text())["weight_map"]
        places = {str(name): str(file) for name, file in names.items()}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CheckpointError(f"{index}: not an index of safetensors files: cause={error!r}") from None
    if not places:
        raise CheckpointError(f"{index}: not an index of safetensors files: it names no tensor")
    for file in places.values():
        if Path(file).name != file or not file.endswith(".safetensors") or "\\" in file or "\0" in file:
            raise CheckpointError(f"{index}: a file is outside of its folder: file={file}")
    return {name: index.parent / file for name, file in places.items()}


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    """A file of which each tensor is read by itself."""
    with open(path, "rb"):  # raises OSError
        pass
    try:
        with safe_open(path, "pt") as source:
            yield source
    except SafetensorError as error:
        raise CheckpointError(f"{path}: not a safetensors file, or cut off: cause={error}") from None


def _read(source: Any, name: str, into: torch.Tensor) -> None:
    """Writes a tensor of an opened file into one of the model's."""
    if not isinstance(into, DistributedTensor) or into.numel() == 0 or into.dim() == 0:
        into.copy_(source.get_tensor(name).to(into.dtype))
        return
    fresh: DistributedTensor = torch.empty_like(into, memory_format=torch.contiguous_format)  # type: ignore[assignment]
    saved = source.get_slice(name)
    for chunk in fresh.__create_chunk_list__():
        ranges = tuple(slice(at, at + size) for at, size in zip(chunk.offsets, chunk.sizes, strict=True))
        fresh.__get_tensor_shard__(MetadataIndex(name, chunk.offsets)).copy_(saved[ranges])
    into.copy_(fresh)
