"""Claims about what people add to Hugging Face models: adapters, checkpointed activations, padding, shared weights."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import joinsum
import peft
import pytest
import torch
from joinsum import DistributedTensor
from torch import Tensor, nn
from training import CUTTING, rare
from transformers import LlamaConfig, LlamaForCausalLM


@pytest.fixture(autouse=True)
def two_sites() -> None:
    torch._dynamo.reset()
    joinsum.init(sites=2, cluster=CUTTING)


def llama(**options: Any) -> LlamaForCausalLM:
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=32,
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        use_cache=False,
        **options,
    )
    return LlamaForCausalLM(config)


def with_adapters() -> Any:
    """LoRA on a frozen model, past its first step: the second factors are not zero."""
    options = peft.LoraConfig(r=4, target_modules=["q_proj", "v_proj"], modules_to_save=["lm_head"], lora_dropout=0.0)
    model = peft.get_peft_model(llama(), options)
    for name, x in model.named_parameters():
        if "lora_B" in name:
            nn.init.normal_(x)
    return model


def checkpointing(reentrant: bool) -> LlamaForCausalLM:
    model = llama()
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": reentrant})
    return model.train()


MODELS: dict[str, Callable[[], Any]] = {
    "adapters": with_adapters,
    "checkpointed activations": lambda: checkpointing(False),
    "reentrant checkpoints": lambda: checkpointing(True),
    "shared embeddings": lambda: llama(tie_word_embeddings=True),
}


def padded(index: int) -> dict[str, Tensor]:
    """Four sequences of several lengths, padded to one that differs from batch to batch."""
    length = 8 + index
    ids = torch.randint(32, (4, length), generator=torch.Generator().manual_seed(index))
    mask = (torch.arange(length) < torch.tensor([[length], [5], [3 + index], [length]])).long()
    return {"input_ids": ids, "attention_mask": mask, "labels": ids.masked_fill(mask == 0, -100)}


def trained(model: Any, distributed: bool = False) -> list[float]:
    """The losses of three steps in the user's loop."""
    if distributed:
        joinsum.distribute(model, padded(0))
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.1)
    losses = []
    for index in range(3):
        loss = model(**padded(index)).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


@pytest.mark.parametrize("way", [rare("train_step"), "distribute"])
@pytest.mark.parametrize("name", MODELS)
def test_they_train_as_in_torch(name: str, way: str) -> None:
    plain = MODELS[name]()
    model, before = copy.deepcopy(plain), copy.deepcopy(plain.state_dict())
    wanted = trained(plain)
    if way == "distribute":
        losses = trained(model, distributed=True)
    else:
        trainable = [p for p in model.parameters() if p.requires_grad]
        step = joinsum.train_step(model, None, torch.optim.SGD(trainable, lr=0.1))
        losses = [step(**padded(index)).item() for index in range(3)]
    assert losses == pytest.approx(wanted, rel=1e-5)
    found = joinsum.full_state_dict(model)
    for key, x in plain.state_dict().items():
        torch.testing.assert_close(found[key], x, rtol=1e-5, atol=1e-5)
    frozen = {key for key, p in plain.named_parameters() if not p.requires_grad}
    assert (name == "adapters") == bool(frozen)
    assert all(torch.equal(found[key], before[key]) for key in frozen)


def test_adapters_are_saved_alone_and_loaded(tmp_path: Path) -> None:
    model = with_adapters()
    joinsum.distribute(model, padded(0))
    with torch.no_grad():
        wanted = model(**padded(0)).logits
    model.save_pretrained(tmp_path)
    assert {"adapter_model.safetensors", "adapter_config.json"} <= {path.name for path in tmp_path.iterdir()}
    assert isinstance(model.get_input_embeddings().weight, DistributedTensor)
    loaded = peft.PeftModel.from_pretrained(llama(), tmp_path)
    with torch.no_grad():
        torch.testing.assert_close(loaded(**padded(0)).logits, wanted, rtol=1e-5, atol=1e-5)
