"""Claims about `save_pretrained` of models whose parameters are distributed."""

from __future__ import annotations

import copy
from pathlib import Path

import joinsum
import pytest
import torch
from joinsum import DistributedTensor
from torch import Tensor, nn
from training import CUTTING
from transformers import LlamaConfig, LlamaForCausalLM

IDS = torch.arange(24).reshape(3, 8) % 16


@pytest.fixture(autouse=True)
def two_sites() -> None:
    torch._dynamo.reset()
    joinsum.init(sites=2, cluster=CUTTING)


def new_llama(tied: bool = False) -> LlamaForCausalLM:
    torch.manual_seed(0)
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=16,
            hidden_size=16,
            intermediate_size=32,
            num_hidden_layers=1,
            num_attention_heads=2,
            tie_word_embeddings=tied,
        )
    )


def state_of(model: nn.Module) -> dict[str, Tensor]:
    return joinsum.full_state_dict(model)


@pytest.mark.parametrize("tied", [False, True])
def test_between_training_steps(tmp_path: Path, tied: bool) -> None:
    model = new_llama(tied)
    step = joinsum.train_step(model, None, torch.optim.AdamW(model.parameters(), lr=0.01))
    step(input_ids=IDS, labels=IDS)
    model.save_pretrained(tmp_path)
    assert isinstance(model.lm_head.weight, DistributedTensor)
    assert all(isinstance(x, DistributedTensor) for x in model.state_dict().values())
    loaded = LlamaForCausalLM.from_pretrained(tmp_path)
    torch.testing.assert_close(state_of(loaded), state_of(model), rtol=0, atol=0)
    # The loaded model trains on as the saved one does.
    both = [model, loaded]
    other = joinsum.train_step(loaded, None, torch.optim.SGD(loaded.parameters(), lr=0.01))
    step.sync()
    plain = copy.deepcopy(model)
    value = plain(input_ids=IDS, labels=IDS).loss
    torch.testing.assert_close(other(input_ids=IDS, labels=IDS), value.detach(), rtol=1e-5, atol=1e-5)
    assert "save_pretrained" not in both[0].__dict__


def test_of_a_distributed_model_and_its_copy(tmp_path: Path) -> None:
    model = joinsum.distribute(new_llama(), {"input_ids": IDS, "labels": IDS})
    copied = copy.deepcopy(model)
    with torch.no_grad():
        model.lm_head.weight.mul_(2)
    copied.save_pretrained(tmp_path / "copy")
    model.save_pretrained(tmp_path / "model")
    model.save_pretrained(tmp_path / "given", state_dict=copied.state_dict())
    found = [LlamaForCausalLM.from_pretrained(tmp_path / name).lm_head.weight for name in ("copy", "model", "given")]
    assert torch.equal(found[0] * 2, found[1])
    assert torch.equal(found[0], found[2])
    joinsum.gather(model)
    assert type(model).save_pretrained == type(new_llama()).save_pretrained
    assert "save_pretrained" not in model.__dict__
