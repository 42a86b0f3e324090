"""Measures the size of the code: `tools/measure_code.py [project folder]`.

Prints files and lines per folder of csrc/ and python/joinsum/, and how long their functions are; a C++ function counts
where it is defined at namespace scope.
"""

from __future__ import annotations

import ast
import re
import statistics
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

NOT_A_FUNCTION = re.compile(r"^(namespace|struct|class|enum|union|extern)\b|^[^()]* = \{$")


def python_functions(text: str) -> Iterator[int]:
    """Yields the lines of each function, without its decorators."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield (node.end_lineno or node.lineno) - node.lineno + 1


def cpp_functions(text: str) -> Iterator[int]:
    """Yields the lines of each function at namespace scope, as clang-format writes it: its last line is a brace."""
    start: int | None = None
    after_a_break = False
    for number, line in enumerate(text.splitlines()):
        if after_a_break and re.match(r"[A-Za-z~]", line):
            start = None if NOT_A_FUNCTION.match(line) or line.endswith(";") else number
        if line == "}" and start is not None:
            yield number - start + 1
            start = None
        # Comments and preprocessor lines stand between a blank line and the function that they belong to.
        after_a_break = line in ("", "}") or (after_a_break and line.startswith(("//", "#")))


LANGUAGES: dict[str, tuple[set[str], Callable[[str], Iterator[int]]]] = {
    "csrc": ({".h", ".cpp", ".cu", ".cuh"}, cpp_functions),
    "python/joinsum": ({".py"}, python_functions),
}


def report(project: Path, name: str) -> Iterator[str]:
    """Yields the figures of one language."""
    suffixes, functions_of = LANGUAGES[name]
    texts = {path: path.read_text("utf-8") for path in sorted((project / name).rglob("*")) if path.suffix in suffixes}
    folders: dict[str, list[int]] = {}
    for path, text in texts.items():
        folders.setdefault(path.parent.relative_to(project).as_posix(), []).append(text.count("\n"))
    lines = [count for counts in folders.values() for count in counts]
    functions = sorted(length for text in texts.values() for length in functions_of(text))
    yield f"{name}: {len(lines)} files, {sum(lines)} lines, {sum(count > 400 for count in lines)} files over 400 lines"
    yield (
        f"  {len(functions)} functions: median {statistics.median(functions):g} lines, "
        f"90th percentile {functions[int(0.9 * (len(functions) - 1))]}, "
        f"{sum(length > 40 for length in functions)} over 40 lines"
    )
    for folder, counts in sorted(folders.items()):
        yield f"  {folder}: {len(counts)} files, {sum(counts)} lines"


def main(arguments: list[str]) -> int:
    project = Path(arguments[0]) if arguments else Path(__file__).resolve().parent.parent
    for name in LANGUAGES:
        print("\n".join(report(project, name)))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
