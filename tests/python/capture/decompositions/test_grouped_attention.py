"""Attention in which a head of keys and values serves several heads of the queries."""

from __future__ import annotations

from typing import Any

import joinsum
import pytest
import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention
from training import CUTTING, train_by_torch
from transformers import LlamaConfig, LlamaForCausalLM


def masks(kind: str, heads: int) -> dict[str, Any]:
    if kind == "causal":
        return {"is_causal": True}
    shape = {"for all": (5, 5), "of samples": (2, 1, 5, 5), "of heads": (1, heads, 5, 5)}[kind]
    return {"attn_mask": torch.randn(shape, generator=torch.Generator().manual_seed(2))}


@pytest.mark.parametrize("length", [5, 128])
@pytest.mark.parametrize("groups", [1, 2, 4])
def test_gradients_lie_in_memory_as_torchs(groups: int, length: int) -> None:
    """What is of one position is adjacent: views of the gradients are traced with torch's operator."""
    query = torch.randn(2, 4, length, 64)
    key, value = torch.randn(2, 2, groups, length, 64)
    found = torch.ops.joinsum.attention(query, key, value, None, True)
    gradients = torch.ops.joinsum.attention_backward(torch.randn_like(query), query, key, value, *found, None, True)
    assert all(each.transpose(1, 2).is_contiguous() for each in gradients)


@pytest.mark.parametrize("sites", [1, 2])
def test_layers_with_few_heads_of_keys_train(sites: int) -> None:
    joinsum.init(sites=sites, plan_cache=False)
    torch._dynamo.reset()
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=64,
        hidden_size=256,
        intermediate_size=64,
        num_hidden_layers=1,
        num_attention_heads=4,
        num_key_value_heads=2,
    )
    plain, model = LlamaForCausalLM(config), LlamaForCausalLM(config)
    model.load_state_dict(plain.state_dict())
    words, target = torch.randint(64, (2, 2, 128))

    def loss_of(result: Any, target: Tensor) -> Tensor:
        return torch.nn.functional.cross_entropy(result.logits.flatten(0, 1), target.flatten())

    step = joinsum.train_step(model, loss_of, torch.optim.SGD(model.parameters(), lr=0.1))
    optimizer = torch.optim.SGD(plain.parameters(), lr=0.1)
    wanted = train_by_torch(plain, loss_of, optimizer, [(words, target)] * 2)
    found = torch.stack([step(words, target) for _ in wanted])
    torch.testing.assert_close(found, torch.tensor(wanted), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("sites", [1, 2, 3, 4])
@pytest.mark.parametrize("kind", ["causal", "for all", "of samples", "of heads"])
@pytest.mark.parametrize(("heads", "groups"), [(4, 2), (6, 1), (6, 3)])
def test_values_and_gradients_are_torchs(sites: int, kind: str, heads: int, groups: int) -> None:
    joinsum.init(sites=sites, cluster=CUTTING, plan_cache=False)
    torch._dynamo.reset()
    generator = torch.Generator().manual_seed(1)
    shapes = [(2, heads, 5, 8), (2, groups, 5, 8), (2, groups, 5, 8)]
    given = [torch.randn(shape, generator=generator, requires_grad=True) for shape in shapes]
    weights = torch.randn(shapes[0], generator=generator)

    options = masks(kind, heads)

    def attend(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        return scaled_dot_product_attention(query, key, value, enable_gqa=True, **options)

    wanted, result = attend(*given), joinsum.compile(attend)(*given)
    torch.testing.assert_close(result, wanted)
    gradients = [torch.autograd.grad((each * weights).sum(), given) for each in (result, wanted)]
    for own, torchs in zip(*gradients, strict=True):
        torch.testing.assert_close(own, torchs)
