"""joinsum on process groups: equal to loopback, exact in bytes, loud about disagreements, never waiting for the lost.

The scenes are in programs/; each launch plays many of them, and each test looks at one.
"""

from __future__ import annotations

import json
import re
from functools import cache
from typing import Any

import pytest
import torch.distributed as dist
from launch import Play, call, play
from training import EVERYTHING

pytestmark = [
    pytest.mark.distributed,
    pytest.mark.skipif(not dist.is_available() or not dist.is_gloo_available(), reason="torch has no gloo"),
]

LIMIT = 150
# What every change plays: grids of one axis and uneven shards on three ranks, grids of two axes on four.
MODULES = {
    2: [
        *("collectives", "calibrating", "explaining", "model_state", "parameters", "sparse_relations"),
        *("sparse_programs", "subnets", "subnets_features"),
    ],
    3: ["equal_results", "parameters", "collectives", "disagreements", "einsums", "random_programs", "subnets"],
    4: [
        *("equal_results", "collectives", "subgroups", "random_programs", "model_state", "sparse_relations"),
        "sparse_programs",
    ],
}
if EVERYTHING:
    MODULES[2] += ["equal_results", "einsums", "random_programs"]
    MODULES[4] += ["einsums"]


def sizes_of(module: str) -> pytest.MarkDecorator:
    """Runs a test on each number of ranks that plays the module."""
    return pytest.mark.parametrize("ranks", [ranks for ranks, modules in MODULES.items() if module in modules])


@pytest.fixture(scope="session")
def plays(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Launches on a number of ranks, each once."""

    @cache
    def played(ranks: int) -> Play:
        return play(ranks, MODULES[ranks], tmp_path_factory.mktemp(f"ranks{ranks}"), LIMIT)

    return played


@pytest.fixture(scope="session")
def losses(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Notes of the scenes in which a rank is lost, by `<scene>.<rank>` and `<scene>.exits`."""
    folder = tmp_path_factory.mktemp("failures")
    log = call(["failures.py", str(folder)], 2 * LIMIT)
    notes = {file.stem: json.loads(file.read_text()) for file in folder.glob("*.json")}
    return notes | {"log": log}


# --- results and bytes ------------------------------------------------------------------------------------------------


@sizes_of("equal_results")
def test_integers_are_equal_to_the_bit_on_loopback_and_gloo(plays: Any, ranks: int) -> None:
    counts = plays(ranks).values("integers_are_equal_to_the_bit")
    assert min(counts) > 40


@sizes_of("equal_results")
def test_floats_are_equal_from_run_to_run_and_close_to_loopback(plays: Any, ranks: int) -> None:
    plays(ranks).values("floats_are_equal_from_run_to_run_and_close_to_loopback")


@sizes_of("equal_results")
def test_every_dtype_travels_unchanged(plays: Any, ranks: int) -> None:
    plays(ranks).values("other_dtypes_travel_unchanged")


@sizes_of("equal_results")
def test_wire_bytes_of_the_cost_are_counted_with_messages_and_with_collectives(plays: Any, ranks: int) -> None:
    for moved in plays(ranks).values("cost_is_what_the_transport_counts_to_the_byte"):
        assert moved["loopback"] == moved["never"] == moved["always"] > 0


@sizes_of("equal_results")
def test_the_compared_plans_have_every_operator(plays: Any, ranks: int) -> None:
    plays(ranks).values("every_operator_was_run")


@sizes_of("equal_results")
def test_state_that_is_updated_in_place_stays_equal_to_loopback(plays: Any, ranks: int) -> None:
    plays(ranks).values("state_is_updated_step_by_step")


@sizes_of("equal_results")
def test_all_ranks_get_the_same_measured_cluster(plays: Any, ranks: int) -> None:
    plays(ranks).values("measured_rates_are_the_same_everywhere")


def test_all_ranks_print_one_explanation_and_measure_together(plays: Any) -> None:
    first, second = plays(2).values("explanations_are_alike_and_measured_on_all_ranks")
    assert first == second
    where, text, _ = first
    assert where == "2 sites of gloo"
    assert "measured on 2 sites of gloo" in text


def test_data_that_are_wrong_on_one_rank_end_an_analysis_on_all(plays: Any) -> None:
    (kind, text), (own_kind, own_text) = plays(2).values("data_that_are_wrong_on_one_rank_stop_all_of_them")
    assert (own_kind, kind) == ("PlanError", "TransportError")
    assert own_text.startswith("explain: input X: it has another shape: wanted=[24, 18], got=[24, 19]")
    assert own_text in text


@sizes_of("collectives")
def test_collectives_of_sub_grids_are_those_of_loopback_and_count_the_same_bytes(plays: Any, ranks: int) -> None:
    counts = plays(ranks).values("collectives_of_sub_grids_are_those_of_loopback")
    for loopback, messages, native in counts:
        assert messages == native
        assert loopback == [sum(each) for each in zip(*(own for _, own, _ in counts), strict=True)]


# --- disagreements ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "scene",
    [
        "different_plans_are_named_by_their_first_different_line",
        "a_longer_plan_is_told_from_its_beginning",
        "different_input_types_are_named",
        "different_objectives_are_named",
        "different_scalars_are_named",
        "rank_0_plans_for_all_and_its_errors_are_everyones",
        "a_program_with_a_lookup_table_is_planned_by_rank_0",
        "different_calls_are_named",
        "different_reductions_are_named",
        "a_tensor_that_all_have_is_reduced_without_a_message",
    ],
)
def test_a_disagreement_is_named_alike_on_every_rank_which_then_goes_on(plays: Any, scene: str) -> None:
    texts = plays(3).values(scene)
    assert all(text == texts[0] for text in texts)


