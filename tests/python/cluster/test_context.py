"""`joinsum.init`: which store holds the blocks, and what contexts report of it."""

from __future__ import annotations

from collections.abc import Iterator

import joinsum
import pytest
import torch


@pytest.fixture(autouse=True)
def default_context() -> Iterator[None]:
    yield
    joinsum.init()


def test_the_environment_names_the_store_where_init_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JOINSUM_STORE", raising=False)
    assert joinsum.init().store.name == "memory"
    monkeypatch.setenv("JOINSUM_STORE", "relocating")
    assert joinsum.init().store.name == "relocating"
    assert joinsum.init(store="memory").store.name == "memory"


def test_an_unknown_store_is_an_error_that_lists_the_choices() -> None:
    with pytest.raises(joinsum.PlanError, match=r"init: no store of that name: store=disk, choices=memory, relocating"):
        joinsum.init(store="disk")
    with pytest.raises(joinsum.PlanError, match=r"init: a store is a name: store=3, choices=memory, relocating"):
        joinsum.init(store=3)  # type: ignore[arg-type]


@pytest.mark.parametrize("store", ["memory", "relocating"])
def test_every_store_gives_the_same_result(store: str) -> None:
    joinsum.init(sites=4, store=store)
    x, y = torch.arange(12.0).reshape(3, 4), torch.arange(20.0).reshape(4, 5)
    assert torch.equal(joinsum.einsum("ij,jk->ik", x, y), x @ y)


def test_blocks_and_freed_blocks_stay_within_the_memory_of_the_cluster() -> None:
    budget = 3 * 2**20
    current = joinsum.init(sites=2, cluster=joinsum.Cluster(memory_bytes=budget), store="memory")
    for rows in (512, 1024, 768, 1024):
        x = joinsum.relation(torch.rand(rows, 512), parts=(2, 1))
        stored = x.transform("exp").stored()
        assert current.resident_bytes <= 2 * budget
        del x, stored
        assert current.resident_bytes <= 2 * budget
    joinsum.init(sites=2, cluster=joinsum.Cluster(memory_bytes=2**16), store="memory")
    with pytest.raises(joinsum.PlanError, match="memory_bytes=65536"):
        joinsum.relation(torch.rand(1024, 512), parts=(2, 1)).transform("exp").stored()


def test_freed_blocks_are_counted_and_never_exceed_the_peak_of_blocks() -> None:
    current = joinsum.init(store="memory")
    x = joinsum.relation(torch.rand(512, 512))
    stored = x.transform("exp").stored()
    trace = joinsum.trace()
    peak = max(entry.peak_bytes for entry in trace)
    assert trace.pooled_bytes == trace[-1].pooled_bytes
    assert current.resident_bytes == current.bytes + current.store.pooled_bytes
    assert all(entry.pooled_bytes <= peak for entry in trace)
    del stored
    assert current.store.pooled_bytes > 0
    current.store.release_pool()
    assert current.store.pooled_bytes == 0
