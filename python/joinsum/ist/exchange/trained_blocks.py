"""What the sites of this process train, as blocks of relations: read from and written into the subnets' tensors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch

from joinsum import _C
from joinsum.algebra.stored_relation import StoredRelation
from joinsum.cluster.context import context
from joinsum.ist.exchange.relations import Assignments
from joinsum.ist.subnets.bundles import Bundle
from joinsum.ist.subnets.sampling import Chunks
from joinsum.ist.subnets.subnets import Subnets

__all__ = ["TrainedBlocks"]


class TrainedBlocks:
    """The blocks in which the sites store a bundle's relation A<p> or A<p, q>."""

    def __init__(self, subnets: Subnets, chunks: Mapping[str, Chunks]) -> None:
        self._subnets = subnets
        self._chunks = chunks
        self._device = context().device

    def arrays(self, bundle: Bundle, site: int) -> list[torch.Tensor]:
        """What a site trains of a bundle, an array for each slice: views where memory is contiguous."""
        shape = bundle.local_shape(self._chunks, site)[1:]
        return [self._subnets.array(site, each).reshape(shape) for each in bundle.slices]

    def stored(self, bundle: Bundle, type_: _C.PhysicalType, in_place: bool) -> StoredRelation:
        """The bundle's relation.

        in_place   whether results of a plan may have the memory of what is trained
        """
        blocks = [block for site in self._subnets.sites for block in self._blocks(bundle, type_, site, in_place)]
        return StoredRelation.of_blocks(blocks, type_)

    def cut(self, bundle: Bundle, arrays: Sequence[torch.Tensor], assignments: Assignments) -> None:
        """Writes what the sites train of whole arrays, one for each slice."""
        for site in self._subnets.sites:
            for each, array in zip(bundle.slices, arrays, strict=True):
                for layer, axis in bundle.cuts:
                    own = torch.tensor(assignments[layer].neurons(site), device=array.device)
                    array = array.index_select(axis, own)
                target = self._subnets.array(site, each)
                target.copy_(array.view(target.shape))

    def receive(self, bundle: Bundle, trained: StoredRelation) -> None:
        """Writes what the sites train next into their tensors."""
        blocks = iter(self._apart(bundle, trained.blocks()))
        for site in self._subnets.sites:
            own = [next(blocks) for _ in range(bundle.tiles(self._chunks, site))]
            self._write(bundle, trained.type.relation, site, own)

    def receive_tuples(self, bundle: Bundle, type_: _C.RelationType, parts: Sequence[StoredRelation]) -> None:
        """The same of relations that have the tuples between them, in any dtype."""
        found = [each for stored in parts for each in stored.core().tuples()]
        arrays = self._apart(bundle, [array for _, array in found])
        arrived = {tuple(key): array for (key, _), array in zip(found, arrays, strict=True)}
        for site in self._subnets.sites:
            views = self._views(bundle, type_, site)
            blocks = views or bundle.empty_blocks(type_, self._chunks, site, self._device)
            targets = bundle.tuples_of_blocks(blocks, type_, self._chunks, site)
            torch._foreach_copy_([*targets.values()], [arrived[key] for key in targets])
            if views is None:
                self._write(bundle, type_, site, blocks)

    def _blocks(self, bundle: Bundle, type_: _C.PhysicalType, site: int, in_place: bool) -> list[torch.Tensor]:
        views = self._views(bundle, type_.relation, site) if in_place else None
        return views or bundle.blocks(self.arrays(bundle, site), type_.relation, self._chunks, site)

    def _views(self, bundle: Bundle, type_: _C.RelationType, site: int) -> list[torch.Tensor] | None:
        """The blocks of a site in the memory of its tensors; None where they have another order."""
        arrays = [self._subnets.array(site, each) for each in bundle.slices]
        if not all(array.is_contiguous() for array in arrays):
            return None
        return bundle.views(self.arrays(bundle, site), type_, self._chunks, site)

    def _apart(self, bundle: Bundle, found: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Results of a plan, copied where they have the memory of the tensors that they will be written into."""
        own = {
            self._subnets.array(site, each).untyped_storage().data_ptr()
            for site in self._subnets.sites
            for each in bundle.slices
        }
        return [array.clone() if array.untyped_storage().data_ptr() in own else array for array in found]

    def _write(self, bundle: Bundle, type_: _C.RelationType, site: int, blocks: Sequence[torch.Tensor]) -> None:
        """Writes the blocks of a site into its tensors."""
        shape = bundle.local_shape(self._chunks, site)[1:]
        arrays = [self._subnets.array(site, each) for each in bundle.slices]
        targets = [array if array.is_contiguous() else torch.empty_like(array).contiguous() for array in arrays]
        views = [target.view(shape) for target in targets]
        bundle.read_blocks(blocks, type_, self._chunks, site, views)
        for array, target in zip(arrays, targets, strict=True):
            if array is not target:  # in another memory format, such as channels_last
                array.copy_(target)
