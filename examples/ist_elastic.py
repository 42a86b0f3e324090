"""Independent subnet training that goes on without ranks that are lost: a launcher that leaves the others running.

    python examples/ist_elastic.py --ranks 3 --kill 1@40   # rank 1 ends itself after 40 steps

torchrun stops all ranks when one fails. This launcher does not: it hosts the store through which ranks meet, so the
store outlives every rank, starts the ranks once, and says in the store which of them have ended. A rank whose exchange
fails with TransportError says there that it is left, waits until every other rank has said so too or has ended, makes a
process group with those that are left and calls `IST.recover`, which puts the lost rank's weights together from their
copies (`buddy=True`). A rank that is stopped and goes on later finds that the others have gone on without it, and ends.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from datetime import timedelta

import click
import joinsum
import torch
import torch.distributed as dist
from torch import nn

HOST = "127.0.0.1"
POLL = 0.1  # seconds between looks at the store and at the ranks
PATIENCE = 10.0  # seconds that ranks have to end after one has ended well


class Meeting:
    """Where ranks meet: each process group is a generation, with the ranks that are left."""

    def __init__(self, store: dist.Store, rank: int, timeout: float) -> None:
        self.store, self.rank, self.timeout = store, rank, timeout
        self.generation = 0
        self.members: list[int] = []

    def join(self, members: list[int]) -> None:
        """Makes the process group of these ranks."""
        self.members = members
        own = dist.PrefixStore(f"{self.generation}/group", self.store)
        patience = timedelta(seconds=self.timeout)
        place = members.index(self.rank)
        dist.init_process_group("gloo", store=own, rank=place, world_size=len(members), timeout=patience)
        joinsum.init(cluster=joinsum.Cluster(), timeout=self.timeout)

    def regroup(self) -> list[int]:
        """Waits for the ranks that are left and joins them; the first one that has waited says who they are."""
        if dist.is_initialized():
            dist.destroy_process_group()
        self.generation += 1
        self.store.set(f"{self.generation}/left/{self.rank}", "")
        left = " ".join(map(str, self._left()))
        members = [
            int(each) for each in self.store.compare_set(f"{self.generation}/members", "", left).decode().split()
        ]
        if self.rank not in members:
            raise SystemExit(f"rank {self.rank}: the others went on without it")
        self.join(members)
        return members

    def _left(self) -> list[int]:
        """The ranks that are left when all have said so or have ended. Where one is silent, another may notice that as
        late as in its next exchange, after the timeout: so that one is waited for, and the silent one no longer."""
        deadline = time.monotonic() + 2 * self.timeout
        while True:
            ended = {each for each in self.members if self.store.check([f"ended/{each}"])}
            left = {each for each in self.members if self.store.check([f"{self.generation}/left/{each}"])} - ended
            others_know = self.store.check([f"{self.generation}/members"])
            if others_know or left | ended == {*self.members} or time.monotonic() > deadline:
                return sorted(left)
            time.sleep(POLL)

    def go_on(self, ist: joinsum.IST, error: Exception) -> list[int]:
        """Goes on with the ranks that are left, also where another one is lost meanwhile."""
        while True:
            print(f"rank {self.rank}: {str(error).splitlines()[0]}"[:160], flush=True)
            try:
                members = self.regroup()
                ist.recover()
                return members
            except (joinsum.TransportError, dist.DistError) as another:
                error = another


@click.command(help=__doc__)
@click.option("--ranks", default=3, show_default=True)
@click.option("--steps", default=120, show_default=True, help="Of each rank.")
@click.option("--kill", help="RANK@STEP: a rank that ends itself there.")
@click.option("--rate", default=0.05, show_default=True, help="The learning rate.")
@click.option("--timeout", default=60.0, show_default=True, help="Seconds that a rank may be silent.")
@click.option("--port", type=int, hidden=True)
@click.option("--rank", type=int, hidden=True)
def main(
    ranks: int, steps: int, kill: str | None, rate: float, timeout: float, port: int | None, rank: int | None
) -> None:
    if port is not None and rank is not None:
        store = dist.TCPStore(HOST, port, timeout=timedelta(seconds=60))
        train(Meeting(store, rank, timeout), ranks, steps, kill, rate)
        return
    store = dist.TCPStore(HOST, 0, is_master=True, wait_for_workers=False)
    command = [sys.executable, *sys.argv, "--port", str(store.port)]
    workers = [subprocess.Popen([*command, "--rank", str(number)]) for number in range(ranks)]
    codes = ends_of(workers, store)
    failed = [number for number, code in enumerate(codes) if code not in (0, -signal.SIGKILL)]
    print(f"ranks that ended well: {codes.count(0)} of {ranks}")
    sys.exit(1 if failed or 0 not in codes else 0)


def ends_of(workers: list[subprocess.Popen[bytes]], store: dist.Store) -> list[int]:
    """The workers' exit statuses, each of which the store says; when one has ended well, those that do not end soon
    after are killed."""
    deadline = None
    running = set(range(len(workers)))
    while running:
        time.sleep(POLL)
        for number in [each for each in running if workers[each].poll() is not None]:
            store.set(f"ended/{number}", "")
            running.remove(number)
        if deadline is None and any(worker.poll() == 0 for worker in workers):
            deadline = time.monotonic() + PATIENCE
        if deadline is not None and time.monotonic() > deadline:
            for number in running:
                workers[number].kill()
    return [worker.wait() for worker in workers]


def train(meeting: Meeting, ranks: int, steps: int, kill: str | None, rate: float) -> None:
    """The work of a rank."""
    torch.set_num_threads(1)
    rank = meeting.rank
    meeting.join(list(range(ranks)))
    model = network()
    first = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    optimizer = torch.optim.SGD(model.parameters(), lr=rate, momentum=0.9)
    ist = joinsum.IST(model, optimizer, every=5, buddy=True)
    inputs, classes = data(seed=rank)
    step = 0
    while step < steps:
        try:
            batch = torch.randint(0, len(inputs), (32,))
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(inputs[batch]), classes[batch])
            loss.backward()
            step += 1
            if kill == f"{rank}@{step}":
                os.kill(os.getpid(), signal.SIGKILL)
            optimizer.step()
        except joinsum.TransportError as error:
            members = meeting.go_on(ist, error)
            step = ist.steps
            print(f"rank {rank}: goes on with ranks {members} in round {ist.rounds}", flush=True)
    inputs, classes = data(seed=1000)
    with ist.full(calibrate=inputs.split(250), data="whole") as full, torch.no_grad():
        accuracy = (full(inputs).argmax(1) == classes).float().mean().item()
    ist.gather()
    same = all(torch.equal(parameter, first[name]) for name, parameter in model.named_parameters())
    print(
        f"rank {rank}: {ist.rounds} rounds, accuracy {accuracy:.3f}, {'same' if same else 'other'} weights", flush=True
    )


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(
        *(nn.Linear(20, 96), nn.BatchNorm1d(96), nn.ReLU()),
        *(nn.Linear(96, 96), nn.BatchNorm1d(96), nn.ReLU()),
        nn.Linear(96, 4),
    )


def data(seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    inputs = torch.randn(2000, 20, generator=generator)
    return inputs, (inputs[:, :4] + inputs[:, 4:8]).argmax(1)


if __name__ == "__main__":
    main()
