"""Scenes in which a rank is lost: `python failures.py FOLDER`.

A launcher would end the other ranks as soon as one dies, so this program starts its ranks itself: it imports joinsum
once and forks them, for some scenes at a time, as ranks mostly wait. In FOLDER/<scene>.<rank>.json each rank notes what
it saw, and <scene>.exits.json tells how the ranks ended and what was left of them after the time limit.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import NoReturn

import joinsum
import stage
import torch
import torch.distributed as dist
from joinsum import DistributedTensor
from torch import Tensor
from torch.distributed.checkpoint.filesystem import FileSystemWriter

# A loaded machine may not run a rank for seconds.
TIMEOUT = 5.0
LIMIT = 40.0
# Scenes that are played at a time.
AT_ONCE = 4
# One run: a shuffle, a kernel that may strike, and a shuffle that needs everybody.
PLAN = """ia on {grid}
input X: i64[9,6]<3,3> (0)
t0 = shuffle[1](X)
t1 = local_map[(k0, k1); strike](t0)
output Z = shuffle[0](t1)"""
# The same with a sum that a collective can compute in its place.
SUM = """ia on {grid}
input X: i64[9,6]<3,1> (0)
t0 = local_map[(k0, k1); strike](X)
t1 = local_aggregate[; add](t0)
output Z = broadcast(t1)"""

# A large move that starts before a kernel which does not read it, and is waited for after it.
OVERLAPPED = """ia on {grid}
input X: f32[1800,1200]<3,3> (0)
input Y: f32[9,6]<3,3> (0)
moved = shuffle[1](X)
computed = local_map[(k0, k1); strike](Y)
output Z = shuffle[0](moved)
output W = shuffle[1](computed)"""

# A kernel that may strike, and a move of sparse arrays that needs its result.
SPARSE = """ia on {grid}
input X: f64[9,{columns}]<3,1> (0)
input S: f64[9,{columns}]<3,1> sparse{{{entries}}} (0)
t0 = local_map[(k0, k1); strike](X)
t1 = local_join[0, 1; 0, 1; mul](S, t0)
output Z = broadcast(t1)"""

notes: dict[str, object] = {}
strike: Callable[[], None] | None = None


def kernel(x: torch.Tensor) -> torch.Tensor:
    if strike is not None:
        strike()
    return x.clone()


def run(text: str = PLAN) -> torch.Tensor:
    x = torch.arange(54).reshape(9, 6)
    return joinsum.run(joinsum.parse(text.format(grid=joinsum.grid())), {"X": x})["Z"].to_tensor()


def note(what: str, call: Callable[[], object]) -> None:
    """Notes the error that `call` raises, and when."""
    error, text, seconds = stage.error_of(call)
    notes[what] = {"error": error, "text": text, "seconds": seconds, "at": time.time()}


def die(number: signal.Signals) -> Callable[[], None]:
    def act() -> None:
        notes["struck"] = time.time()
        write_notes()
        os.kill(os.getpid(), number)

    return act


def arm(victim: int, action: Callable[[], None]) -> None:
    """After a run that goes well, the next one strikes on rank `victim`."""
    global strike
    strike = None
    assert torch.equal(run(), torch.arange(54).reshape(9, 6))
    strike = action if stage.rank() == victim else None


def afterwards() -> None:
    """The group stays failed, with the same words; other sites in this process work. Notes how much of the
    group's memory is left, unless a caller holds it."""
    global strike
    note("later", run)
    strike = None
    stage.enter(stage.on_loopback())
    note("loopback", run)
    gc.collect()
    notes["mapped"] = Path("/proc/self/maps").read_text().count("memfd:joinsum")


# --- scenes -----------------------------------------------------------------------------------------------------------


def killed() -> None:
    arm(2, die(signal.SIGKILL))
    note("run", run)
    afterwards()


def first_rank_killed() -> None:
    arm(0, die(signal.SIGKILL))
    note("run", run)
    afterwards()


def stopped() -> None:
    arm(2, die(signal.SIGSTOP))
    note("run", run)
    afterwards()


