"""Goes on after the loss of sites: with those that are left in memory, or with what they have written to files."""

from __future__ import annotations

from pathlib import Path

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
        if self._number != number:
            with context().preparing("IST"):
                self._records, self._number = rounds.records(), number
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
        rounds.agree(f"load_survivors: round={first.round}, seed={first.seed}, sites={[each.site for each in records]}")
        new_sites = {record.site: place % current.sites for place, record in enumerate(records)}
        local = set(current.local_sites)
        own_records = [record for record in records if new_sites[record.site] in local] or records[:1]
        rounds.number, rounds.steps_before, rounds.seed = first.round, first.steps, first.seed
        for own, read in zip(rounds.subnets.optimizer.param_groups, first.groups, strict=True):
            own.update(read)
        rounds.rebuild(own_records, new_sites)