def test_an_argument_that_is_wrong_on_every_rank_stops_none_of_them(plays: Any) -> None:
    plays(3).values("a_wrong_argument_on_every_site_stops_none_of_them")


def test_an_argument_of_a_sparse_call_that_is_wrong_on_one_rank_is_an_error_on_all(plays: Any) -> None:
    plays(3).values("a_wrong_argument_of_a_sparse_call_on_one_site_is_an_error_on_all")


def test_an_argument_that_is_wrong_on_one_rank_is_an_error_on_all(plays: Any) -> None:
    texts = plays(3).values("a_wrong_argument_on_one_site_is_an_error_on_all")
    assert "site 1: (no plan) PlanError: run: input X" in texts[0][0], texts[0]
    assert texts[0] == texts[2] != texts[1]


def test_a_rank_that_is_slow_for_two_timeouts_is_no_error(plays: Any) -> None:
    plays(3).values("a_slow_site_is_no_error")


# --- groups -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "scene",
    [
        "each_row_of_a_mesh_computes_its_own",
        "one_row_that_disagrees_leaves_the_other_alone",
        "the_world_works_before_within_and_after",
        "groups_that_do_not_fit_are_refused",
    ],
)
def test_joinsum_runs_on_a_dimension_of_a_device_mesh(plays: Any, scene: str) -> None:
    plays(4).values(scene)


# --- lost ranks -------------------------------------------------------------------------------------------------------


def check_survivors(losses: dict[str, Any], scene: str, lost: int, text: str) -> None:
    """Every other rank raised TransportError soon, with `text`; that stays so, loopback works, it ends well."""
    exits = losses.get(f"{scene}.exits")
    assert exits is not None, losses["log"][-3000:]
    for rank in set(range(len(exits))) - {lost}:
        assert f"{scene}.{rank}" in losses, f"{exits}\n{losses['log'][-3000:]}"
        notes = losses[f"{scene}.{rank}"]
        assert notes["run"]["error"] == "TransportError", notes
        assert re.fullmatch(text, notes["run"]["text"]), notes["run"]["text"]
        struck = losses[f"{scene}.{lost}"].get("struck", notes["run"]["at"] - notes["run"]["seconds"])
        assert notes["run"]["at"] - struck < 20
        if "later" in notes:
            assert notes["later"]["text"] == notes["run"]["text"]
            assert notes["loopback"]["error"] == "", notes
        assert exits[rank] == "exit 0", f"{exits}\n{losses['log'][-3000:]}"


