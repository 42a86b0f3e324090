"""Claims about Hugging Face's Trainer in one process: the example's subclass, a distributed model and a compiled
forward pass train as the plain Trainer does."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import joinsum
import pytest
import torch
from training import CUTTING, divided, takes_long

pytest.importorskip("transformers")
pytest.importorskip("accelerate")

from accelerate.state import AcceleratorState
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments

sys.path.insert(0, str(Path(__file__).parents[3] / "examples"))
try:
    from hf_trainer import JoinsumTrainer
finally:
    sys.path.pop(0)

LABELS = [7, 2, 4, 6, 1, 5, 3, 7, 5, 2, 6, 4]


@pytest.fixture(autouse=True)
def two_sites() -> Iterator[None]:
    torch._dynamo.reset()
    AcceleratorState._reset_state(True)
    joinsum.init(sites=2, cluster=CUTTING)
    yield
    joinsum.init()


def small_model() -> LlamaForCausalLM:
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=24,
        hidden_size=16,
        intermediate_size=24,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=2,
        use_cache=False,
    )
    return LlamaForCausalLM(config)


def sample(number: int) -> dict[str, torch.Tensor]:
    """Eight tokens, of which the last are padding: each sample has another number of labels."""
    ids = torch.randint(24, (8,), generator=torch.Generator().manual_seed(number))
    labels = ids.clone()
    labels[LABELS[number] + 1 :] = -100
    return {"input_ids": ids, "labels": labels}


SAMPLES = [sample(number) for number in range(len(LABELS))]


def trained(
    kind: type[Trainer], model: torch.nn.Module, folder: Path, sites: int = 2, samples: int = 12, **options: Any
) -> tuple[list[float], dict[str, torch.Tensor], Trainer]:
    """Losses and weights after three updates by SGD, and the trainer."""
    arguments: dict[str, Any] = {
        "output_dir": str(folder),
        "per_device_train_batch_size": 2,
        "max_steps": 3,
        "learning_rate": 0.5,
        "optim": "sgd",
        "lr_scheduler_type": "linear",
        "logging_steps": 1,
        "save_strategy": "no",
        "use_cpu": True,
        "report_to": [],
        "disable_tqdm": True,
        "train_sampling_strategy": "sequential",
    }
    trainer = kind(model, TrainingArguments(**arguments | options), train_dataset=SAMPLES[:samples])
    joinsum.init(sites=sites, cluster=CUTTING) if kind is JoinsumTrainer else None
    trainer.train()
    losses = [each["loss"] for each in trainer.state.log_history if "loss" in each]
    return losses, joinsum.full_state_dict(trainer.model), trainer


def compare(found: Any, wanted: Any, tolerance: float = 1e-5) -> None:
    assert found[0] == pytest.approx(wanted[0], abs=1e-4)  # as they are logged
    for name, x in wanted[1].items():
        torch.testing.assert_close(
            found[1][name], x, rtol=0, atol=tolerance, msg=lambda text, name=name: f"{name} {text}"
        )


def test_accumulated_gradients_of_unequal_batches_are_those_of_the_plain_trainer(tmp_path: Path) -> None:
    wanted = trained(Trainer, small_model(), tmp_path, gradient_accumulation_steps=2)
    found = trained(JoinsumTrainer, small_model(), tmp_path, gradient_accumulation_steps=2)
    assert divided(found[2].model)
    compare(found, wanted)


@takes_long
def test_a_loss_that_the_model_divides_by_itself_is_the_mean_of_its_batches(tmp_path: Path) -> None:
    class Own(LlamaForCausalLM):
        accepts_loss_kwargs = False

    def model() -> LlamaForCausalLM:
        plain = small_model()
        plain.__class__ = Own
        return plain

    wanted = trained(Trainer, model(), tmp_path, gradient_accumulation_steps=2)
    compare(trained(JoinsumTrainer, model(), tmp_path, sites=1, gradient_accumulation_steps=2), wanted)


@takes_long
def test_mixed_precision_is_that_of_the_plain_trainer(tmp_path: Path) -> None:
    plain = trained(Trainer, small_model(), tmp_path)
    AcceleratorState._reset_state(True)
    wanted = trained(Trainer, small_model(), tmp_path, bf16=True)
    found = trained(JoinsumTrainer, small_model(), tmp_path, sites=1, bf16=True)
    compare(found, wanted, 1e-4)
    with pytest.raises(AssertionError):
        compare(plain, wanted, 1e-4)
    assert found[2].evaluate(SAMPLES[:2]) != pytest.approx(plain[2].evaluate(SAMPLES[:2]), abs=1e-6)


REFUSED = {
    "gradient_accumulation_steps=8": {"gradient_accumulation_steps": 8},  # of six batches
    "label_smoothing_factor": {"label_smoothing_factor": 0.1},
}


@pytest.mark.parametrize("name", REFUSED)
def test_arguments_that_the_step_does_not_follow_are_refused_by_name(name: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=name):
        trained(JoinsumTrainer, small_model(), tmp_path, **REFUSED[name])


def compiled(model: LlamaForCausalLM) -> torch.nn.Module:
    model.forward = torch.compile(model.forward, backend="joinsum")  # type: ignore[method-assign]
    return model


def distributed(model: LlamaForCausalLM) -> torch.nn.Module:
    batch = {name: torch.stack([each[name] for each in SAMPLES[:2]]) for name in SAMPLES[0]}
    return joinsum.distribute(model, batch)


WAYS: dict[str, Callable[[LlamaForCausalLM], torch.nn.Module]] = {"distribute": distributed, "compile": compiled}


@pytest.mark.parametrize("way", WAYS)
def test_the_plain_trainer_trains_a_model_that_runs_on_the_sites(way: str, tmp_path: Path) -> None:
    wanted = trained(Trainer, small_model(), tmp_path)
    found = trained(Trainer, WAYS[way](small_model()), tmp_path)
    stored = [isinstance(p, joinsum.DistributedTensor) for p in found[2].model.parameters()]
    assert stored == [way == "distribute"] * len(stored)
    compare(found, wanted)
