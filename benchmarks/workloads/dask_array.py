"""Dask arrays on one worker a rank, with the rank's threads, in the rank's network namespace."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from collections.abc import Mapping

import torch
import torch.distributed as dist
from frame.contenders import Absent, Contender, ranks
from frame.outside import PROGRAMS, Program, shared_folder
from torch import Tensor

__all__ = ["by_dask"]


# The scheduler would say that the workers are gone, after the last turn.
os.environ["DASK_LOGGING__DISTRIBUTED"] = "critical"


def by_dask(work: str, operands: Mapping[str, Tensor], like: Tensor, cuts: tuple[int, int]) -> Contender:
    """`work` of programs/dask_array.py; `like` is a result. Matrices are stored in `cuts[0]` x `cuts[1]` chunks."""
    if importlib.util.find_spec("distributed") is None:
        raise Absent("Dask is not installed: pip install dask distributed")
    folder = shared_folder()
    host = os.environ.get("MASTER_ADDR", "127.0.0.1")
    arguments = [work, host, str(ranks()), str(cuts[0]), str(cuts[1])]
    program = Program([sys.executable, str(PROGRAMS / "dask_array.py"), *arguments], folder, operands, like)
    program.tell("address")
    if dist.is_initialized():
        dist.barrier()
    worker = [sys.executable, "-m", "distributed.cli.dask_worker", (folder / "address").read_text(encoding="utf-8")]
    worker += ["--no-nanny", "--no-dashboard", "--memory-limit", "0", "--local-directory", str(folder)]
    # Dask's threads run a chunk each, so a product of chunks has one.
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    subprocess.Popen([*worker, "--nthreads", str(torch.get_num_threads())], env=environment, stdin=subprocess.DEVNULL)
    return program.contender()
