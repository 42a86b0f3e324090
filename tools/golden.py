"""Rewrites what commands print: in tests/plans/*.txt, and in the blocks of docs/*.md that begin with a command.

A block is a fence ```text, a line `$ joinsum ...`, and what that command prints when it is run in the project's folder,
errors with it; a last line `(exit code 3)` follows where it is not 0. Or the line is `$ python examples/...`: that
program must succeed. A fence ```python in docs/*.md that is followed by a line `prints` and a fence ```text is a
program, and what it prints. `--check` only says which are out of date.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import joinsum
from click.testing import CliRunner
from joinsum.cli import main as command

ROOT = Path(__file__).resolve().parent.parent
_BLOCK = re.compile(r"(?<=^```text\n)\$ (?:joinsum|python examples/).*?(?=^```$)", re.MULTILINE | re.DOTALL)
_PROGRAM = re.compile(
    r"(^```python\n)((?:(?!^```).)*?)(^```\n\nprints\n\n```text\n)(?:(?!^```).)*?(?=^```$)", re.MULTILINE | re.DOTALL
)


def renewed(block: str) -> str:
    """The block, which begins with its command, with what that prints now."""
    line = block.split("\n", 1)[0]
    if line.startswith("$ python "):
        return f"{line}\n{printed_by(shlex.split(line.removeprefix('$ python ')))}"
    with contextlib.chdir(ROOT):
        done = CliRunner().invoke(command, shlex.split(line.removeprefix("$ joinsum ")), prog_name="joinsum")
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    code = f"(exit code {done.exit_code})\n" if done.exit_code else ""
    return f"{line}\n{done.output}{code}"


def printed_by(program: list[str]) -> str:
    """What a Python program prints. On one thread, as several gain nothing on such sizes beside other work."""
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, *program], cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True, check=True
    )
    return done.stdout


def renewed_program(block: re.Match[str]) -> str:
    """A program with what it prints now."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(block[2], "program", "exec"), {})
    joinsum.init()
    return f"{block[1]}{block[2]}{block[3]}{printed.getvalue().rstrip()}\n"


def files() -> Iterator[tuple[Path, str]]:
    """Each file that has commands, with its renewed text."""
    for path in sorted((ROOT / "tests" / "plans").glob("*.txt")):
        yield path, renewed(path.read_text(encoding="utf-8"))
    for path in sorted((ROOT / "docs").glob("*.md")):
        text = path.read_text(encoding="utf-8")
        yield path, _PROGRAM.sub(renewed_program, _BLOCK.sub(lambda block: renewed(block[0]), text))


def main(check: bool) -> int:
    """Writes each file, or with `check` compares it."""
    stale = [(path, text) for path, text in files() if path.read_text(encoding="utf-8") != text]
    for path, text in stale:
        name = path.relative_to(ROOT)
        print(f"{name} is out of date: run make golden" if check else f"{name} rewritten")
        if not check:
            path.write_text(text, encoding="utf-8")
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.exit(main("--check" in sys.argv[1:]))
