"""What the sites that survive the loss of another one have between them, and the full model that it makes.

A record is what one site has: its blocks, the copies that it keeps, and where all blocks and copies are. Records are
written to files, one for each site, or stay in memory; other processes, on any number of sites, put them together.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from joinsum.base.errors import CheckpointError
from joinsum.base.files import replaced_atomically
from joinsum.ist.exchange.copies import Key
from joinsum.ist.subnets.bundles import Bundle, Slice

__all__ = ["BundleRecord", "Record", "holders", "last_records", "write_record"]

_FORMAT = "joinsum subnet 2"


@dataclass(frozen=True)
class BundleRecord:
    """A bundle on one site.

    owners   the site of each block; copies the site of its copy
    arrays   of the blocks and of the copies that this site has, stacked as the bundle says
    """

    bundle: Bundle
    owners: Mapping[Key, int]
    copies: Mapping[Key, int]
    arrays: Mapping[Key, torch.Tensor]
    copied_arrays: Mapping[Key, torch.Tensor]

    def array(self, key: Key) -> torch.Tensor:
        """A block that this site has, or its copy."""
        return self.arrays[key] if key in self.arrays else self.copied_arrays[key]


@dataclass(frozen=True)
class Record:
    """What one site has.

    steps            that every site has taken before this round
    values, states   tensors that no layer cuts, and the optimizer's states: of cut parameters the numbers alone
    groups           the options of the optimizer's parameter groups
    """

    site: int
    sites: int
    round: int
    steps: int
    seed: int
    chunks: Mapping[str, int]
    bundles: Sequence[BundleRecord]
    values: Mapping[str, torch.Tensor]
    states: Mapping[str, Mapping[str, Any]]
    groups: Sequence[Mapping[str, Any]]


def holders(record: BundleRecord, alive: Iterable[int]) -> dict[Key, int]:
    """For each block a surviving site that has it, or its copy. Raises CheckpointError where both are lost."""
    living = set(alive)
    found = {}
    for key, owner in record.owners.items():
        site = owner if owner in living else record.copies.get(key, owner)
        if site not in living:
            raise CheckpointError(
                "IST: weights are lost with all their copies; start again from the last checkpoint (load_checkpoint): "
                f"tensor={record.bundle.slices[0].tensor}, chunks={key}, sites that had it="
                f"{sorted({owner, record.copies.get(key, owner)})}, sites that are left={sorted(living)}"
            )
        found[key] = site
    return found


def write_record(folder: Path, record: Record) -> None:
    """Writes a site's record as `site_<number>.pt` in the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    plain = {
        "format": _FORMAT,
        **{name: getattr(record, name) for name in ("site", "sites", "round", "steps", "seed")},
        "chunks": dict(record.chunks),
        "bundles": [_plain(each) for each in record.bundles],
        "values": dict(record.values),
        "states": {name: dict(state) for name, state in record.states.items()},
        "groups": [{key: value for key, value in group.items() if key != "params"} for group in record.groups],
    }
    with replaced_atomically(folder / f"site_{record.site}.pt") as name:
        torch.save(plain, name)


def last_records(folder: Path, sites: int) -> list[Record]:
    """The records of a folder that are of one training and of its last round, for so many sites to go on with. Raises
    CheckpointError where there is none, and for those of different trainings or with fewer chunks than sites."""
    found = [_read_record(path) for path in _record_files(folder).values()]
    # Files of an earlier loss may be there too: those of the last round count, and of the fewest sites.
    last = max((record.round, -record.sites) for record in found)
    records = [record for record in found if (record.round, -record.sites) == last]
    first = records[0]
    if any((each.seed, each.chunks) != (first.seed, first.chunks) for each in records):
        raise CheckpointError(f"{folder}: files of different trainings: sites={[each.site for each in records]}")
    if any(_slices(each) != _slices(first) for each in records):
        sites_text = f"sites={[each.site for each in records]}"
        raise CheckpointError(
            f"{folder}: the sites have states of the optimizer for different parameters: {sites_text}"
        )
    fewest = min(first.chunks.values())
    if sites > fewest:
        what = f"sites={sites}, chunks of a layer={fewest}"
        raise CheckpointError(f"{folder}: fewer chunks than sites; start on fewer ranks: {what}")
    return records


def _slices(record: Record) -> list[tuple[Slice, ...]]:
    return [each.bundle.slices for each in record.bundles]


def _record_files(folder: Path) -> dict[int, Path]:
    """The files of a folder, by site. Raises CheckpointError where there is none."""
    files = {int(path.stem.removeprefix("site_")): path for path in sorted(folder.glob("site_*.pt"))}
    if not files:
        raise CheckpointError(f"{folder}: no site has written its weights there (IST.save_survivor)")
    return files


def _read_record(path: Path) -> Record:
    """A site's record. Raises CheckpointError for a file of something else."""
    try:
        plain = torch.load(path, weights_only=True)
    except (RuntimeError, EOFError, OSError, pickle.UnpicklingError) as error:
        raise CheckpointError(f"{path}: it cannot be read: {error}") from error
    if not isinstance(plain, dict) or plain.pop("format", None) != _FORMAT:
        raise CheckpointError(f"{path}: not the weights of a site (IST.save_survivor)")
    return Record(**{**plain, "bundles": [_bundle_record(each) for each in plain["bundles"]]})


def _plain(record: BundleRecord) -> dict[str, Any]:
    bundle = record.bundle
    return {
        "bundle": [bundle.name, list(bundle.shape), [list(each) for each in bundle.cuts], bundle.dtype],
        "slices": [[each.tensor, each.state] for each in bundle.slices],
        "owners": [[list(key), site] for key, site in record.owners.items()],
        "copies": [[list(key), site] for key, site in record.copies.items()],
        "arrays": [[list(key), array.contiguous()] for key, array in record.arrays.items()],
        "copied_arrays": [[list(key), array.contiguous()] for key, array in record.copied_arrays.items()],
    }


def _bundle_record(plain: Mapping[str, Any]) -> BundleRecord:
    name, shape, cuts, dtype = plain["bundle"]
    slices = tuple(Slice(*each) for each in plain["slices"])
    bundle = Bundle(name, tuple(shape), tuple((layer, axis) for layer, axis in cuts), dtype, slices)
    tables = (
        {tuple(key): value for key, value in plain[each]} for each in ("owners", "copies", "arrays", "copied_arrays")
    )
    return BundleRecord(bundle, *tables)