@pytest.mark.parametrize(
    ("scene", "lost", "end", "text"),
    [
        ("killed", 2, "SIGKILL", "shuffle t2: lost site 2: connection closed"),
        ("first_rank_killed", 0, "SIGKILL", "shuffle t2: lost site 0: connection closed"),
        ("killed_in_a_collective", 2, "SIGKILL", "broadcast t2: lost site 2: connection closed"),
        ("killed_in_a_checkpoint", 2, "SIGKILL", "save_checkpoint: lost site 2: connection closed"),
        ("killed_in_a_reduction", 2, "SIGKILL", "aten.sum.default: lost site 2: connection closed"),
        ("stopped", 2, "stopped", r"shuffle t2: lost site 2: silent for \d+\.\d s"),
        ("killed_in_a_message", 2, "SIGKILL", "exchange: lost site 2: connection closed"),
        ("stopped_in_a_message", 2, "stopped", r"exchange: lost site 2: silent for \d+\.\d s"),
    ],
)
def test_a_rank_lost_in_a_run_is_named_with_the_operator(
    losses: dict[str, Any], scene: str, lost: int, end: str, text: str
) -> None:
    check_survivors(losses, scene, lost, text)
    assert losses[f"{scene}.exits"][lost] == end


@pytest.mark.parametrize(
    ("scene", "end", "text"),
    [
        ("killed_under_way", "SIGKILL", "shuffle t[013]: lost site 2: connection closed"),
        ("stopped_under_way", "stopped", r"shuffle t[013]: lost site 2: silent for \d+\.\d s"),
    ],
)
def test_a_rank_lost_while_moves_are_under_way_is_named(
    losses: dict[str, Any], scene: str, end: str, text: str
) -> None:
    check_survivors(losses, scene, 2, text)
    assert losses[f"{scene}.exits"][2] == end
    order = losses[f"{scene}.0"]["order"]
    begun, strikes = (next(i for i, line in enumerate(order) if what in line) for what in ("shuffle[(1)](X)", "strike"))
    assert begun < strikes < next(i for i, line in enumerate(order) if line.startswith("t0 arrives"))
    assert [losses[f"{scene}.{rank}"]["mapped"] for rank in (0, 1)] == [0, 0]


@pytest.mark.parametrize("moment", ["between_sizes_and_entries", "among_entries"])
@pytest.mark.parametrize(
    ("loss", "end", "text"),
    [
        ("killed", "SIGKILL", "broadcast t2: lost site 2: connection closed"),
        ("stopped", "stopped", r"broadcast t2: lost site 2: silent for \d+\.\d s"),
    ],
)
def test_a_rank_lost_in_a_move_of_sparse_arrays_is_named(
    losses: dict[str, Any], loss: str, end: str, text: str, moment: str
) -> None:
    scene = f"{loss}_{moment}"
    check_survivors(losses, scene, 2, text)
    assert losses[f"{scene}.exits"][2] == end
    assert losses[f"{scene}.2"]["sizes"] == [True, True]  # the others were past them
    for rank in (0, 1):
        assert losses[f"{scene}.{rank}"]["sent"]
        assert losses[f"{scene}.{rank}"]["mapped"] == 0


def test_a_kernel_that_fails_on_one_rank_fails_the_run_on_all_when_that_rank_goes_on(losses: dict[str, Any]) -> None:
    check_survivors(
        losses, "raises_in_a_run_and_goes_on", 1, "shuffle t2: lost site 1: it failed: .*function raised ValueError: no"
    )
    notes = losses["raises_in_a_run_and_goes_on.1"]
    assert notes["run"]["error"] == "KernelError"
    assert notes["later"]["text"] == losses["raises_in_a_run_and_goes_on.0"]["run"]["text"]


def test_a_kernel_that_fails_on_one_rank_fails_the_run_on_all_when_that_rank_waits(losses: dict[str, Any]) -> None:
    check_survivors(losses, "raises_in_a_run_and_waits", 1, "shuffle t2: lost site 1: it failed: .*no")
    notes = losses["raises_in_a_run_and_waits.1"]
    assert notes["run"]["error"] == "KernelError"
    assert notes["later"]["text"] == losses["raises_in_a_run_and_waits.0"]["run"]["text"]


