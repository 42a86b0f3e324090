"""The tensors of a program in levels and orders of axes that are drawn."""

from __future__ import annotations

import random
from typing import Any

import torch
from joinsum import SparseTensor

from .expressions import read_tensor

FORMATS = ("dense", "bytemap", "sorted_list", "hash")


def in_drawn_levels(program: dict[str, Any], number: int) -> dict[str, Any]:
    """The same program, as data of `joinsum.sparse.Program`; scalars stay as they are."""
    seed = random.Random(number)
    tensors = {name: stored(tensor, seed) if tensor["shape"] else tensor for name, tensor in program["tensors"].items()}
    return program | {"tensors": tensors}


def stored(tensor: dict[str, Any], seed: random.Random) -> SparseTensor:
    known = read_tensor(tensor)
    rank = len(known.shape)
    levels, order = tuple(seed.choices(FORMATS, k=rank)), seed.sample(range(rank), rank)
    return SparseTensor.from_torch(torch.from_numpy(known.dense()), levels=levels, order=order, fill=known.fill)
