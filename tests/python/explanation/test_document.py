"""Explanations as JSON, which a schema documents."""

from __future__ import annotations

import json
from typing import Any

import joinsum
import jsonschema
import pytest
from explained_programs import GATHER, PROGRAM
from joinsum.explanation.document import schema


def checked_json(explained: joinsum.Explanation) -> Any:
    value = json.loads(explained.to_json())
    jsonschema.Draft202012Validator(schema()).validate(value)
    return value


@pytest.mark.parametrize("sites", [1, 3, 4, 6])
def test_the_json_follows_its_schema(sites: int) -> None:
    joinsum.init(sites=sites)
    explained = joinsum.explain(joinsum.parse(PROGRAM))
    value = checked_json(explained)
    assert value["sites"]["count"] == sites
    assert sum(node["cost"]["wire_bytes"] for node in value["plan"]["nodes"]) == value["cost"]["wire_bytes"]
    assert joinsum.parse(value["plan"]["text"]) == explained.plan
    assert joinsum.parse(value["program"]) == explained.program


def test_a_phase_after_which_no_plan_fits_has_no_best_cost() -> None:
    joinsum.init(sites=4)
    tight = joinsum.Cluster(memory_bytes=joinsum.explain(joinsum.parse(PROGRAM), minimize="wire_bytes").cost.peak_bytes)
    explained = joinsum.explain(joinsum.parse(PROGRAM), {"X": [0, 0]}, minimize="wire_bytes", cluster=tight)
    assert checked_json(explained)["search"]["phases"][0] | {"seconds": 0} == {
        "name": "lower",
        "plans": 1,
        "best": None,
        "seconds": 0,
    }
    assert "none fits" in str(explained)


def test_the_schema_refuses_what_is_not_documented() -> None:
    joinsum.init(sites=2)
    value = json.loads(joinsum.explain(joinsum.parse(PROGRAM)).to_json())
    value["plan"]["nodes"][0]["colour"] = "red"
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(value, schema())


def test_every_field_of_the_schema_is_described() -> None:
    objects = [schema(), *schema()["$defs"].values()]
    for each in objects:
        for name, field in each["properties"].items():
            assert "description" in field or "const" in field, name


def test_a_move_lists_the_sites_of_each_key() -> None:
    move = checked_json(joinsum.explain(joinsum.parse(GATHER)))["plan"]["nodes"][1]["move"]
    assert move["keys"] == [[0], [1]]
    assert (move["before"], move["after"]) == ([[0], [1]], [[0, 1], [0, 1]])
    assert (move["partial_before"], move["partial_after"]) == (False, False)


def test_irregular_keys_are_listed_once_each() -> None:
    plan = "ia on 2\ninput X: f32[2@-]<3> keys{<0>,<2>,<2>} (0)\noutput Y = broadcast(X)"
    move = checked_json(joinsum.explain(joinsum.parse(plan)))["plan"]["nodes"][1]["move"]
    assert move["keys"] == [[0], [2]]
    assert move["after"] == [[0, 1], [0, 1]]


def test_of_many_tuples_some_are_listed() -> None:
    plan = "ia on 2\ninput X: f32[1000,1000]<1000,1000> (0)\noutput Y = broadcast(X)"
    move = checked_json(joinsum.explain(joinsum.parse(plan)))["plan"]["nodes"][1]["move"]
    assert move["tuples"] == 1_000_000
    assert len(move["keys"]) == 64
    assert move["keys"][0] == [0, 0]
    assert move["keys"] == sorted(move["keys"])