def test_a_group_goes_on_where_all_ranks_fail_alike(losses: dict[str, Any]) -> None:
    for rank in range(3):
        notes = losses[f"all_raise_in_a_run.{rank}"]
        assert notes["run"]["error"] == "KernelError"
        assert notes["later"]["error"] == ""


@pytest.mark.parametrize(
    ("scene", "error", "text"),
    [
        (
            "raises_in_a_run_and_leaves",
            "KernelError",
            "shuffle t2: lost site 1: (connection closed|it failed: KernelError: .*)",
        ),
        (
            "wrong_shape_and_leaves",
            "PlanError",
            r"run: sites differ: line=1, site 0: .* site 1: \(no plan\) PlanError: run: input X: .*",
        ),
    ],
)
def test_a_rank_that_ends_with_an_error_of_its_own_is_missed(
    losses: dict[str, Any], scene: str, error: str, text: str
) -> None:
    check_survivors(losses, scene, 1, text)
    assert losses[f"{scene}.1"]["run"]["error"] == error


def test_a_rank_that_leaves_early_is_missed(losses: dict[str, Any]) -> None:
    check_survivors(losses, "leaves_early", 1, "run: lost site 1: connection closed")


def test_an_interrupt_gets_through_and_the_others_learn_it(losses: dict[str, Any]) -> None:
    check_survivors(losses, "interrupted", 0, "run: lost site 0: interrupted")
    notes = losses["interrupted.0"]
    assert notes["run"]["error"] == "KeyboardInterrupt"
    assert notes["run"]["seconds"] < 2
    assert notes["later"]["text"] == "run: lost site 0: interrupted"
    assert losses["interrupted.exits"] == ["exit 0", "exit 0"]


def test_a_forked_child_cannot_use_the_group_and_harms_nobody(losses: dict[str, Any]) -> None:
    assert losses.get("forks.exits") == ["exit 0", "exit 0"], losses["log"][-3000:]
    for rank in range(2):
        child = losses[f"child.{rank}"]["child"]
        assert (child["error"], child["text"].split(":")[0]) == ("TransportError", "transport")
        assert losses[f"forks.{rank}"]["child exit"] == 0
        assert losses[f"forks.{rank}"]["run"]["error"] == ""


# --- calibration ------------------------------------------------------------------------------------------------------


def test_all_ranks_calibrate_to_the_same_costs_and_read_the_file_again(plays: Any) -> None:
    first, second = plays(2).values("all_ranks_find_the_same_rates_and_costs_follow")
    assert first == second
    quick, calibrated, _ = first
    assert quick == "measured quickly on 2 ranks, not calibrated"
    assert re.fullmatch(r"calibrated \d{4}-\d\d-\d\d on 2 ranks of gloo", calibrated)


def test_threads_of_gloo_do_not_take_a_computing_threads_core(plays: Any) -> None:
    assert plays(2).values("threads_of_gloo_start_when_a_core_is_free") == [["batch"], ["batch"]]


def test_a_stale_calibration_is_passed_over_with_a_reason(plays: Any) -> None:
    first, second = plays(2).values("a_stale_file_is_passed_over_with_a_warning_from_rank_0")
    assert first[0] == second[0] == "measured quickly on 2 ranks, not calibrated"
    assert len(second) == 1
    assert "stale, libraries have changed: torch: file=1.0, here=" in first[1]


def test_a_calibration_cut_in_half_is_an_error_on_every_rank(plays: Any) -> None:
    first, second = plays(2).values("a_file_cut_in_half_is_an_error_on_every_rank")
    assert first == second
    assert re.search(r"cut off or damaged at line \d+, column \d+ .*joinsum calibrate.*path=", first)


def test_a_calibration_that_cannot_be_written_is_an_error_on_every_rank(plays: Any) -> None:
    first, second = plays(2).values("a_file_that_cannot_be_written_is_an_error_on_every_rank")
    assert first == second
    assert "path=/proc/none/c.json" in first


