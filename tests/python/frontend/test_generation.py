"""Claims about generation by models whose parameters are on the sites: tokens are those of the plain model, and
key-value caches stay distributed."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import joinsum
import pytest
import torch
from joinsum.base.errors import CaptureError
from joinsum.distributed.distributed_tensor import DistributedTensor
from training import CUTTING, EVERYTHING, rare

transformers = pytest.importorskip("transformers")


@pytest.fixture(scope="module", autouse=True)
def sites() -> Iterator[None]:
    torch._dynamo.reset()
    joinsum.init(sites=2, cluster=CUTTING)
    yield
    joinsum.init()


@pytest.fixture(scope="module")
def model() -> Any:
    """A distributed model, whose captured graphs all tests share."""
    return joinsum.distribute(llama(), padded())


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


def keys_of(cache: Any) -> Any:
    return cache.layers[0].keys


@pytest.mark.slow
@pytest.mark.parametrize("how", ["distribute", rare("train_step"), "torch.compile"])
def test_tokens_are_those_of_the_plain_model(request: Any, how: str) -> None:
    plain = llama()
    model = request.getfixturevalue("model") if how == "distribute" else copy.deepcopy(plain)
    if how == "torch.compile":
        model.forward = torch.compile(model.forward, backend="joinsum")
    elif how == "train_step":
        step = joinsum.train_step(model, None, torch.optim.SGD(model.parameters(), lr=0.0))
        step(**padded(), labels=padded()["input_ids"])
    same_tokens(model, plain, do_sample=False)
    same_tokens(model, plain, do_sample=True, top_k=8)
    if how == "distribute":
        same_tokens(model, plain, num_beams=3, do_sample=False)
        same_tokens(model, plain, do_sample=False, cache_implementation="dynamic")


@pytest.mark.slow
def test_a_cache_stays_distributed_and_one_plan_writes_all_tokens(model: Any) -> None:
    found = model.generate(**padded(), max_new_tokens=4, do_sample=False, return_dict_in_generate=True)
    cache = found.past_key_values
    assert type(cache) is transformers.StaticCache
    assert isinstance(keys_of(cache), DistributedTensor)
    place, kept = keys_of(cache).physical_type, keys_of(cache)
    token = torch.tensor([[5], [6]])
    cache.reset()
    for _ in range(3):
        with torch.no_grad():
            model(input_ids=token, past_key_values=cache)
        assert keys_of(cache) is kept
        assert keys_of(cache).physical_type == place
    assert model.generation_config.cache_implementation is None  # of the user's, unchanged


@pytest.mark.slow
def test_a_caller_chooses_the_cache(model: Any) -> None:
    options = {"max_new_tokens": 2, "do_sample": False, "return_dict_in_generate": True}
    found = model.generate(**padded(), cache_implementation="dynamic", **options)
    assert type(found.past_key_values) is transformers.DynamicCache
    config = transformers.GenerationConfig(cache_implementation="dynamic", pad_token_id=0)
    found = model.generate(**padded(), generation_config=config, **options)
    assert type(found.past_key_values) is transformers.DynamicCache
    assert model.generate(**padded(), use_cache=False, **options).past_key_values is None
    own = transformers.DynamicCache(config=model.config)
    found = model.generate(**padded(), past_key_values=own, **options)
    assert found.past_key_values is own


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "gradients"),
    [("StaticCache", False), ("DynamicCache", True)] + [("DynamicCache", False), ("StaticCache", True)] * EVERYTHING,
)
def test_calls_with_a_cache_are_those_of_the_plain_model(model: Any, kind: str, gradients: bool) -> None:
    plain = llama()
    logits, caches = [], []
    for each in (plain, model):
        made = getattr(transformers, kind)(config=plain.config, **({"max_cache_len": 12} if "Static" in kind else {}))
        with torch.set_grad_enabled(gradients):
            results = [each(**padded(), past_key_values=made)]
            results += [each(input_ids=torch.tensor([[5, 9], [6, 7]]), past_key_values=made) for _ in range(2)]
        assert all(x.past_key_values is made for x in results)
        logits.append([x.logits for x in results])
        caches.append(keys_of(made))
    for one, other in zip(*logits, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)
    assert isinstance(caches[1], DistributedTensor) is not gradients
    held = caches[1].full_tensor() if isinstance(caches[1], DistributedTensor) else caches[1]
    torch.testing.assert_close(held, caches[0], rtol=1e-5, atol=1e-5)


@pytest.mark.slow
def test_a_call_that_fails_leaves_the_cache_as_it_was(model: Any) -> None:
    cache = transformers.DynamicCache(config=model.config)
    with torch.no_grad():
        model(**padded(), past_key_values=cache)
        held = vars(cache.layers[0]).copy()
        with pytest.raises(CaptureError, match="Sizes of tensors must match"):
            model(input_ids=torch.tensor([[5]]), past_key_values=cache)
        assert vars(cache.layers[0]) == held
        with pytest.raises(Exception, match=r"(?i)index|range"):  # once the function's code has returned
            model(input_ids=torch.tensor([[5], [64]]), past_key_values=cache)
        assert vars(cache.layers[0]) == held
        model(input_ids=torch.tensor([[5], [6]]), past_key_values=cache)
        assert keys_of(cache).shape[2] == 7


def test_a_copied_and_a_gathered_model_have_their_own_method(model: Any) -> None:
    copied = copy.deepcopy(model)
    assert copied.generate is not model.generate
    joinsum.gather(copied)
    assert copied.generate.__func__ is type(model).generate
    assert "generate" in vars(model)


def test_a_distributed_model_assists() -> None:
    plain, assistant = llama(), llama()
    ids = padded()["input_ids"][1:]
    wanted = plain.generate(ids, assistant_model=llama(), do_sample=False, max_new_tokens=6)
    for each in (plain, assistant):
        joinsum.distribute(each, {"input_ids": ids})
    assert torch.equal(plain.generate(ids, assistant_model=assistant, do_sample=False, max_new_tokens=6), wanted)
