"""Tests of measured rates write into cache folders of their own."""

from __future__ import annotations

from pathlib import Path

import joinsum
import pytest


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    joinsum.init()
