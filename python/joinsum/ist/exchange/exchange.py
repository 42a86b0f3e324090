"""Runs the plans of a round on what the sites of this process have: the cut, the exchange, and the whole model."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch

from joinsum import _C
from joinsum.algebra.plan import IaPlan
from joinsum.algebra.stored_relation import StoredRelation
from joinsum.cluster.trace import Trace
from joinsum.distributed.distributed_tensor import DistributedTensor
from joinsum.execution.relation import Relation, relation
from joinsum.frontend.empty_models import initial_value
from joinsum.ist.exchange.ahead import Ahead
from joinsum.ist.exchange.buddies import Buddies, Cuts
from joinsum.ist.exchange.copies import Key
from joinsum.ist.exchange.grouping import grouped
from joinsum.ist.exchange.options import Options
from joinsum.ist.exchange.relations import (
    Assignments,
    Homes,
    Trained,
    exchanged,
    first_round,
    located,
    restored,
    rounded,
    trained_sites,
)
from joinsum.ist.exchange.reslicing import following
from joinsum.ist.exchange.resting_ahead import RestingAhead
from joinsum.ist.exchange.site_plans import Draft, SitePlans, remedy_named
from joinsum.ist.exchange.survivors import BundleRecord
from joinsum.ist.exchange.trained_blocks import TrainedBlocks
from joinsum.ist.exchange.whole_tensors import WholeTensors
from joinsum.ist.subnets.averages import Averages
from joinsum.ist.subnets.bundles import Bundle, Slice
from joinsum.ist.subnets.sampling import Chunks
from joinsum.ist.subnets.subnets import Subnets

__all__ = ["Exchange"]


@dataclass(frozen=True)
class _Arrived:
    """The results of a round's plan."""

    bundles: Sequence[Bundle]
    found: Mapping[str, StoredRelation]
    copy_sites: Mapping[Cuts, dict[Key, int]]
    means: dict[Slice, torch.Tensor]


