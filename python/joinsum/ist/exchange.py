"""Runs the plans of a round on what the sites of this process have: the cut, the exchange, and the whole model."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch

from joinsum import _C
from joinsum.algebra.plan import IaPlan, lower, plan
from joinsum.algebra.stored_relation import Place, StoredRelation, resolve_place
from joinsum.base.dtypes import dtype_name
from joinsum.base.errors import TransportError
from joinsum.cluster.context import context
from joinsum.cluster.trace import Trace
from joinsum.distributed.distributed_tensor import DistributedTensor
from joinsum.execution.relation import Relation, relation
from joinsum.execution.run import run
from joinsum.frontend.empty_models import initial_value
from joinsum.ist.ahead import Ahead
from joinsum.ist.averages import Averages
from joinsum.ist.bundles import Bundle, Slice, without_key_axes
from joinsum.ist.copies import Key, choose_copies, first_copies
from joinsum.ist.relations import (
    Assignments,
    Homes,
    Trained,
    ahead,
    copied,
    exchanged,
    first_round,
    located,
    placed_in,
    restored,
    rounded,
)
from joinsum.ist.sampling import Chunks
from joinsum.ist.subnets import Subnets
from joinsum.ist.survivors import BundleRecord

__all__ = ["ALONE_BYTES", "TOGETHER_BYTES", "Exchange"]

# What a site has under way at once, beside its tensors: weights and states that have left their tensors and those that
# arrive. More travels one part after another.
TOGETHER_BYTES = 64 << 20

# Larger tensors than this are bundles of their own: plans read them in their memory where stacked ones are copied.
ALONE_BYTES = 1 << 20

_REMEDY = (
    "; where a site is lost, go on with IST.recover (buddy=True) or from the last checkpoint, as it had the only copy "
    "of what it trained; where sites differ, they took other numbers of steps or have other optimizer state (a "
    "GradScaler skipped a step, a parameter had no gradient)"
)


@dataclass
class _Round:
    """A round's plan as it is built."""

    inputs: dict[str, Relation] = field(default_factory=dict)
    outputs: dict[str, Relation] = field(default_factory=dict)
    places: dict[str, Place] = field(default_factory=dict)
    copy_sites: dict[tuple[tuple[str, int], ...], dict[Key, int]] = field(default_factory=dict)


@dataclass
class _First:
    """The relations of a bundle's first round, by what they are, and where those end that are not divided alike."""

    whole: Relation
    relations: dict[str, Relation]
    places: dict[str, Place]


@dataclass(frozen=True)
class _Arrived:
    """The results of a round's plan."""

    bundles: Sequence[Bundle]
    found: Mapping[str, StoredRelation]
    copy_sites: Mapping[tuple[tuple[str, int], ...], dict[Key, int]]
    means: dict[Slice, torch.Tensor]


