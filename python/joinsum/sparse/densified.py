"""Loops of a plan that visit what sparse tensors do not store."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping
from typing import Any, NamedTuple

from joinsum.base.errors import PlanError
from joinsum.sparse.derivatives import leaves_of

__all__ = ["Visited", "check_programs_not_densified", "visited_wholly"]

# Loops over this many elements may visit all of them although an operand stores few; in programs, so many.
_SMALL = 1 << 20
_SMALL_IN_PROGRAMS = 1 << 27
_MOST_PER_ENTRY = 16


class Visited(NamedTuple):
    """A sparse tensor all of whose coordinates along some loops are visited, and how often these run."""

    tensor: str
    loops: list[str]
    visits: int


def visited_wholly(
    query: Mapping[str, Any], extents: Mapping[str, int], sparse: Mapping[str, int], small: int = _SMALL
) -> Visited | None:
    """What a planned loop nest visits wholly although it is sparse, as what it does not store counts, too, if that are
    more than `small` visits, and 16 for each entry. `sparse` has the entries of sparse tensors and results."""
    # A dense operand that leads a loop, or is united with others there, has every coordinate.
    every = set(query["whole_range"])
    for access in query["accesses"]:
        if access["tensor"] not in sparse:
            walks = zip(access["indices"], access["protocols"], strict=True)
            every |= {index for index, protocol in walks if protocol == "walk"}
    visits = math.prod(extents[loop] for loop in every)
    for access in query["accesses"]:
        loops = every & set(access["indices"])
        if loops and visits > max(small, _MOST_PER_ENTRY * sparse.get(access["tensor"], math.inf)):
            return Visited(access["tensor"], sorted(loops), visits)
    return None


def check_programs_not_densified(
    plan: Mapping[str, Any], inputs: Mapping[str, tuple[list[int], float, float]], sizes: Mapping[str, int]
) -> None:
    """Raises PlanError where loops of a program visit very many elements that its sparse tensors do not store. `inputs`
    have shape, fill and entries, `sizes` extents of indices that no tensor has."""
    shapes = {name: shape for name, (shape, _, _) in inputs.items()}
    sparse = {name: math.ceil(nnz) for name, (shape, _, nnz) in inputs.items() if nnz < math.prod(shape)}
    for logical, query in zip(plan["logical"], plan["physical"], strict=True):
        extents = defaultdict(int, sizes)  # of an index that nothing reads, as a range is empty, 0
        for tensor, indices in leaves_of(logical["expr"]):
            extents |= dict(zip(indices, shapes[tensor], strict=True))
        shapes[logical["name"]] = [extents[index] for index in logical["output"]]
        if any(level != "dense" for level in query["formats"]):
            sparse[logical["name"]] = math.ceil(logical["nnz_agg"])
        found = visited_wholly(query, extents, sparse, _SMALL_IN_PROGRAMS)
        if found is not None:
            raise PlanError(
                f"sparse program: elements that a sparse tensor does not store count here, so that all are visited: "
                f"query={logical['name']}, tensor={found.tensor}, indices={found.loops}, visits={found.visits:.3g}; "
                f"give a fill that the map keeps (0 for *, inf for + under min; a product with the reciprocal in the "
                f"place of a division), or a tensor that stores all"
            )