def killed_in_a_collective() -> None:
    stage.enter(stage.on_group("always", TIMEOUT))
    arm(2, die(signal.SIGKILL))
    note("run", lambda: run(SUM))
    afterwards()


def killed_in_a_checkpoint() -> None:
    """In the part of it that is torch's own."""
    assert torch.equal(run(), torch.arange(54).reshape(9, 6))
    strikes = die(signal.SIGKILL)
    if stage.rank() == 2:
        FileSystemWriter.write_data = lambda *_: strikes()  # type: ignore[method-assign]
    note("run", lambda: joinsum.save_checkpoint(FOLDER / "checkpoint", torch.nn.Linear(4, 4)))
    afterwards()


def lost_under_way(number: signal.Signals) -> None:
    """A rank is lost in a kernel while all of them move what they have."""
    plan = joinsum.parse(OVERLAPPED.format(grid=joinsum.grid()))
    inputs = {"X": torch.arange(1800.0 * 1200).reshape(1800, 1200), "Y": torch.arange(54.0).reshape(9, 6)}
    notes["order"] = str(joinsum.explain(plan).executable()).splitlines()

    def moves() -> None:
        for name, x in joinsum.run(plan, inputs).items():
            assert torch.equal(x.to_tensor(), inputs["X" if name == "Z" else "Y"])

    global strike
    strike = None
    moves()
    strike = die(number) if stage.rank() == 2 else None
    note("run", moves)
    afterwards()


def exchange_until_lost(number: signal.Signals) -> None:
    """All ranks send each other more than a ring holds, again and again; one strikes from another thread meanwhile."""
    transport, ranks = joinsum.context().transport, stage.ranks()
    pairs = [(i, j) for i in range(ranks) for j in range(ranks) if i != j]
    payload = torch.zeros(4 << 20)
    own = {i: payload for i, pair in enumerate(pairs) if pair[0] == stage.rank()}

    def exchange() -> None:
        while True:
            transport.exchange("exchange", [(*pair, payload.nbytes) for pair in pairs], own, payload)

    if stage.rank() == 2:
        threading.Timer(1.0, die(number)).start()
    note("run", exchange)
    afterwards()


def sparse_rows(entries_of_a_row: int) -> Tensor:
    """A sparse matrix of 9 rows, in which each fourth element is stored."""
    places = torch.cartesian_prod(torch.arange(9), 4 * torch.arange(entries_of_a_row)).t()
    values = torch.arange(1.0, 1 + places.shape[1], dtype=torch.float64)
    return torch.sparse_coo_tensor(places, values, (9, 4 * entries_of_a_row), check_invariants=True)


