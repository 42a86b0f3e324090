"""No code of joinsum's reads what joinsum printed: what it needs of plans, placements and kernels is data."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[3] / "python" / "joinsum"

# Methods that take a text apart, or look for something in it.
SPLITTING = {
    "endswith",
    "find",
    "findall",
    "finditer",
    "fullmatch",
    "index",
    "isdigit",
    "match",
    "partition",
    "removeprefix",
    "removesuffix",
    "replace",
    "rfind",
    "rindex",
    "rpartition",
    "rstrip",
    "rsplit",
    "search",
    "split",
    "splitlines",
    "startswith",
    "strip",
    "lstrip",
    "sub",
}
# What gives the printed form of a plan, a type, a placement, a node's operation, a kernel or a call.
PRINTED_ATTRIBUTES = {"text", "operation", "program_text"}
PRINTED_NAMES = {"plan", "graph", "program", "placement", "kernel", "type_", "binary", "choice", "call", "recorded"}


def printed(value: ast.AST) -> bool:
    """Whether an expression is what a plan, or a part of it, prints."""
    if isinstance(value, ast.Attribute):
        return value.attr in PRINTED_ATTRIBUTES or (value.attr == "placement" and printed_node(value.value))
    if isinstance(value, ast.Call):
        function = value.func
        if isinstance(function, ast.Attribute):
            return function.attr == "text" or (function.attr in SPLITTING and printed(function.value))
        if isinstance(function, ast.Name) and function.id == "str" and value.args:
            return last_name(value.args[0]) in PRINTED_NAMES
    if isinstance(value, ast.JoinedStr):
        shown = [each.value for each in value.values if isinstance(each, ast.FormattedValue)]
        return len(value.values) == 1 and last_name(shown[0]) in PRINTED_NAMES
    return isinstance(value, ast.Subscript) and printed(value.value)


def printed_node(value: ast.AST) -> bool:
    """Whether it is a node of a plan, whose `placement` is text."""
    return isinstance(value, ast.Name) and value.id == "node"


def last_name(value: ast.AST) -> str:
    if isinstance(value, ast.Attribute):
        return value.attr.lstrip("_")
    return value.id if isinstance(value, ast.Name) else ""


def readers(source: str) -> Iterator[int]:
    """Lines that take apart, or search, what a plan prints."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in SPLITTING:
            regular = isinstance(node.func.value, ast.Name) and node.func.value.id in ("re", "_NUMBER")
            if printed(node.func.value) or (regular and any(map(printed, node.args))):
                yield node.lineno
        elif isinstance(node, ast.Compare) and any(isinstance(each, (ast.In, ast.NotIn)) for each in node.ops):
            if any(map(printed, node.comparators)):
                yield node.lineno
        elif isinstance(node, ast.Subscript) and printed(node.value):
            yield node.lineno
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "parse":
            # A plan is not extended by lines of text either.
            yield from (node.lineno for each in node.args if extended(each))


def extended(value: ast.AST) -> bool:
    """Whether an expression is made of what a plan prints and of other text."""
    return isinstance(value, (ast.BinOp, ast.JoinedStr)) and any(printed(each) for each in ast.walk(value))


def test_nothing_takes_apart_what_a_plan_prints() -> None:
    found = [
        f"{path.relative_to(PACKAGE.parent.parent)}:{line}"
        for path in sorted(PACKAGE.rglob("*.py"))
        for line in sorted(set(readers(path.read_text(encoding="utf-8"))))
    ]
    assert found == []


def test_a_reader_of_printed_plans_is_found() -> None:
    planted = [
        'states = type_.placement.text(frontier).strip("()").split(",")',
        'fields = node.operation[1:-1].split(";")',
        'kernel = node.operation.partition("[")[2]',
        'moves = "shuffle" in plan.text',
        'key = re.sub("[0-9]", "", str(graph))',
        'lines = f"{graph}".rstrip().split("x")',
        'more = EinsumPlan.parse(f"{graph}" + "output Z = Y")',
        'split = node.placement.startswith("(0")',
    ]
    assert [line for line in planted if not list(readers(line))] == []
