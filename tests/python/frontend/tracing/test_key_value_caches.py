"""Claims about finding the tensors of key-value caches among arguments."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from joinsum.frontend.tracing.key_value_caches import KeyValueCaches

transformers = pytest.importorskip("transformers")


def filled() -> Any:
    cache = transformers.DynamicCache()
    for layer in range(2):
        cache.update(torch.full((1, 2, 3, 4), 1.0 + layer), torch.full((1, 2, 3, 4), -1.0 - layer), layer)
    return cache


def sums(caches: KeyValueCaches) -> list[float]:
    return sorted(x.sum().item() for x in caches.tensors())


def test_tensors_of_all_layers_are_found_wherever_the_cache_is() -> None:
    caches = KeyValueCaches(((torch.ones(2),), {"kept": [{"cache": filled()}]}))
    assert caches
    assert sums(caches) == [-48.0, -24.0, 24.0, 48.0]


def test_both_caches_of_an_encoder_and_a_decoder_are_found() -> None:
    both = transformers.EncoderDecoderCache(filled(), filled())
    assert len(KeyValueCaches(both).tensors()) == 8


def test_states_in_lists_and_dictionaries_are_found() -> None:
    cache = filled()
    cache.layers[0].states = {0: torch.ones(2), 1: [torch.ones(3)]}
    assert len(KeyValueCaches(cache).tensors()) == 6


def test_arguments_without_caches_have_none() -> None:
    caches = KeyValueCaches(((torch.ones(2),), {"x": object()}))
    assert not caches
    assert caches.tensors() == []


def test_tensors_are_replaced_and_all_assignments_undone() -> None:
    cache = filled()
    held = [vars(layer).copy() for layer in cache.layers]
    caches = KeyValueCaches(cache)
    caches.replace(lambda x: 2 * x)
    assert sums(caches) == [-96.0, -48.0, 48.0, 96.0]
    cache.update(torch.ones(1, 2, 3, 4), torch.ones(1, 2, 3, 4), 2)
    assert len(cache.layers) == 3
    caches.restore()
    assert [vars(layer) for layer in cache.layers] == held


def test_lazy_layers_are_found_once_they_hold_tensors() -> None:
    cache = transformers.DynamicCache()
    caches = KeyValueCaches(cache)
    assert caches
    assert caches.tensors() == []
    cache.update(torch.ones(1, 2, 3, 4), torch.ones(1, 2, 3, 4), 0)
    assert len(caches.tensors()) == 2
    caches.restore()
    assert cache.layers == []
