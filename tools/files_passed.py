"""Prints the files of python/joinsum that some computations enter, in the order in which they do: a first and a second
call of joinsum.einsum, and the first and the third call of a training step.

    python tools/files_passed.py
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import joinsum
import torch

PACKAGE = Path(joinsum.__file__).parent


def files_passed(work: Callable[[], object]) -> list[str]:
    """Files of joinsum whose functions `work` enters, relative to the package."""
    found: dict[str, None] = {}

    def note(frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and frame.f_code.co_name != "<module>":
            path = Path(frame.f_code.co_filename)
            if PACKAGE in path.parents:
                found[str(path.relative_to(PACKAGE))] = None

    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
    return list(found)


def show(what: str, work: Callable[[], object]) -> None:
    files = files_passed(work)
    print(f"{what}: {len(files)} files\n  " + "\n  ".join(files))


def main() -> None:
    joinsum.init(sites=4, plan_cache=False)
    x, y = torch.rand(8, 8), torch.rand(8, 8)
    show("first call of joinsum.einsum", lambda: joinsum.einsum("ij,jk->ik", x, y))
    show("second call of joinsum.einsum", lambda: joinsum.einsum("ij,jk->ik", x, y))
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 8))
    step = joinsum.train_step(model, torch.nn.functional.mse_loss, torch.optim.AdamW(model.parameters()))
    show("first call of a training step", lambda: step(x, y))
    step(x, y)  # plans again, as parameters now have the layout of the first plan
    show("third call of a training step", lambda: step(x, y))


if __name__ == "__main__":
    main()
