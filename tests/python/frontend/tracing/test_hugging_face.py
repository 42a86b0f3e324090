"""Claims about Hugging Face's models as they come from their configs: nothing is called, set or replaced before."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import joinsum
import pytest
import torch
from torch import nn

pytest.importorskip("transformers")

from families import FAMILIES, Family
from joinsum.distributed.distributed_tensor import gathered
from joinsum.frontend.tracing.hugging_face import prepare_models
from training import CUTTING, same

# Models compute their losses in single precision, also those in double.
ROUNDING = 1e-6


@pytest.fixture(autouse=True)
def three_sites() -> Iterator[None]:
    torch._dynamo.reset()
    joinsum.init(sites=3, cluster=CUTTING)
    yield
    joinsum.init()


def as_it_comes(name: str) -> Family:
    """A family in double precision whose config says nothing about caches; its models have not been called."""
    family = FAMILIES[name]
    config = {key: value for key, value in family.config.items() if key != "use_cache"}
    return replace(family, config=config, dtype=torch.float64)


def batch(family: Family) -> dict[str, Any]:
    """A batch with labels, without options of the call."""
    inputs = family.inputs()
    del inputs["return_dict"]
    return inputs


@pytest.mark.slow
@pytest.mark.parametrize("name", ["gpt2", "vit", "wav2vec2"])
def test_models_train_as_they_come(name: str) -> None:
    family = as_it_comes(name)
    plain, planned = family.build(), family.build()
    optimizers = [torch.optim.SGD(m.parameters(), lr=0.05, momentum=0.9) for m in (plain, planned)]
    step, inputs = joinsum.train_step(planned, None, optimizers[1]), batch(family)
    for _ in range(3):
        wanted = plain(**inputs).loss
        optimizers[0].zero_grad()
        wanted.backward()
        optimizers[0].step()
        torch.testing.assert_close(step(**inputs), wanted.detach(), rtol=ROUNDING, atol=0)
    found, wanted = step.evaluate(**inputs), plain.eval()(**inputs)
    assert type(found) is type(wanted)
    torch.testing.assert_close(found.logits, wanted.logits.detach())
    step.sync()
    assert planned.training
    same(planned, plain, ROUNDING)


@pytest.mark.slow
def test_a_distributed_model_trains_in_the_users_loop_as_it_comes() -> None:
    family = as_it_comes("gpt2")
    plain, model = family.build(), family.build()
    inputs = batch(family)
    joinsum.distribute(model, inputs)
    for _ in range(2):
        wanted, actual = plain(**inputs), model(**inputs)
        assert type(actual) is type(wanted)
        torch.testing.assert_close(actual.logits, wanted.logits)
        for each in (wanted, actual):
            each.loss.backward()
    for p, q in zip(model.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(gathered(p.grad), q.grad, rtol=0, atol=ROUNDING)


@pytest.mark.slow
def test_batches_of_several_lengths_train_as_they_come() -> None:
    config = {**as_it_comes("gpt2").config, "n_layer": 1, "n_embd": 8, "n_head": 2}
    family = replace(as_it_comes("gpt2"), config=config)
    plain, planned = family.build(), family.build()
    optimizers = [torch.optim.SGD(m.parameters(), lr=0.05) for m in (plain, planned)]
    step = joinsum.train_step(planned, None, optimizers[1])
    tokens = batch(family)["input_ids"]
    for rows, length in [(4, 16), (4, 9), (2, 12)]:
        ids = tokens[:rows, :length]
        wanted = plain(input_ids=ids, labels=ids).loss
        optimizers[0].zero_grad()
        wanted.backward()
        optimizers[0].step()
        torch.testing.assert_close(step(input_ids=ids, labels=ids), wanted.detach(), rtol=ROUNDING, atol=0)


def test_only_what_hugging_faces_models_do_in_their_first_call_is_prepared() -> None:
    class Mine(nn.Module):
        _requires_grad = True

    mine, model = Mine(), as_it_comes("wav2vec2").build()
    extractor = model.wav2vec2.feature_extractor
    assert extractor._requires_grad
    flags = {name: p.requires_grad for name, p in model.named_parameters()}
    prepare_models([mine, *model.modules()])
    assert mine._requires_grad
    assert not extractor._requires_grad
    assert {name: p.requires_grad for name, p in model.named_parameters()} == flags
    inputs = batch(as_it_comes("wav2vec2"))
    wanted = as_it_comes("wav2vec2").build()(**inputs, output_hidden_states=True)
    found = model(**inputs, output_hidden_states=True)
    torch.testing.assert_close(found.hidden_states, wanted.hidden_states)
    torch.testing.assert_close(found.loss, wanted.loss)
