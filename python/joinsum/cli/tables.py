"""`joinsum rules` and `joinsum kernels`."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict

import click

from joinsum.cli.options import close_names

__all__ = ["kernels", "rules"]

_names = click.argument("names", metavar="[NAME]...", nargs=-1)
_as_json = click.option("--json", "as_json", is_flag=True, help="Print them as JSON.")


@click.command()
@_names
@_as_json
def rules(names: tuple[str, ...], as_json: bool) -> None:
    """List the rules by which plans are rewritten; with names, show these rules in full."""
    import joinsum
    from joinsum.base.text_table import text_table

    rows = [asdict(rule) for rule in joinsum.rules()]
    table = text_table(["rule", "law"], [[row["name"], row["law"]] for row in rows])
    sys.exit(_show("rules", rows, table, names, as_json))


@click.command()
@_names
@_as_json
def kernels(names: tuple[str, ...], as_json: bool) -> None:
    """List the kernels that plans name; with names, show these kernels in full."""
    import joinsum
    from joinsum.base.text_table import text_table

    rows = [asdict(row) for row in joinsum.kernels()]
    shown = [[row["name"], str(row["operands"]), row["parameters"], row["form"], row["summary"]] for row in rows]
    table = text_table(["kernel", "operands", "parameters", "form", "what"], shown, right=[1])
    sys.exit(_show("kernels", rows, table, names, as_json))


def _show(command: str, rows: Sequence[Mapping[str, object]], table: str, names: Sequence[str], as_json: bool) -> int:
    """Prints all rows as a table, or the named ones field by field; returns the exit code."""
    by_name = {str(row["name"]): row for row in rows}
    for name in names:
        if name not in by_name:
            what = f"{command}: no such name; `joinsum {command}` lists them"
            click.echo(f"joinsum: {what}: name={name}{close_names(name, by_name)}", err=True)
            return 2
    chosen = [by_name[name] for name in names] if names else list(rows)
    if as_json:
        click.echo(json.dumps(chosen, indent=1))
    elif names:
        click.echo("\n\n".join(_in_full(row) for row in chosen))
    else:
        click.echo(table)
    return 0


def _in_full(row: Mapping[str, object]) -> str:
    width = max(map(len, row))
    texts = {name: ", ".join(value) if isinstance(value, tuple) else value for name, value in row.items()}
    return "\n".join(f"{name.ljust(width)}  {text}".rstrip() for name, text in texts.items())
