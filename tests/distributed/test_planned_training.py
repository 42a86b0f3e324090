"""Claims about training by plans on process groups: it equals that of one process, and raises where ranks differ."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
import torch.distributed as dist
from launch import Play, play
from training import EVERYTHING

pytestmark = [
    pytest.mark.distributed,
    pytest.mark.skipif(not dist.is_available() or not dist.is_gloo_available(), reason="torch has no gloo"),
]

LIMIT = 1500 if EVERYTHING else 800
PROGRAM = "planned_training"

# Every change plays all scenes on two ranks; on four, those of grids of two axes and of shards of a batch.
on_two = pytest.mark.parametrize("ranks", [2, 4] if EVERYTHING else [2])
on_both = pytest.mark.parametrize("ranks", [2, 4])
ON_FOUR = [
    "planned_steps_are_those_of_one_process",
    "a_distributed_model_takes_and_returns_shards",
]


@pytest.fixture(scope="session")
def plays(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Launches on a number of ranks, each once."""

    @cache
    def played(ranks: int) -> Play:
        modules = [PROGRAM, "generating"] if EVERYTHING or ranks == 2 else [f"{PROGRAM}.{scene}" for scene in ON_FOUR]
        return play(ranks, modules, tmp_path_factory.mktemp(f"planned{ranks}"), LIMIT)

    return played


@on_both
def test_planned_steps_on_a_group_are_those_of_one_process(plays: Any, ranks: int) -> None:
    losses = plays(ranks).values("planned_steps_are_those_of_one_process")
    assert all(each == losses[0] for each in losses)


@on_two
def test_single_precision_and_clipping_on_a_group_are_those_of_one_process(plays: Any, ranks: int) -> None:
    losses = plays(ranks).values("single_precision_and_clipping_are_those_of_one_process")
    assert all(each == losses[0] for each in losses)


@on_two
def test_one_plan_serves_several_batch_sizes_on_all_ranks(plays: Any, ranks: int) -> None:
    origins = plays(ranks).values("one_plan_serves_several_batch_sizes")
    assert all(each == origins[0] for each in origins)
    first, again, smaller, uneven = origins[0]
    assert first == "planned here"
    assert again == "planned here"  # the same plan: parameters lie where it left them
    assert smaller == uneven == "the plan of other sizes"


@on_two
def test_a_step_on_shards_of_a_batch_is_the_step_of_the_global_batch(plays: Any, ranks: int) -> None:
    losses = plays(ranks).values("each_rank_passes_its_shard_of_the_batch")
    assert all(each == losses[0] for each in losses)


@on_both
def test_a_distributed_model_trains_on_each_ranks_shard(plays: Any, ranks: int) -> None:
    losses = plays(ranks).values("a_distributed_model_takes_and_returns_shards")
    assert all(each == losses[0] for each in losses)


@on_two
def test_tables_with_sparse_gradients_train_on_shards(plays: Any, ranks: int) -> None:
    losses = plays(ranks).values("tables_with_sparse_gradients_train_on_shards")
    assert all(each == losses[0] for each in losses)


@on_two
def test_shards_may_have_several_lengths(plays: Any, ranks: int) -> None:
    losses = plays(ranks).values("ranks_pass_shards_of_several_lengths")
    assert all(each == losses[0] for each in losses)


@on_two
def test_results_beside_the_loss_are_gathered_sharded_or_local(plays: Any, ranks: int) -> None:
    layouts = plays(ranks).values("results_beside_the_loss_are_gathered_sharded_or_local")
    assert all(each == layouts[0] for each in layouts)
    assert set(layouts[0]) == {str(2 * ranks), str(2 * ranks + 1)}


@on_two
def test_evaluation_between_steps_gathers_no_parameter(plays: Any, ranks: int) -> None:
    counts = plays(ranks).values("evaluation_between_steps_gathers_no_parameter")
    assert all(count == counts[0] > 0 for count in counts)


