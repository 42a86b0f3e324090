"""Checks which folder of csrc/ includes which: `tools/check_layers.py [project folder]`.

Levels read downwards, einsum -> tra -> ia -> kernels -> base; optimizer and runtime read the levels, never each other;
bindings read all. Only kernels/dense*, kernels/sparse*, runtime/ and bindings/ reach torch, only bindings/ pybind11,
and only einsum/json*.cpp what third_party/ ships.
Prints one line `file:line: what is wrong` for each breach and exits with 1 if there is one.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

LEVELS = ["einsum", "tra", "ia", "kernels", "base"]
MAY_INCLUDE: dict[str, list[str]] = {
    **{level: LEVELS[i:] for i, level in enumerate(LEVELS)},
    "optimizer": ["optimizer", *LEVELS],
    "runtime": ["runtime", *LEVELS],
    "bindings": ["bindings", "optimizer", "runtime", *LEVELS],
}
TORCH_SIDE = re.compile(r"kernels/(dense|sparse)|runtime/|bindings/")
TORCH_SIDE_NAMES = "kernels/dense*, kernels/sparse*, runtime/, bindings/"
TORCH_PROJECTS = {"torch", "ATen", "c10", "caffe2"}
# Only files of their backend include these: no_cuda.cpp stands in where the backend is absent.
BACKEND_PROJECTS = {"cuda": re.compile(r"(kernels|runtime)/(.*/)?cuda")}
# Shipped in third_party/, which no installed header may need.
SHIPPED_PROJECTS = {"nlohmann": re.compile(r"einsum/json\w*\.cpp")}
SYSTEM_FOLDERS = {"sys", "netinet", "arpa"}
SYSTEM_HEADERS = {"immintrin.h", "arm_neon.h", "omp.h", "unistd.h", "fcntl.h", "sched.h", "dlfcn.h", "pthread.h"}
PYTHON_HEADERS = {"Python.h"}

INCLUDE = re.compile(r'^\s*#\s*include\s*(?P<open>["<]?)(?P<path>[^">]*)')


@dataclass(frozen=True)
class Include:
    line: int
    quoted: bool
    path: str

    @property
    def project(self) -> str:
        """The first folder of the path, or nothing."""
        return self.path.split("/")[0] if "/" in self.path else ""

    def __str__(self) -> str:
        return f'"{self.path}"' if self.quoted else f"<{self.path}>"


@dataclass(frozen=True)
class Breach:
    file: str
    line: int
    message: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.message}"


class Sources:
    """The C++ files of a project's csrc/, named relative to it, and what they include."""

    def __init__(self, project: Path) -> None:
        self.root = project / "csrc"

    @cached_property
    def includes(self) -> dict[str, list[Include]]:
        files = sorted(path for path in self.root.rglob("*") if path.suffix in {".h", ".cpp", ".cu", ".cuh"})
        return {path.relative_to(self.root).as_posix(): read_includes(path) for path in files}

    def way_to_torch(self, file: str) -> list[str]:
        """The chain of includes from `file` to a header of torch; empty when there is none."""
        chains = [[file]]
        seen = {file}
        while chains:
            chain = chains.pop(0)
            for include in self.includes.get(chain[-1], []):
                if include.project in TORCH_PROJECTS:
                    return [*chain, str(include)]
                if include.quoted and include.path not in seen:
                    seen.add(include.path)
                    chains.append([*chain, include.path])
        return []


def read_includes(path: Path) -> list[Include]:
    """The #include lines of a file; a line inside a block comment does not count."""
    # Keeps the line breaks of comments, so that line numbers stay right.
    text = re.sub(r"/\*.*?\*/", lambda comment: "\n" * comment[0].count("\n"), path.read_text("utf-8"), flags=re.DOTALL)
    matches = ((number, INCLUDE.match(line)) for number, line in enumerate(text.splitlines(), start=1))
    return [
        # A macro opens with neither sign; it names no path.
        Include(number, match["open"] == '"', match["path"].strip() if match["open"] else "")
        for number, match in matches
        if match
    ]


def breaches(project: Path) -> Iterator[Breach]:
    """Yields every breach of the include rules, in order of files and lines."""
    sources = Sources(project)
    for file, includes in sources.includes.items():
        folder = file.split("/")[0]
        for include in includes:
            if "/" not in file or folder not in MAY_INCLUDE:
                message = f"csrc/{folder} is no folder of the layout ({', '.join(MAY_INCLUDE)})"
            elif include.quoted:
                message = wrong_quoted(sources, file, folder, include)
            else:
                message = wrong_angled(file, folder, include)
            if message:
                yield Breach(f"csrc/{file}", include.line, message)


def wrong_quoted(sources: Sources, file: str, folder: str, include: Include) -> str:
    """What is wrong with an include of joinsum's own header; nothing if it is right."""
    if include.project in TORCH_PROJECTS | {"pybind11"}:
        return f"another project's header is included with <>: {include}"
    if include.project not in MAY_INCLUDE:
        return f'joinsum\'s headers are named from csrc/, as in "base/dims.h": {include}'
    if include.path not in sources.includes:
        return f"no such file in csrc/: {include}"
    allowed = MAY_INCLUDE[folder]
    if include.project not in allowed:
        return f"{folder} must not include {include.project}: {include} (allowed: {', '.join(allowed)})"
    if not TORCH_SIDE.match(file) and (way := sources.way_to_torch(include.path)):
        return f"{include} leads to torch: {' -> '.join(way)} (allowed in {TORCH_SIDE_NAMES})"
    return ""


def wrong_angled(file: str, folder: str, include: Include) -> str:
    """What is wrong with an include of another project's header; nothing if it is right."""
    if not include.path:
        return "an include must name its file, not a macro"
    if include.project in MAY_INCLUDE or include.project == "joinsum":
        return f'joinsum\'s headers are included with "", as in "base/dims.h": {include}'
    if include.project in TORCH_PROJECTS:
        return "" if TORCH_SIDE.match(file) else f"{include} is allowed only in {TORCH_SIDE_NAMES}"
    if include.project == "pybind11" or include.path in PYTHON_HEADERS:
        return "" if folder == "bindings" else f"{include} is allowed only in bindings/"
    backend = next((name for name in BACKEND_PROJECTS if include.path.startswith(name)), None)
    if backend:
        allowed = BACKEND_PROJECTS[backend].match(file)
        return "" if allowed else f"{include} is allowed only in files named {backend}* of kernels/ and runtime/"
    if include.project in SHIPPED_PROJECTS:
        allowed = SHIPPED_PROJECTS[include.project].fullmatch(file)
        return "" if allowed else f"{include} is allowed only in einsum/json*.cpp"
    is_standard = re.fullmatch(r"[a-z0-9_]+", include.path) is not None
    if is_standard or include.project in SYSTEM_FOLDERS or include.path in SYSTEM_HEADERS:
        return ""
    return f"no rule allows {include}: add its project to tools/check_layers.py, with the reason in docs"


def main(arguments: list[str]) -> int:
    project = Path(arguments[0]) if arguments else Path(__file__).resolve().parent.parent
    found = list(breaches(project))
    for breach in found:
        print(breach)
    print(f"check_layers: {len(Sources(project).includes)} files, {len(found)} breaches")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