class Exchange:
    """The relations of all bundles between rounds: what rests is stored here, what is trained is in the subnets."""

    def __init__(
        self,
        subnets: Subnets,
        chunks: Mapping[str, Chunks],
        homes: Homes,
        copies: bool,
        wire: torch.dtype | None = None,
        overlap: bool = False,
    ) -> None:
        self._subnets = subnets
        self._ahead = Ahead() if overlap and homes == "migrating" and not copies else None
        self._chunks = chunks
        self._homes = homes
        self._wire = wire
        self._has_copies = copies and context().sites > 1
        self._context = context()
        self._split = [0] * len(self._context.grid.axes)
        self._trained: dict[Bundle, _C.PhysicalType] = {}
        self._resting: dict[Bundle, StoredRelation] = {}
        self._copies: dict[Bundle, StoredRelation] = {}
        self._copy_sites: dict[tuple[tuple[str, int], ...], dict[Key, int]] = {}
        self._arrived: _Arrived | None = None
        self._has_begun = False  # to move it
        self._moved: dict[Bundle, StoredRelation] = {}  # what rests, where it is from the end of the round on

    @property
    def ahead_bytes(self) -> int:
        """Bytes between sites of what moves while this round trains."""
        return 0 if self._ahead is None else self._ahead.bytes

    @property
    def resting_bytes(self) -> int:
        """Bytes of what rests on the sites of this process, and of copies."""
        stored = (*self._resting.values(), *self._copies.values())
        return sum(block.nbytes for each in stored for block in each.blocks())

    # --- the first cut ------------------------------------------------------------------------------------------------

    def begin(self, bundles: Sequence[Bundle], whole: Mapping[Slice, torch.Tensor], assignments: Assignments) -> None:
        """Cuts whole tensors for the first round: plain ones, which every process has, or those of `whole_tensors`."""
        for bundle in bundles:
            arrays = [whole[each] for each in bundle.slices]
            if any(isinstance(array, DistributedTensor) for array in arrays):
                of_sites = zip(*(array.stored.blocks() for array in arrays), strict=True)  # type: ignore[attr-defined]
                blocks = [torch.stack(list(site)) for site in of_sites]
                stored = StoredRelation.of_blocks(blocks, self._whole_type(bundle))
                self._begin_by_plan(bundle, self._first(bundle, relation(stored, name="whole"), assignments))
            else:
                arrays = [initial_value("IST", array) if array.is_meta else array for array in arrays]
                exposed = [array.reshape(bundle.shape) for array in arrays]
                self._begin_here(bundle, exposed, assignments)

    def _first(self, bundle: Bundle, whole: Relation, assignments: Assignments) -> _First:
        """The relations of a bundle's first round."""
        relations = first_round(bundle, whole, assignments, self._homes)
        first = _First(whole, {"trained": relations.trained}, {})
        if relations.resting is not None:
            first.relations["resting"] = relations.resting
            if self._homes == "migrating":
                first.places["resting"] = self._by_site
        if self._has_copies:
            owners = _trained_sites(bundle, assignments)
            if relations.resting is not None:
                owners |= {tuple(key[1:]): key[0] for key in relations.resting.type.all_keys()}
            chosen = first_copies(self._counts(bundle), owners, self._context.sites)
            dims = [1 + axis for _, axis in bundle.cuts]
            first.relations["copies"] = copied(whole.rekey(lambda *key: (0, *(key[dim] for dim in dims))), None, chosen)
            first.places["copies"] = self._by_site
            self._copy_sites[bundle.cuts] = chosen.sites()
        return first

    def _begin_by_plan(self, bundle: Bundle, first: _First) -> None:
        outputs = self._run(first.relations, {"whole": first.whole}, places=first.places)
        self._receive(bundle, outputs["trained"])
        for name, stored in (("resting", self._resting), ("copies", self._copies)):
            if name in outputs:
                stored[bundle] = outputs[name]

    def _begin_here(self, bundle: Bundle, arrays: Sequence[torch.Tensor], assignments: Assignments) -> None:
        """Takes what this process's sites have of whole arrays, without a plan, which would copy all of them."""
        first = self._first(bundle, self._empty_whole(bundle), assignments)
        self._trained[bundle] = self._placed(first.relations["trained"].type, self._split)
        for site in self._subnets.sites:
            for each, array in zip(bundle.slices, arrays, strict=True):
                for layer, axis in bundle.cuts:
                    own = torch.tensor(assignments[layer].neurons(site), device=array.device)
                    array = array.index_select(axis, own)
                target = self._subnets.array(site, each)
                target.copy_(array.view(target.shape))
        for name, stored in (("resting", self._resting), ("copies", self._copies)):
            if name in first.relations:
                type_ = self._placed(first.relations[name].type, first.places.get(name, self._split))
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
        return self._stored(tuples, type_)

    def _stored(self, tuples: Sequence[tuple[list[int], torch.Tensor]], type_: _C.PhysicalType) -> StoredRelation:
        """A relation of the tuples that this process's sites have."""
        current = self._context
        core = _C.place_tuples(tuples, type_, current.local_sites, current.store, False)
        return StoredRelation(core, current, type_)

    @property
    def _by_site(self) -> str:
        """The placement of tuples <site, ...>, of which some sites may have none."""
        return self._divided_on(self._context.sites)

    def _divided_on(self, domain: int) -> str:
        """The placement of tuples that are divided by their first key dimension as if it had so many keys."""
        return f"({', '.join([f'0:{domain}'] * len(self._split))})"

    def _counts(self, bundle: Bundle) -> list[int]:
        return [self._chunks[layer].count for layer, _ in bundle.cuts]

    # --- rounds -------------------------------------------------------------------------------------------------------

    def start_ahead(self, after: Assignments) -> None:
        """Begins to move what rests to the sites that train it in the next round, where that is possible and has not
        begun in this round. Collective."""
        if self._ahead is None or not self._ahead.possible or self._has_begun:
            return
        self._has_begun = True
        outputs: dict[str, Relation] = {}
        inputs: dict[str, StoredRelation] = {}
        for bundle, stored in self._resting.items():
            if _moves_ahead(bundle, stored, after):
                inputs[bundle.name] = stored
                stays, moves = ahead(bundle, relation(stored, name=bundle.name), after)
                wire = self._wire_name(bundle)
                if wire is None:
                    outputs[f"{bundle.name}_ahead"] = stays.upsert(moves)
                else:
                    outputs[f"{bundle.name}_stays"] = stays
                    outputs[f"{bundle.name}_moved"] = moves.transform(f"cast[{wire}]")
        if outputs:
            physical = self._lowered(outputs, [], dict.fromkeys(outputs, self._by_site))
            self._ahead.start(physical, inputs)

    def check_ahead(self) -> None:
        """Raises the error of what moves ahead, if it has failed."""
        if self._ahead is not None:
            with _remedy_named():
                self._ahead.check()

    def _settle(self) -> None:
        """Waits for what moves ahead. Until the round ends, the model is what it was: on the wire, values may have been
        rounded."""
        if self._ahead is None:
            return
        with _remedy_named():
            found = self._ahead.settle()
        parts: dict[str, Relation] = {}
        outputs: dict[str, Relation] = {}
        for bundle in self._resting:
            names = [f"{bundle.name}_{part}" for part in ("stays", "moved")]
            if names[0] in found:
                stays, moved = (relation(found[name], name=name) for name in names)
                parts |= zip(names, (stays, moved), strict=True)
                own = dtype_name("IST", bundle.dtype)
                outputs[f"{bundle.name}_ahead"] = stays.upsert(moved.transform(f"cast[{own}]"))
        found |= self._run(outputs, parts, places=dict.fromkeys(outputs, self._by_site))
        self._moved |= {
            bundle: found[f"{bundle.name}_ahead"] for bundle in self._resting if f"{bundle.name}_ahead" in found
        }

    def step(
        self, travelling: Sequence[Bundle], before: Assignments, after: Assignments, averages: Averages[Slice]
    ) -> dict[Slice, torch.Tensor]:
        """Writes back what was trained, and fetches what the next round trains; the means.

        With copies nothing of the former round is dropped before all sites have what the next one needs: where a site
        is lost, the others have either round whole.
        """
        self._settle()
        self._resting |= self._moved
        self._moved, self._has_begun = {}, False
        self._follow(travelling, before)
        traces = [self._ahead.end_of_round()] if self._ahead is not None else []
        means: dict[Slice, torch.Tensor] = {}
        for bundles, shared in self._grouped(averages):
            round_ = self._round(bundles, before, after, shared)
            found = self._run(round_.outputs, round_.inputs, replicated=shared.outputs, places=round_.places)
            traces.append(self._context.last_trace if round_.outputs else Trace())
            self._arrived = _Arrived(bundles, found, round_.copy_sites, shared.means(found))
            if not self._has_copies:
                means |= self.advance()
        self._context.last_trace = Trace(itertools.chain(*traces))
        if not self._has_copies:
            return means
        if not self._context.single_process:
            with _remedy_named():
                self._context.transport.agree("IST", "the exchange has ended")
        return self.advance()

    def _grouped(self, averages: Averages[Slice]) -> list[tuple[list[Bundle], Averages[Slice]]]:
        """Bundles that travel together, and what is averaged with them: with copies all, otherwise as many as keep what
        is under way below a limit."""
        if self._has_copies:
            return [(list(self._trained), averages)]
        groups: list[list[Bundle]] = []
        size = 0
        for bundle in self._trained:
            own = bundle.local_bytes(self._chunks, 0)  # equal on all ranks
            if not groups or size + own > TOGETHER_BYTES:
                groups.append([])
                size = 0
            groups[-1].append(bundle)
            size += own
        return [
            (bundles, averages if number == 0 else Averages[Slice]({}, []))
            for number, bundles in enumerate(groups or [[]])
        ]

    def advance(self) -> dict[Slice, torch.Tensor]:
        """Begins the round whose weights have arrived; the means."""
        arrived, self._arrived = self._arrived, None
        assert arrived is not None
        for bundle in arrived.bundles:
            if self._wire_name(bundle) is not None:
                parts = [arrived.found[f"{bundle.name}_{part}"] for part in ("next", "moved_next")]
                self._receive_tuples(bundle, parts)
            else:
                self._receive(bundle, arrived.found[f"{bundle.name}_next"])
            if bundle in self._resting:
                self._resting[bundle] = arrived.found[f"{bundle.name}_rest_next"]
            if bundle in self._copies:
                self._copies[bundle] = arrived.found[f"{bundle.name}_copies_next"]
        self._copy_sites |= arrived.copy_sites
        return arrived.means

    def plan(
        self, travelling: Sequence[Bundle], before: Assignments, after: Assignments, averages: Averages[Slice]
    ) -> IaPlan | None:
        """The plan that `step` would run; None where nothing travels."""
        self._settle()
        here = self._copy()
        here._resting |= self._moved
        here._follow(travelling, before)
        round_ = here._round(list(here._trained), before, after, averages)
        return here._lowered(round_.outputs, averages.outputs, round_.places) if round_.outputs else None

    def _round(
        self, bundles: Sequence[Bundle], before: Assignments, after: Assignments, averages: Averages[Slice]
    ) -> _Round:
        round_ = _Round()
        for bundle in bundles:
            # Copies go on after the round, while what they are of is trained.
            now = self._relations(bundle, round_.inputs, in_place=bundle not in self._copies)
            wire = self._wire_name(bundle)
            if wire is not None:
                stays, moves, resting = rounded(bundle, now, before, after, wire)
                for name, part in ((f"{bundle.name}_next", stays), (f"{bundle.name}_moved_next", moves)):
                    # of the positions some are missing in each of the two
                    round_.outputs[name], round_.places[name] = part, self._divided_on(self._counts(bundle)[0])
            else:
                then = exchanged(bundle, now, before, after, self._homes)
                round_.outputs[f"{bundle.name}_next"], resting = then.trained, then.resting
            if resting is not None:
                round_.outputs[f"{bundle.name}_rest_next"] = resting
                if self._homes == "migrating":
                    round_.places[f"{bundle.name}_rest_next"] = self._by_site
            if bundle in self._copies:
                self._add_copies(bundle, now, before, after, round_)
        averages.add(round_.inputs, round_.outputs)
        return round_

    def _add_copies(
        self, bundle: Bundle, now: Trained, before: Assignments, after: Assignments, round_: _Round
    ) -> None:
        trained = _trained_sites(bundle, before)
        owners, sites = self._owners(bundle, before), self._context.sites
        following, former = _trained_sites(bundle, after), self._copy_sites[bundle.cuts]
        chosen = choose_copies(self._counts(bundle), owners, trained, following, former, sites)
        name = f"{bundle.name}_copies"
        copies = None
        if not all(chosen.fresh):
            copies = round_.inputs[name] = relation(self._copies[bundle], name=name)
        round_.outputs[f"{name}_next"] = copied(located(bundle, now, before), copies, chosen)
        round_.places[f"{name}_next"] = self._by_site
        round_.copy_sites[bundle.cuts] = chosen.sites()

    def _owners(self, bundle: Bundle, assignments: Assignments) -> dict[Key, int]:
        """The site that has the last value of each block."""
        owners = _trained_sites(bundle, assignments)
        if bundle in self._resting:
            owners |= {tuple(key[1:]): key[0] for key in self._resting[bundle].type.relation.all_keys()}
        return owners

    def _copy(self) -> Exchange:
        other = Exchange(self._subnets, self._chunks, self._homes, self._has_copies, self._wire)
        other._trained, other._resting = dict(self._trained), dict(self._resting)
        other._copies, other._copy_sites = dict(self._copies), dict(self._copy_sites)
        return other

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
            outputs: dict[str, Relation] = {}
            inputs: dict[str, Relation] = {}
            places: dict[str, Place] = {}
            for bundle in bundles:
                name = f"{bundle.name}_whole"
                outputs[name] = restored(bundle, here._relations(bundle, inputs), assignments, self._homes)
                places[name] = [1 + bundle.cuts[0][1]] * len(self._split)
            shared.add(inputs, outputs)
            found = here._run(outputs, inputs, replicated=shared.outputs, places=places)
            for bundle in bundles:
                tensors |= self._whole(bundle, found[f"{bundle.name}_whole"])
            means |= shared.means(found)
        return tensors, means

    def _whole(self, bundle: Bundle, stored: StoredRelation) -> dict[Slice, DistributedTensor]:
        type_ = stored.type.relation
        arrays = [without_key_axes(block, type_, range(type_.rank)) for block in stored.blocks()]
        one = self._tensor_type(bundle)
        found = {}
        for place, each in enumerate(bundle.slices):
            blocks = [array[place].contiguous() for array in arrays]
            shape = self._subnets.shapes[each.tensor]
            found[each] = DistributedTensor(StoredRelation.of_blocks(blocks, one), shape)
        return found

    def _whole_type(self, bundle: Bundle) -> _C.PhysicalType:
        """Of the bundle in the order of its neurons: chunks of the first cut axis are divided among the sites."""
        return self._placed(self._empty_whole(bundle).type, [1 + bundle.cuts[0][1]] * len(self._split))

    def _tensor_type(self, bundle: Bundle) -> _C.PhysicalType:
        """Of one of the bundle's tensors, with the same elements on each site in as few parts as there can be."""
        layer, axis = bundle.cuts[0]
        parts = [1] * len(bundle.shape)
        parts[axis] = self._chunks[layer].sites if self._chunks[layer].even else self._chunks[layer].count
        tensor = relation(_empty(bundle.shape, bundle.dtype), parts=parts)
        return self._placed(tensor.type, [axis] * len(self._split))

    def _empty_whole(self, bundle: Bundle) -> Relation:
        """The bundle in the order of its neurons, of which only the type counts."""
        stacked = _empty([len(bundle.slices), *bundle.shape], bundle.dtype)
        return relation(stacked, parts=bundle.parts(self._chunks), name="whole")

    # --- survivors ----------------------------------------------------------------------------------------------------

    def records(self, site: int, bundles: Sequence[Bundle], assignments: Assignments) -> list[BundleRecord]:
        """What a site of this process has of each of these bundles."""
        self._settle()
        self._follow(bundles, assignments)
        return [
            BundleRecord(
                bundle,
                self._owners(bundle, assignments),
                self._copy_sites.get(bundle.cuts, {}),
                bundle.by_chunk(torch.stack(self._arrays(bundle, site)), assignments, site)
                | _of_site(self._resting.get(bundle), site),
                _of_site(self._copies.get(bundle), site),
            )
            for bundle in self._trained
        ]

    def assembled(
        self, records: Mapping[int, BundleRecord], held: Mapping[Key, int], new_sites: Mapping[int, int]
    ) -> dict[Slice, DistributedTensor]:
        """The whole tensors of a bundle.

        records     those of this process, by the former site; one at least
        held        the former site that has each block
        new_sites   of the former sites
        """
        bundle = next(iter(records.values())).bundle
        sites = {key: new_sites[former] for key, former in held.items()}
        here = set(self._context.local_sites)
        empty = {(site, *key): _empty(self._tile_shape(bundle, key), bundle.dtype) for key, site in sites.items()}
        type_ = self._placed(relation(empty).type, self._by_site)
        tuples = []
        for key, former in held.items():
            if sites[key] in here:
                found = records[former].array(key)
                array = found.reshape(len(bundle.slices), *found.shape[-len(bundle.shape) :])
                tuples.append(([sites[key], *key], array))
        located_tuples = relation(self._stored(tuples, type_), name="located")
        rank, dims = 1 + len(bundle.shape), [1 + axis for _, axis in bundle.cuts]
        whole = located_tuples.rekey(lambda _, *key: placed_in(rank, dims, key))
        places: dict[str, Place] = {"whole": [dims[0]] * len(self._split)}
        stored = self._run({"whole": whole}, {"located": located_tuples}, places=places)["whole"]
        return self._whole(bundle, stored)

    def _tile_shape(self, bundle: Bundle, key: Key) -> list[int]:
        shape = [len(bundle.slices), *bundle.shape]
        for (layer, axis), chunk in zip(bundle.cuts, key, strict=True):
            shape[1 + axis] = self._chunks[layer].sizes[chunk]
        return shape

    # --- relations ----------------------------------------------------------------------------------------------------

    def _relations(self, bundle: Bundle, inputs: dict[str, Relation], in_place: bool = False) -> Trained:
        """The bundle's relations as inputs of a plan.

        in_place   whether results of the plan may have the memory of what is trained
        """
        type_ = self._trained[bundle]
        blocks = [block for site in self._subnets.sites for block in self._blocks(bundle, type_, site, in_place)]
        trained = relation(StoredRelation.of_blocks(blocks, type_), name=bundle.name)
        inputs[bundle.name] = trained
        if bundle not in self._resting:
            return Trained(trained, None)
        resting = relation(self._resting[bundle], name=f"{bundle.name}_rest")
        inputs[f"{bundle.name}_rest"] = resting
        return Trained(trained, resting)

    def _blocks(self, bundle: Bundle, type_: _C.PhysicalType, site: int, in_place: bool) -> list[torch.Tensor]:
        views = self._views(bundle, type_.relation, site) if in_place else None
        return views or bundle.blocks(self._arrays(bundle, site), type_.relation, self._chunks, site)

    def _views(self, bundle: Bundle, type_: _C.RelationType, site: int) -> list[torch.Tensor] | None:
        """The blocks of a site in the memory of its tensors; None where they have another order."""
        arrays = [self._subnets.array(site, each) for each in bundle.slices]
        if not all(array.is_contiguous() for array in arrays):
            return None
        return bundle.views(self._arrays(bundle, site), type_, self._chunks, site)

    def _arrays(self, bundle: Bundle, site: int) -> list[torch.Tensor]:
        """What a site trains of a bundle, an array for each slice: views where memory is contiguous."""
        shape = bundle.local_shape(self._chunks, site)[1:]
        return [self._subnets.array(site, each).reshape(shape) for each in bundle.slices]

    def _receive(self, bundle: Bundle, trained: StoredRelation) -> None:
        """Writes what the sites train next into their tensors."""
        self._trained[bundle] = trained.type
        blocks = iter(self._apart(bundle, trained.blocks()))
        for site in self._subnets.sites:
            self._write(bundle, site, [next(blocks) for _ in range(bundle.tiles(self._chunks, site))])

    def _receive_tuples(self, bundle: Bundle, parts: Sequence[StoredRelation]) -> None:
        """The same of relations that have the tuples between them, in any dtype."""
        type_ = self._trained[bundle].relation
        found = [each for stored in parts for each in stored.core().tuples()]
        arrays = self._apart(bundle, [array for _, array in found])
        arrived = {tuple(key): array for (key, _), array in zip(found, arrays, strict=True)}
        for site in self._subnets.sites:
            views = self._views(bundle, type_, site)
            blocks = views or bundle.empty_blocks(type_, self._chunks, site, self._context.device)
            for key, part in bundle.tuples_of_blocks(blocks, type_, self._chunks, site).items():
                part.copy_(arrived[key])
            if views is None:
                self._write(bundle, site, blocks)

    def _apart(self, bundle: Bundle, found: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Results of a plan, copied where they have the memory of the tensors that they will be written into."""
        own = {
            self._subnets.array(site, each).untyped_storage().data_ptr()
            for site in self._subnets.sites
            for each in bundle.slices
        }
        return [array.clone() if array.untyped_storage().data_ptr() in own else array for array in found]

    def _write(self, bundle: Bundle, site: int, blocks: Sequence[torch.Tensor]) -> None:
        """Writes the blocks of a site into its tensors."""
        shape = bundle.local_shape(self._chunks, site)[1:]
        arrays = [self._subnets.array(site, each) for each in bundle.slices]
        targets = [array if array.is_contiguous() else torch.empty_like(array).contiguous() for array in arrays]
        views = [target.view(shape) for target in targets]
        bundle.read_blocks(blocks, self._trained[bundle].relation, self._chunks, site, views)
        for array, target in zip(arrays, targets, strict=True):
            if array is not target:  # in another memory format, such as channels_last
                array.copy_(target)

    def _wire_name(self, bundle: Bundle) -> str | None:
        """The smaller dtype to which what moves of a bundle is cast, as plans name it; None where it is not."""
        if self._wire is None or self._wire.itemsize >= bundle.dtype.itemsize:
            return None
        return dtype_name("IST", self._wire)

    def _follow(self, bundles: Sequence[Bundle], assignments: Assignments) -> None:
        """Takes up other slices, as after the optimizer's first step: what rests has the state of new parameters."""
        if list(bundles) == list(self._trained):
            return
        trained, resting, copies = self._trained, self._resting, self._copies
        self._trained, self._resting, self._copies = {}, {}, {}
        for bundle in bundles:
            if bundle in trained:
                self._trained[bundle] = trained[bundle]
            else:
                type_ = first_round(bundle, self._empty_whole(bundle), assignments, self._homes).trained.type
                self._trained[bundle] = self._placed(type_, self._split)
            for former, stored in ((resting, self._resting), (copies, self._copies)):
                found = self._following(bundle, former)
                if found is not None:
                    stored[bundle] = found

    def _following(self, bundle: Bundle, former: Mapping[Bundle, StoredRelation]) -> StoredRelation | None:
        """What is stored of a bundle, of those that were stored before; None where nothing is of its layers."""
        if bundle in former:
            return former[bundle]
        alike = [each for each in former if (each.cuts, each.shape) == (bundle.cuts, bundle.shape)]
        if not alike:
            return None
        return self._resliced({each: former[each] for each in alike}, bundle)

    def _resliced(self, former: Mapping[Bundle, StoredRelation], new: Bundle) -> StoredRelation:
        """What is stored of a bundle, with the slices of others that have the same layers; where they are new, what the
        optimizer starts with."""
        stored = next(iter(former.values()))
        old_type = stored.type.relation
        arrays = {
            tuple(key): _empty([len(new.slices), *old_type.array_shape(key)[1:]], new.dtype)
            for key in old_type.all_keys()
        }
        links = [axis.key_dim for axis in old_type.axes]
        type_ = self._placed(relation(arrays, links=links).type, stored.type.placement)
        sources = [
            next(((old.slices.index(each), former[old].blocks()) for old in former if each in old.slices), None)
            for each in new.slices
        ]
        first = [
            self._subnets.first_element(each) if source is None else None
            for each, source in zip(new.slices, sources, strict=True)
        ]
        blocks = []
        for number, block in enumerate(stored.blocks()):
            lead = block.dim() - 1 - len(new.shape)
            shape = [*block.shape[:lead], len(new.slices), *block.shape[lead + 1 :]]
            target = torch.empty(shape, dtype=new.dtype, device=block.device)
            for place, (source, element) in enumerate(zip(sources, first, strict=True)):
                if source is not None:
                    target.select(lead, place).copy_(source[1][number].select(lead, source[0]))
                elif element is not None:
                    target.select(lead, place).copy_(element)
            blocks.append(target)
        return StoredRelation.of_blocks(blocks, type_)

    def _placed(self, type_: _C.RelationType, place: Place) -> _C.PhysicalType:
        grid = self._context.grid
        return _C.PhysicalType.placed("IST", type_, grid, resolve_place("IST", place, grid, type_.frontier))

    def _run(
        self,
        outputs: Mapping[str, Relation],
        inputs: Mapping[str, Relation],
        replicated: Sequence[str] = (),
        places: Mapping[str, Place] | None = None,
    ) -> dict[str, StoredRelation]:
        """Runs the plan of these outputs; they end divided along their first key dimension unless stated."""
        if not outputs:
            return {}
        physical = self._lowered(outputs, replicated, places or {})
        with _remedy_named():
            return run(physical, {name: inputs[name] for name in physical.inputs})

    def _lowered(
        self, outputs: Mapping[str, Relation], replicated: Sequence[str], places: Mapping[str, Place]
    ) -> IaPlan:
        wanted: dict[str, Place] = dict.fromkeys(outputs, self._split)
        wanted |= places
        wanted |= dict.fromkeys(replicated, "replicated")
        return lower(plan(ties=None, **outputs), output_place=wanted)


@contextmanager
def _remedy_named() -> Iterator[None]:
    """Says in a TransportError what to do."""
    try:
        yield
    except TransportError as error:
        raise TransportError(f"IST: no exchange of neurons: {error}{_REMEDY}") from error


def _moves_ahead(bundle: Bundle, resting: StoredRelation, after: Assignments) -> bool:
    """Whether another site than its own trains something of what rests in the next round."""
    first, second = (after[layer].site for layer, _ in bundle.cuts)
    return any(first[h] == second[g] != site for site, h, g in resting.type.relation.all_keys())


def _trained_sites(bundle: Bundle, assignments: Assignments) -> dict[Key, int]:
    """The site of each block that is trained."""
    layers = [assignments[layer].site for layer, _ in bundle.cuts]
    if len(layers) == 1:
        return {(chunk,): site for chunk, site in enumerate(layers[0])}
    return {(h, g): site for h, site in enumerate(layers[0]) for g, other in enumerate(layers[1]) if site == other}


def _of_site(stored: StoredRelation | None, site: int) -> dict[Key, torch.Tensor]:
    """The arrays of a relation <site, ...> that a site has."""
    if stored is None:
        return {}
    return {key[1:]: array for key, array in stored.local_tuples() if key[0] == site}


def _empty(shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
    """A tensor of which only the shape counts; it takes no memory."""
    return torch.zeros((), dtype=dtype).expand(list(shape))
