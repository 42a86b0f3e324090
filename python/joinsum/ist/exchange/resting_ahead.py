"""Moves what rests in a round to the sites that train it in the next one, while the round trains."""

from __future__ import annotations

from collections.abc import Mapping

from joinsum.algebra.stored_relation import StoredRelation
from joinsum.base.dtypes import dtype_name
from joinsum.cluster.trace import Trace
from joinsum.execution.relation import relation
from joinsum.ist.exchange.ahead import Ahead
from joinsum.ist.exchange.options import Options
from joinsum.ist.exchange.relations import Assignments, ahead
from joinsum.ist.exchange.site_plans import Draft, SitePlans, remedy_named
from joinsum.ist.subnets.bundles import Bundle

__all__ = ["RestingAhead"]


class RestingAhead:
    """At most one such move in a round. What has moved does not rest elsewhere before the round ends: on the wire,
    values may have been rounded, and until then the model is what it was.

    moved   what has moved in this round, where it is from its end on
    """

    def __init__(self, plans: SitePlans, options: Options, ahead: Ahead) -> None:
        self._plans = plans
        self._options = options
        self._ahead = ahead
        self._has_begun = False
        self.moved: dict[Bundle, StoredRelation] = {}

    @property
    def bytes(self) -> int:
        """Bytes between sites of what moves while this round trains."""
        return self._ahead.bytes

    def prepare(self, resting: Mapping[Bundle, StoredRelation]) -> None:
        """Makes what moves need, where anything rests; collective."""
        if resting:
            self._ahead.prepare()

    def start(self, resting: Mapping[Bundle, StoredRelation], after: Assignments) -> None:
        """Begins to move what rests, where that is possible and has not begun in this round. All sites do so in each
        round, sooner or later."""
        if not self._ahead.possible or self._has_begun:
            return
        self._has_begun = True
        draft = Draft()
        inputs: dict[str, StoredRelation] = {}
        for bundle, stored in resting.items():
            if _has_to_move(bundle, stored, after):
                inputs[bundle.name] = stored
                stays, moves = ahead(bundle, relation(stored, name=bundle.name), after)
                wire = self._options.wire_name(bundle.dtype)
                if wire is None:
                    draft.add_output(f"{bundle.name}_ahead", stays.upsert(moves), self._plans.by_site)
                else:
                    draft.add_output(f"{bundle.name}_stays", stays, self._plans.by_site)
                    draft.add_output(f"{bundle.name}_moved", moves.transform(f"cast[{wire}]"), self._plans.by_site)
        if draft.outputs:
            self._ahead.start(self._plans.lowered(draft), inputs)

    def check(self) -> None:
        """Raises the error of a move that has failed."""
        with remedy_named():
            self._ahead.check()

    def settle(self, resting: Mapping[Bundle, StoredRelation]) -> None:
        """Waits for the move of what rests. Collective."""
        with remedy_named():
            found = self._ahead.settle()
        draft = Draft()
        for bundle in resting:
            names = [f"{bundle.name}_{part}" for part in ("stays", "moved")]
            if names[0] in found:
                stays, moved = (relation(found[name], name=name) for name in names)
                draft.inputs |= zip(names, (stays, moved), strict=True)
                own = dtype_name("IST", bundle.dtype)
                whole = stays.upsert(moved.transform(f"cast[{own}]"))
                draft.add_output(f"{bundle.name}_ahead", whole, self._plans.by_site)
        found |= self._plans.run(draft)
        self.moved |= {bundle: found[f"{bundle.name}_ahead"] for bundle in resting if f"{bundle.name}_ahead" in found}

    def end_round(self) -> tuple[dict[Bundle, StoredRelation], Trace]:
        """What has moved in the round, and what the moves did; the next round has none yet."""
        moved, self.moved, self._has_begun = self.moved, {}, False
        return moved, self._ahead.end_of_round()


def _has_to_move(bundle: Bundle, resting: StoredRelation, after: Assignments) -> bool:
    """Whether another site than its own trains something of what rests in the next round."""
    first, second = (after[layer].site for layer, _ in bundle.cuts)
    return any(first[h] == second[g] != site for site, h, g in resting.type.relation.all_keys())