@on_two
def test_shards_of_other_widths_are_an_error_on_all_ranks(plays: Any, ranks: int) -> None:
    for kind, text, _ in plays(ranks).values("shards_of_other_widths_are_refused"):
        assert kind == "TransportError"
        assert text == (
            "train_step: the ranks passed shards of different lengths, beyond their first axis: tensor 0 of the batch, "
            "site 0: [2, 6] torch.float32, site 1: [2, 7] torch.float32; pad the batches of all ranks to one length, "
            "as with pad_to_multiple_of or padding='max_length'"
        )


@on_two
def test_ranks_that_pass_batches_of_their_own_are_told_what_to_do(plays: Any, ranks: int) -> None:
    for errors in plays(ranks).values("ranks_that_pass_batches_of_their_own_are_told_what_to_do"):
        assert len(errors) == 8
        for case, (kind, text, seconds) in errors.items():
            assert (kind, seconds < 20) == ("TransportError", True), case
            assert 'pass the same batch on all ranks, or each rank its own with data="sharded"' in text, case
            if case.endswith("a new size"):
                assert text.startswith("capture: the ranks make different calls: site 1 captures a graph for new"), text
                assert "site 0 runs a graph that it captured before; the inputs of this rank: x=[" in text, text
                continue
            assert text.startswith("capture: the ranks passed different inputs: input=x, site 0: "), text
            first, second = ("f32[8,6]", "f32[6,6]") if case.endswith("known sizes") else ("[8, 6]", "[6, 6]")
            assert f"site 0: {first}" in text, text
            assert f", site 1: {first if case.endswith('values') else second}" in text, text


@on_two
def test_dropout_has_one_mask_with_the_first_ranks_seed(plays: Any, ranks: int) -> None:
    name = "dropout_on_a_group_is_that_of_one_process_with_the_first_ranks_seed"
    for rank, (_, notes) in enumerate(plays(ranks).values(name)):
        assert len(notes) == (rank == 0)


@on_two
def test_models_of_other_seeds_take_the_first_ranks_values(plays: Any, ranks: int) -> None:
    found = plays(ranks).values("models_of_other_seeds_take_the_first_ranks_values")
    for rank, (losses, notes) in enumerate(found):
        assert losses == found[0][0]
        assert [note.partition(":")[0] for note in notes] == (
            [] if rank else ["train_step", "distribute", "train_step"]
        )
        counts = [
            "first=0.weight, count=4",
            "first=0.weight, count=4",
            "first=0.bias, count=2",
        ]  # others have no memory
        assert all(count in note for note, count in zip(notes, counts, strict=False))


@on_two
def test_ranks_that_capture_different_models_all_raise_and_name_the_first_node(plays: Any, ranks: int) -> None:
    for rank, errors in enumerate(plays(ranks).values("ranks_with_different_models_all_raise")):
        step, distribute, no_rule, branch = errors
        for kind, text, seconds in (step, distribute):
            assert kind == "TransportError"
            assert "aten::relu" in text.partition("site 1:")[0]
            assert "aten::tanh" in text.partition("site 1:")[2]
            assert seconds < 30
        for kind, text, _ in (no_rule, branch):
            assert kind == ("CaptureError" if rank == 1 else "TransportError")
            assert rank == 1 or "site 1: (no plan) CaptureError" in text


@on_two
def test_planned_state_goes_to_other_sites_and_to_dtensors(plays: Any, ranks: int) -> None:
    counts = plays(ranks).values("planned_state_goes_to_other_numbers_of_sites_and_to_dtensors")
    assert all(count == counts[0] > 0 for count in counts)


@on_two
def test_generated_tokens_are_those_of_the_plain_model(plays: Any, ranks: int) -> None:
    pytest.importorskip("transformers")
    tokens = plays(ranks).values("tokens_are_those_of_the_plain_model")
    assert all(each == tokens[0] for each in tokens)
