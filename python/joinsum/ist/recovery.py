"""Goes on after the loss of sites: with those that are left in memory, or with what they have written to files."""

from __future__ import annotations

import json
import math
from pathlib import Path

from joinsum.base.errors import CheckpointError
from joinsum.cluster.context import context
from joinsum.ist.exchange.survivors import Record, last_records, write_record
from joinsum.ist.rounds import Rounds

__all__ = ["Recovery"]


class Recovery:
    """Recoveries of a training. One may fail on some ranks, where another site is lost meanwhile: then all that are
    left go back to what they had before it. For that, each keeps its records until the next exchange has ended.
    """

    def __init__(self, rounds: Rounds) -> None:
        self._rounds = rounds
        self._number = 0  # of the last recovery
        self._unfinished = False  # while it runs, and after it has failed
        self._records: list[Record] = []  # what this process had before it

    def recover(self) -> None:
        """Begins the last round anew on the sites of the context. Collective."""
        rounds, transport = self._rounds, context().transport
        own_stage = f"{rounds.number} {self._number} {int(self._unfinished)}"
        stages = [[int(each) for each in text.split()] for text in transport.gather_texts("IST", own_stage)]
        if rounds.number < max(round_ for round_, _, _ in stages):
            rounds.advance()  # others have begun the round for which all had arrived here
            self.end_round()
        failed = [number for _, number, unfinished in stages if unfinished]
        number = max(failed) if failed else 1 + max(number for _, number, _ in stages)
        own_names = json.dumps(sorted(rounds.subnets.names_with_states()))
        having = {name for names in transport.gather_texts("IST", own_names) for name in json.loads(names)}
        if self._number != number:
            with context().preparing("IST"):
                self._records, self._number = rounds.records(having), number
        records = self._records
        texts = transport.gather_texts("IST", " ".join(str(each.site) for each in records))
        new_sites = {int(site): place for place, text in enumerate(texts) for site in text.split()}
        self._unfinished = True
        rounds.rebuild(records, new_sites)
        self._unfinished = False

    def end_round(self) -> None:
        """Notes that an exchange has ended, so that nobody goes back behind it."""
        self._records = []

    def save(self, folder: Path) -> None:
        """Writes what the sites of this process have."""
        for record in self._records if self._unfinished else self._rounds.records():
            write_record(folder, record)

    def load(self, folder: Path) -> None:
        """Begins the round of the records in a folder. Collective; all ranks see the same files."""
        rounds = self._rounds
        current = rounds.context
        with current.preparing("IST"):
            records = last_records(folder, current.sites)
            first = records[0]
            _check_record(folder, first, rounds)
        rounds.agree(f"load_survivors: round={first.round}, seed={first.seed}, sites={[each.site for each in records]}")
        new_sites = {record.site: place % current.sites for place, record in enumerate(records)}
        local = set(current.local_sites)
        own_records = [record for record in records if new_sites[record.site] in local] or records[:1]
        rounds.number, rounds.steps_before, rounds.seed = first.round, first.steps, first.seed
        for own, read in zip(rounds.subnets.optimizer.param_groups, first.groups, strict=True):
            own.update(read)
        rounds.rebuild(own_records, new_sites)


def _check_record(folder: Path, record: Record, rounds: Rounds) -> None:
    """Raises CheckpointError for a record of another model or optimizer."""
    differences = [*_layers_that_differ(record, rounds), *_tensors_that_differ(record, rounds)]
    saved, own = len(record.groups), len(rounds.subnets.optimizer.param_groups)
    if saved != own:
        differences.append(f"parameter groups of the optimizer: saved={saved}, own={own}")
    if differences:
        raise CheckpointError(
            f"{folder}: what the sites have written is of another model: " + "; ".join(differences[:3])
        )


def _layers_that_differ(record: Record, rounds: Rounds) -> list[str]:
    if record.chunks.keys() != rounds.chunks.keys():
        return [f"hidden layers: saved={sorted(record.chunks)}, own={sorted(rounds.chunks)}"]
    saved = {layer: each.bundle.shape[axis] for each in record.bundles for layer, axis in each.bundle.cuts}
    return [
        f"neurons of layer {layer}: saved={neurons}, own={rounds.chunks[layer].neurons}"
        for layer, neurons in saved.items()
        if neurons != rounds.chunks[layer].neurons
    ]


def _tensors_that_differ(record: Record, rounds: Rounds) -> list[str]:
    shapes = rounds.subnets.shapes
    saved = {each.tensor: math.prod(one.bundle.shape) for one in record.bundles for each in one.bundle.slices}
    saved |= {name: value.numel() for name, value in record.values.items()}
    if saved.keys() != shapes.keys():
        return [f"tensors that only one of them has: {sorted(saved.keys() ^ shapes.keys())[:5]}"]
    return [
        f"elements of tensor {name}: saved={saved[name]}, own={shapes[name].numel()}"
        for name in rounds.subnets.names.values()  # parameters: a forward pass may have given buffers other shapes
        if saved[name] != shapes[name].numel()
    ]