# --- einsum -----------------------------------------------------------------------------------------------------------


@sizes_of("einsums")
def test_einsum_on_a_group_has_the_values_and_gradients_of_one_process(plays: Any, ranks: int) -> None:
    assert min(plays(ranks).values("values_and_gradients_are_those_of_one_process")) > 5
    plays(ranks).values("a_group_gives_what_loopback_gives")


@sizes_of("sparse_relations")
def test_sparse_relations_and_operands_on_a_group_give_what_dense_torch_gives(plays: Any, ranks: int) -> None:
    assert min(plays(ranks).values("sparse_relations_move_and_are_multiplied")) == 12
    assert min(plays(ranks).values("sparse_operands_are_divided")) == ranks
    assert min(plays(ranks).values("sparse_queries_are_divided_and_folded")) >= 6
    assert len({tuple(losses) for losses in plays(ranks).values("models_with_sparse_buffers_train")}) == 1
    for flops in zip(*plays(ranks).values("ranks_have_equal_work_on_a_power_law_graph"), strict=True):
        assert max(flops) < 1.2 * sum(flops) / ranks, flops


@sizes_of("sparse_programs")
def test_random_sparse_programs_on_a_group_have_the_values_of_dense_evaluation(plays: Any, ranks: int) -> None:
    for moved in plays(ranks).values("random_sparse_programs_have_the_values_of_dense_evaluation"):
        assert min(moved.values()) >= 10, moved


@sizes_of("parameters")
def test_parameters_of_a_group_are_written_and_drawn_as_torchs(plays: Any, ranks: int) -> None:
    assert min(plays(ranks).values("parameters_are_written_as_torch_writes_them")) == 36
    assert len({*map(tuple, plays(ranks).values("layers_draw_their_parameters_anew"))}) == 1


@sizes_of("parameters")
def test_checks_and_draws_of_captured_code_are_the_same_on_all_ranks(plays: Any, ranks: int) -> None:
    (said,) = {*plays(ranks).values("a_matrix_without_an_inverse_is_an_error_on_all")}
    assert "linalg.inv: (Batch element 50)" in said
    assert len({*map(tuple, plays(ranks).values("draws_are_the_same_on_all"))}) == 1


@sizes_of("subnets")
def test_subnets_on_a_group_are_those_of_loopback_and_resume_and_evaluate(plays: Any, ranks: int) -> None:
    assert len({*plays(ranks).values("a_group_trains_what_loopback_trains")}) == 1
    plays(ranks).values("a_checkpoint_of_the_group_goes_on_as_training_does")
    plays(ranks).values("the_full_model_is_evaluated_where_its_parts_are")
    assert "seed=1" in plays(ranks).values("ranks_with_other_seeds_are_told_so")[0]


@sizes_of("subnets_features")
def test_loops_with_subnets_on_a_group_train_as_plain_torch_does(plays: Any, ranks: int) -> None:
    plays(ranks).values("loops_on_ranks_train_as_plain_torch_does")
    plays(ranks).values("a_rank_that_skips_steps_ends_its_round_with_the_others")
    plays(ranks).values("a_group_of_one_rank_trains_as_plain_torch_to_the_bit")
    plays(ranks).values("an_exchange_in_parts_gives_what_one_plan_gives")
    plays(ranks).values("training_goes_on_after_survivors_were_written_while_weights_moved")
    first, *others = plays(ranks).values("the_full_model_is_there_where_not_all_ranks_have_taken_a_step")
    assert all(each == first for each in others)
    assert len({*plays(ranks).values("recovery_knows_states_that_only_some_ranks_have")}) == 1
    assert len({*plays(ranks).values("a_checkpoint_goes_on_at_other_numbers_of_sites")}) == 1
    assert len({*plays(ranks).values("sites_that_train_other_branches_give_what_loopback_gives")}) == 1
    assert len({*plays(ranks).values("parameters_that_no_layer_cuts_may_have_another_optimizer")}) == 1
    for graphs in plays(ranks).values("a_compiled_model_is_compiled_for_one_round"):
        assert 1 <= graphs[0] == graphs[-1], graphs


