"""Runs the plans of a round on what the sites of this process have: the cut, the exchange, and the whole model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch

from joinsum import _C
from joinsum.algebra.plan import IaPlan, lower, plan
from joinsum.algebra.stored_relation import Place, StoredRelation
from joinsum.base.errors import TransportError
from joinsum.cluster.context import context
from joinsum.distributed.distributed_tensor import DistributedTensor
from joinsum.execution.relation import Relation, relation
from joinsum.execution.run import run
from joinsum.ist.averages import Averages
from joinsum.ist.bundles import Bundle, Slice, without_key_axes
from joinsum.ist.relations import Assignments, Homes, Trained, exchanged, first_round, restored
from joinsum.ist.sampling import Chunks
from joinsum.ist.subnets import Subnets

__all__ = ["Exchange"]

_FAILED = (
    "IST: the exchange failed; a site that is lost had the only copy of the weights that it trained: start again from "
    "the last checkpoint (IST.load_checkpoint), on any number of sites: cause="
)


class Exchange:
    """The relations of all bundles between rounds: what rests is stored here, what is trained is in the subnets."""

    def __init__(self, subnets: Subnets, chunks: Mapping[str, Chunks], homes: Homes) -> None:
        self._subnets = subnets
        self._chunks = chunks
        self._homes = homes
        self._context = context()
        self._split = [0] * len(self._context.grid.axes)
        self._trained: dict[Bundle, _C.PhysicalType] = {}
        self._resting: dict[Bundle, StoredRelation] = {}

    @property
    def resting_bytes(self) -> int:
        """Bytes of what rests on the sites of this process."""
        return sum(block.nbytes for stored in self._resting.values() for block in stored.blocks())

    # --- the first cut ------------------------------------------------------------------------------------------------

    def begin(self, bundles: Sequence[Bundle], whole: Mapping[Slice, torch.Tensor], assignments: Assignments) -> None:
        """Cuts whole tensors for the first round: plain ones, which every process has, or those of `whole_tensors`."""
        for bundle in bundles:
            arrays = [whole[each] for each in bundle.slices]
            if any(isinstance(array, DistributedTensor) for array in arrays):
                of_sites = zip(*(array.stored.blocks() for array in arrays), strict=True)  # type: ignore[attr-defined]
                blocks = [torch.stack(list(site)) for site in of_sites]
                stored = StoredRelation.of_blocks(blocks, self._whole_type(bundle))
                first = relation(stored, name="whole")
            else:
                stacked = torch.stack([array.reshape(bundle.shape) for array in arrays])
                parts = bundle.parts(self._chunks)
                first = relation(stacked, parts=parts, place="replicated", name="whole")
            self._begin(bundle, first, assignments)

    def _begin(self, bundle: Bundle, whole: Relation, assignments: Assignments) -> None:
        relations = first_round(bundle, whole, assignments, self._homes)
        found = {"trained": relations.trained} | ({} if relations.resting is None else {"resting": relations.resting})
        outputs = self._run(found, {"whole": whole})
        self._receive(bundle, outputs["trained"])
        if "resting" in outputs:
            self._resting[bundle] = outputs["resting"]

    # --- rounds -------------------------------------------------------------------------------------------------------

    def step(
        self, travelling: Sequence[Bundle], before: Assignments, after: Assignments, averages: Averages[Slice]
    ) -> dict[Slice, torch.Tensor]:
        """Writes back what was trained, and fetches what the next round trains; the means."""
        self._follow(travelling, before)
        outputs, inputs = self._round(before, after, averages)
        found = self._run(outputs, inputs, replicated=averages.outputs)
        for bundle in list(self._trained):
            self._receive(bundle, found[f"{bundle.name}_next"])
            if bundle in self._resting:
                self._resting[bundle] = found[f"{bundle.name}_rest_next"]
        return averages.means(found)

    def plan(
        self, travelling: Sequence[Bundle], before: Assignments, after: Assignments, averages: Averages[Slice]
    ) -> IaPlan | None:
        """The plan that `step` would run; None where nothing travels."""
        here = self._copy()
        here._follow(travelling, before)
        outputs, _ = here._round(before, after, averages)
        return here._lowered(outputs, averages.outputs, {}) if outputs else None

    def _round(
        self, before: Assignments, after: Assignments, averages: Averages[Slice]
    ) -> tuple[dict[str, Relation], dict[str, Relation]]:
        """The outputs of a round's plan, and its inputs."""
        outputs: dict[str, Relation] = {}
        inputs: dict[str, Relation] = {}
        for bundle in self._trained:
            then = exchanged(bundle, self._relations(bundle, inputs), before, after, self._homes)
            outputs[f"{bundle.name}_next"] = then.trained
            if then.resting is not None:
                outputs[f"{bundle.name}_rest_next"] = then.resting
        averages.add(inputs, outputs)
        return outputs, inputs

    def _copy(self) -> Exchange:
        other = Exchange(self._subnets, self._chunks, self._homes)
        other._trained, other._resting = dict(self._trained), dict(self._resting)
        return other

    def whole_tensors(
        self, wanted: Sequence[Bundle], assignments: Assignments, averages: Averages[Slice]
    ) -> tuple[dict[Slice, DistributedTensor], dict[Slice, torch.Tensor]]:
        """Unsharded tensors in the order of their neurons, each site holding a part of the first cut axis; and the
        means. Changes nothing."""
        here = self._copy()
        here._follow(wanted, assignments)
        outputs: dict[str, Relation] = {}
        inputs: dict[str, Relation] = {}
        places = {}
        for bundle in here._trained:
            name = f"{bundle.name}_whole"
            outputs[name] = restored(bundle, here._relations(bundle, inputs), assignments, self._homes)
            places[name] = [1 + bundle.cuts[0][1]] * len(self._split)
        averages.add(inputs, outputs)
        found = here._run(outputs, inputs, replicated=averages.outputs, places=places)
        tensors: dict[Slice, DistributedTensor] = {}
        for bundle in here._trained:
            tensors |= self._whole(bundle, found[f"{bundle.name}_whole"])
        return tensors, averages.means(found)

    def _whole(self, bundle: Bundle, stored: StoredRelation) -> dict[Slice, DistributedTensor]:
        type_ = stored.type.relation
        arrays = [without_key_axes(block, type_, range(type_.rank)) for block in stored.blocks()]
        one = self._whole_type(replace(bundle, slices=bundle.slices[:1]), stacked=False)
        found = {}
        for place, each in enumerate(bundle.slices):
            blocks = [array[place].contiguous() for array in arrays]
            shape = self._subnets.shapes[each.tensor]
            found[each] = DistributedTensor(StoredRelation.of_blocks(blocks, one), shape)
        return found

    def _whole_type(self, bundle: Bundle, stacked: bool = True) -> _C.PhysicalType:
        """Of the bundle in the order of its neurons, or of one of its tensors: a part of the first cut axis on each
        site."""
        axis = bundle.cuts[0][1]
        shape, parts = list(bundle.shape), [1] * len(bundle.shape)
        parts[axis] = self._context.sites
        if stacked:
            axis, shape = axis + 1, [len(bundle.slices), *shape]
            parts = bundle.parts(self._chunks)
        return self._placed(relation(_empty(shape, bundle.dtype), parts=parts).type, axis)

    # --- relations ----------------------------------------------------------------------------------------------------

    def _relations(self, bundle: Bundle, inputs: dict[str, Relation]) -> Trained:
        """The bundle's relations as inputs of a plan."""
        type_ = self._trained[bundle]
        blocks = [block for site in self._subnets.sites for block in self._blocks(bundle, type_, site)]
        trained = relation(StoredRelation.of_blocks(blocks, type_), name=bundle.name)
        inputs[bundle.name] = trained
        if bundle not in self._resting:
            return Trained(trained, None)
        resting = relation(self._resting[bundle], name=f"{bundle.name}_rest")
        inputs[f"{bundle.name}_rest"] = resting
        return Trained(trained, resting)

    def _blocks(self, bundle: Bundle, type_: _C.PhysicalType, site: int) -> list[torch.Tensor]:
        shape = bundle.local_shape(self._chunks, site)[1:]
        arrays = [self._subnets.array(site, each).reshape(shape) for each in bundle.slices]
        return bundle.blocks(torch.stack(arrays), type_.relation, self._chunks, site)

    def _receive(self, bundle: Bundle, trained: StoredRelation) -> None:
        """Writes what the sites train next into their tensors."""
        self._trained[bundle] = trained.type
        blocks = iter(trained.blocks())
        for site in self._subnets.sites:
            shape = bundle.local_shape(self._chunks, site)
            stacked = torch.empty(shape, dtype=bundle.dtype, device=self._context.device)
            own = [next(blocks) for _ in range(bundle.tiles(self._chunks, site))]
            bundle.stacked(own, trained.type.relation, self._chunks, site, stacked)
            for each, array in zip(bundle.slices, stacked, strict=True):
                target = self._subnets.array(site, each)
                target.copy_(array.view(target.shape))

    def _follow(self, bundles: Sequence[Bundle], assignments: Assignments) -> None:
        """Takes up other slices, as after the optimizer's first step: what rests has zeros for new ones."""
        if list(bundles) == list(self._trained):
            return
        trained, resting = self._trained, self._resting
        self._trained, self._resting = {}, {}
        for bundle in bundles:
            if bundle in trained:
                self._trained[bundle] = trained[bundle]
            else:
                empty = relation(
                    _empty([len(bundle.slices), *bundle.shape], bundle.dtype), parts=bundle.parts(self._chunks)
                )
                type_ = first_round(bundle, empty, assignments, self._homes).trained.type
                self._trained[bundle] = self._placed(type_, 0)
            if bundle in resting:
                self._resting[bundle] = resting[bundle]
                continue
            alike = [each for each in resting if (each.cuts, each.shape) == (bundle.cuts, bundle.shape)]
            if alike:
                found = next((each for each in alike if each.dtype is bundle.dtype), alike[0])
                self._resting[bundle] = self._resliced(found, resting[found], bundle)

    def _resliced(self, old: Bundle, stored: StoredRelation, new: Bundle) -> StoredRelation:
        """What rests of a bundle with the slices of another that rests on the same sites."""
        old_type = stored.type.relation
        arrays = {
            tuple(key): _empty([len(new.slices), *old_type.array_shape(key)[1:]], new.dtype)
            for key in old_type.all_keys()
        }
        links = [axis.key_dim for axis in old_type.axes]
        type_ = self._placed(relation(arrays, links=links).type, 0)
        blocks = []
        for block in stored.blocks():
            lead = block.dim() - 1 - len(old.shape)
            shape = [*block.shape[:lead], len(new.slices), *block.shape[lead + 1 :]]
            target = torch.zeros(shape, dtype=new.dtype, device=block.device)
            for place, each in enumerate(new.slices):
                if old.dtype is new.dtype and each in old.slices:
                    target.select(lead, place).copy_(block.select(lead, old.slices.index(each)))
            blocks.append(target)
        return StoredRelation.of_blocks(blocks, type_)

    def _placed(self, type_: _C.RelationType, dim: int) -> _C.PhysicalType:
        grid = self._context.grid
        placement = _C.Placement.fill(grid, [dim], type_.frontier)
        return _C.PhysicalType.placed("IST", type_, grid, placement)

    def _run(
        self,
        outputs: Mapping[str, Relation],
        inputs: Mapping[str, Relation],
        replicated: Sequence[str] = (),
        places: Mapping[str, list[int]] | None = None,
    ) -> dict[str, StoredRelation]:
        """Runs the plan of these outputs; they end divided along their first key dimension unless stated."""
        if not outputs:
            return {}
        physical = self._lowered(outputs, replicated, places or {})
        try:
            found = run(physical, {name: inputs[name] for name in physical.inputs})
        except TransportError as error:
            raise TransportError(f"{_FAILED}{error}") from error
        return found

    def _lowered(
        self, outputs: Mapping[str, Relation], replicated: Sequence[str], places: Mapping[str, list[int]]
    ) -> IaPlan:
        wanted: dict[str, Place] = dict.fromkeys(outputs, self._split)
        wanted |= places
        wanted |= dict.fromkeys(replicated, "replicated")
        return lower(plan(ties=None, **outputs), output_place=wanted)


def _empty(shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
    """A tensor of which only the shape counts; it takes no memory."""
    return torch.zeros((), dtype=dtype).expand(list(shape))
