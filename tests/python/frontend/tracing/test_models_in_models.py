"""Claims about Hugging Face's models that have other models inside, or adapters: they train as they come."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import joinsum
import pytest
import torch
from joinsum.distributed.distributed_tensor import gathered
from joinsum.frontend.tracing.hugging_face import prepare_models
from torch import nn
from training import CUTTING

transformers = pytest.importorskip("transformers")

SIZES = {
    "hidden_size": 32,
    "num_hidden_layers": 1,
    "num_attention_heads": 4,
    "intermediate_size": 48,
}
TEXT = {**SIZES, "vocab_size": 64, "max_position_embeddings": 64, "pad_token_id": 0}
IMAGE = {**SIZES, "image_size": 32, "patch_size": 16}


@pytest.fixture(autouse=True)
def two_sites() -> Iterator[None]:
    torch._dynamo.reset()
    joinsum.init(sites=2, cluster=CUTTING)
    yield
    joinsum.init()


def tokens(length: int) -> torch.Tensor:
    return torch.randint(8, 64, (2, length), generator=torch.Generator().manual_seed(0))


def images() -> torch.Tensor:
    return torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(1))


def captioning() -> tuple[nn.Module, dict[str, Any]]:
    """Calls layers whose hooks collect outputs where nothing collects."""
    ids = tokens(8)
    model = transformers.GitForCausalLM(
        transformers.GitConfig(vision_config=IMAGE, **TEXT, bos_token_id=1, eos_token_id=2)
    )
    return model, {"input_ids": ids, "pixel_values": images(), "labels": ids}


def masked_images() -> tuple[nn.Module, dict[str, Any]]:
    decoder = {f"decoder_{name}": size for name, size in SIZES.items()}
    model = transformers.ViTMAEForPreTraining(transformers.ViTMAEConfig(**IMAGE, **decoder))
    return model, {"pixel_values": images(), "noise": torch.tensor([[0.1, 0.7, 0.3, 0.5], [0.4, 0.2, 0.9, 0.6]])}


def segmenting() -> tuple[nn.Module, dict[str, Any]]:
    """Reads the hidden states of an encoder in a backbone."""
    backbone = transformers.ConvNextConfig(
        depths=[1] * 4, hidden_sizes=[8, 12, 16, 20], out_features=[f"stage{i}" for i in range(1, 5)]
    )
    config = transformers.UperNetConfig(
        backbone_config=backbone, hidden_size=8, num_labels=3, auxiliary_in_channels=16, auxiliary_channels=8
    )
    model = transformers.UperNetForSemanticSegmentation(config)
    return model, {"pixel_values": images(), "labels": torch.arange(2 * 32 * 32).reshape(2, 32, 32) % 3}


def answering() -> tuple[nn.Module, dict[str, Any]]:
    """Asserts that there is a feature for each token of an image."""
    ids = tokens(10)
    ids[:, 1:5] = 5
    config = transformers.LlavaConfig(
        vision_config={**IMAGE, "model_type": "clip_vision_model", "num_hidden_layers": 2},
        text_config={**TEXT, "model_type": "llama"},
        image_token_id=5,
    )
    model = transformers.LlavaForConditionalGeneration(config)
    return model, {"input_ids": ids, "pixel_values": images(), "labels": ids, "attention_mask": torch.ones_like(ids)}


def prophet() -> tuple[nn.Module, dict[str, Any]]:
    """Asserts that no label is negative."""
    sizes = {f"{part}_{name}": size for part in ("encoder", "decoder") for name, size in (("ffn_dim", 48),)}
    heads = {
        f"num_{part}_{name}": n
        for part in ("encoder", "decoder")
        for name, n in (("layers", 1), ("attention_heads", 4))
    }
    config = transformers.ProphetNetConfig(
        vocab_size=64, hidden_size=32, max_position_embeddings=64, pad_token_id=0, **sizes, **heads
    )
    return transformers.ProphetNetForConditionalGeneration(config), {"input_ids": tokens(8), "labels": tokens(6)}


def adapted() -> tuple[nn.Module, dict[str, Any]]:
    """Reads the norms of frozen weights."""
    peft = pytest.importorskip("peft")
    ids = tokens(8)
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**TEXT))
    config = peft.LoraConfig(r=4, target_modules=["q_proj", "v_proj"], use_dora=True, task_type="CAUSAL_LM")
    return peft.get_peft_model(model, config), {"input_ids": ids, "labels": ids}


SLOW = pytest.mark.slow


@pytest.mark.parametrize(
    "make",
    [
        captioning,
        segmenting,
        answering,
        adapted,
        pytest.param(masked_images, marks=SLOW),
        pytest.param(prophet, marks=SLOW),
    ],
)
def test_they_train_as_plain_ones_do(make: Callable[[], tuple[nn.Module, dict[str, Any]]]) -> None:
    models: list[Any] = []
    for _ in range(2):
        torch.manual_seed(0)
        model, batch = make()
        models.append(model.double().eval())
    plain, planned = models
    batch = {name: x.double() if x.is_floating_point() else x for name, x in batch.items()}
    optimizers = [torch.optim.SGD(m.parameters(), lr=0.05) for m in models]
    step = joinsum.train_step(planned, None, optimizers[1])
    for _ in range(2):
        wanted = plain(**batch).loss
        optimizers[0].zero_grad()
        wanted.backward()
        optimizers[0].step()
        torch.testing.assert_close(step(**batch), wanted.detach(), rtol=1e-6, atol=0)
    for name, value in plain.named_parameters():
        torch.testing.assert_close(gathered(planned.get_parameter(name)), value, rtol=1e-5, atol=1e-6)


def test_hooks_are_installed_once_in_a_model_inside_of_another_one() -> None:
    model, batch = segmenting()
    plain, _ = segmenting()
    plain(**batch)
    prepare_models(model.modules())
    prepare_models(model.modules())
    for name, module in plain.named_modules():
        assert len(model.get_submodule(name)._forward_hooks) == len(module._forward_hooks), name


def test_what_collects_outputs_is_as_it_was_outside_of_traces() -> None:
    capturing = pytest.importorskip("transformers.utils.output_capturing")
    prepare_models([])
    variable = capturing.CompileableContextVar("test")
    assert variable.get() is None
    outer = variable.set({"a": []})
    inner = variable.set({"b": []})
    assert variable.get() == {"b": []}
    variable.reset(inner)
    assert variable.get() == {"a": []}
    variable.reset(outer)
    assert variable.get() is None


def test_a_collector_ends_after_a_graph_break() -> None:
    capturing = pytest.importorskip("transformers.utils.output_capturing")
    prepare_models([])
    variable = capturing.CompileableContextVar("test")
    seen = []

    @torch._dynamo.disable
    def end(token: Any) -> None:
        seen.append(variable.get())
        variable.reset(token)

    def collecting(x: torch.Tensor) -> torch.Tensor:
        token = variable.set({"a": 1})
        x = x + 1
        end(token)
        return x

    compiled = torch.compile(collecting, backend="eager")
    for _ in range(2):
        assert torch.equal(compiled(torch.ones(2)), torch.full((2,), 2.0))
        assert variable.get() is None
    assert seen == [{"a": 1}] * 2