@sizes_of("subnets")
def test_weights_that_rest_move_while_others_train(plays: Any, ranks: int) -> None:
    plays(ranks).values("weights_that_rest_move_while_others_train")
    for name, text, _ in plays(ranks).values("an_error_of_weights_that_move_ends_the_round"):
        assert name == "TransportError"
        assert text.startswith("IST: no exchange of neurons: shuffle t1: lost site 1; where a site is lost")


@sizes_of("subnets")
def test_subnets_that_have_ended_leave_no_threads_or_groups(plays: Any, ranks: int) -> None:
    for left in plays(ranks).values("a_training_that_has_ended_leaves_nothing_running"):
        threads, groups = zip(*left, strict=True)
        assert list(threads) == sorted(threads, reverse=True)  # those of earlier scenes end when they are garbage
        assert len({*groups}) == 1


@sizes_of("subnets_features")
def test_a_file_of_weights_is_read_on_all_ranks_or_refused_on_all(plays: Any, ranks: int) -> None:
    first, *others = plays(ranks).values("weights_in_a_file_go_on_and_a_rank_that_does_not_see_it_is_named")
    assert first[0] == "FileNotFoundError"
    assert others
    for name, text in others:
        assert name == "TransportError"
        assert "FileNotFoundError" in text


@sizes_of("subnets")
def test_what_one_rank_of_subnets_refuses_is_told_on_all(plays: Any, ranks: int) -> None:
    every = plays(ranks).values("what_one_rank_refuses_is_told_on_all")
    own = {
        "no norm": ("PlanError", "producer=0, consumer=3"),
        "layers": ("PlanError", "module='nowhere'"),
        "optimizer": ("PlanError", "optimizer=Adafactor, state=row_var"),
        "round": ("PlanError", "optimizer=SGD, state=factors"),
        "survivors": ("CheckpointError", "no site has written its weights there"),
        "empty": ("PlanError", "there is no batch to calibrate norms with"),
        "failing": ("OSError", "the disk is gone"),
        "short": ("TransportError", "site 1: calibration, after 2 batches: no batch"),
    }
    for case, (kind, wanted) in own.items():
        for rank, errors in enumerate(every):
            name, text, seconds = errors[case]
            assert name == (kind if rank == 1 else "TransportError"), (case, rank, text)
            assert wanted in text, (case, rank, text)
            assert seconds < 20


@sizes_of("einsums")
def test_functional_transforms_and_graphs_of_einsums_on_a_group_are_those_of_one_process(
    plays: Any, ranks: int
) -> None:
    plays(ranks).values("functional_transforms_are_those_of_one_process")
    plays(ranks).values("a_graph_has_the_values_and_gradients_of_one_process")


@sizes_of("einsums")
def test_einsums_in_captured_functions_on_a_group_are_those_of_one_process(plays: Any, ranks: int) -> None:
    plays(ranks).values("captured_einsums_have_the_values_and_gradients_of_one_process")


@sizes_of("einsums")
def test_einsum_finds_operands_that_differ_between_ranks(plays: Any, ranks: int) -> None:
    for scene in ("operands_that_differ_are_found_at_the_first_call", "later_calls_compare_operands_when_asked"):
        for text in plays(ranks).values(scene):
            assert "operand 0 (x0): [3, 3] torch.float32, checksum" in text, text
    for text in plays(ranks).values("a_gradient_that_one_rank_alone_will_want_is_found"):
        assert "operand 0 (x0): [3, 3] torch.float32, requires a gradient, checksum" in text, text
    named = plays(ranks).values("the_operand_that_differs_is_named")
    planned = plays(ranks).values("a_planned_einsum_compares_operands_until_they_were_equal_once")
    for text in [*named, *(text for messages in planned for text in messages)]:
        assert "operand 1 (x1)" in text, text
        assert "operand 0" not in text, text


