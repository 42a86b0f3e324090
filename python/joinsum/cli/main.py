"""The group of commands; each is a file beside this one."""

from __future__ import annotations

import click

from joinsum.cli.calibrate import calibrate
from joinsum.cli.doctor import doctor
from joinsum.cli.plan import plan
from joinsum.cli.sparse import sparse
from joinsum.cli.tables import kernels, rules
from joinsum.cli.train import train

__all__ = ["main"]


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="joinsum")
def main() -> None:
    """Distributed einsum: tensor programs planned as joins and sums, and run on every site you have."""


for command in (plan, sparse, rules, kernels, calibrate, doctor, train):
    main.add_command(command)
