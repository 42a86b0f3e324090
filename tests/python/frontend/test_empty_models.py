"""Claims about models that are built without memory: their values are the plain model's, and ranks store their own."""

from __future__ import annotations

import gc
import itertools
from collections.abc import Callable, Iterator
from pathlib import Path

import joinsum
import pytest
import safetensors.torch
import torch
from joinsum.frontend import empty_models
from joinsum.frontend.tracing.module_contents import ModuleTensors
from torch import nn
from training import CUTTING, divided


@pytest.fixture(autouse=True)
def small_tensors_count_as_large(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(empty_models, "_LARGE", 16)
    torch._dynamo.reset()
    joinsum.init(sites=3, cluster=CUTTING)
    yield
    joinsum.init()


class Initialised(nn.Module):
    """Parameters that are initialised in many ways."""

    def __init__(self) -> None:
        super().__init__()
        self.scaled = nn.Parameter(torch.randn(8, 8) * 0.02)
        self.truncated = nn.Parameter(nn.init.trunc_normal_(torch.empty(8, 8), std=0.02))
        self.orthogonal = nn.Parameter(torch.empty(8, 8))
        nn.init.orthogonal_(self.orthogonal)
        self.register_buffer("mask", torch.tril(torch.ones(8, 8)))
        self.masked = nn.Parameter(self.get_buffer("mask") * 3)
        self.padded = nn.Parameter(torch.empty(30))
        nn.init.zeros_(self.padded)
        self.padded.data = nn.functional.pad(self.padded.data, (0, 6), value=2.0)
        self.counted = nn.Parameter(torch.log(torch.arange(1.0, 33.0)))
        self.depths = [x.item() for x in torch.linspace(0, 1, 32)]
        with torch.no_grad():
            self.scaled[1].fill_(self.depths[3])


MODELS: dict[str, Callable[[], nn.Module]] = {
    "layers": lambda: nn.Sequential(
        nn.Linear(8, 8),
        nn.Embedding(9, 4, padding_idx=2),
        nn.Conv2d(3, 4, 5),
        nn.LSTM(6, 5),
        nn.MultiheadAttention(8, 2),
        nn.BatchNorm1d(40),
    ),
    "weight norm": lambda: nn.utils.parametrizations.weight_norm(nn.Linear(8, 8)),
    "initialised": Initialised,
    "encoder": lambda: nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16), 2),
}


@pytest.mark.parametrize("name", MODELS)
def test_values_are_those_of_the_plain_model(name: str) -> None:
    torch.manual_seed(3)
    plain = MODELS[name]()
    after = torch.rand(3)
    torch.manual_seed(3)
    with joinsum.init_empty():
        model = MODELS[name]()
    assert torch.equal(torch.rand(3), after)  # the generator has gone on as for the plain model
    assert any(p.is_meta for p in model.parameters())
    ModuleTensors(model)  # clears the weak references of recurrent layers, as every way into joinsum does
    state = torch.get_rng_state()
    for (key, wanted), found in zip(plain.named_parameters(), model.parameters(), strict=True):
        empty_models.place_parameter(found, None)
        assert torch.equal(joinsum.DistributedTensor.full_tensor(found), wanted), key
    assert torch.equal(torch.get_rng_state(), state)
    for wanted, found in zip(plain.buffers(), model.buffers(), strict=True):
        assert torch.equal(found, wanted)


def small() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 12), nn.BatchNorm1d(12), nn.Tanh(), nn.Linear(12, 4))


def test_training_and_distribution_begin_with_the_plain_models_values() -> None:
    x, y = torch.randn(9, 6), torch.randint(4, (9,))
    for way in ("train_step", "distribute"):
        torch.manual_seed(5)
        plain = small()
        torch.manual_seed(5)
        with joinsum.init_empty():
            model = small()
        one, other = (torch.optim.AdamW(m.parameters(), lr=0.01) for m in (plain, model))
        if way == "train_step":
            step = joinsum.train_step(model, nn.functional.cross_entropy, other)
        else:
            joinsum.distribute(model, x)
        for _ in range(3):
            loss = nn.functional.cross_entropy(plain(x), y)
            one.zero_grad()
            loss.backward()
            one.step()
            if way == "train_step":
                found = step(x, y)
            else:
                found = nn.functional.cross_entropy(model(x), y)
                other.zero_grad()
                found.backward()
                other.step()
            torch.testing.assert_close(found.detach(), loss.detach())
        assert not any(p.is_meta for p in model.parameters())


