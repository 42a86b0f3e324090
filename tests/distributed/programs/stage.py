"""What the scenes of a program share: where they run, and how each rank writes down what came out."""

from __future__ import annotations

import json
import os
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path

import joinsum
import torch
import torch.distributed as dist
from joinsum import _C

Scene = Callable[[], object]
Scenes = dict[str, Scene]
Outputs = dict[str, list[tuple[tuple[int, ...], torch.Tensor]]]


def scene(scenes: Scenes) -> Callable[[Scene], Scene]:
    """Adds a function to `scenes` under its name."""

    def add(function: Scene) -> Scene:
        scenes[function.__name__] = function
        return function

    return add


def play(scenes: Mapping[str, Scene], notes: Path) -> bool:
    """Runs the scenes in order; writes a line for each to `notes`: what it returned, or how it failed."""
    passed = True
    with notes.open("a") as file:
        for name, function in scenes.items():
            start = time.monotonic()
            note: dict[str, object] = {"scene": name, "ok": True}
            try:
                note["value"] = function()
            except BaseException:
                note |= {"ok": False, "error": traceback.format_exc()}
                passed = False
            note["seconds"] = round(time.monotonic() - start, 3)
            file.write(json.dumps(note) + "\n")
            file.flush()
    return passed


def rank() -> int:
    return int(os.environ["RANK"])


def ranks() -> int:
    return int(os.environ["WORLD_SIZE"])


def on_loopback() -> joinsum.Context:
    """As many sites as there are ranks, all in this process."""
    return joinsum.Context(_C.make_loopback(ranks()), joinsum.Cluster(), None, 60.0, _C.make_store("memory"))


def on_group(
    collectives: str = "table",
    timeout: float = 60.0,
    group: dist.ProcessGroup | None = None,
    share_memory: bool | None = None,
    sockets: bool | None = None,
) -> joinsum.Context:
    """One site per rank; `collectives` says when the group's own collectives are used, `share_memory` whether ranks use
    shared memory, `sockets` whether they have sockets of their own: unless the environment says otherwise."""
    group = group or dist.group.WORLD
    assert group is not None
    if share_memory is None:
        share_memory = os.environ.get("JOINSUM_SHARED_MEMORY") != "0"
    if sockets is None:
        sockets = os.environ.get("JOINSUM_SOCKETS") != "0"
    policy = getattr(_C.Collectives, collectives)
    transport = _C.make_process_group(group.group_name, timeout, policy, share_memory, sockets)
    return joinsum.Context(transport, joinsum.Cluster(), group, timeout, _C.make_store("memory"))


def enter(context: joinsum.Context) -> joinsum.Context:
    """Makes `context` the one that joinsum's functions use."""
    sys.modules["joinsum.cluster.context"]._current = context  # type: ignore[attr-defined]
    return context


def leave() -> None:
    """Makes joinsum's functions use no context yet."""
    sys.modules["joinsum.cluster.context"]._current = None  # type: ignore[attr-defined]


def error_of(call: Callable[[], object]) -> tuple[str, str, float]:
    """Type and text of the error that `call` raises, and the seconds it took."""
    start = time.monotonic()
    try:
        call()
    except BaseException as error:
        return type(error).__name__, str(error), time.monotonic() - start
    return "", "no error", time.monotonic() - start


def everywhere(number: int) -> int:
    """Sum of the ranks' numbers."""
    total = torch.tensor(number)
    dist.all_reduce(total)
    return int(total)
