"""Claims about tests/nightly.txt: it names tests that are there."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

PROJECT = Path(__file__).parents[3]


def test_every_name_is_that_of_a_test() -> None:
    lines = (PROJECT / "tests" / "nightly.txt").read_text(encoding="utf-8").splitlines()
    names = [line for line in lines if not line.startswith("#")]
    files = sorted({name.split("::")[0] for name in names})
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", *files]
    found = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=True).stdout.splitlines()
    assert not set(names) - set(found)
    assert len(set(names)) == len(names)
