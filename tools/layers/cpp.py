"""The laws of csrc/: which folder includes which, which projects a folder reaches, and that a namespace is a folder."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from layers.breach import Breach, Reference, circles, wrong_floor
from layers.floors import CPP

__all__ = ["CppSources"]

PROJECTS = {"torch": "torch", "ATen": "torch", "c10": "torch", "caffe2": "torch", "pybind11": "pybind11"}
# Shipped in third_party/, which no installed header may need.
SHIPPED = {"nlohmann"}
SYSTEM_FOLDERS = {"sys", "linux", "net", "netinet", "arpa"}
SYSTEM_HEADERS = {
    "immintrin.h",
    "arm_neon.h",
    "omp.h",
    "unistd.h",
    "fcntl.h",
    "sched.h",
    "dlfcn.h",
    "poll.h",
    "spawn.h",
    "pthread.h",
    "ifaddrs.h",
    "netdb.h",
    "malloc.h",
}
PYTHON_HEADERS = {"Python.h"}
FOREIGN_NAMESPACES = {"kernels/products/products.cpp": "at::native"}

INCLUDE = re.compile(r'^\s*#\s*include\s*(?P<open>["<]?)(?P<path>[^">]*)')
NAMESPACE = re.compile(r"^\s*(?:inline\s+)?namespace\s+(?P<name>[\w:]+)\s*(?:\{|$)")
FLOORS = {floor.folder: floor for floor in CPP}
TOP_FOLDERS = {folder.split("/")[0] for folder in FLOORS}


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


class CppSources:
    """The C++ files of a project's csrc/, named relative to it."""

    def __init__(self, project: Path) -> None:
        self.root = project / "csrc"

    @cached_property
    def files(self) -> dict[str, list[str]]:
        """The lines of each file, without block comments."""
        paths = sorted(path for path in self.root.rglob("*") if path.suffix in {".h", ".cpp", ".cu", ".cuh"})
        return {path.relative_to(self.root).as_posix(): _lines(path) for path in paths}

    @cached_property
    def includes(self) -> dict[str, list[Include]]:
        """The #include lines of each file."""
        return {file: _includes(lines) for file, lines in self.files.items()}

    def breaches(self) -> Iterator[Breach]:
        """Every breach of the laws, in order of files and lines, and then the shortest circles."""
        for file, lines in self.files.items():
            folder = _folder(file)
            if folder not in FLOORS:
                yield Breach(f"csrc/{file}", 1, f"csrc/{folder} has no floor in tools/layers/floors.py")
                continue
            for include in self.includes[file]:
                message = self._wrong_quoted(file, include) if include.quoted else _wrong_angled(file, include)
                if message:
                    yield Breach(f"csrc/{file}", include.line, message)
            yield from _wrong_namespaces(file, lines)
        references = [
            Reference(f"csrc/{file}", include.line, f"csrc/{include.path}")
            for file, includes in self.includes.items()
            for include in includes
            if include.quoted and include.path in self.files
        ]
        yield from circles(references, {f"csrc/{file}": _folder(file) for file in self.files})

    def _wrong_quoted(self, file: str, include: Include) -> str:
        """What is wrong with an include of joinsum's own header; nothing if it is right."""
        if include.project in PROJECTS:
            return f"another project's header is included with <>: {include}"
        if include.project not in TOP_FOLDERS:
            return f'joinsum\'s headers are named from csrc/, as in "base/dims.h": {include}'
        if include.path not in self.files:
            return f"no such file in csrc/: {include}"
        if _folder(include.path) not in FLOORS:
            return ""  # reported at that file
        if message := wrong_floor(CPP, _folder(file), _folder(include.path)):
            return f"{message}: {include}"
        if "torch" not in FLOORS[_folder(file)].projects and (chain := self._chain_to_torch(include.path)):
            return f"{include} leads to torch: {' -> '.join(chain)} (allowed in {_allowed('torch')})"
        return ""

    def _chain_to_torch(self, file: str) -> list[str]:
        """The chain of includes from `file` to a header of torch; empty when there is none."""
        chains, seen = [[file]], {file}
        for chain in chains:  # grows while it is read: breadth first
            for include in self.includes.get(chain[-1], []):
                if PROJECTS.get(include.project) == "torch":
                    return [*chain, str(include)]
                if include.quoted and include.path not in seen:
                    seen.add(include.path)
                    chains.append([*chain, include.path])
        return []


def _lines(path: Path) -> list[str]:
    # Comments keep their line breaks, so that line numbers stay right.
    text = re.sub(r"/\*.*?\*/", lambda comment: "\n" * comment[0].count("\n"), path.read_text("utf-8"), flags=re.DOTALL)
    return text.splitlines()


def _includes(lines: list[str]) -> list[Include]:
    matches = ((number, INCLUDE.match(line)) for number, line in enumerate(lines, start=1))
    return [
        # A macro opens with neither sign; it names no path.
        Include(number, match["open"] == '"', match["path"].strip() if match["open"] else "")
        for number, match in matches
        if match
    ]


def _folder(file: str) -> str:
    return file.rpartition("/")[0]


def _allowed(project: str) -> str:
    return ", ".join(folder for folder, floor in FLOORS.items() if project in floor.projects)


def _wrong_angled(file: str, include: Include) -> str:
    """What is wrong with an include of another project's header; nothing if it is right."""
    if not include.path:
        return "an include must name its file, not a macro"
    if include.project in TOP_FOLDERS | {"joinsum"}:
        return f'joinsum\'s headers are included with "", as in "base/dims.h": {include}'
    project = PROJECTS.get(include.project) or (include.project if include.project in SHIPPED else "")
    project = "pybind11" if include.path in PYTHON_HEADERS else project
    if include.path.startswith("cuda"):
        # A missing backend is a file (no_cuda*), not a condition inside one.
        named = file.rpartition("/")[2].startswith("cuda") and "cuda" in FLOORS[_folder(file)].projects
        return "" if named else f"{include} is allowed only in files named cuda* of {_allowed('cuda')}"
    if project:
        sources_only = project in SHIPPED
        if project in FLOORS[_folder(file)].projects and not (sources_only and file.endswith(".h")):
            return ""
        return f"{include} is allowed only in {'.cpp files of ' if sources_only else ''}{_allowed(project)}"
    is_standard = re.fullmatch(r"[a-z0-9_]+", include.path) is not None
    if is_standard or include.project in SYSTEM_FOLDERS or include.path in SYSTEM_HEADERS:
        return ""
    return f"no rule allows {include}: add its project to tools/layers, with the reason in docs"


def _wrong_namespaces(file: str, lines: list[str]) -> Iterator[Breach]:
    """A file of csrc/ia/transforms declares in joinsum::ia::transforms, one of csrc/base in joinsum; one of
    FOREIGN_NAMESPACES also what a library exports and has no header for."""
    folder = _folder(file)
    wanted = "joinsum" if folder == "base" else "joinsum::" + folder.replace("/", "::")
    for number, line in enumerate(lines, start=1):
        match = NAMESPACE.match(line)
        if match and match["name"] not in (wanted, f"{wanted}::detail", "detail", FOREIGN_NAMESPACES.get(file)):
            yield Breach(f"csrc/{file}", number, f"namespace {match['name']} is not the folder's, {wanted}")
