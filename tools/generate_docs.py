"""Writes the documents that list what is in the code's tables. `--check` only says whether they are up to date."""

from __future__ import annotations

import sys
from pathlib import Path

import joinsum

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
        lines.append(f"| `{row.name}` | {row.operands} | {parameters} | {row.form} | {summary} | {facts} |")
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


def main(check: bool) -> int:
    """Writes each page, or with `check` compares it."""
    stale = []
    for name, text in {"kernels.md": kernels_page(), "rules.md": rules_page()}.items():
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
