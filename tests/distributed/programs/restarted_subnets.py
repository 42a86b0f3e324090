"""Independent subnet training under `torchrun`, which stops all ranks when one is lost and starts them again.

    torchrun --nproc-per-node 3 --max-restarts 1 restarted_subnets.py FOLDER

Ranks that are left write what they have into the folder, and those that are started again go on with it. torchrun
starts as many as before on a host; with `--leave-out` the last of them does not train. With `--with-agent` the rank is
lost together with the torchrun that has started it, the one with DOOMED in its environment.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import joinsum
import torch
import torch.distributed as dist
from torch import nn

sys.path.insert(0, str(Path(__file__).parents[3] / "examples"))

import ist_elastic

EVERY, STEPS, LOST_IN = 5, 25, 12  # steps of a round, of each rank, and the one in which a rank is lost
TIMEOUT = 20


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="where ranks that are left write")
    parser.add_argument("--lose", type=int, default=1, help="the rank that is lost")
    parser.add_argument("--leave-out", action="store_true", help="go on with one rank less")
    parser.add_argument("--with-agent", action="store_true", help="lose a rank's torchrun, too")
    return parser.parse_args()


def begin(leave_out: bool) -> bool:
    """Starts joinsum on the ranks that train; whether this is one of them."""
    joinsum.init(cluster=joinsum.Cluster(), timeout=TIMEOUT)
    if not leave_out:
        return True
    last = dist.get_world_size() - 1
    group = dist.new_group(range(last))
    if dist.get_rank() == last:
        return False
    joinsum.init(group=group, cluster=joinsum.Cluster(), timeout=TIMEOUT)
    return True


def doomed(arguments: argparse.Namespace) -> bool:
    """Whether this rank is the one that is lost."""
    return "DOOMED" in os.environ if arguments.with_agent else dist.get_rank() == arguments.lose


def end(with_agent: bool) -> None:
    """Ends this process, and torchrun before it."""
    if with_agent:
        os.kill(os.getppid(), signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)


def train(ist: joinsum.IST, model: nn.Module, lose: Callable[[], None] | None) -> None:
    """Steps without learning: weights that are lost or mixed up differ from the first ones."""
    inputs, classes = ist_elastic.data(seed=dist.get_rank())
    for step in range(ist.rounds * EVERY + 1, STEPS + 1):
        batch = torch.randint(0, len(inputs), (32,))
        ist.optimizer.zero_grad()
        nn.functional.cross_entropy(model(inputs[batch]), classes[batch]).backward()
        if lose is not None and step == LOST_IN:
            lose()
        ist.optimizer.step()


def main() -> None:
    # torchrun sends it as soon as one rank is lost; the others have to notice the loss and to write first.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    arguments = options()
    torch.set_num_threads(1)
    again = any(arguments.folder.glob("site_*.pt"))
    if not begin(leave_out=again and arguments.leave_out):
        return
    model = ist_elastic.network()
    first = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    ist = joinsum.IST(model, torch.optim.SGD(model.parameters(), lr=0.0, momentum=0.9), every=EVERY, buddy=True)
    if again:
        ist.load_survivors(arguments.folder)
        print(f"rank {ist.site}: goes on with {joinsum.sites()} sites in round {ist.rounds}", flush=True)
    lost = not again and doomed(arguments)
    try:
        train(ist, model, partial(end, arguments.with_agent) if lost else None)
    except joinsum.TransportError as error:
        ist.save_survivor(arguments.folder)
        raise SystemExit(f"rank {dist.get_rank()}: {str(error).splitlines()[0]}"[:160]) from None
    rounds = ist.rounds
    ist.gather()
    same = all(torch.equal(parameter, first[name]) for name, parameter in model.named_parameters())
    print(f"rank {dist.get_rank()}: {rounds} rounds, {'same' if same else 'other'} weights", flush=True)


if __name__ == "__main__":
    main()
