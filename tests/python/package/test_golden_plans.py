"""What the optimizer chooses for known programs, and how explain tells it, stay as they are written down."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

PROJECT = Path(__file__).parents[3]
TOOL = PROJECT / "tools" / "golden.py"


def test_commands_print_what_golden_files_and_docs_say() -> None:
    done = subprocess.run([sys.executable, str(TOOL), "--check"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, ""), done.stdout + done.stderr


def test_every_program_has_a_golden_file() -> None:
    plans = PROJECT / "tests" / "plans"
    programs = {path.name for path in plans.iterdir() if path.suffix in (".tra", ".ia")}
    named = {path.read_text().split()[3].rsplit("/", 1)[1] for path in plans.glob("*.txt")}
    assert programs == named


def test_every_example_is_shown_in_the_docs() -> None:
    shown = "".join(page.read_text() for page in (PROJECT / "docs").glob("*.md"))
    for program in (PROJECT / "examples" / "einsum").glob("*.py"):
        assert f"$ python examples/einsum/{program.name}\n" in shown, program
