"""Independent subnet training of which a rank is lost: `python lost_subnets.py FOLDER LOSS...`.

A loss is `<phase>:<signal>:<rank>`; SIGCONT stands for a rank that is stopped, and continued when the others have gone
on. Ranks are forks of this process, which imports once what takes each of them seconds; they meet as those of
`examples/ist_elastic.py` do. Those that are left recover and write a checkpoint, which is compared with what loopback
sites have trained, and go on. FOLDER/<loss>/outcome.json says what came out.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from multiprocessing import Pipe
from pathlib import Path
from typing import Any, NoReturn

import joinsum
import torch
import torch.distributed as dist
from failures import keep_store
from joinsum.ist.exchange.exchange import Exchange
from joinsum.ist.exchange.relations import Trained
from joinsum.ist.exchange.site_plans import SitePlans
from joinsum.ist.exchange.whole_tensors import WholeTensors
from joinsum.ist.rounds import Rounds
from joinsum.ist.subnets.bundles import Bundle
from replayed_subnets import EVERY, LATER, SEED, differing, expected, later, new, tensors, train
from torch import nn
from torch.distributed.checkpoint.filesystem import FileSystemWriter

sys.path.insert(0, str(Path(__file__).parents[3] / "examples"))

import ist_elastic

# A loaded machine may not run a rank for seconds.
TIMEOUT = 5.0
LIMIT = 90.0
# Losses at a time: ranks mostly wait.
AT_ONCE = 3


@dataclass(frozen=True)
class Phase:
    """When a rank is lost.

    exchange   the number of the exchange, from 1 on, or 0 for none
    rounds     steps of the rounds that have ended when the others go on
    steps      of each other rank in the round that has begun, in the order after the lost one
    ranks      of which another one is lost, too, where there are four: the second after it
    """

    exchange: int
    rounds: tuple[int, ...]
    steps: tuple[int, ...]
    ranks: int = 3


THREE = (EVERY,) * 3
PHASES = {
    "before": Phase(3, (EVERY,) * 2, (EVERY, EVERY)),  # the exchange begins
    "shuffle": Phase(3, (EVERY,) * 2, (EVERY, EVERY)),  # one rank has its messages, another has not
    "after": Phase(3, (EVERY,) * 2, (EVERY, EVERY)),  # the shuffle, and before ranks agree that it has ended
    "agreement": Phase(3, THREE, (0, EVERY)),  # one rank begins the next round, another one knows of the loss
    "begun": Phase(3, THREE, (EVERY, EVERY)),  # the next round has begun
    "full": Phase(0, THREE, (1, 1)),  # the full model is evaluated
    "save": Phase(0, (*THREE, 1), (0, 0)),  # a checkpoint is written
    "ahead": Phase(3, THREE, (0, 0)),  # weights move while the round trains, without copies
    "recover": Phase(1, (), (EVERY, EVERY), 4),  # another rank, too, while the others recover
    "recovered": Phase(1, (), (EVERY, EVERY), 4),  # another rank, too, when one has recovered and one has not
}


@dataclass(frozen=True)
class Loss:
    """A rank that is lost."""

    phase: str
    signal: str
    rank: int

    @staticmethod
    def parse(text: str) -> Loss:
        phase, name, rank = text.split(":")
        return Loss(phase, name, int(rank))

    @property
    def facts(self) -> Phase:
        return PHASES[self.phase]

    def after(self, places: int) -> int:
        """The rank so many places after the lost one."""
        return (self.rank + places) % self.facts.ranks

    @property
    def second(self) -> int | None:
        """Another rank that is lost."""
        return self.after(2) if self.facts.ranks == 4 else None

    @property
    def steps(self) -> dict[int, int]:
        """Of each rank that is left, its steps in the round that has begun."""
        left = [self.after(places) for places in range(1, self.facts.ranks) if self.after(places) != self.second]
        return dict(zip(left, self.facts.steps, strict=True))

    @property
    def buddy(self) -> bool:
        return self.phase != "ahead"

    def strike(self) -> None:
        os.kill(os.getpid(), signal.SIGSTOP if self.signal == "SIGCONT" else getattr(signal, self.signal))


# --- the loss ---------------------------------------------------------------------------------------------------------

exchanges = 0
exchanging = False
hold: Callable[[], None] | None = None


def held(x: torch.Tensor) -> torch.Tensor:
    """The kernel that all ranks run before the shuffle in which one is lost."""
    global hold
    act, hold = hold, None
    if act is not None:
        act()
    return x.clone()


def arm(loss: Loss, rank: int) -> None:
    """Makes this rank do its part in the loss."""
    at, lost = loss.facts.exchange, rank == loss.rank
    first_lost_in = "before" if loss.second is not None else loss.phase

    def strike_in(*phases: str) -> None:
        if lost and exchanges == at and first_lost_in in phases:
            loss.strike()

    step, run, advance, relations = Exchange.step, SitePlans.run, Exchange.advance, Exchange._relations
    start_ahead, assembled, rebuild = Exchange.start_ahead, WholeTensors.assembled, Rounds.rebuild

    def stepped(self: Exchange, *arguments: Any) -> Any:
        global exchanges, exchanging, hold
        exchanges += 1
        strike_in("before")
        if loss.phase == "shuffle" and exchanges == at:
            hold = {loss.rank: threading.Timer(0.5, loss.strike).start, loss.after(1): lambda: time.sleep(1.5)}.get(
                rank
            )
        exchanging = True
        try:
            means = step(self, *arguments)
        finally:
            exchanging = False
        strike_in("begun", "agreement")
        return means

    def ran(self: SitePlans, *arguments: Any, **keywords: Any) -> Any:
        found = run(self, *arguments, **keywords)
        strike_in("after")
        return found

    def held_relations(self: Exchange, bundle: Bundle, *arguments: Any, **keywords: Any) -> Trained:
        now = relations(self, bundle, *arguments, **keywords)
        return Trained(now.trained.transform("hold"), now.resting) if exchanging and exchanges == at else now

    def not_agreed(self: Exchange) -> Any:
        if exchanging and exchanges == at:
            raise joinsum.TransportError("agreement: lost a site")
        return advance(self)

    def started_ahead(self: Exchange, *arguments: Any) -> None:
        start_ahead(self, *arguments)
        strike_in("ahead")

    bundles = 0

    def half_assembled(self: WholeTensors, *arguments: Any) -> Any:
        nonlocal bundles
        bundles += 1
        if bundles == 2:
            loss.strike()
        return assembled(self, *arguments)

    recoveries = 0

    def rebuilt(self: Rounds, *arguments: Any) -> None:
        nonlocal recoveries
        rebuild(self, *arguments)
        recoveries += 1
        if rank == loss.second:
            time.sleep(0.5)
            loss.strike()
        if rank == loss.after(1) and recoveries == 1:
            raise joinsum.TransportError("recovery: lost a site")

    Exchange.step, SitePlans.run, Exchange.start_ahead = stepped, ran, started_ahead  # type: ignore[method-assign]
    if loss.phase == "shuffle":
        Exchange._relations = held_relations  # type: ignore[method-assign]
    if loss.phase == "agreement" and rank == loss.after(1):
        Exchange.advance = not_agreed  # type: ignore[method-assign]
    if loss.phase == "save" and lost:
        FileSystemWriter.write_data = lambda *_: loss.strike()  # type: ignore[method-assign,assignment,return-value]
    if loss.phase == "recover" and rank == loss.second:
        WholeTensors.assembled = half_assembled  # type: ignore[method-assign]
    if loss.phase == "recovered":
        Rounds.rebuild = rebuilt  # type: ignore[method-assign]


def evaluate(ist: joinsum.IST, lost: Callable[[], None]) -> None:
    """Evaluates the full model, while a rank is lost."""
    inputs = torch.ones(6, 10)
    with ist.full(calibrate=[inputs], data="whole") as full, torch.no_grad():
        lost()
        full(inputs)


# --- ranks ------------------------------------------------------------------------------------------------------------


def until_lost(loss: Loss, rank: int, folder: Path, ist: joinsum.IST, model: nn.Module) -> Exception:
    """Trains until a rank is lost; the error."""
    try:
        for number in range(5 * EVERY):
            if loss.phase == "ahead" and number == 3 * EVERY:
                ist.save_checkpoint(folder / "checkpoint")
            if loss.phase == "full" and number == 3 * EVERY + 1:
                evaluate(ist, loss.strike if rank == loss.rank else lambda: None)
            if loss.phase == "save" and number == 3 * EVERY + 1:
                ist.save_checkpoint(folder / "lost")
            train(model, ist.optimizer, number, rank)
    except joinsum.TransportError as error:
        return error
    raise AssertionError("no rank was lost")


def saved(meeting: ist_elastic.Meeting, ist: joinsum.IST, error: Exception, folder: Path) -> list[int]:
    """Recovers and writes a checkpoint; the ranks that are left."""
    while True:
        members = meeting.go_on(ist, error)
        try:
            ist.save_checkpoint(folder)
            return members
        except joinsum.TransportError as another:
            error = another


def live(loss: Loss, rank: int, port: int, folder: Path) -> dict[str, Any]:
    """The whole life of a rank; what it has seen."""
    torch.set_num_threads(1)
    if loss.phase == "shuffle":
        # Messages of Gloo's are sent when the receiver wants them.
        os.environ["JOINSUM_SHARED_MEMORY"] = os.environ["JOINSUM_SOCKETS"] = "0"
    meeting = ist_elastic.Meeting(dist.TCPStore("127.0.0.1", port, timeout=timedelta(seconds=60)), rank, TIMEOUT)
    meeting.join(list(range(loss.facts.ranks)))
    model, optimizer = new()
    ist = joinsum.IST(model, optimizer, every=EVERY, seed=SEED, buddy=loss.buddy)
    arm(loss, rank)
    error = until_lost(loss, rank, folder, ist, model)
    notes: dict[str, Any] = {"error": str(error)}
    if loss.buddy:
        notes["members"] = saved(meeting, ist, error, folder / "checkpoint")
        notes["round"] = ist.rounds
    else:
        notes["members"] = meeting.regroup()
        model, optimizer = new()
        ist = joinsum.IST(model, optimizer, every=EVERY)
        ist.load_checkpoint(folder / "checkpoint")
        notes["round"] = ist.rounds
    meeting.store.set("going on", "")
    for number in range(2 * EVERY):
        if loss.signal == "SIGCONT":
            time.sleep(0.3)  # meanwhile the stopped rank goes on
        train(model, optimizer, LATER + number, ist.site)
    ist.gather()
    torch.save(tensors(model, optimizer), folder / f"{rank}.pt")
    return notes


def act(loss: Loss, rank: int, port: int, folder: Path) -> NoReturn:
    notes: dict[str, Any] = {}
    code = 0
    try:
        notes = live(loss, rank, port, folder)
    except SystemExit as end:
        notes, code = {"end": str(end)}, 1
    except BaseException:
        notes, code = {"end": traceback.format_exc()}, 2
    (folder / f"{rank}.json").write_text(json.dumps(notes))
    sys.exit(code)


# --- the play ---------------------------------------------------------------------------------------------------------


def judge(loss: Loss, folder: Path) -> dict[str, Any]:
    """Compares the checkpoint and what was trained from it on."""
    torch.set_num_threads(1)
    joinsum.init(sites=1)
    model, optimizer = new()
    joinsum.load_checkpoint(folder / "checkpoint", model, optimizer)
    taken = {int(optimizer.state[parameter]["step"]) for parameter in model.parameters()}
    steps = [sum(loss.facts.rounds) + loss.steps[rank] for rank in sorted(loss.steps)]
    following = later(folder / "checkpoint", steps)
    wanted = expected(loss.facts.ranks, loss.facts.rounds, loss.steps, averaged=loss.phase in ("save", "ahead"))
    trained = {rank: torch.load(folder / f"{rank}.pt") for rank in loss.steps}
    return {
        "checkpoint": differing(tensors(model, optimizer), wanted, close=True),
        "steps": taken <= set(steps),
        "later": {rank: differing(found, following, close=False) for rank, found in trained.items()},
    }


def forked(work: Callable[[], object]) -> int:
    """Runs work in a fork; its process."""
    process = os.fork()
    if process == 0:
        work()
        os._exit(0)
    return process


def end_of(status: int) -> str:
    code = os.waitstatus_to_exitcode(status)
    return signal.Signals(-code).name if code < 0 else f"exit {code}"


def ends(loss: Loss, processes: list[int], store: dist.Store) -> list[str]:
    """How the ranks end. The store says which have ended, as the launcher of the example does; those that are stopped
    are killed at last, or continued when the others go on."""
    found = ["stopped"] * len(processes)
    running, stopped = set(range(len(processes))), set[int]()
    limit = time.monotonic() + LIMIT
    while running - stopped and time.monotonic() < limit:
        time.sleep(0.05)
        for rank in sorted(running):
            process, status = os.waitpid(processes[rank], os.WNOHANG | os.WUNTRACED)
            if process and os.WIFSTOPPED(status):
                stopped.add(rank)
            elif process:
                found[rank] = end_of(status)
                running.remove(rank)
                store.set(f"ended/{rank}", "")
        if loss.signal == "SIGCONT" and stopped and store.check(["going on"]):
            for rank in stopped:
                os.kill(processes[rank], signal.SIGCONT)
            stopped = set()
    for rank in running:
        found[rank] = "stopped" if rank in stopped else "hung"
        os.kill(processes[rank], signal.SIGKILL)
        os.waitpid(processes[rank], 0)
    return found


def cast(text: str, folder: Path) -> None:
    """Plays a loss and writes its outcome."""
    loss = Loss.parse(text)
    folder.mkdir()
    here, there = Pipe()
    keeper = forked(partial(keep_store, there))
    port = here.recv()
    processes = [forked(partial(act, loss, rank, port, folder)) for rank in range(loss.facts.ranks)]
    outcome: dict[str, Any] = {}
    outcome["ends"] = ends(loss, processes, dist.TCPStore("127.0.0.1", port))
    os.kill(keeper, signal.SIGKILL)
    os.waitpid(keeper, 0)
    outcome["ranks"] = {file.stem: json.loads(file.read_text()) for file in folder.glob("*.json")}
    if all(f"{rank}.pt" in os.listdir(folder) for rank in loss.steps):
        outcome |= judge(loss, folder)
    (folder / "outcome.json").write_text(json.dumps(outcome))


def play(losses: list[str], folder: Path) -> None:
    """Plays the losses, each in a process of its own."""
    playing = 0
    for each in losses:
        if playing == AT_ONCE:
            os.wait()
            playing -= 1
        forked(partial(cast, each, folder / each.replace(":", "_")))
        playing += 1
    for _ in range(playing):
        os.wait()


if __name__ == "__main__":
    joinsum.register_kernel("hold", held, shape=lambda shape: shape)
    # What is imported is no garbage: without this, each rank goes through all of it when it ends.
    gc.collect()
    gc.freeze()
    play(sys.argv[2:], Path(sys.argv[1]))
