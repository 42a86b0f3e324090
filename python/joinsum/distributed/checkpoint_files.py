"""Reads the files of a checkpoint without running what they say: torch's metadata are a pickle."""

from __future__ import annotations

import pathlib
import pickle
from typing import Any

import torch
from torch.distributed.checkpoint import metadata as kinds
from torch.distributed.checkpoint.filesystem import FileSystemReader, _StorageInfo
from torch.distributed.checkpoint.metadata import Metadata, StorageMeta, TensorStorageMetadata

from joinsum.base.errors import CheckpointError

__all__ = ["CheckedReader"]

_LAYOUTS = {"torch.strided": torch.strided}

# What torch writes into the metadata of tensors, by module and name.
_ALLOWED: dict[tuple[str, str], Any] = {
    **{
        (kind.__module__, kind.__qualname__): kind
        for kind in (
            kinds.ChunkStorageMetadata,
            kinds.Metadata,
            kinds.MetadataIndex,
            kinds.StorageMeta,
            kinds.TensorProperties,
            kinds.TensorStorageMetadata,
            kinds._MEM_FORMAT_ENCODING,
            _StorageInfo,
        )
    },
    ("pathlib", "PosixPath"): pathlib.PurePosixPath,
    ("pathlib", "PurePosixPath"): pathlib.PurePosixPath,
    ("torch", "Size"): torch.Size,
    ("torch.serialization", "_get_layout"): lambda name: _LAYOUTS[name],
    **{("torch", str(x).split(".")[1]): x for x in vars(torch).values() if isinstance(x, torch.dtype)},
}


class _Unpickler(pickle.Unpickler):
    """Makes objects of the allowed kinds alone."""

    def find_class(self, module: str, name: str) -> Any:
        found = _ALLOWED.get((module, name))
        if found is None:
            raise CheckpointError(f"checkpoint: the metadata name something that no checkpoint has: {module}.{name}")
        return found


class CheckedReader(FileSystemReader):
    """torch's reader of files, for checkpoints that somebody else may have changed. Raises CheckpointError for metadata
    that hold anything but tensors, or name files outside of the folder."""

    def read_metadata(self, *args: Any, **kwargs: Any) -> Metadata:
        """The checkpoint's metadata, checked."""
        with self.fs.create_stream(self._get_metadata_path(kwargs.get("rank")), "rb") as stream:
            metadata = _Unpickler(stream).load()
        if not isinstance(metadata, Metadata):
            raise CheckpointError(f"checkpoint: no metadata: got={type(metadata).__name__}")
        for name, each in metadata.state_dict_metadata.items():
            if not isinstance(each, TensorStorageMetadata):
                raise CheckpointError(f"checkpoint: an entry is no tensor: entry={name}, kind={type(each).__name__}")
        folder = pathlib.Path(self.path).resolve()
        for info in (metadata.storage_data or {}).values():
            if (folder / info.relative_path).resolve().parent != folder:
                raise CheckpointError(f"checkpoint: a file is outside of its folder: file={info.relative_path}")
        metadata.storage_meta = metadata.storage_meta or StorageMeta()
        metadata.storage_meta.load_id = self.load_id
        return metadata
