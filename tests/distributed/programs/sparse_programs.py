"""Scenes of random sparse programs on a group, against dense evaluation."""

from __future__ import annotations

import random
import sys
from pathlib import Path

import joinsum
import numpy as np
from joinsum.sparse import Program
from stage import Scenes, ranks, scene

sys.path.insert(0, str(Path(__file__).parents[2] / "python" / "sparse"))
from reference.formats import in_drawn_levels
from reference.programs import KINDS, Data, random_program
from reference.values import evaluate

SCENES: Scenes = {}

# Of each kind.
PROGRAMS = 40


def compare(program: Data, number: int) -> None:
    """Results are those of dense evaluation, for tensors in levels that are drawn and a plan whose options are."""
    seed = random.Random(number)
    options = {
        "mode": seed.choice(("single", "absorb")),
        "estimator": seed.choice(("uniform", "chain", "exact")),
        "kernel_size": seed.choice((128, 0, 2)),
        "cutoffs": seed.choice(
            [{"bytemap": 0.05, "dense": 0.5}, {"bytemap": 2, "dense": 2}, {"bytemap": 0, "dense": 0}]
        ),
    }
    results = Program(in_drawn_levels(program, number)).run(**options)
    expected = evaluate(program)
    assert set(results) == set(expected)
    for name, (array, fill) in expected.items():
        np.testing.assert_allclose(float(results[name].fill), fill, rtol=1e-9, err_msg=f"fill of {name}: {options}")
        found = results[name].to_dense().numpy()
        np.testing.assert_allclose(found, array, rtol=1e-9, atol=1e-9, err_msg=f"{name}: {options}")


@scene(SCENES)
def random_sparse_programs_have_the_values_of_dense_evaluation() -> dict[str, int]:
    """How many programs of each kind moved something. The machine is described so that division pays."""
    joinsum.init(cluster=joinsum.Cluster("slow sites, fast links", 1e6, 1e12, 1e-9))
    transport = joinsum.context().transport
    moved = dict.fromkeys(KINDS, 0)
    for kind in KINDS:
        for number in range(1000 * ranks(), 1000 * ranks() + PROGRAMS):
            before = transport.bytes_sent()
            try:
                compare(random_program(kind, number), number)
            except Exception as error:
                raise AssertionError(f"kind={kind}, number={number}") from error
            moved[kind] += transport.bytes_sent() > before
    return moved