class Exchange:
    """The relations of all bundles between rounds: what rests is stored here, what is trained is in the subnets.

    ahead   runs what moves while a round trains, if anything shall
    """

    def __init__(
        self, subnets: Subnets, chunks: Mapping[str, Chunks], options: Options, ahead: Ahead | None = None
    ) -> None:
        self._subnets = subnets
        self._chunks = chunks
        self._options = options
        self._plans = plans = SitePlans()
        self._has_copies = options.buddy and plans.context.sites > 1
        self._ahead = None if ahead is None else RestingAhead(plans, options, ahead)
        self._blocks = TrainedBlocks(subnets, chunks)
        self._wholes = WholeTensors(plans, chunks, subnets.shapes)
        self._buddies = Buddies(plans, chunks)
        self._trained: dict[Bundle, _C.PhysicalType] = {}
        self._resting: dict[Bundle, StoredRelation] = {}
        self._arrived: _Arrived | None = None

    @property
    def ahead_bytes(self) -> int:
        """Bytes between sites of what moves while this round trains."""
        return 0 if self._ahead is None else self._ahead.bytes

    @property
    def resting_bytes(self) -> int:
        """Bytes of what rests on the sites of this process, and of copies."""
        stored = (*self._resting.values(), *self._buddies.stored.values())
        return sum(block.nbytes for each in stored for block in each.blocks())

    # --- the first cut ------------------------------------------------------------------------------------------------

    def begin(self, bundles: Sequence[Bundle], whole: Mapping[Slice, torch.Tensor], assignments: Assignments) -> None:
        """Cuts whole tensors for the first round: plain ones, which every process has, or those of `whole_tensors`."""
        for bundle in bundles:
            arrays = [whole[each] for each in bundle.slices]
            if any(isinstance(array, DistributedTensor) for array in arrays):
                stored = self._wholes.stored(bundle, arrays)
                self._begin_by_plan(bundle, self._first(bundle, relation(stored, name="whole"), assignments))
            else:
                arrays = [initial_value("IST", array) if array.is_meta else array for array in arrays]
                exposed = [array.reshape(bundle.shape) for array in arrays]
                self._begin_here(bundle, exposed, assignments)
        if self._ahead is not None:
            self._ahead.prepare(self._resting)

    def _first(self, bundle: Bundle, whole: Relation, assignments: Assignments) -> Draft:
        """The relations of a bundle's first round, as outputs named by what they are."""
        relations = first_round(bundle, whole, assignments, self._options.homes)
        draft = Draft({"whole": whole}, {"trained": relations.trained})
        if relations.resting is not None:
            place = self._plans.by_site if self._options.homes == "migrating" else None
            draft.add_output("resting", relations.resting, place)
        if self._has_copies:
            owners = _owners(bundle, assignments, None if relations.resting is None else relations.resting.type)
            draft.add_output("copies", self._buddies.first(bundle, whole, owners), self._plans.by_site)
        return draft

    def _begin_by_plan(self, bundle: Bundle, first: Draft) -> None:
        outputs = self._plans.run(first)
        self._receive(bundle, outputs["trained"])
        for name, stored in (("resting", self._resting), ("copies", self._buddies.stored)):
            if name in outputs:
                stored[bundle] = outputs[name]

    def _begin_here(self, bundle: Bundle, arrays: Sequence[torch.Tensor], assignments: Assignments) -> None:
        """Takes what this process's sites have of whole arrays, without a plan, which would copy all of them."""
        first = self._first(bundle, self._wholes.empty(bundle), assignments)
        divided = self._plans.along(0)
        self._trained[bundle] = self._plans.placed(first.outputs["trained"].type, divided)
        self._blocks.cut(bundle, arrays, assignments)
        for name, stored in (("resting", self._resting), ("copies", self._buddies.stored)):
            if name in first.outputs:
                type_ = self._plans.placed(first.outputs[name].type, first.places.get(name, divided))
                stored[bundle] = self._stored_here(bundle, arrays, type_)

    def _stored_here(self, bundle: Bundle, arrays: Sequence[torch.Tensor], type_: _C.PhysicalType) -> StoredRelation:
        """The tuples of a relation <site, h, ...> or <h, ...> that this process's sites store, of whole arrays."""
        here = set(self._subnets.sites)
        tuples = []
        for key in type_.relation.all_keys():
            if here.isdisjoint(type_.sites_of(key)):
                continue
            tile = list(arrays)
            for (layer, axis), chunk in zip(bundle.cuts, key[-len(bundle.cuts) :], strict=True):
                begin, extent = self._chunks[layer].starts[chunk], self._chunks[layer].sizes[chunk]
                tile = [each.narrow(axis, begin, extent) for each in tile]
            tuples.append((key, torch.stack(tile)))
        return self._plans.stored(tuples, type_)

    # --- rounds -------------------------------------------------------------------------------------------------------

    def start_ahead(self, after: Assignments) -> None:
        """Begins to move what rests to the sites that train it in the next round, where that is possible and has not
        begun in this round. All sites do so in each round, sooner or later."""
        if self._ahead is not None:
            self._ahead.start(self._resting, after)

    def check_ahead(self) -> None:
        """Raises the error of what moves ahead, if it has failed."""
        if self._ahead is not None:
            self._ahead.check()

    def _settle(self) -> None:
        """Waits for what moves ahead."""
        if self._ahead is not None:
            self._ahead.settle(self._resting)

    def step(
        self, travelling: Sequence[Bundle], before: Assignments, after: Assignments, averages: Averages[Slice]
    ) -> dict[Slice, torch.Tensor]:
        """Writes back what was trained, and fetches what the next round trains; the means.

        With copies nothing of the former round is dropped before all sites have what the next one needs: where a site
        is lost, the others have either round whole.
        """
        traces = []
        self._settle()
        if self._ahead is not None:
            moved, trace = self._ahead.end_round()
            self._resting |= moved
            traces.append(trace)
        self._follow(travelling, before)
        current = self._plans.context
        means: dict[Slice, torch.Tensor] = {}
        for bundles, shared in self._grouped(averages):
            draft, copy_sites = self._round(bundles, before, after, shared)
            found = self._plans.run(draft)
            traces.append(current.last_trace if draft.outputs else Trace())
            self._arrived = _Arrived(bundles, found, copy_sites, shared.means(found))
            if not self._has_copies:
                means |= self.advance()
        current.last_trace = Trace(itertools.chain(*traces))
        if not self._has_copies:
            return means
        if not current.single_process:
            with remedy_named():
                current.transport.agree("IST", "the exchange has ended")
        return self.advance()

    def _grouped(self, averages: Averages[Slice]) -> list[tuple[list[Bundle], Averages[Slice]]]:
        """Bundles that travel together, with copies all, and what is averaged with them."""
        if self._has_copies:
            return [(list(self._trained), averages)]
        first, *others = grouped(self._trained, self._chunks) or [[]]
        return [(first, averages), *((bundles, Averages[Slice]({}, [])) for bundles in others)]

    def advance(self) -> dict[Slice, torch.Tensor]:
        """Begins the round whose weights have arrived; the means."""
        arrived, self._arrived = self._arrived, None
        assert arrived is not None
        for bundle in arrived.bundles:
            if self._options.wire_name(bundle.dtype) is not None:
                parts = [arrived.found[f"{bundle.name}_{part}"] for part in ("next", "moved_next")]
                self._blocks.receive_tuples(bundle, self._trained[bundle].relation, parts)
            else:
                self._receive(bundle, arrived.found[f"{bundle.name}_next"])
            if bundle in self._resting:
                self._resting[bundle] = arrived.found[f"{bundle.name}_rest_next"]
            if bundle in self._buddies.stored:
                self._buddies.stored[bundle] = arrived.found[f"{bundle.name}_copies_next"]
        self._buddies.sites |= arrived.copy_sites
        return arrived.means

    def _receive(self, bundle: Bundle, trained: StoredRelation) -> None:
        self._trained[bundle] = trained.type
        self._blocks.receive(bundle, trained)

    def plan(
        self, travelling: Sequence[Bundle], before: Assignments, after: Assignments, averages: Averages[Slice]
    ) -> IaPlan | None:
        """The plan that `step` would run; None where nothing travels."""
        self._settle()
        here = self._copy()
        if self._ahead is not None:
            here._resting |= self._ahead.moved
        here._follow(travelling, before)
        draft, _ = here._round(list(here._trained), before, after, averages)
        return here._plans.lowered(draft) if draft.outputs else None

    def _round(
        self, bundles: Sequence[Bundle], before: Assignments, after: Assignments, averages: Averages[Slice]
    ) -> tuple[Draft, dict[Cuts, dict[Key, int]]]:
        """A round's plan, and the sites of the copies that it makes."""
        draft = Draft(replicated=averages.outputs)
        copy_sites: dict[Cuts, dict[Key, int]] = {}
        for bundle in bundles:
            # Copies go on after the round, while what they are of is trained.
            has_copies = bundle in self._buddies.stored
            now = self._relations(bundle, draft.inputs, in_place=not has_copies)
            resting = self._add_trained(draft, bundle, now, before, after)
            if resting is not None:
                place = self._plans.by_site if self._options.homes == "migrating" else None
                draft.add_output(f"{bundle.name}_rest_next", resting, place)
            if has_copies:
                chosen = self._buddies.choose(bundle, self._owners(bundle, before), before, after)
                self._buddies.add(draft, bundle, located(bundle, now, before), chosen)
                copy_sites[bundle.cuts] = chosen.sites()
        averages.add(draft.inputs, draft.outputs)
        return draft, copy_sites

    def _add_trained(
        self, draft: Draft, bundle: Bundle, now: Trained, before: Assignments, after: Assignments
    ) -> Relation | None:
        """Adds what is trained next; what rests then."""
        wire = self._options.wire_name(bundle.dtype)
        if wire is None:
            then = exchanged(bundle, now, before, after, self._options.homes)
            draft.add_output(f"{bundle.name}_next", then.trained)
            return then.resting
        stays, moves, resting = rounded(bundle, now, before, after, wire)
        # Of the positions some are missing in each of the two.
        place = self._plans.divided_on(self._chunks[bundle.cuts[0][0]].count)
        draft.add_output(f"{bundle.name}_next", stays, place)
        draft.add_output(f"{bundle.name}_moved_next", moves, place)
        return resting

    def _relations(self, bundle: Bundle, inputs: dict[str, Relation], in_place: bool = False) -> Trained:
        """The bundle's relations as inputs of a plan.

        in_place   whether results of the plan may have the memory of what is trained
        """
        trained = relation(self._blocks.stored(bundle, self._trained[bundle], in_place), name=bundle.name)
        inputs[bundle.name] = trained
        if bundle not in self._resting:
            return Trained(trained, None)
        resting = relation(self._resting[bundle], name=f"{bundle.name}_rest")
        inputs[f"{bundle.name}_rest"] = resting
        return Trained(trained, resting)

    def _owners(self, bundle: Bundle, assignments: Assignments) -> dict[Key, int]:
        resting = self._resting.get(bundle)
        if self._options.homes == "fixed" and resting is not None:
            # Of what is trained there is the value of the round's beginning.
            homes = {tuple(key): resting.type.sites_of(key)[0] for key in resting.type.relation.all_keys()}
            return homes | trained_sites(bundle, assignments)
        return _owners(bundle, assignments, None if resting is None else resting.type.relation)

    def _copy(self) -> Exchange:
        """The same relations, to plan with others of their slices and change nothing here."""
        other = Exchange(self._subnets, self._chunks, self._options)
        other._trained, other._resting, other._buddies = dict(self._trained), dict(self._resting), self._buddies.copy()
        return other

    def _follow(self, bundles: Sequence[Bundle], assignments: Assignments) -> None:
        """Takes up other slices, as after the optimizer's first step: what rests has the state of new parameters."""
        if list(bundles) == list(self._trained):
            return
        trained, resting, copies = self._trained, self._resting, self._buddies.stored
        self._trained, self._resting, self._buddies.stored = {}, {}, {}
        for bundle in bundles:
            if bundle in trained:
                self._trained[bundle] = trained[bundle]
            else:
                first = first_round(bundle, self._wholes.empty(bundle), assignments, self._options.homes)
                self._trained[bundle] = self._plans.placed(first.trained.type, self._plans.along(0))
            for former, stored in ((resting, self._resting), (copies, self._buddies.stored)):
                found = following(bundle, former, self._subnets, self._plans)
                if found is not None:
                    stored[bundle] = found

    # --- the whole model ----------------------------------------------------------------------------------------------

    def whole_tensors(
        self, wanted: Sequence[Bundle], assignments: Assignments, averages: Averages[Slice]
    ) -> tuple[dict[Slice, DistributedTensor], dict[Slice, torch.Tensor]]:
        """Unsharded tensors in the order of their neurons, each site holding a part of the first cut axis; and the
        means. Changes nothing."""
        self._settle()
        here = self._copy()
        here._follow(wanted, assignments)
        tensors: dict[Slice, DistributedTensor] = {}
        means: dict[Slice, torch.Tensor] = {}
        for bundles, shared in here._grouped(averages):
            draft = Draft(replicated=shared.outputs)
            for bundle in bundles:
                whole = restored(bundle, here._relations(bundle, draft.inputs), assignments, self._options.homes)
                draft.add_output(f"{bundle.name}_whole", whole, self._wholes.place(bundle))
            shared.add(draft.inputs, draft.outputs)
            found = here._plans.run(draft)
            for bundle in bundles:
                tensors |= self._wholes.tensors(bundle, found[f"{bundle.name}_whole"])
            means |= shared.means(found)
        return tensors, means

    # --- survivors ----------------------------------------------------------------------------------------------------

    def records(self, site: int, bundles: Sequence[Bundle], assignments: Assignments) -> list[BundleRecord]:
        """What a site of this process has of each of these bundles."""
        self._settle()
        here = self._copy()  # training may go on with what moves ahead, whose slices are those that it had
        here._follow(bundles, assignments)
        return [here._record(bundle, site, assignments) for bundle in here._trained]

    def _record(self, bundle: Bundle, site: int, assignments: Assignments) -> BundleRecord:
        trained = bundle.by_chunk(torch.stack(self._blocks.arrays(bundle, site)), assignments, site)
        resting = _of_site(self._resting.get(bundle), site, self._options.homes)
        copies = _of_site(self._buddies.stored.get(bundle), site, "migrating")
        copy_sites = self._buddies.sites.get(bundle.cuts, {})
        return BundleRecord(bundle, self._owners(bundle, assignments), copy_sites, resting | trained, copies)


def _owners(bundle: Bundle, assignments: Assignments, resting: _C.RelationType | None) -> dict[Key, int]:
    """The site that has the last value of each block.

    resting   <site, h, g>, of those that rest
    """
    owners = trained_sites(bundle, assignments)
    if resting is not None:
        owners |= {tuple(key[1:]): key[0] for key in resting.all_keys()}
    return owners


def _of_site(stored: StoredRelation | None, site: int, homes: Homes) -> dict[Key, torch.Tensor]:
    """The arrays of a relation <site, ...> that a site has, or with fixed homes of <h, ...>."""
    if stored is None:
        return {}
    if homes == "fixed":
        return {tuple(key): array for key, array in stored.local_tuples() if site in stored.type.sites_of(key)}
    return {key[1:]: array for key, array in stored.local_tuples() if key[0] == site}
