"""Laws of the operator table: a row says all that the rest of joinsum asks of an operator."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import torch
from joinsum.capture import table
from joinsum.capture.rules.row import Row

CAPTURE = Path(__file__).resolve().parents[4] / "python" / "joinsum" / "capture"


def overload(row: Row) -> torch._ops.OpOverload:
    namespace, name = row.name.split("::")
    packet, _, which = name.partition(".")
    found = getattr(getattr(getattr(torch.ops, namespace), packet), which or "default")
    assert isinstance(found, torch._ops.OpOverload)
    return found


def test_a_random_operator_says_how_one_site_draws() -> None:
    """`Traits.random` in python/joinsum/capture/operators/creation.py: sites of any number draw alike."""
    built_in = [row for row in table() if row.name.startswith("aten::")]
    drawing = {row.name for row in built_in if torch.Tag.nondeterministic_seeded in overload(row).tags}
    # Attention draws numbers for dropout alone, which its rule refuses.
    wanted = {name for name in drawing if "attention" not in name}
    assert {row.name for row in table() if row.traits.random is not None} == wanted


def lists_of_operators(path: Path) -> Iterator[int]:
    """Lines with a tuple, list, set or dictionary of several operators' names."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        entries: list[ast.expr | None] = []
        if isinstance(node, (ast.Tuple, ast.List, ast.Set)):
            entries = list(node.elts)
        elif isinstance(node, ast.Dict):
            entries = list(node.keys)
        texts = [each.value for each in entries if isinstance(each, ast.Constant) and isinstance(each.value, str)]
        if sum(text.startswith(("aten::", "prims::")) for text in texts) > 1:
            yield node.lineno


def test_no_list_of_operators_stands_beside_the_table() -> None:
    """What holds for some operators alone is a trait in their rows."""
    rooms = [path for path in CAPTURE.rglob("*.py") if path.parent.name not in ("operators", "decompositions", "rules")]
    found = [f"{path.relative_to(CAPTURE)}:{line}" for path in rooms for line in lists_of_operators(path)]
    assert found == []
