"""Exchanges arrays among all ranks and notes who shares memory, and whether others have sockets of joinsum's own:
`networks.py FOLDER`, as every rank."""

from __future__ import annotations

import sys
from pathlib import Path

import joinsum
from sharing import check_exchange, every_pair
from stage import rank

if __name__ == "__main__":
    transport = joinsum.init(cluster=joinsum.Cluster()).transport
    check_exchange(transport, every_pair(1_000_000))
    transport.agree("end", "")
    (Path(sys.argv[1]) / str(rank())).write_text(f"{transport.shared_memory.name} {transport.own_sockets}")
