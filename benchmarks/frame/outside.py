"""Contenders that are programs of their own: they take turns with the others, and sleep meanwhile.

A program reads lines from its standard input and answers each by the line `done`: `step` does the work, `save` writes
the result to result.npy. Its operands are files of NumPy in its folder. It ends when its standard input does.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy
import torch
import torch.distributed as dist
from network import DEVICE
from torch import Tensor

from frame.contenders import Contender, rank

__all__ = ["FOLDER", "PROGRAMS", "Program", "emulated", "shared_folder"]

# The variable that names the folder of a cell, which is removed after it.
FOLDER = "JOINSUM_BENCH_FOLDER"
PROGRAMS = Path(__file__).resolve().parents[1] / "programs"


def emulated() -> bool:
    """Whether the ranks meet on an emulated network."""
    return os.environ.get("GLOO_SOCKET_IFNAME") == DEVICE


def shared_folder() -> Path:
    """A new folder that all ranks name; collective."""
    folder = [tempfile.mkdtemp(dir=os.environ.get(FOLDER)) if rank() == 0 else ""]
    if dist.is_initialized():
        dist.broadcast_object_list(folder)
    return Path(folder[0])


class Program:
    """A program, started and spoken to by rank 0; `like` has the shape and dtype of its result."""

    def __init__(self, command: Sequence[str], folder: Path, operands: Mapping[str, Tensor], like: Tensor) -> None:
        self._command, self._folder, self._like = " ".join(command), folder, like
        if rank() == 0:
            for name, x in operands.items():
                numpy.save(folder / f"{name}.npy", x.numpy())
            self._process = subprocess.Popen(
                [*command, str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
            )

    def tell(self, line: str) -> None:
        """Has the program do it, and waits. Raises RuntimeError if it has ended."""
        if rank() == 0:
            assert self._process.stdin is not None
            assert self._process.stdout is not None
            print(line, file=self._process.stdin, flush=True)
            if self._process.stdout.readline() != "done\n":
                raise RuntimeError(f"a program ended or failed: command={self._command}, line={line}")

    def _result(self) -> list[Tensor]:
        self.tell("save")
        found = torch.empty_like(self._like)
        if rank() == 0:
            found.copy_(torch.from_numpy(numpy.load(self._folder / "result.npy")))
        if dist.is_initialized():
            dist.broadcast(found, 0)
        return [found]

    def contender(self) -> Contender:
        self.tell("prepare")
        return Contender(lambda: self.tell("step"), self._result)
