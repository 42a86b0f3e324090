"""What is stored of bundles whose slices change, as after the optimizer's first step: what rests then has the state of
new parameters."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from joinsum.algebra.stored_relation import StoredRelation
from joinsum.execution.relation import relation
from joinsum.ist.exchange.site_plans import SitePlans, empty
from joinsum.ist.subnets.bundles import Bundle
from joinsum.ist.subnets.subnets import Subnets

__all__ = ["following"]


def following(
    bundle: Bundle, former: Mapping[Bundle, StoredRelation], subnets: Subnets, plans: SitePlans
) -> StoredRelation | None:
    """What is stored of a bundle, of those that were stored before; None where nothing is of its layers."""
    if bundle in former:
        return former[bundle]
    alike = {each: stored for each, stored in former.items() if (each.cuts, each.shape) == (bundle.cuts, bundle.shape)}
    return _resliced(alike, bundle, subnets, plans) if alike else None


def _resliced(
    former: Mapping[Bundle, StoredRelation], new: Bundle, subnets: Subnets, plans: SitePlans
) -> StoredRelation:
    """What is stored of a bundle, with the slices of others that have the same layers; where they are new, what the
    optimizer starts with."""
    stored = next(iter(former.values()))
    old_type = stored.type.relation
    arrays = {
        tuple(key): empty([len(new.slices), *old_type.array_shape(key)[1:]], new.dtype) for key in old_type.all_keys()
    }
    links = [axis.key_dim for axis in old_type.axes]
    type_ = plans.placed(relation(arrays, links=links).type, stored.type.placement)
    sources = [
        next(((old.slices.index(each), former[old].blocks()) for old in former if each in old.slices), None)
        for each in new.slices
    ]
    first = [
        subnets.first_element(each) if source is None else None
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
