"""Scenes: ranks of one host exchange the same bytes through shared memory as through sockets."""

from __future__ import annotations

import gc
from pathlib import Path

import joinsum
import torch
from equal_results import cases, check_equal, outputs_of
from joinsum import _C
from joinsum.cluster.machine import machine_of
from stage import Scenes, enter, on_group, on_loopback, rank, ranks, scene

SCENES: Scenes = {}
MESSAGES = 15


def both() -> tuple[joinsum.Context, joinsum.Context]:
    """The ranks with shared memory, and with sockets alone."""
    return on_group(share_memory=True), on_group(share_memory=False)


def array_of(sender: int, receiver: int, elements: int) -> torch.Tensor:
    """What one rank sends to another one."""
    generator = torch.Generator().manual_seed(1000 * sender + receiver)
    return torch.randint(-(2**31), 2**31 - 1, (elements,), dtype=torch.int32, generator=generator)


def check_exchange(transport: _C.Transport, sizes: dict[tuple[int, int], int]) -> None:
    """All messages at once, by pairs of sender and receiver with the elements of the message."""
    messages = [(sender, receiver, 4 * elements) for (sender, receiver), elements in sizes.items()]
    own = {i: array_of(*pair, sizes[pair]) for i, pair in enumerate(sizes) if pair[0] == rank()}
    received = transport.exchange("exchange", messages, own, torch.empty(0, dtype=torch.int32))
    for pair, array in zip(sizes, received, strict=True):
        assert (array is not None) == (pair[1] == rank())
        assert array is None or torch.equal(array, array_of(*pair, sizes[pair])), pair


def mapped(name: str) -> list[str]:
    """Where files of that name are in this process's memory."""
    return [line for line in Path("/proc/self/maps").read_text().splitlines() if name in line]


def every_pair(elements: int) -> dict[tuple[int, int], int]:
    return {(i, j): elements for i in range(ranks()) for j in range(ranks()) if i != j}


@scene(SCENES)
def all_ranks_of_a_host_share_memory() -> list[str]:
    layouts = [dict(machine_of(context).layout) for context in both()]
    return [layout["shared memory"] for layout in layouts]


@scene(SCENES)
def plans_have_equal_results_and_bytes_with_and_without_it() -> list[int]:
    sent = [0, 0]
    contexts = both()
    all_cases = list(cases("f32", torch.float32))
    for case in all_cases:
        results = []
        for i, context in enumerate(contexts):
            enter(context)
            results.append(outputs_of(case))
            sent[i] += sum(entry.bytes_sent for entry in joinsum.trace())
        check_equal(case, *results)
    return sent


@scene(SCENES)
def messages_larger_than_a_ring_cross_both_ways_at_once() -> None:
    shared, _ = both()
    check_exchange(shared.transport, every_pair(8_000_001 if ranks() == 2 else 3_000_001))


@scene(SCENES)
def messages_of_any_size_arrive_in_their_places() -> None:
    shared, _ = both()
    generator = torch.Generator().manual_seed(7)
    for _ in range(MESSAGES):
        sizes = every_pair(0)
        for pair in sizes:
            exponent = int(torch.randint(0, 22, (1,), generator=generator))
            sizes[pair] = int(torch.randint(0, 2**exponent, (1,), generator=generator))
        check_exchange(shared.transport, sizes)


@scene(SCENES)
def texts_larger_than_their_ring_are_gathered() -> None:
    shared, _ = both()
    texts = shared.transport.gather_texts("texts", str(rank()) * 300_000)
    assert texts == [str(each) * 300_000 for each in range(ranks())]


@scene(SCENES)
def a_rank_that_does_not_share_uses_sockets_with_all() -> str:
    """The others share memory among themselves, where there are two; exchanges mix both."""
    mixed = on_group(share_memory=rank() != 0).transport
    check_exchange(mixed, every_pair(2_000_001))
    mixed.agree("end", "")
    return mixed.shared_memory.name


@scene(SCENES)
def contexts_that_are_dropped_leave_no_memory() -> int:
    """What is mapped afterwards beside what was mapped before; and nothing is in /dev/shm."""
    enter(on_loopback())
    gc.collect()
    before = len(mapped("memfd:joinsum"))
    for _ in range(3):
        shared, _ = both()
        check_exchange(shared.transport, every_pair(1000))
        assert len(mapped("memfd:joinsum")) > before
        assert not mapped("/dev/shm/")
        del shared
    gc.collect()
    return len(mapped("memfd:joinsum")) - before