@sizes_of("einsums")
def test_ranks_that_call_different_einsums_all_raise(plays: Any, ranks: int) -> None:
    for rank, (known, new, mixed, wrong) in enumerate(
        plays(ranks).values("ranks_that_call_different_equations_all_raise")
    ):
        assert "run: sites differ" in known
        assert "einsum: sites differ" in new
        assert "einsum[ij,jk->i; mul; add]" in new
        assert "sites make different calls: site 0: run, site 1: einsum" in mixed
        assert ("no equation" if rank == 0 else "sites") in wrong


@sizes_of("einsums")
def test_an_einsum_that_is_wrong_on_one_rank_raises_on_all(plays: Any, ranks: int) -> None:
    for messages in plays(ranks).values("what_is_wrong_on_one_rank_raises_on_all"):
        assert len(messages) == 5


@sizes_of("einsums")
def test_rank_0_alone_caches_plans_and_all_run_the_same(plays: Any, ranks: int) -> None:
    reports = plays(ranks).values("rank_0_caches_the_plan_that_all_run")
    for new, cached, damaged, off in reports:
        assert new == "planned here"
        assert cached.startswith("cached in ")
        assert damaged.startswith("planned here, as the cached plan was rejected: it is cut off or damaged")
        assert "site 0: a plan, site 1: a plan, which may be cached" in off
    assert len({tuple(origins[::2]) for origins in reports}) == 1


@sizes_of("einsums")
def test_a_second_start_without_a_calibration_has_the_plan_of_the_first_on_all_ranks(plays: Any, ranks: int) -> None:
    for first, second, third, slower in plays(ranks).values("starts_without_a_calibration_share_plans"):
        assert first == "planned here"
        assert second.startswith("cached in ")
        assert third == second
        assert slower.startswith("planned here, as the cached plan was rejected: stale: it was planned for other rates")


@sizes_of("random_programs")
def test_random_graphs_on_a_group_have_torchs_values_and_gradients_and_move_what_is_predicted(
    plays: Any, ranks: int
) -> None:
    counts = plays(ranks).values("random_graphs_have_torchs_values_and_gradients")
    assert all(count == counts[0] for count in counts)
    assert min(counts[0]) > 40


@sizes_of("einsums")
def test_positions_and_layers_on_a_group_are_those_of_one_process(plays: Any, ranks: int) -> None:
    plays(ranks).values("positions_and_layers_are_those_of_one_process")


# --- models and their state -------------------------------------------------------------------------------------------


@sizes_of("model_state")
def test_blocks_on_ranks_compute_what_one_tensor_does(plays: Any, ranks: int) -> None:
    assert sum(plays(ranks).values("blocks_on_ranks_compute_what_one_tensor_does")) == 35


@sizes_of("model_state")
def test_dtensors_are_the_same_memory(plays: Any, ranks: int) -> None:
    assert plays(ranks).values("dtensors_are_the_same_memory") == [3 if ranks == 2 else 6] * ranks


@sizes_of("model_state")
def test_a_layout_that_no_dtensor_has_is_refused(plays: Any, ranks: int) -> None:
    for partial, absent in plays(ranks).values("what_dtensor_cannot_say_is_refused"):
        assert "redistribute it first" in partial
        assert "some sites have no block" in absent


@sizes_of("model_state")
def test_checkpoints_go_to_other_numbers_of_sites_and_back(plays: Any, ranks: int) -> None:
    assert plays(ranks).values("checkpoints_go_to_other_numbers_of_sites_and_back") == [[1, 3, 8]] * ranks


@sizes_of("model_state")
def test_a_pretrained_model_is_there_when_its_ranks_have_saved_it(plays: Any, ranks: int) -> None:
    assert plays(ranks).values("a_pretrained_model_is_there_when_its_ranks_have_saved_it") == [True] * ranks


@sizes_of("model_state")
def test_a_checkpoint_that_cannot_be_written_raises_everywhere(plays: Any, ranks: int) -> None:
    for kind, text, seconds in plays(ranks).values("a_checkpoint_that_cannot_be_written_raises_everywhere"):
        assert kind in ("NotADirectoryError", "OSError", "FileExistsError")
        assert "file" in text
        assert seconds < 20
