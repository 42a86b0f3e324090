"""Starts the ranks of a cell as processes of this machine, on its loopback device or in namespaces, never pinned."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from network import Link, network, run_all

from frame.cells import Cell
from frame.outside import FOLDER

__all__ = ["cores", "end_with_the_driver", "run_cell", "run_ranks", "start_ranks", "threads_of_rank"]

PROGRAM = Path(__file__).with_name("rank.py")


def cores() -> int:
    return len(os.sched_getaffinity(0))


def threads_of_rank(ranks: int) -> int:
    return max(1, cores() // ranks)


def run_cell(cell: Cell, turns: int, only: Sequence[str], limit: float) -> dict[str, Any]:
    """Figures of a cell, from processes of its own. Raises click.ClickException if a rank fails."""
    threads = threads_of_rank(cell.ranks)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        out = Path(folder) / "figures.json"
        command = [sys.executable, str(PROGRAM), "--workload", cell.workload, "--size", cell.size]
        command += ["--turns", str(turns), "--threads", str(threads), "--out", str(out)]
        command += [argument for name in only for argument in ("--only", name)]
        # torch warns that a namespace's address has no name.
        environment = {"OMP_NUM_THREADS": str(threads), "TORCH_CPP_LOG_LEVEL": "ERROR", FOLDER: folder}
        run_ranks(cell.ranks, cell.network, command, environment, limit)
        found: dict[str, Any] = json.loads(out.read_text(encoding="utf-8"))
    return found


def run_ranks(ranks: int, link: str, command: Sequence[str], environment: dict[str, str], limit: float) -> None:
    """Runs a command on every rank, for at most `limit` seconds: of this machine where `link` is `open`, else of hosts
    with such links. Raises click.ClickException if a rank fails."""
    if link == "open":
        return run_all(start_ranks(ranks, command, environment), limit)
    with network(ranks, Link.parse(link)) as net:
        run_all([net.start(rank, command, environment, stdin=subprocess.PIPE) for rank in range(ranks)], limit)


def start_ranks(ranks: int, command: Sequence[str], environment: dict[str, str]) -> list[subprocess.Popen[bytes]]:
    """Processes of this machine; one rank is a plain process, without a process group."""
    common = {**os.environ, **environment}
    if ranks > 1:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        group = {"WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
        common |= group | {"GLOO_SOCKET_IFNAME": "lo"}
    return [
        subprocess.Popen(
            command,
            env=common | ({"RANK": str(rank), "LOCAL_RANK": str(rank)} if ranks > 1 else {}),
            stdin=subprocess.PIPE,
            start_new_session=True,
        )
        for rank in range(ranks)
    ]


def end_with_the_driver() -> None:
    """Ends this process when the driver, which holds the other end of standard input, is gone."""

    def wait() -> None:
        while os.read(0, 1):
            pass
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()
