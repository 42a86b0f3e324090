"""Claims about checkpoints that somebody else has changed: reading one runs nothing, and stays in its folder."""

from __future__ import annotations

import json
import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import joinsum
import pytest
import torch
from torch import nn
from torch.distributed.checkpoint.metadata import BytesStorageMetadata


class _Runs:
    """A pickle of it makes a folder when it is read."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self._folder),)


def saved(folder: Path) -> tuple[nn.Module, Path]:
    """A model and the folder of its checkpoint's data."""
    joinsum.init(sites=2)
    model = nn.Linear(3, 2)
    joinsum.save_checkpoint(folder, model)
    (data,) = (path for path in folder.iterdir() if path.is_dir())
    return model, data


def rewrite(data: Path, change: Callable[[Any], Any]) -> None:
    """Changes the metadata, and the size that the checkpoint's note says."""
    path = data / ".metadata"
    path.write_bytes(pickle.dumps(change(pickle.loads(path.read_bytes()))))
    note = json.loads((data.parent / "current.json").read_text())
    note["files"][".metadata"] = path.stat().st_size
    (data.parent / "current.json").write_text(json.dumps(note))


def test_metadata_that_run_code_are_refused_and_do_not_run(tmp_path: Path) -> None:
    model, data = saved(tmp_path / "checkpoint")
    rewrite(data, lambda metadata: [metadata, _Runs(tmp_path / "made")])
    with pytest.raises(joinsum.CheckpointError, match=r"posix\.mkdir|os\.mkdir"):
        joinsum.load_checkpoint(tmp_path / "checkpoint", model)
    assert not (tmp_path / "made").exists()


def test_entries_that_are_no_tensors_are_refused(tmp_path: Path) -> None:
    # torch unpickles such entries.
    model, data = saved(tmp_path)

    def change(metadata: Any) -> Any:
        metadata.state_dict_metadata["model.weight"] = BytesStorageMetadata()
        return metadata

    rewrite(data, change)
    with pytest.raises(joinsum.CheckpointError, match=r"BytesStorageMetadata"):
        joinsum.load_checkpoint(tmp_path, model)


@pytest.mark.parametrize("place", ["../outside", "/etc/passwd"])
def test_files_outside_of_the_folder_are_refused(tmp_path: Path, place: str) -> None:
    model, data = saved(tmp_path)

    def change(metadata: Any) -> Any:
        for info in metadata.storage_data.values():
            info.relative_path = place
        return metadata

    rewrite(data, change)
    with pytest.raises(joinsum.CheckpointError, match="outside of its folder"):
        joinsum.load_checkpoint(tmp_path, model)


@pytest.mark.parametrize("change", [{"data": "../elsewhere"}, {"data": 3}, {"files": ["a"]}, {"files": {"../a": 1}}])
def test_notes_that_lead_out_of_the_folder_are_refused(tmp_path: Path, change: dict[str, Any]) -> None:
    model, data = saved(tmp_path)
    path = tmp_path / "current.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(joinsum.CheckpointError, match=r"not a checkpoint|outside of its folder"):
        joinsum.load_checkpoint(tmp_path, model)
    assert data.exists()


def test_a_folder_that_is_a_link_to_another_is_refused(tmp_path: Path) -> None:
    model, data = saved(tmp_path / "checkpoint")
    data.rename(tmp_path / data.name)
    data.symlink_to(tmp_path / data.name)
    with pytest.raises(joinsum.CheckpointError, match="outside of the folder"):
        joinsum.load_checkpoint(tmp_path / "checkpoint", model)


def test_a_checkpoint_of_all_dtypes_is_read(tmp_path: Path) -> None:
    joinsum.init(sites=2)
    model = nn.Module()
    for dtype in (torch.float16, torch.bfloat16, torch.float64, torch.int32, torch.bool):
        model.register_buffer(str(dtype).replace(".", "_"), torch.ones(4, dtype=dtype))
    joinsum.save_checkpoint(tmp_path, model)
    before = {name: buffer.clone() for name, buffer in model.named_buffers()}
    for buffer in model.buffers():
        buffer.zero_()
    joinsum.load_checkpoint(tmp_path, model)
    assert all(torch.equal(buffer, before[name]) for name, buffer in model.named_buffers())