def lost_in_a_sparse_move(number: signal.Signals, entries_of_a_row: int, among_entries: bool) -> None:
    """Sparse arrays travel after their sizes. A rank exchanges the sizes, and is lost before it sends its entries or
    while all of them are under way."""
    columns, entries = 4 * entries_of_a_row, 9 * entries_of_a_row
    plan = joinsum.parse(SPARSE.format(grid=joinsum.grid(), columns=columns, entries=entries))
    inputs = {"X": torch.ones(9, columns, dtype=torch.float64), "S": sparse_rows(entries_of_a_row)}
    size = torch.tensor([entries // 3 * (2 * 8 + 8)])
    pairs = [(i, j) for i in range(3) for j in range(3) if i != j]

    def exchange(payload: Tensor, meanwhile: Callable[[], None] | None = None) -> list[Tensor | None]:
        messages = [(*pair, payload.nbytes) for pair in pairs]
        own = {i: payload for i, pair in enumerate(pairs) if pair[0] == stage.rank()}
        return joinsum.context().transport.exchange("broadcast t2", messages, own, payload, meanwhile)

    def exchange_until_lost() -> None:
        notes["sizes"] = [int(each) == int(size) for each in exchange(size) if each is not None]
        if among_entries:
            exchange(torch.zeros(int(size), dtype=torch.uint8), meanwhile=die(number))
        die(number)()

    global strike
    strike = None
    joinsum.run(plan, inputs)
    strike = exchange_until_lost if stage.rank() == 2 else None
    sent = joinsum.context().transport.bytes_sent()
    note("run", lambda: joinsum.run(plan, inputs))
    notes["sent"] = joinsum.context().transport.bytes_sent() - sent == 2 * (8 + int(size))
    afterwards()


def killed_in_a_reduction() -> None:
    """The rank has reduced its own blocks of a distributed tensor, and dies before it sends the result."""
    x = DistributedTensor.of(torch.arange(54).reshape(9, 6), parts=(3, 1))
    assert x.sum().item() == sum(range(54))
    if stage.rank() == 2:
        x.context.all_gather = lambda *_: die(signal.SIGKILL)()  # type: ignore[method-assign,assignment,func-returns-value]
    note("run", x.sum)
    afterwards()


def raises_in_a_run_and_goes_on() -> None:
    def refuse() -> None:
        raise ValueError("no")

    arm(1, refuse)
    note("run", run)
    afterwards()


def raises_in_a_run_and_leaves() -> None:
    def refuse() -> None:
        raise ValueError("no")

    arm(1, refuse)
    note("run", run)


def raises_in_a_run_and_waits() -> None:
    """The rank is alive, but makes no other call."""

    def refuse() -> None:
        raise ValueError("no")

    arm(1, refuse)
    note("run", run)
    if stage.rank() == 1:
        time.sleep(8)
    afterwards()


def all_raise_in_a_run() -> None:
    """The group goes on."""

    def refuse() -> None:
        raise ValueError("no")

    arm(stage.rank(), refuse)
    note("run", run)
    arm(-1, lambda: None)
    note("later", run)


def wrong_shape_and_leaves() -> None:
    plan = joinsum.parse(f"ia on {joinsum.grid()}\ninput X: i64[9,6]<3,3> (0)\noutput Z = shuffle[1](X)")
    rows = 8 if stage.rank() == 1 else 9
    note("run", lambda: joinsum.run(plan, {"X": torch.ones(rows, 6, dtype=torch.int64)}))


def leaves_early() -> None:
    arm(-1, lambda: None)
    if stage.rank() != 1:
        note("run", run)


def interrupted() -> None:
    arm(-1, lambda: None)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # which background processes ignore
    if stage.rank() == 0:
        threading.Timer(1.0, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
    if stage.rank() == 1:
        time.sleep(2.5)
    note("run", run)
    afterwards()


def forks() -> None:
    """A child of a rank cannot use the group, and harms nobody by ending."""
    run()
    child = os.fork()
    if child == 0:
        notes.clear()
        note("child", run)
        (FOLDER / f"child.{stage.rank()}.json").write_text(json.dumps(notes))
        sys.exit(0)
    notes["child exit"] = os.waitpid(child, 0)[1]
    note("run", run)


SCENES: dict[str, tuple[Callable[[], None], int]] = {
    "killed": (killed, 3),
    "first_rank_killed": (first_rank_killed, 3),
    "stopped": (stopped, 3),
    "killed_under_way": (partial(lost_under_way, signal.SIGKILL), 3),
    "stopped_under_way": (partial(lost_under_way, signal.SIGSTOP), 3),
    "killed_in_a_collective": (killed_in_a_collective, 3),
    "killed_in_a_checkpoint": (killed_in_a_checkpoint, 3),
    "killed_in_a_reduction": (killed_in_a_reduction, 3),
    "killed_in_a_message": (partial(exchange_until_lost, signal.SIGKILL), 3),
    "stopped_in_a_message": (partial(exchange_until_lost, signal.SIGSTOP), 3),
    "killed_between_sizes_and_entries": (partial(lost_in_a_sparse_move, signal.SIGKILL, 5, False), 3),
    "stopped_between_sizes_and_entries": (partial(lost_in_a_sparse_move, signal.SIGSTOP, 5, False), 3),
    # More entries than a ring holds.
    "killed_among_entries": (partial(lost_in_a_sparse_move, signal.SIGKILL, 60_000, True), 3),
    "stopped_among_entries": (partial(lost_in_a_sparse_move, signal.SIGSTOP, 60_000, True), 3),
    "raises_in_a_run_and_goes_on": (raises_in_a_run_and_goes_on, 3),
    "raises_in_a_run_and_leaves": (raises_in_a_run_and_leaves, 3),
    "raises_in_a_run_and_waits": (raises_in_a_run_and_waits, 3),
    "all_raise_in_a_run": (all_raise_in_a_run, 3),
    "wrong_shape_and_leaves": (wrong_shape_and_leaves, 2),
    "leaves_early": (leaves_early, 2),
    "interrupted": (interrupted, 2),
    "forks": (forks, 2),
}
# Here the store is lost with rank 0.
RANK_HOSTS_STORE = {"first_rank_killed"}
FOLDER = Path()

# --- ranks ------------------------------------------------------------------------------------------------------------


@dataclass
class Rank:
    process: int
    end: str | None = None


def write_notes() -> None:
    (FOLDER / f"{scene_name}.{stage.rank()}.json").write_text(json.dumps(notes))


scene_name = ""


def keep_store(tell: Connection) -> NoReturn:
    """Hosts the group's store, as torchrun's agent does, until it is killed; tells on which port."""
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    tell.send(store.port)
    while True:
        signal.pause()


def act(name: str, rank: int, ranks: int, port: int) -> NoReturn:
    """The whole life of a rank."""
    global scene_name
    scene_name = name
    os.environ |= {"RANK": str(rank), "WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    os.environ["TORCHELASTIC_USE_AGENT_STORE"] = str(name not in RANK_HOSTS_STORE)
    # A loaded machine may take longer to bring the ranks together than one of them may be silent later.
    dist.init_process_group("gloo", timeout=timedelta(seconds=LIMIT))
    joinsum.init(cluster=joinsum.Cluster(), timeout=TIMEOUT)
    SCENES[name][0]()
    write_notes()
    sys.exit(0)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def end_of(rank: Rank) -> None:
    """Fills in how a rank has ended, or that it is stopped."""
    process, status = os.waitpid(rank.process, os.WNOHANG | os.WUNTRACED)
    if process == 0:
        return
    if os.WIFSTOPPED(status):
        rank.end = "stopped"
    else:
        code = os.waitstatus_to_exitcode(status)
        rank.end = signal.Signals(-code).name if code < 0 else f"exit {code}"


def cast(name: str) -> list[str]:
    """Plays a scene; returns how each rank ended."""
    ranks = SCENES[name][1]
    here, there = Pipe()
    keeper = os.fork()
    if keeper == 0:
        keep_store(there)
    port = free_port() if name in RANK_HOSTS_STORE else here.recv()
    members = []
    for number in range(ranks):
        process = os.fork()
        if process == 0:
            act(name, number, ranks, port)
        members.append(Rank(process))
    limit = time.monotonic() + LIMIT
    while any(member.end is None for member in members) and time.monotonic() < limit:
        for member in members:
            if member.end is None:
                end_of(member)
        time.sleep(0.02)
    for member in members:
        if member.end in (None, "stopped"):
            os.kill(member.process, signal.SIGKILL)
            os.waitpid(member.process, 0)
            member.end = member.end or "hung"
    os.kill(keeper, signal.SIGKILL)
    os.waitpid(keeper, 0)
    return [str(member.end) for member in members]


def play(names: Sequence[str]) -> None:
    """Plays the scenes, each cast by a process of its own."""
    playing = 0
    for name in names:
        if playing == AT_ONCE:
            os.wait()
            playing -= 1
        if os.fork() == 0:
            (FOLDER / f"{name}.exits.json").write_text(json.dumps(cast(name)))
            os._exit(0)
        playing += 1
    for _ in range(playing):
        os.wait()


if __name__ == "__main__":
    FOLDER = Path(sys.argv[1])
    joinsum.register_kernel("strike", kernel, shape=lambda shape: shape)
    # What is imported is no garbage: without this, each rank goes through all of it when it ends.
    gc.collect()
    gc.freeze()
    play(sys.argv[2:] or list(SCENES))
