"""Programs whose loops would visit what sparse tensors do not store."""

from __future__ import annotations

from typing import Any

import joinsum
import pytest
import torch
from joinsum import PlanError, SparseTensor
from joinsum.sparse import Program
from joinsum.sparse.densified import check_programs_not_densified

SIZE = 20_000


def scaled(operator: str, size: int, **others: Any) -> dict[str, Any]:
    """A[i, j] with an operator and d[i], which is dense."""
    draw = torch.Generator().manual_seed(0)
    places = torch.randint(0, size, (2, 5 * size), generator=draw)
    matrix = SparseTensor.from_coordinates(places, torch.ones(5 * size), (size, size), levels="csr", fold="sum")
    body = ["map", operator, [["in", "A", ["i", "j"]], ["in", "d", ["i"]]]]
    query = {"name": "y", "expr": body, "output": ["i", "j"]}
    tensors = {"A": matrix, "d": SparseTensor.from_torch(torch.full((size,), 2.0))}
    return {"dtype": "float32", "tensors": tensors, "queries": [query], **others}


@pytest.mark.parametrize("sites", [1, 2])
def test_divisions_of_what_is_not_stored_are_refused_where_they_are_many(sites: int) -> None:
    joinsum.init(sites=sites)
    with pytest.raises(PlanError, match=r"query=y, tensor=A, indices=\['i', 'j'\], visits=4e\+08; .* reciprocal"):
        Program(scaled("/", SIZE)).run()
    assert Program(scaled("*", SIZE)).run()["y"].nnz < 6 * SIZE
    found = Program(scaled("/", 30)).run()["y"].to_dense()
    torch.testing.assert_close(found, scaled("/", 30)["tensors"]["A"].to_dense() / 2)
    joinsum.init()


def test_results_between_count_as_what_they_store() -> None:
    """Of two queries the second one visits all of the first one's result."""
    data = scaled("*", SIZE)
    exp = {
        "name": "e",
        "expr": ["map", "exp", [["map", "+", [["in", "y", ["i", "j"]], ["in", "d", ["j"]]]]]],
        "output": ["i", "j"],
    }
    plan = Program(data | {"queries": [*data["queries"], exp]})
    with pytest.raises(PlanError, match="query=e, tensor=y"):
        plan.run()


def test_sizes_of_indices_that_no_tensor_has() -> None:
    sizes = {"k": 3}
    program = Program(
        {
            "index_sizes": sizes,
            "tensors": {"v": SparseTensor.from_torch(torch.ones(4).double())},
            "queries": [{"name": "q", "expr": ["agg", "+", ["k"], ["in", "v", ["i"]]], "output": ["i"]}],
        }
    )
    plan = program.plan()
    check_programs_not_densified({"logical": plan.logical, "physical": plan.physical}, program.handle.inputs, sizes)
    assert program.run()["q"].to_dense().tolist() == [3.0] * 4
