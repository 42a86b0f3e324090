"""Every source has a test file of its own, or a reason in the table of `tools/list_untested.py`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

TOOL = Path(__file__).resolve().parents[3] / "tools" / "list_untested.py"


def listed(project: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, str(TOOL), str(project)], capture_output=True, text=True, check=False)


def write(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("")


def test_a_source_with_neither_test_nor_reason_is_reported(tmp_path: Path) -> None:
    write(tmp_path / "csrc/ia/surprise.h")
    write(tmp_path / "python/joinsum/planner/surprise.py")
    result = listed(tmp_path)
    assert result.returncode == 1
    assert "csrc/ia/surprise: no tests/cpp/ia/surprise_test.cpp" in result.stdout
    assert "python/planner/surprise: no tests/python/planner/test_surprise.py" in result.stdout


def test_a_source_with_a_test_of_its_own_is_not_listed(tmp_path: Path) -> None:
    for name in ("csrc/ia/surprise.cpp", "tests/cpp/ia/surprise_test.cpp"):
        write(tmp_path / name)
    assert "surprise" not in listed(tmp_path).stdout


def test_a_row_that_no_source_needs_is_reported(tmp_path: Path) -> None:
    result = listed(tmp_path)
    assert result.returncode == 1
    assert "no source needs this row" in result.stdout


def test_the_project_has_a_test_or_a_reason_for_every_source() -> None:
    result = listed(TOOL.parents[1])
    assert result.returncode == 0, result.stdout
