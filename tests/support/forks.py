"""Python programs that run in forks of one process, which has imported once what takes each of them seconds.

`python forks.py MODULE...` imports the modules, and then reads runs from its input, a line each. A fork for each rank
of a run becomes `python FILE ARGUMENT...` or `python -m MODULE ARGUMENT...`; when all have ended, it prints their exit
codes.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any


class Forks:
    """A process with modules, as a context manager; programs run in its forks, in a working directory."""

    def __init__(self, modules: Sequence[str], folder: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, __file__, *modules],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=folder,
            env=os.environ | {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo", "PYTHONWARNINGS": "ignore"},
            start_new_session=True,
        )

    def __enter__(self) -> Forks:
        return self

    def __exit__(self, *_: object) -> None:
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def output(self, command: Sequence[object], log: Path, ranks: int = 0) -> str:
        """Runs a program, on ranks that find each other as torchrun's do if there are any. Returns what was printed,
        warnings and errors aside; fails where one of them fails."""
        environments = environments_of(ranks) if ranks else [{}]
        run = {"command": list(map(str, command)), "log": str(log), "environments": environments}
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(json.dumps(run), file=self._process.stdin, flush=True)
        codes = json.loads(self._process.stdout.readline())
        text = log.read_text()
        assert not any(codes), f"{command} ended with {codes}:\n{text[-2000:]}\n{errors_of(log).read_text()[-4000:]}"
        return text


def errors_of(log: Path) -> Path:
    return log.with_name(log.name + ".errors")


def environments_of(ranks: int) -> list[dict[str, str]]:
    """What torchrun tells each rank on one host."""
    world = {
        "WORLD_SIZE": str(ranks),
        "LOCAL_WORLD_SIZE": str(ranks),
        "GROUP_RANK": "0",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(free_port()),
        "TORCHELASTIC_RUN_ID": "tests",
    }
    return [{**world, "RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(ranks)]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def become(command: list[str]) -> None:
    """What the interpreter does with these arguments."""
    if command[0] == "-m":
        sys.argv, sys.path[0] = command[1:], os.getcwd()
        runpy.run_module(command[1], run_name="__main__", alter_sys=True)
    else:
        sys.argv, sys.path[0] = command, str(Path(command[0]).resolve().parent)
        runpy.run_path(command[0], run_name="__main__")


def fork(command: list[str], log: Path, environment: dict[str, str]) -> int:
    """Starts a program; returns its process."""
    process = os.fork()
    if process:
        return process
    for number, name, flags in (
        (0, os.devnull, os.O_RDONLY),
        (1, log, os.O_WRONLY | os.O_CREAT | os.O_APPEND),
        (2, errors_of(log), os.O_WRONLY | os.O_CREAT | os.O_APPEND),
    ):
        os.dup2(os.open(name, flags), number)
    os.environ |= environment
    become(command)
    sys.exit(0)


def serve() -> None:
    for line in sys.stdin:
        run: dict[str, Any] = json.loads(line)
        log = Path(run["log"])
        log.unlink(missing_ok=True)
        processes = [fork(run["command"], log, environment) for environment in run["environments"]]
        codes = [os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) for process in processes]
        print(json.dumps(codes), flush=True)


if __name__ == "__main__":
    for module in sys.argv[1:]:
        importlib.import_module(module)
    # What is imported is no garbage: without this, each fork goes through all of it when it ends.
    gc.collect()
    gc.freeze()
    serve()
