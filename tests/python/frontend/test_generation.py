"""Claims about generation by models whose parameters are on the sites: the tokens are those of the plain model."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import joinsum
import pytest
import torch
from training import CUTTING

transformers = pytest.importorskip("transformers")


@pytest.fixture(autouse=True)
def sites() -> Iterator[None]:
    torch._dynamo.reset()
    joinsum.init(sites=2, cluster=CUTTING)
    yield
    joinsum.init()


def llama() -> Any:
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=64,
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=1,
        bos_token_id=1,
        eos_token_id=2,
        pad_token_id=0,
    )
    return transformers.LlamaForCausalLM(config).eval()


def padded() -> dict[str, torch.Tensor]:
    """Prompts of two lengths, padded on the left."""
    ids = torch.randint(3, 64, (2, 6), generator=torch.Generator().manual_seed(1))
    mask = torch.ones_like(ids)
    ids[0, :2] = mask[0, :2] = 0
    return {"input_ids": ids, "attention_mask": mask}


def same_tokens(model: Any, plain: Any, **options: Any) -> None:
    found = []
    for each in (model, plain):
        torch.manual_seed(7)
        found.append(each.generate(**padded(), max_new_tokens=4, **options))
    assert torch.equal(*found)


@pytest.mark.slow
@pytest.mark.parametrize("how", ["distribute", "train_step", "torch.compile"])
def test_tokens_are_those_of_the_plain_model(how: str) -> None:
    plain = llama()
    model = copy.deepcopy(plain)
    if how == "distribute":
        joinsum.distribute(model, padded())
    elif how == "torch.compile":
        model.forward = torch.compile(model.forward, backend="joinsum")
    else:
        step = joinsum.train_step(model, None, torch.optim.SGD(model.parameters(), lr=0.0))
        step(**padded(), labels=padded()["input_ids"])
    same_tokens(model, plain, do_sample=False)
    same_tokens(model, plain, do_sample=True, top_k=8)
    if how == "distribute":
        same_tokens(model, plain, num_beams=3, do_sample=False)
        same_tokens(model, plain, do_sample=False, cache_implementation="static")
