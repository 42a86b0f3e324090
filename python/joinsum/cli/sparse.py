"""`joinsum sparse`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from joinsum.cli.options import FILE, exit_codes

if TYPE_CHECKING:
    from joinsum.sparse import SparseTensor

__all__ = ["sparse"]


def _numbers(names: str, word: str | None = None) -> Any:
    """A callback that parses two numbers with a comma between them, or leaves the word."""

    def parse(_context: click.Context, _option: click.Parameter, value: str | None) -> tuple[float, float] | str | None:
        if value is None or value == word:
            return value
        try:
            first, second = (float(part) for part in value.split(","))
        except ValueError:
            raise click.BadParameter(f"{value!r} is not of the form {names}, two numbers") from None
        return first, second

    return parse


def _values(result: SparseTensor) -> dict[str, Any]:
    """A result as data: its elements that are not at the fill."""
    coordinates, values = result.handle.to_coordinates(True)
    columns = [*(axis.tolist() for axis in coordinates), values.tolist()]
    rows = [list(row) for row in zip(*columns, strict=True)]
    return {"shape": list(result.shape), "fill": result.fill, "coo": rows}


@click.command()
@click.argument("program", type=FILE)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object with all fields of the plan.")
@click.option("--run", is_flag=True, help="Also run the program, and print its results.")
@click.option("--estimator", default="chain", show_default=True, help="uniform, chain or exact.")
@click.option(
    "--cost",
    callback=_numbers("A,B", "measured"),
    help="Cost of an entry of a result and of an expression: A,B; or measured on this machine, in seconds.",
)
@click.option("--mode", default="absorb", show_default=True, help="single, or absorb indices that occur nowhere else.")
@click.option("--search", default="greedy", show_default=True, help="greedy or branch_and_bound.")
@click.option("--cutoffs", callback=_numbers("BYTEMAP,DENSE"), help="Densities of formats: BYTEMAP,DENSE.")
@click.option("--threads", type=click.IntRange(1), help="Threads that run kernels; by default as many as torch uses.")
def sparse(
    program: Path,
    as_json: bool,
    run: bool,
    estimator: str,
    cost: tuple[float, float] | str | None,
    mode: str,
    search: str,
    cutoffs: tuple[float, float] | None,
    threads: int | None,
) -> None:
    """Plan the sparse PROGRAM, a JSON file (- is the standard input), and with --run compute it."""
    from joinsum.base.errors import Error
    from joinsum.cli.program import ProgramError, text_of
    from joinsum.sparse import Program, measure_cost
    from joinsum.sparse.expressions import written

    with exit_codes({Error: 4, OSError: 3, ProgramError: 3}):
        read = Program.from_json(text_of("sparse", program))
        plan = read.plan(
            estimator=estimator,
            cost=measure_cost(threads=threads).cost if isinstance(cost, str) else cost or (1.0, 1.0),
            mode=mode,
            search=search,
            cutoffs=None if cutoffs is None else {"bytemap": cutoffs[0], "dense": cutoffs[1]},
        )
        values = {}
        if run:
            values = {name: _values(result) for name, result in plan.run(threads=threads, analyze=not as_json).items()}
        if as_json:
            click.echo(json.dumps(plan.data() | ({"values": written(values)} if run else {})))
            return
        click.echo(str(plan))
        for name, value in values.items():
            click.echo(f"{name} = {json.dumps(written(value))}")
