"""Checks that what documents point at exists: relative links with their sections, and files that they name in code.

A named file begins with a folder of the project, `csrc/ia/placement.h`; it may lack its extension or have wildcards.
Prints a line for each that is missing, `docs/einsum.md:12: no such file: csrc/einsum/json.h`.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DOCUMENTS = ("*.md", "docs/*.md", "data/*/README.md")
_FENCE = re.compile(r"^```")
_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_FOLDERS = r"csrc|python|tests|tools|docs|examples|benchmarks|cmake|data|third_party|\.ci"
_NAMED = re.compile(rf"(?<![\w/.-])((?:{_FOLDERS})/[\w./*-]*[\w*])")


@cache
def sections(document: Path) -> set[str]:
    """Names of the document's headings, as links give them."""
    found = set()
    for line in text_lines(document):
        if line.startswith("#"):
            heading = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", line.lstrip("#").strip().lower())
            found.add(re.sub(r"[^\w\- ]", "", heading).replace(" ", "-"))
    return found


def text_lines(document: Path) -> Iterator[str]:
    """The document's lines; those of code blocks are empty."""
    inside = False
    for line in document.read_text(encoding="utf-8").splitlines():
        fence = _FENCE.match(line) is not None
        yield "" if inside or fence else line
        inside ^= fence


def missing_link(document: Path, target: str) -> str | None:
    """What is wrong with a link; None if nothing is."""
    if re.match(r"[a-z]+:", target):
        return None
    name, _, section = target.partition("#")
    path = (document.parent / name).resolve() if name else document
    if not path.exists():
        return f"no such file: {target}"
    if section and path.suffix == ".md" and section not in sections(path):
        return f"no such section: {target}"
    return None


def exists(root: Path, name: str) -> bool:
    """Whether there is such a file or folder, or one that continues the name with an extension or a suffix."""
    return (root / name).exists() or next(root.glob(name.rstrip("*") + "*"), None) is not None


def faults(root: Path = ROOT) -> Iterator[str]:
    """A line for each thing that is not there."""
    for document in sorted(path for pattern in DOCUMENTS for path in root.glob(pattern)):
        where = document.relative_to(root)
        for number, line in enumerate(text_lines(document), start=1):
            for target in _LINK.findall(re.sub(r"`[^`]*`", "", line)):
                fault = missing_link(document, target)
                if fault is not None:
                    yield f"{where}:{number}: {fault}"
        for number, line in enumerate(document.read_text(encoding="utf-8").splitlines(), start=1):
            for name in _NAMED.findall(line):
                if not exists(root, name):
                    yield f"{where}:{number}: no such file: {name}"


def main() -> int:
    """Prints what is missing; the exit status says whether anything is."""
    found = list(faults())
    for line in found:
        print(line)
    print(f"links of documents: {len(found)} point nowhere" if found else "links of documents: all are there")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
