"""The copies that sites keep of each other's blocks, from round to round."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from joinsum.algebra.stored_relation import StoredRelation
from joinsum.execution.relation import Relation, relation
from joinsum.ist.exchange.copies import CopyChoice, Key, choose_copies, first_copies
from joinsum.ist.exchange.relations import Assignments, copied, trained_sites
from joinsum.ist.exchange.site_plans import Draft, SitePlans
from joinsum.ist.subnets.bundles import Bundle
from joinsum.ist.subnets.sampling import Chunks

__all__ = ["Buddies"]

Cuts = tuple[tuple[str, int], ...]


class Buddies:
    """The relations <site, h> or <site, h, g> of copies, and which site has which.

    stored   by bundle; empty where no copies are kept
    sites    for the cuts of a bundle, the site of each block's copy
    """

    def __init__(self, plans: SitePlans, chunks: Mapping[str, Chunks]) -> None:
        self._plans = plans
        self._chunks = chunks
        self.stored: dict[Bundle, StoredRelation] = {}
        self.sites: dict[Cuts, dict[Key, int]] = {}

    def copy(self) -> Buddies:
        """The same copies, for a plan that changes nothing here."""
        other = Buddies(self._plans, self._chunks)
        other.stored, other.sites = dict(self.stored), dict(self.sites)
        return other

    def first(self, bundle: Bundle, whole: Relation, owners: Mapping[Key, int]) -> Relation:
        """The copies at the beginning, of the whole bundle; notes where they are."""
        chosen = first_copies(self._counts(bundle), owners, self._plans.context.sites)
        self.sites[bundle.cuts] = chosen.sites()
        dims = [1 + axis for _, axis in bundle.cuts]
        return copied(whole.rekey(lambda *key: (0, *(key[dim] for dim in dims))), None, chosen)

    def choose(self, bundle: Bundle, owners: Mapping[Key, int], before: Assignments, after: Assignments) -> CopyChoice:
        """Which copies are made for the next round, by the sites that have the blocks at the end of this one."""
        trained, following = trained_sites(bundle, before), trained_sites(bundle, after)
        sites = self._plans.context.sites
        return choose_copies(self._counts(bundle), owners, trained, following, self.sites[bundle.cuts], sites)

    def add(self, draft: Draft, bundle: Bundle, tuples: Relation, chosen: CopyChoice) -> None:
        """Adds the copies of the next round to a plan, of tuples that `relations.located` gives."""
        name = f"{bundle.name}_copies"
        copies = None
        if not all(chosen.fresh):
            copies = draft.inputs[name] = relation(self.stored[bundle], name=name)
        draft.add_output(f"{name}_next", copied(tuples, copies, chosen), self._plans.by_site)

    def _counts(self, bundle: Bundle) -> Sequence[int]:
        return [self._chunks[layer].count for layer, _ in bundle.cuts]
