"""Libraries that Python packages bring."""

from __future__ import annotations

from pathlib import Path

import pytest
from joinsum.base import libraries


def test_openblas_is_where_its_package_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JOINSUM_OPENBLAS", raising=False)
    package = pytest.importorskip("scipy_openblas32")
    assert Path(libraries.openblas()).parent == Path(package.get_lib_dir())


def test_the_environment_turns_it_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JOINSUM_OPENBLAS", "0")
    assert libraries.openblas() == ""


def test_without_the_package_there_is_no_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(libraries, "find_spec", lambda name: None)
    assert libraries.openblas() == ""
