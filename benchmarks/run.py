"""Runs every benchmark beside this file that defines `main(quick: bool)`.

python benchmarks/run.py [--quick] [NAME ...]
"""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import click

_FOLDER = Path(__file__).resolve().parent


def _load(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"benchmark_{path.stem}", path)
    if spec is None or spec.loader is None:
        raise ImportError(f"not a Python file: path={path}")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@click.command()
@click.option("--quick", is_flag=True, help="Small sizes and few rounds: shows that the benchmarks run.")
@click.argument("names", nargs=-1)
def main(quick: bool, names: tuple[str, ...]) -> None:
    """Run all benchmarks, or those NAMEd: contractions, eindecomp, einsum_overhead, planning and so on."""
    paths = {path.stem: path for path in sorted(_FOLDER.glob("*.py")) if path != Path(__file__).resolve()}
    for name in names:
        if name not in paths:
            raise click.UsageError(f"no such benchmark: name={name}, benchmarks={', '.join(paths)}")
    for name, path in paths.items():
        if names and name not in names:
            continue
        module = _load(path)
        if hasattr(module, "main"):
            click.echo(f"==> {name}")
            module.main(quick)


if __name__ == "__main__":
    main()
