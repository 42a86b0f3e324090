"""Scenes: ranks of one host exchange the same bytes through shared memory as through sockets, their own or Gloo's."""

from __future__ import annotations

import gc
from functools import partial
from pathlib import Path

import joinsum
import torch
from equal_results import cases, check_equal, outputs_of
from joinsum import _C
from joinsum.cluster.machine import machine_of
from stage import Scenes, enter, on_group, on_loopback, rank, ranks, scene

SCENES: Scenes = {}
MESSAGES = 15


def ways() -> list[joinsum.Context]:
    """The ranks with shared memory, with sockets of their own, and with Gloo's alone."""
    return [on_group(share_memory=shared, sockets=own) for shared, own in ((True, True), (False, True), (False, False))]


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
def all_ranks_of_a_host_share_memory() -> list[list[str]]:
    layouts = [dict(machine_of(context).layout) for context in ways()]
    return [[layout["shared memory"], layout["own sockets"]] for layout in layouts]


@scene(SCENES)
def plans_have_equal_results_and_bytes_with_and_without_it() -> list[int]:
    sent = [0, 0, 0]
    contexts = ways()
    all_cases = list(cases("f32", torch.float32))
    for case in all_cases:
        results = []
        for i, context in enumerate(contexts):
            enter(context)
            results.append(outputs_of(case))
            sent[i] += sum(entry.bytes_sent for entry in joinsum.trace())
        for other in results[1:]:
            check_equal(case, results[0], other)
    return sent


@scene(SCENES)
def messages_larger_than_a_ring_cross_both_ways_at_once() -> None:
    for context in ways():
        check_exchange(context.transport, every_pair(8_000_001 if ranks() == 2 else 3_000_001))


@scene(SCENES)
def messages_of_any_size_arrive_in_their_places() -> None:
    contexts = ways()
    generator = torch.Generator().manual_seed(7)
    for number in range(len(contexts) * MESSAGES):
        sizes = every_pair(0)
        for pair in sizes:
            exponent = int(torch.randint(0, 22, (1,), generator=generator))
            sizes[pair] = int(torch.randint(0, 2**exponent, (1,), generator=generator))
        check_exchange(contexts[number % len(contexts)].transport, sizes)


@scene(SCENES)
def exchanges_under_way_arrive_in_their_order() -> None:
    """Several are started before the first is waited for, and progress is made between."""
    before = (rank() - 1) % ranks()
    kind = torch.empty(0, dtype=torch.int32)

    def exchange(transport: _C.Transport, depth: int) -> None:
        elements = 100_000 + depth
        messages = [(sender, (sender + 1) % ranks(), 4 * elements) for sender in range(ranks())]
        own = {rank(): array_of(rank(), depth, elements)}
        inner = None if depth == 0 else partial(exchange, transport, depth - 1)
        received = transport.exchange("exchange", messages, own, kind, inner)[before]
        transport.progress()
        assert received is not None
        assert torch.equal(received, array_of(before, depth, elements))

    for context in ways():
        exchange(context.transport, 4)


@scene(SCENES)
def texts_larger_than_their_ring_are_gathered() -> None:
    for context in ways():
        texts = context.transport.gather_texts("texts", str(rank()) * 300_000)
        assert texts == [str(each) * 300_000 for each in range(ranks())]


@scene(SCENES)
def a_rank_that_does_not_share_uses_sockets_with_all() -> str:
    """The others share memory among themselves, where there are two; exchanges mix both, or all three."""
    for sockets in (True, False, rank() < 3):
        mixed = on_group(share_memory=rank() != 0, sockets=sockets).transport
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
        shared = on_group(share_memory=True)
        check_exchange(shared.transport, every_pair(1000))
        assert len(mapped("memfd:joinsum")) > before
        assert not mapped("/dev/shm/")
        del shared
    gc.collect()
    return len(mapped("memfd:joinsum")) - before