@pytest.mark.parametrize("how", ["safetensors", "state_dict", "checkpoint"])
def test_a_model_on_meta_runs_after_its_values_are_loaded(how: str, tmp_path: Path) -> None:
    plain, x = nn.Sequential(nn.Linear(6, 12), nn.Tanh(), nn.Linear(12, 4)), torch.randn(9, 6)
    with torch.device("meta"):
        model = nn.Sequential(nn.Linear(6, 12), nn.Tanh(), nn.Linear(12, 4))
    joinsum.distribute(model, x)
    with pytest.raises(joinsum.PlanError, match=r"no values yet: first=0\.weight, count=4.*load_safetensors"):
        model(x)
    if how == "safetensors":
        safetensors.torch.save_file(plain.state_dict(), tmp_path / "model.safetensors")
        joinsum.load_safetensors(tmp_path / "model.safetensors", model)
    elif how == "state_dict":
        model.load_state_dict(plain.state_dict())
    else:
        joinsum.save_checkpoint(tmp_path, plain)
        joinsum.load_checkpoint(tmp_path, model)
    torch.testing.assert_close(model(x), plain(x))


def held_beyond_the_end(work: Callable[[], object]) -> int:
    """Bytes of torch's memory that a function holds at most, beyond those that it leaves."""
    gc.collect()
    gc.disable()  # what earlier tests have left would be freed meanwhile
    try:
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profiler:
            result = work()
    finally:
        gc.enable()
    events = [x for x in profiler.profiler.kineto_results.events() if x.name() == "[memory]"]
    held = list(itertools.accumulate(x.nbytes() for x in sorted(events, key=lambda x: x.start_ns())))
    assert held
    del result
    return max(held) - held[-1]


def test_a_model_of_transformers_is_built_and_loaded_without_one_process_holding_it_whole(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    joinsum.init(sites=3, cluster=joinsum.Cluster("slow sites, faster links", 1e6, 1e12, 1e-9))
    sizes = {"hidden_size": 256, "intermediate_size": 256, "vocab_size": 32, "num_attention_heads": 2}
    config = transformers.LlamaConfig(**sizes, num_hidden_layers=2, use_cache=False)

    def built(seed: int) -> nn.Module:
        torch.manual_seed(seed)
        return transformers.LlamaForCausalLM(config)

    ids = torch.randint(32, (1, 4))  # one sample: the weights are divided, not the batch
    plain, other, models = built(3), built(4), []
    whole = sum(p.nbytes for p in plain.parameters())

    def distributed() -> None:
        with joinsum.init_empty():
            models.append(built(3))
        assert all(p.is_meta for p in models[0].parameters())
        joinsum.distribute(models[0], (), {"input_ids": ids, "labels": ids})

    assert held_beyond_the_end(lambda: built(3) and None) > whole  # a plain model, freed
    assert held_beyond_the_end(distributed) < whole / 2
    (model,) = models
    for (name, p), wanted in zip(model.named_parameters(), plain.parameters(), strict=True):
        assert torch.equal(joinsum.DistributedTensor.full_tensor(p), wanted), name
    assert len(divided(model)) > 6
    other.save_pretrained(tmp_path, max_shard_size=whole // 6)
    assert len(list(tmp_path.glob("*.safetensors"))) > 5
    # What torch maps of a file counts as held.
    assert held_beyond_the_end(lambda: joinsum.load_safetensors(tmp_path, model)) < whole / 2
    for (name, p), wanted in zip(model.named_parameters(), other.parameters(), strict=True):
        assert torch.equal(joinsum.DistributedTensor.full_tensor(p), wanted), name
    found, wanted = model(input_ids=ids, labels=ids), other(input_ids=ids, labels=ids)
    torch.testing.assert_close(found.loss, wanted.loss)


def test_a_step_of_a_model_on_meta_without_values_is_refused() -> None:
    with torch.device("meta"):
        model = nn.Sequential(nn.Linear(6, 12), nn.Tanh(), nn.Linear(12, 4))
    step = joinsum.train_step(model, nn.functional.cross_entropy, torch.optim.SGD(model.parameters(), lr=0.1))
    with pytest.raises(joinsum.PlanError, match=r"train_step: parameters have no values yet: first=0\.weight"):
        step(torch.randn(9, 6), torch.randint(4, (9,)))
