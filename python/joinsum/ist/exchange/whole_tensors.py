"""Whole tensors in the order of their neurons, each site holding a part of the first cut axis."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch

from joinsum import _C
from joinsum.algebra.stored_relation import StoredRelation
from joinsum.distributed.distributed_tensor import DistributedTensor
from joinsum.execution.relation import Relation, relation
from joinsum.ist.exchange.copies import Key
from joinsum.ist.exchange.relations import placed_in
from joinsum.ist.exchange.site_plans import Draft, SitePlans, empty
from joinsum.ist.exchange.survivors import BundleRecord
from joinsum.ist.subnets.bundles import Bundle, Slice, without_key_axes
from joinsum.ist.subnets.sampling import Chunks

__all__ = ["WholeTensors"]


class WholeTensors:
    """The relation of a bundle's whole tensors, R<h> or R<h, g>, and the distributed tensors that it is made of.

    shapes   of the tensors, by name
    """

    def __init__(self, plans: SitePlans, chunks: Mapping[str, Chunks], shapes: Mapping[str, torch.Size]) -> None:
        self._plans = plans
        self._chunks = chunks
        self._shapes = shapes

    def empty(self, bundle: Bundle) -> Relation:
        """The relation, of which only the type counts."""
        stacked = empty([len(bundle.slices), *bundle.shape], bundle.dtype)
        return relation(stacked, parts=bundle.parts(self._chunks), name="whole")

    def place(self, bundle: Bundle) -> list[int]:
        """Where the relation is: chunks of the first cut axis are divided among the sites."""
        return self._plans.along(1 + bundle.cuts[0][1])

    def stored(self, bundle: Bundle, tensors: Sequence[torch.Tensor]) -> StoredRelation:
        """The relation of distributed tensors, one for each slice."""
        of_sites = zip(*(tensor.stored.blocks() for tensor in tensors), strict=True)  # type: ignore[attr-defined]
        blocks = [torch.stack(list(site)) for site in of_sites]
        return StoredRelation.of_blocks(blocks, self._plans.placed(self.empty(bundle).type, self.place(bundle)))

    def tensors(self, bundle: Bundle, stored: StoredRelation) -> dict[Slice, DistributedTensor]:
        """The distributed tensors of the relation."""
        type_ = stored.type.relation
        arrays = [without_key_axes(block, type_, range(type_.rank)) for block in stored.blocks()]
        one = self._tensor_type(bundle)
        found = {}
        for place, each in enumerate(bundle.slices):
            blocks = [array[place].contiguous() for array in arrays]
            found[each] = DistributedTensor(StoredRelation.of_blocks(blocks, one), self._shapes[each.tensor])
        return found

    def _tensor_type(self, bundle: Bundle) -> _C.PhysicalType:
        """Of one of the bundle's tensors, with the same elements on each site in as few parts as there can be."""
        layer, axis = bundle.cuts[0]
        parts = [1] * len(bundle.shape)
        parts[axis] = self._chunks[layer].sites if self._chunks[layer].even else self._chunks[layer].count
        tensor = relation(empty(bundle.shape, bundle.dtype), parts=parts)
        return self._plans.placed(tensor.type, self._plans.along(axis))

    def assembled(
        self, records: Mapping[int, BundleRecord], held: Mapping[Key, int], new_sites: Mapping[int, int]
    ) -> dict[Slice, DistributedTensor]:
        """The tensors of a bundle, put together from what sites have that are left after a loss. Collective.

        records     those of this process, by the former site; one at least
        held        the former site that has each block
        new_sites   of the former sites
        """
        bundle = next(iter(records.values())).bundle
        sites = {key: new_sites[former] for key, former in held.items()}
        here = set(self._plans.context.local_sites)
        tiles = {(site, *key): empty(self._tile_shape(bundle, key), bundle.dtype) for key, site in sites.items()}
        type_ = self._plans.placed(relation(tiles).type, self._plans.by_site)
        tuples = []
        for key, former in held.items():
            if sites[key] in here:
                found = records[former].array(key)
                array = found.reshape(len(bundle.slices), *found.shape[-len(bundle.shape) :])
                tuples.append(([sites[key], *key], array))
        located = relation(self._plans.stored(tuples, type_), name="located")
        rank, dims = 1 + len(bundle.shape), [1 + axis for _, axis in bundle.cuts]
        whole = located.rekey(lambda _, *key: placed_in(rank, dims, key))
        draft = Draft({"located": located}, {"whole": whole}, {"whole": self.place(bundle)})
        return self.tensors(bundle, self._plans.run(draft)["whole"])

    def _tile_shape(self, bundle: Bundle, key: Key) -> list[int]:
        shape = [len(bundle.slices), *bundle.shape]
        for (layer, axis), chunk in zip(bundle.cuts, key, strict=True):
            shape[1 + axis] = self._chunks[layer].sizes[chunk]
        return shape
