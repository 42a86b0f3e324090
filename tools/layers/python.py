"""The laws of python/joinsum: which room imports which, in any form, and that private names stay in their room."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from layers.breach import Breach, Reference, circles, wrong_floor
from layers.floors import PYTHON, ROOT

__all__ = ["PythonSources"]

FLAT = {"__init__.py", "_C.pyi", "_built_with.py", "_built_with.pyi"}
# Compiled, or written by the build: below all rooms.
BELOW = {"joinsum._C", "joinsum._built_with"}
FLOORS = {floor.folder for floor in PYTHON}
DOTTED = re.compile(r"joinsum(\.\w+)+")
UNFINISHED = re.compile(r"joinsum(\.\w+)*\.")
IMPORTERS = {"import_module", "_import_module", "__import__", "find_spec", "reload"}


@dataclass(frozen=True)
class Import:
    """A module that a line reaches, and the name that it takes from there, if it takes one."""

    line: int
    module: str
    name: str = ""


class PythonSources:
    """The modules of a project's python/joinsum."""

    def __init__(self, project: Path) -> None:
        self.project = project
        self.root = project / "python" / "joinsum"

    @cached_property
    def modules(self) -> dict[str, Path]:
        """Each module's file, by its dotted name."""
        return {self._dotted(path): path for path in sorted(self.root.rglob("*.py"))}

    def _dotted(self, path: Path) -> str:
        parts = path.relative_to(self.root.parent).with_suffix("").parts
        return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)

    def _file(self, module: str) -> str:
        return self.modules[module].relative_to(self.project).as_posix()

    def _folder(self, module: str) -> str:
        """The room: `joinsum` for the root's own file, `capture/operators` for one of a room inside a room."""
        return self.modules[module].parent.relative_to(self.root).as_posix().replace(".", ROOT, 1)

    def breaches(self) -> Iterator[Breach]:
        """Every breach of the laws, in order of files and lines, and then the shortest circles."""
        for path in sorted([*self.root.glob("*.py"), *self.root.glob("*.pyi")]):
            if path.name not in FLAT:
                file = path.relative_to(self.project).as_posix()
                yield Breach(file, 1, f"a module lies in a room, not flat in python/joinsum: {path.name}")
        references = []
        for module in self.modules:
            if module in BELOW:
                continue
            file, folder = self._file(module), self._folder(module)
            if folder not in FLOORS:
                yield Breach(file, 1, f"python/joinsum/{folder} has no floor in tools/layers/floors.py")
                continue
            reader = _Reader(module, self.modules)
            wrong = {(each.line, self._wrong(folder, each)) for each in reader.imports} | reader.wrong
            yield from (Breach(file, line, message) for line, message in sorted(wrong) if message)
            references += [
                Reference(file, each.line, self._file(each.module))
                for each in sorted(reader.imports, key=lambda each: (each.line, each.module))
                if each.module not in BELOW
            ]
        yield from circles(references, {self._file(module): self._folder(module) for module in self.modules})

    def _wrong(self, folder: str, found: Import) -> str:
        """What is wrong with an import in a file of `folder`; nothing if it is right."""
        if found.module in BELOW:
            return ""
        target = self._folder(found.module)
        if target not in FLOORS:
            return ""  # reported at that module
        if message := wrong_floor(PYTHON, folder, target):
            return f"{message}: {found.module}"
        if target.split("/")[0] == folder.split("/")[0]:
            return ""
        private = [part for part in [*found.module.split("."), found.name] if _is_private(part)]
        return f"{private[0]} is private to {target}: {found.module}" if private else ""


def _is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


class _Reader(ast.NodeVisitor):
    """Finds what a module reaches: at its top, in functions, under TYPE_CHECKING, through an imported module's
    attribute, and by a string that names a module."""

    def __init__(self, module: str, modules: dict[str, Path]) -> None:
        self.module = module
        self.modules = modules
        self.imports: set[Import] = set()
        self.wrong: set[tuple[int, str]] = set()
        self._aliases: dict[str, str] = {}
        tree = ast.parse(modules[module].read_text("utf-8"))
        self._docs = {id(text) for node in ast.walk(tree) if (text := _docstring(node)) is not None}
        self.visit(tree)

    def _reach(self, line: int, dotted: str, name: str = "") -> None:
        """Notes an import of the longest module that `dotted` begins with."""
        if dotted != ROOT and not dotted.startswith(f"{ROOT}."):
            return
        module = dotted
        while module not in self.modules and module not in BELOW:
            if "." not in module:
                return
            module, _, name = module.rpartition(".")
        self.imports.add(Import(line, module, name))

    def visit_Import(self, node: ast.Import) -> None:
        for each in node.names:
            self._aliases[each.asname or each.name.split(".")[0]] = (
                each.name if each.asname else each.name.split(".")[0]
            )
            self._reach(node.lineno, each.name)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        package = node.module or ""
        if node.level:
            is_door = self.modules[self.module].name == "__init__.py"
            parts = self.module.split(".")
            package = ".".join([*parts[: len(parts) - node.level + is_door], *([package] if package else [])])
        for each in node.names:
            dotted = f"{package}.{each.name}"
            if dotted in self.modules or dotted in BELOW:
                self._aliases[each.asname or each.name] = dotted
            self._reach(node.lineno, dotted)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        dotted = _attribute_path(node)
        first, _, rest = dotted.partition(".")
        target = f"{self._aliases.get(first, '')}.{rest}"
        if dotted and (rest in self.modules or target.startswith(f"{ROOT}.")) and self._aliases.get(first) not in BELOW:
            self._reach(node.lineno, target)
            return
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        if called in IMPORTERS and node.args and _is_root(node.args[0]):
            self._reach(node.lineno, ROOT)
        if called in {"get", "pop"} and node.args and _is_modules(node.func) and _is_root(node.args[0]):
            self._reach(node.lineno, ROOT)
        self.generic_visit(node)

    def visit_Subscript(self, node: ast.Subscript) -> None:
        if _is_modules(node) and _is_root(node.slice):
            self._reach(node.lineno, ROOT)
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        text = node.value
        if not isinstance(text, str) or id(node) in self._docs:
            return
        if DOTTED.fullmatch(text) and any(
            text == module or text.startswith(f"{module}.") for module in self.modules if module != ROOT
        ):
            self._reach(node.lineno, text)
        elif UNFINISHED.fullmatch(text):
            self.wrong.add((node.lineno, f"a module's name is written whole, so that it can be checked: {text!r}"))


def _docstring(node: ast.AST) -> ast.Constant | None:
    if not isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)) or not node.body:
        return None
    first = node.body[0]
    return first.value if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) else None


def _attribute_path(node: ast.expr) -> str:
    """`a.b.c` as text; nothing for attributes of what is no name."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        inner = _attribute_path(node.value)
        return f"{inner}.{node.attr}" if inner else ""
    return ""


def _is_root(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value == ROOT


def _is_modules(node: ast.expr) -> bool:
    """Whether it is sys.modules[...] or sys.modules.method."""
    return isinstance(node, (ast.Attribute, ast.Subscript)) and _attribute_path(node.value) == "sys.modules"
