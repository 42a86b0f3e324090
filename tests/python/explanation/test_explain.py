"""Explanations: complete, and true to the cost and the run."""

from __future__ import annotations

import json
from typing import Any

import joinsum
import pytest
import torch
from explained_programs import GATHER, PROGRAM


def test_a_relation_is_explained_with_its_own_inputs_and_places() -> None:
    joinsum.init(sites=4)
    x = joinsum.relation(torch.ones(8, 8), parts=(2, 2), place=[0, 1], name="X")
    explained = x.aggregate(keep=[0]).explain(minimize="wire_bytes")
    assert str(explained.plan.inputs["X"]).endswith("(0, 1)")
    assert explained.minimized == "wire_bytes"
    assert joinsum.explain(x.aggregate(keep=[0]), minimize="wire_bytes").plan == explained.plan


def test_a_physical_plan_is_shown_as_it_is() -> None:
    joinsum.init(sites=2)
    explained = joinsum.explain(joinsum.parse(GATHER))
    assert explained.program is None
    assert explained.found is None
    assert explained.alternatives == ()
    assert "search" not in str(explained)


@pytest.mark.parametrize(
    ("cluster", "origin"),
    [
        (joinsum.Cluster(), "default"),
        (joinsum.Cluster(memory_bytes=10**9), "default"),
        (joinsum.Cluster("mine", bytes_per_second=1e8), "described"),
    ],
)
def test_the_cluster_is_named_with_its_origin(cluster: joinsum.Cluster, origin: str) -> None:
    joinsum.init(sites=2)
    explained = joinsum.explain(joinsum.parse(PROGRAM), cluster=cluster)
    assert explained.cluster.origin == origin
    assert f"costs are for {cluster.name}" in str(explained)
    assert json.loads(explained.to_json())["cluster"]["origin"] == origin


@pytest.mark.parametrize(
    ("x", "options", "message"),
    [
        (3, {}, "explain: give a relation, a plan or what joinsum.optimize found: got=int"),
        (PROGRAM, {"analyze": True}, "explain: an input is not given: input=X"),
        (PROGRAM, {"inputs": {"X": 1}}, "explain: data are for analyze=True only: given=['inputs']"),
        (PROGRAM, {"without": ["R9-9"]}, "optimize: no such phase or rule: name='R9-9'"),
        (GATHER, {"minimize": "seconds"}, "explain: the plan is chosen already, so nothing is searched: "),
        (GATHER, {"place": {"X": "(0)"}}, "explain: the plan is chosen already"),
        (GATHER, {"analyze": True, "inputs": {"X": torch.ones(7)}}, "explain: input X: it has another shape"),
    ],
)
def test_wrong_arguments_are_named(x: Any, options: dict[str, Any], message: str) -> None:
    joinsum.init(sites=2)
    with pytest.raises(joinsum.PlanError) as error:
        joinsum.explain(joinsum.parse(x) if isinstance(x, str) else x, **options)
    assert str(error.value).startswith(message)


def test_a_relation_takes_no_other_inputs_and_a_found_plan_no_other_cluster() -> None:
    joinsum.init(sites=2)
    x = joinsum.relation(torch.ones(4), parts=2, name="X")
    with pytest.raises(joinsum.PlanError, match="a relation has its own inputs"):
        joinsum.explain(x, analyze=True, inputs={"X": torch.ones(4)})
    with pytest.raises(joinsum.PlanError, match="the plan was chosen for a cluster already"):
        joinsum.explain(
            joinsum.optimize(joinsum.parse(PROGRAM)), cluster=joinsum.Cluster("other", bytes_per_second=1.0)
        )
