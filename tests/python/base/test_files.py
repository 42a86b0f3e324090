"""Files are written completely or not at all."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from joinsum.base.files import write_atomically


def test_a_file_and_its_folder_are_written(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "file.json"
    write_atomically(path, "first")
    write_atomically(path, "second")
    assert path.read_text() == "second"
    assert list(path.parent.iterdir()) == [path]


def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file.json"
    write_atomically(path, "first")

    def fail(source: object, target: object) -> None:
        raise OSError("no space")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(OSError, match="no space"):
        write_atomically(path, "second")
    assert path.read_text() == "first"
    assert list(tmp_path.iterdir()) == [path]
