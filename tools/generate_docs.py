"""Writes the documents that list what is in the code's tables. `--check` only says whether they are up to date."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import joinsum
from joinsum.capture import table
from joinsum.explanation.document import schema

DOCS = Path(__file__).resolve().parent.parent / "docs"


def kernels_page() -> str:
    """The kernel table as Markdown."""
    lines = [
        "# Kernels",
        "",
        "Generated from the table by `make docs`. Parameters: `i` integer, `n` number or `$scalar` bound at each",
        "run, `l` labels. Facts are what rules and placement inference ask; each is checked on random data.",
        "",
        "| kernel | operands | parameters | form | what | facts |",
        "|---|---|---|---|---|---|",
    ]
    for row in joinsum.kernels():
        if row.user:
            continue
        facts = ", ".join(row.facts)
        parameters = ", ".join(row.parameters)
        summary = row.summary.replace("|", "\\|")
        operands = row.operands or "i"
        lines.append(f"| `{row.name}` | {operands} | {parameters} | {row.form} | {summary} | {facts} |")
    return "\n".join(lines) + "\n"


def rules_page() -> str:
    """The rule table as Markdown."""
    lines = [
        "# Rewrite rules",
        "",
        "Generated from the table by `make docs`. Each row says that two forms of a plan mean the same; one test runs",
        "every row on random plans. F filter, M map, A local aggregate, J local join, S shuffle, B broadcast; g group",
        "keys, jl and jr join keys, ⊕ a fold, `q | f` kernel q followed by f. A rewrite whose users would no longer",
        "type-check is no candidate. What differs from the paper's Table 2 is in [deviations.md](deviations.md).",
        "",
        "| rule | law | when | source |",
        "|---|---|---|---|",
    ]
    for rule in joinsum.rules():
        law, when, source = (text.replace("|", "\\|") for text in (rule.law, rule.when, rule.source))
        lines.append(f"| {rule.name} | `{law}` | {when} | {source} |")
    return "\n".join(lines) + "\n"


def operators_page() -> str:
    """The operator table of capture as Markdown."""
    lines = [
        "# Operators",
        "",
        "Generated from the table by `make docs`. What each operator of ATen becomes in a captured program: labels,",
        "einsums, or a call of the operator on blocks. A form names the axes of operands and results; names are free,",
        "so that sites may divide them, but for those that are *whole*; one that is *folded* leaves partial results",
        "where it is divided. An operator that is not here raises `joinsum.CaptureError`, with the user's line, unless",
        '`joinsum.register_operator` gives it a rule or `replicate=["aten::..."]` runs it whole on every site.',
    ]
    families = dict.fromkeys(row.family for row in table())
    for family in families:
        lines += ["", f"## {family.capitalize()}", "", "| operators | what they become |", "|---|---|"]
        by_rule: dict[str, list[str]] = {}
        for row in table():
            if row.family == family:
                by_rule.setdefault(row.how, []).append(f"`{row.name.removeprefix('aten::')}`")
        lines += [f"| {', '.join(names)} | {how.replace('|', chr(92) + '|')} |" for how, names in by_rule.items()]
    return "\n".join(lines) + "\n"


def explain_page() -> str:
    """docs/explain.md with the fields of the JSON between its two marks."""
    text = (DOCS / "explain.md").read_text(encoding="utf-8")
    before, _, rest = text.partition("<!-- fields -->\n")
    _, _, after = rest.partition("<!-- end of fields -->")
    lines = ["| field | type | what |", "|---|---|---|", *_fields("", schema())]
    return f"{before}<!-- fields -->\n" + "\n".join(lines) + f"\n<!-- end of fields -->{after}"


def _fields(path: str, described: dict[str, Any]) -> Iterator[str]:
    """A row for each field below `described`, with those of the definitions that it refers to."""
    for name, field in described.get("properties", {}).items():
        inner, mark = _target(field), ""
        if inner.get("type") == "array":
            inner, mark = _target(inner["items"]), "[]"
        what = field.get("description", f"`{field.get('const')}`")
        yield f"| `{path}{name}{mark}` | {_kind(field)} | {what} |"
        yield from _fields(f"{path}{name}{mark}.", inner)


def _target(field: dict[str, Any]) -> dict[str, Any]:
    """What a field refers to, if it does."""
    options = field.get("anyOf", [field])
    reference = options[0].get("$ref")
    found: dict[str, Any] = schema()["$defs"][reference.rsplit("/", 1)[1]] if reference else field
    return found


def _kind(field: dict[str, Any]) -> str:
    if "anyOf" in field:
        return " or ".join(_kind(option) for option in field["anyOf"])
    field = _target(field)
    kind = field.get("type", "text" if "enum" in field or "const" in field else "")
    kinds = kind if isinstance(kind, list) else [kind]
    return " or ".join("text" if each == "string" else each for each in kinds)


def main(check: bool) -> int:
    """Writes each page, or with `check` compares it."""
    stale = []
    pages = {
        "kernels.md": kernels_page(),
        "rules.md": rules_page(),
        "operators.md": operators_page(),
        "explain.md": explain_page(),
    }
    for name, text in pages.items():
        path = DOCS / name
        if check:
            if not path.exists() or path.read_text() != text:
                stale.append(name)
        else:
            path.write_text(text)
    for name in stale:
        print(f"docs/{name} is out of date: run make docs")
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main("--check" in sys.argv[1:]))
