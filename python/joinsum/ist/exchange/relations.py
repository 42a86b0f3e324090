"""A round in the tensor relational algebra.

A bundle cut by one layer is a relation of its chunks: R<h> is the unsharded model's, A<p> what the sites train, keyed
by the positions of a round. Sites own consecutive positions, so A is divided along its first key dimension. A bundle
cut by two layers is R<h, g>; a round trains the tuples whose two chunks are on one site, A<p, q>, and the others rest:
they are S<site, h, g>, each on the site where it was trained last.

    first     R is filtered and rekeyed into A and S
    exchange  A is rekeyed and written back into S by an upsert; the whole is filtered by the next round's assignment
              and rekeyed; one shuffle moves it
    ahead     S moves to the sites that train it next, while A is trained
    copy      of tuples whose only copy would be on one site another one is kept, <site, h, g>
    restore   A and S are rekeyed into R

With fixed homes R itself stays on the sites, divided along its first key dimension: a round trains copies of its
tuples, and an upsert returns them.

Source: TRA paper, sections 3 and 4 (the operators); thesis, section 2.3 (the rounds).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from joinsum.algebra.key_functions import lookup
from joinsum.execution.relation import Relation
from joinsum.ist.exchange.copies import CopyChoice, Key
from joinsum.ist.subnets.bundles import Bundle
from joinsum.ist.subnets.sampling import Assignment

__all__ = [
    *("Assignments", "Homes", "Trained", "ahead", "copied", "exchanged", "first_round", "located", "placed_in"),
    *("restored", "rounded", "trained_sites"),
]

Assignments = Mapping[str, Assignment]

# Where weights rest: on the site that trained them last, or each on a site of its own, to which it returns.
Homes = Literal["migrating", "fixed"]


@dataclass(frozen=True)
class Trained:
    """The relations of a bundle in a round: what the sites train, and what rests, if anything does."""

    trained: Relation
    resting: Relation | None


def trained_sites(bundle: Bundle, assignments: Assignments) -> dict[Key, int]:
    """The site of each block that is trained."""
    layers = [assignments[layer].site for layer, _ in bundle.cuts]
    if len(layers) == 1:
        return {(chunk,): site for chunk, site in enumerate(layers[0])}
    return {(h, g): site for h, site in enumerate(layers[0]) for g, other in enumerate(layers[1]) if site == other}


def first_round(bundle: Bundle, whole: Relation, assignments: Assignments, homes: Homes) -> Trained:
    """The first relations of a bundle, whose key is that of `joinsum.relation(stacked, parts=bundle.parts(...))`."""
    dims = [1 + axis for _, axis in bundle.cuts]
    layers = [assignments[layer] for layer, _ in bundle.cuts]
    if homes == "fixed":
        return _fetched(whole.rekey(lambda *key: tuple(key[dim] for dim in dims)), layers)
    if len(layers) == 1:
        (dim,), (only,) = dims, layers
        return Trained(whole.rekey(lambda *key: lookup(only.position, key[dim])), None)
    sites = layers[0].chunks.site_of_position
    return _parted(whole.rekey(lambda *key: (lookup(sites, key[dims[0]]), key[dims[0]], key[dims[1]])), layers)


def exchanged(bundle: Bundle, now: Trained, before: Assignments, after: Assignments, homes: Homes) -> Trained:
    """The relations of the next round."""
    old = [before[layer] for layer, _ in bundle.cuts]
    new = [after[layer] for layer, _ in bundle.cuts]
    if homes == "fixed":
        return _fetched(_returned(now, old), new)
    if len(old) == 1:
        moved = [new[0].position[chunk] for chunk in old[0].chunk]
        return Trained(now.trained.rekey(lambda p: lookup(moved, p)), None)
    return _parted(located(bundle, now, before), new)


def rounded(
    bundle: Bundle, now: Trained, before: Assignments, after: Assignments, dtype: str
) -> tuple[Relation, Relation, Relation | None]:
    """The relations of the next round, of which what moves is cast: the tuples <p> or <p, q> that stay on their site,
    those that move, and what rests."""
    layers = [after[layer] for layer, _ in bundle.cuts]
    meeting, resting = _split(located(bundle, now, before), layers)
    sites = layers[0].site
    stays = meeting.filter(lambda s, *key: lookup(sites, key[0]) == s)
    moves = meeting.filter(lambda s, *key: ~(lookup(sites, key[0]) == s))
    return _positioned(stays, layers), _positioned(moves, layers).transform(f"cast[{dtype}]"), resting


def ahead(bundle: Bundle, resting: Relation, after: Assignments) -> tuple[Relation, Relation]:
    """What rests, <site, h, g>: the tuples that stay in a round, and those that move to the sites that train them in
    the next one, keyed by these."""
    first, second = (after[layer] for layer, _ in bundle.cuts)

    def moves(s: Any, h: Any, g: Any) -> Any:
        return (lookup(first.site, h) == lookup(second.site, g)) & ~(lookup(first.site, h) == s)

    moved = resting.filter(moves).rekey(lambda _, h, g: (lookup(first.site, h), h, g))
    return resting.filter(lambda *key: ~moves(*key)), moved


def located(bundle: Bundle, now: Trained, assignments: Assignments) -> Relation:
    """All tuples <site, h> or <site, h, g>: those that were trained, on the sites that trained them, and those that
    rested."""
    layers = [assignments[layer] for layer, _ in bundle.cuts]
    sites, chunks = layers[0].chunks.site_of_position, [layer.chunk for layer in layers]
    trained = now.trained.rekey(
        lambda *key: (lookup(sites, key[0]), *(lookup(chunk, k) for chunk, k in zip(chunks, key, strict=True)))
    )
    return trained if now.resting is None else now.resting.upsert(trained)


def copied(tuples: Relation, copies: Relation | None, chosen: CopyChoice) -> Relation:
    """The copies <site, h> or <site, h, g> of the next round: some of `tuples`, which `located` gives, and the former
    ones of all others."""
    fresh, target = [int(each) for each in chosen.fresh], chosen.target
    taken = tuples.filter(lambda _, *key: lookup(fresh, chosen.number(key)) == 1).rekey(
        lambda _, *key: (lookup(target, chosen.number(key)), *key)
    )
    if copies is None:
        return taken
    return copies.filter(lambda _, *key: lookup(fresh, chosen.number(key)) == 0).upsert(taken)


def restored(bundle: Bundle, now: Trained, assignments: Assignments, homes: Homes) -> Relation:
    """The bundle in the order of its neurons, with the key that `first_round` reads."""
    rank = 1 + len(bundle.shape)
    dims = [1 + axis for _, axis in bundle.cuts]
    layers = [assignments[layer] for layer, _ in bundle.cuts]
    if homes == "fixed":
        return _returned(now, layers).rekey(lambda *key: placed_in(rank, dims, key))
    if len(layers) == 1:
        (only,) = layers
        return now.trained.rekey(lambda p: placed_in(rank, dims, [lookup(only.chunk, p)]))
    return located(bundle, now, assignments).rekey(lambda _, h, g: placed_in(rank, dims, [h, g]))


def _returned(now: Trained, layers: Sequence[Assignment]) -> Relation:
    """All tuples at their homes, with the values of those that were trained."""
    assert now.resting is not None
    pairs = [layer.chunk for layer in layers]
    return now.resting.upsert(
        now.trained.rekey(lambda *key: tuple(lookup(chunk, k) for chunk, k in zip(pairs, key, strict=True)))
    )


def _fetched(whole: Relation, layers: Sequence[Assignment]) -> Trained:
    """Copies of the tuples that a round trains; the whole stays."""
    return Trained(_positioned(_split(whole, layers)[0], layers), whole)


def _parted(whole: Relation, layers: Sequence[Assignment]) -> Trained:
    """The tuples that a round trains, and those that rest."""
    meeting, resting = _split(whole, layers)
    return Trained(_positioned(meeting, layers), resting)


def _split(whole: Relation, layers: Sequence[Assignment]) -> tuple[Relation, Relation | None]:
    """The tuples whose chunks, the last components of their keys, are on one site, and the others, if there may be
    any."""
    if len(layers) == 1:
        return whole, None
    first, second = layers
    return (
        whole.filter(lambda *key: lookup(first.site, key[-2]) == lookup(second.site, key[-1])),
        whole.filter(lambda *key: ~(lookup(first.site, key[-2]) == lookup(second.site, key[-1]))),
    )


def _positioned(tuples: Relation, layers: Sequence[Assignment]) -> Relation:
    """The tuples keyed by the positions of their chunks, which are the last components of their keys."""
    return tuples.rekey(
        lambda *key: tuple(lookup(layer.position, k) for layer, k in zip(layers, key[-len(layers) :], strict=True))
    )


def placed_in(rank: int, dims: Sequence[int], components: Sequence[Any]) -> tuple[Any, ...]:
    """A key of `rank` components: these at `dims`, and 0 elsewhere."""
    key: list[Any] = [0] * rank
    for dim, component in zip(dims, components, strict=True):
        key[dim] = component
    return tuple(key)
