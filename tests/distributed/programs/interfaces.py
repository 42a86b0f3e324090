"""Bytes that a plan sends, as predicted, as counted by the transport, and as the network interface counts them:
`interfaces.py FOLDER`, as every rank, each in a network namespace of its own."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import joinsum
import torch
from stage import rank

RUNS = 10


def sent() -> int:
    """Bytes that the interfaces of this namespace have sent, headers and acknowledgements included."""
    lines = Path("/proc/self/net/dev").read_text().splitlines()[2:]
    return sum(int(line.split(":")[1].split()[8]) for line in lines if not line.strip().startswith("lo:"))


if __name__ == "__main__":
    joinsum.init(cluster=joinsum.Cluster())
    ranks = joinsum.sites()
    plan = joinsum.parse(
        f"ia on {joinsum.grid()}\ninput X: f32[1024,1024]<{ranks},{ranks}> (0)\n"
        "t0 = shuffle[1](X)\noutput Y = shuffle[0](t0)"
    )
    x = torch.arange(1024.0 * 1024).reshape(1024, 1024)
    assert torch.equal(joinsum.run(plan, {"X": x})["Y"].to_tensor(), x)
    transport = joinsum.context().transport
    transport.agree("begin", "")
    before, counted = sent(), 0
    for _ in range(RUNS):
        joinsum.run(plan, {"X": x})
        counted += joinsum.trace().bytes_sent
    transport.agree("end", "")
    found = {"predicted": RUNS * joinsum.cost(plan).wire_bytes, "counted": counted, "interface": sent() - before}
    (Path(sys.argv[1]) / str(rank())).write_text(json.dumps(found))
