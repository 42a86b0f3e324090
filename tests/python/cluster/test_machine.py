"""Machines: what measurements are valid for."""

from __future__ import annotations

from dataclasses import replace

import joinsum
import pytest
from joinsum.cluster.machine import Machine, machine_of

MACHINE = Machine(("host: cpu, 2 cores, 1 threads",) * 2, (("grid", "2"), ("transport", "gloo")), (("torch", "2"),))


@pytest.mark.parametrize(
    ("other", "reason"),
    [
        (replace(MACHINE, libraries=(("torch", "3"),)), "stale, libraries have changed: torch: file=2, here=3"),
        (replace(MACHINE, sites=("other", MACHINE.sites[1])), "another machine: site=0, file=host: cpu"),
        (replace(MACHINE, sites=MACHINE.sites * 2), "another number of sites: file=2, here=4"),
        (
            replace(MACHINE, layout=(("grid", "2"), ("transport", "nccl"))),
            "another layout: transport: file=gloo, here=nccl",
        ),
    ],
)
def test_the_first_difference_between_two_machines_is_named(other: Machine, reason: str) -> None:
    assert (other.difference(MACHINE) or "").startswith(reason)


def test_a_machine_does_not_differ_from_itself() -> None:
    machine = machine_of(joinsum.init(sites=2))
    assert len(machine.sites) == 2
    assert machine.difference(machine_of(joinsum.init(sites=2))) is None


def test_the_name_of_a_file_is_the_sites_and_not_the_libraries() -> None:
    assert MACHINE.name == replace(MACHINE, libraries=(("torch", "3"),)).name
    assert MACHINE.name != replace(MACHINE, layout=(("grid", "2"),)).name
