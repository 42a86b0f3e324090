"""Lists the sources without a test file of their own, and where they are tested instead: `tools/list_untested.py`.

The test file of `csrc/ia/placement.h` and `.cpp` is `tests/cpp/ia/placement_test.cpp`, that of
`python/joinsum/planner/cost.py` is `tests/python/planner/test_cost.py`. ELSEWHERE gives a reason for every other
source. Exits with 1 for a source that has neither, and for a row of ELSEWHERE that no source needs any more or whose
tests do not exist.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import NamedTuple


class Row(NamedTuple):
    """Sources of a folder, by their names or patterns; what tests them, in tests/; why that is the right place."""

    folder: str
    names: str
    tests: str
    reason: str

    def covers(self, source: str) -> bool:
        """Whether a source, a path without suffix, is one of these."""
        folder, _, name = source.rpartition("/")
        return fnmatchcase(folder, self.folder) and any(fnmatchcase(name, each) for each in self.names.split())


ELSEWHERE = (
    Row("csrc/bindings", "bindings module", "python/package/test_package.py", "the module as it is imported"),
    Row("csrc/bindings", "bind_base", "python/algebra/test_key_functions.py", "key functions, made in Python"),
    Row("csrc/bindings", "bind_kernels python_kernel", "python/algebra/test_kernels.py", "kernels that users write"),
    Row("csrc/bindings", "python_estimator", "python/sparse/test_own_estimators.py", "estimators that users write"),
    Row("csrc/bindings", "bind_tra bind_ia plans", "python/algebra/test_plan.py", "plans, made in Python and run"),
    Row("csrc/bindings", "bind_einsum", "python/graphs/test_json_form.py", "graphs, made in Python"),
    Row("csrc/bindings", "bind_optimizer", "python/planner/test_optimize.py", "searches that Python calls"),
    Row("csrc/bindings", "bind_runtime", "python/cluster/test_context.py", "contexts, transports and stores"),
    Row("csrc/einsum", "nodes", "cpp/einsum/infer_test.cpp", "data; making a node infers its type"),
    Row("csrc/tra", "nodes", "cpp/tra/infer_test.cpp", "data; making a node infers its type"),
    Row("csrc/ia", "infer_call", "cpp/ia/infer_test.cpp", "a part of type inference"),
    Row(
        "csrc/ia/analysis",
        "flops visited",
        "cpp/optimizer/cost/cost_test.cpp",
        "parts of a node's cost, which is compared with plain counting",
    ),
    Row("csrc/einsum", "axis_classes cuts", "cpp/einsum/lower_test.cpp", "the cut points that lowering uses"),
    Row("csrc/einsum/notation", "named_vertex", "cpp/einsum/text_test.cpp", "a vertex whose labels are words, as text"),
    Row(
        "csrc/einsum/json",
        "graph json_write",
        "cpp/einsum/json/json_test.cpp",
        "reader and writer are tested as a round trip",
    ),
    Row(
        "csrc/einsum/transforms",
        "expression",
        "cpp/einsum/transforms/binary_test.cpp",
        "what binary does to an expression of several operands",
    ),
    Row(
        "csrc/einsum/gradients",
        "labelled simple tied_extremes vertex_gradient",
        "cpp/einsum/gradients/gradient_test.cpp",
        "parts of the gradient's rules",
    ),
    Row(
        "csrc/kernels/dense",
        "elementwise expression labelled letters loops",
        "cpp/kernels/dense/dense_test.cpp",
        "one table of kernels, by kinds of kernel",
    ),
    Row(
        "csrc/kernels/semiring",
        "cuda_pairs no_cuda_pairs",
        "cpp/kernels/pairs/pairs_test.cpp",
        "contractions on a GPU, or what stands for it",
    ),
    Row(
        "csrc/kernels/semiring",
        "pair_all_tiles pair_tile_loops pair_tiles pair_tiles_avx2 pair_tiles_avx512 pair_tiles_portable",
        "cpp/kernels/pairs/pairs_test.cpp",
        "the loops over tiles, by instruction sets: each agrees with the reference",
    ),
    Row(
        "csrc/kernels/semiring",
        "pair_plane_loops",
        "cpp/kernels/pairs/pairs_test.cpp",
        "the loops over real and imaginary parts",
    ),
    Row(
        "csrc/kernels/semiring",
        "pair_exponential term_tile_loops term_tiles term_tiles_avx2 term_tiles_avx512 term_tiles_portable",
        "cpp/kernels/pairs/terms_test.cpp",
        "the loops over tiles of terms, by instruction sets",
    ),
    Row(
        "csrc/kernels/pairs",
        "cpu panels planes",
        "cpp/kernels/pairs/pairs_test.cpp",
        "steps of one contraction, by kinds of elements",
    ),
    Row(
        "csrc/kernels/fusion",
        "functions loops loops_avx2 loops_avx512 loops_portable",
        "cpp/kernels/fusion/program_test.cpp",
        "the functions of programs, by instruction sets: each is the standard library's",
    ),
    Row(
        "csrc/kernels/torch_call",
        "fused",
        "python/capture/test_fusion.py",
        "graphs with these operators are compared with the graphs as they were",
    ),
    Row(
        "csrc/kernels/reference",
        "array",
        "cpp/kernels/reference/reference_test.cpp",
        "the arrays of the reference kernels",
    ),
    Row(
        "csrc/runtime/execution/local",
        "tile_program",
        "cpp/runtime/execution/local/tiled_recomputation_test.cpp",
        "the programs that the operator runs",
    ),
    Row("csrc/kernels/call", "text", "cpp/kernels/call/call_test.cpp", "a call's text is tested as a round trip"),
    Row(
        "csrc/kernels/expression",
        "derivative",
        "cpp/kernels/expression/expression_test.cpp",
        "a part of expressions",
    ),
    Row(
        "csrc/kernels/table",
        "expression_kernel",
        "cpp/kernels/expression/expression_test.cpp",
        "the kernels that expressions are",
    ),
    Row(
        "csrc/kernels/table",
        "elementwise_rows shapes",
        "cpp/kernels/table/table_test.cpp",
        "the rows of the table and their shape rules",
    ),
    Row(
        "csrc/kernels/processor",
        "instructions",
        "python/execution/test_contractions.py",
        "the choice of loops, with each ATEN_CPU_CAPABILITY",
    ),
    Row(
        "csrc/kernels/torch_call",
        "attention device_attention",
        "python/capture/decompositions/test_attention.py",
        "blocks of queries and keys are compared with the softmax that is written out",
    ),
    Row(
        "csrc/kernels/torch_call",
        "random random_composed",
        "python/capture/decompositions/test_random.py",
        "what a part draws is that part of what one process draws",
    ),
    Row(
        "csrc/kernels/torch_call",
        "layer_norm lookups axis_shard processor_rows",
        "python/capture/decompositions/test_into_given_memory.py",
        "compared with the functional forms, and these with torch's operators",
    ),
    Row(
        "csrc/kernels/torch_call",
        "gradients strided checked",
        "python/capture/decompositions/test_gradients.py",
        "compared with torch's",
    ),
    Row(
        "csrc/kernels/torch_call",
        "softmax norm_shards batch_norm row_pieces",
        "python/capture/decompositions/test_divided_rows.py",
        "steps on shards of rows are compared with torch's operators",
    ),
    Row(
        "csrc/kernels/dense",
        "sparse_rows",
        "cpp/kernels/dense/multiply_sparse_test.cpp",
        "declarations of multiply_sparse.cpp, with which products of entries are tested",
    ),
    Row(
        "csrc/kernels/torch_call",
        "adam_rows adam_row_loops",
        "python/extreme/test_adam_of_rows.py",
        "operators of torch's dispatcher, compared with Adam on all rows",
    ),
    Row(
        "csrc/kernels/torch_call",
        "lookup_updates touched_rows",
        "python/capture/decompositions/test_lookup_updates.py",
        "operators of torch's dispatcher, compared with torch's optimizers",
    ),
    Row(
        "csrc/kernels/torch_call",
        "sparse_query",
        "python/sparse/test_site_queries.py",
        "queries of programs and einsums on blocks",
    ),
    Row(
        "csrc/kernels/torch_call",
        "sparse_products",
        "python/capture/decompositions/test_sparse_products.py",
        "operators of torch's dispatcher, compared with torch's own",
    ),
    Row(
        "csrc/kernels/torch_call",
        "rms_norm normed_rows",
        "python/capture/decompositions/test_rms_norm.py",
        "compared with torch's",
    ),
    Row(
        "csrc/kernels/torch_call",
        "matrix_products",
        "python/capture/test_products.py",
        "graphs with these operators are compared with those of torch's",
    ),
    Row("csrc/kernels/torch_call", "resize", "python/frontend/tracing/test_resizing.py", "compared with torch's"),
    Row(
        "csrc/kernels/torch_call", "max_pool", "python/capture/decompositions/test_max_pool.py", "compared with torch's"
    ),
    Row("csrc/kernels/torch_call", "gelu", "python/capture/test_results_in_memory.py", "compared with torch's"),
    Row(
        "csrc/kernels/torch_call",
        "cross_entropy",
        "python/capture/decompositions/test_cross_entropy.py",
        "compared with torch's, and shards with all classes",
    ),
    Row("csrc/kernels/rows", "rows row_loops_*", "cpp/kernels/rows/row_loops_test.cpp", "the loops of each processor"),
    Row(
        "csrc/kernels/rows",
        "entries entry_loops_*",
        "cpp/kernels/rows/entry_loops_test.cpp",
        "the loops of each processor over entries",
    ),
    Row("csrc/relation", "call_typing", "cpp/kernels/call/call_test.cpp", "the types of calls"),
    Row("csrc/relation", "typing", "cpp/relation/join_typing_test.cpp", "declares the rules of the *_typing files"),
    Row("csrc/relation", "key_operators", "cpp/relation/key_parser_test.cpp", "how operators print and bind"),
    Row(
        "csrc/optimizer",
        "pairwise_joins",
        "cpp/optimizer/contraction_order_test.cpp",
        "the prices that the order minimises, compared with all orders",
    ),
    Row(
        "csrc/optimizer",
        "placement_problem",
        "cpp/optimizer/graph_placement_test.cpp",
        "its placements are compared with those of a brute force over all layouts",
    ),
    Row(
        "csrc/optimizer/cost",
        "local_seconds move_seconds",
        "cpp/optimizer/cost/cost_test.cpp",
        "parts of a node's cost, which is compared with plain counting",
    ),
    Row(
        "csrc/optimizer/eindecomp",
        "graph linearise problem tables",
        "cpp/optimizer/eindecomp/partition_test.cpp",
        "parts of one search, whose plans are compared with an enumeration",
    ),
    Row(
        "csrc/optimizer/min_sum",
        "candidates deadline elimination improvement plan_elimination",
        "cpp/optimizer/min_sum/min_sum_test.cpp",
        "parts of one solver, which is compared with an enumeration",
    ),
    Row(
        "csrc/optimizer/layouts",
        "least_work move_prices operator_costs placement_cache",
        "cpp/optimizer/graph_placement_test.cpp",
        "prices of placements: a wrong one shows against the brute force",
    ),
    Row(
        "csrc/optimizer/model",
        "constraints min_sum_tables strategies vertices",
        "cpp/optimizer/graph_placement_test.cpp",
        "the model of placements: a missing strategy or layout shows against the brute force",
    ),
    Row(
        "csrc/optimizer/resharding",
        "message_cache",
        "cpp/optimizer/resharding/resharding_test.cpp",
        "messages are compared with an enumeration, also those that the cache answers",
    ),
    Row(
        "csrc/optimizer/resharding",
        "resharding_model",
        "cpp/optimizer/graph_placement_test.cpp",
        "the model of placements as a resharding problem: a wrong cost shows against the brute force",
    ),
    Row(
        "csrc/optimizer/rules",
        "composition families matrix_product physical repartition rewrite rule score",
        "cpp/optimizer/rules/all_rules_test.cpp",
        "rows of one table; every row has a plan on which it fires and one on which it does not",
    ),
    Row(
        "csrc/optimizer/solvers",
        "completion",
        "cpp/optimizer/optimizer_test.cpp",
        "completes warm starts; no plan may be more expensive than they are",
    ),
    Row(
        "csrc/optimizer/verification",
        "normal_form shrink",
        "cpp/optimizer/verification/verify_test.cpp",
        "the two ways in which the verifier compares plans",
    ),
    Row(
        "csrc/runtime/communication/moves",
        "sparse_move",
        "python/execution/test_sparse_relations.py",
        "moves of sparse relations; between processes: tests/distributed",
    ),
    Row(
        "csrc/runtime/communication/moves",
        "background_reduction messages",
        "cpp/runtime/communication/moves/moves_test.cpp",
        "what groups of moves consist of; Gloo's own reductions: tests/distributed",
    ),
    Row(
        "csrc/runtime/communication/links",
        "links",
        "cpp/runtime/communication/sockets/socket_links_test.cpp",
        "an interface; each kind of links is tested",
    ),
    Row(
        "csrc/runtime/communication/watch",
        "peer_wait waker",
        "cpp/runtime/communication/watch/peer_watch_test.cpp",
        "the waits that are tested there, and what wakes them",
    ),
    Row("python/execution", "paired_rows", "python/execution/test_compressed_rows.py", "chains of products"),
    Row("python/execution", "sparse_call sparse_operands", "python/execution/test_sparse_einsum.py", "parts of a call"),
    Row(
        "python/ist/exchange",
        "ahead resting_ahead",
        "distributed/test_process_group.py",
        "plans in a thread of each rank",
    ),
    Row("python/distributed", "first_values", "distributed/test_planned_training.py", "ranks that differ"),
    Row(
        "python/frontend/training", "optimizer_list", "python/frontend/training/test_optimizers.py", "several in a step"
    ),
    Row("python/base", "version", "python/package/test_package.py", "one constant"),
    Row("python/base", "errors", "python/package/test_errors.py", "the class of each public call's errors"),
    Row(
        "python/base",
        "arguments disjoint_sets dtypes text_table trees",
        "python/package/test_doctests.py",
        "small functions with their examples",
    ),
    Row("python/cluster", "cache_folder", "python/planner/test_plan_cache.py", "the folder of cached plans"),
    Row(
        "python/algebra",
        "expression sources stored_relation",
        "python/execution/test_relation.py",
        "what lazy relations are made of",
    ),
    Row("python/algebra", "rules", "python/algebra/test_verify.py", "the table of rules"),
    Row(
        "python/graphs",
        "equation transforms",
        "python/execution/test_planned_graph.py",
        "graphs are built to be run",
    ),
    Row(
        "python/planner",
        "cost graph_report graph_steps",
        "python/planner/test_graph_plan.py",
        "figures of a planned graph",
    ),
    Row(
        "python/planner",
        "search",
        "python/planner/test_plan_cache.py",
        "a plan is found or read from the cache",
    ),
    Row(
        "python/planner",
        "baseline_costs",
        "python/capture/test_baselines.py",
        "baselines of captured programs",
    ),
    Row("python/planner/baselines", "label_baselines", "python/planner/test_graph_plan.py", "baselines of graphs"),
    Row(
        "python/planner/baselines",
        "placement_baselines table",
        "python/capture/test_baselines.py",
        "baselines of captured programs",
    ),
    Row("python/graphs", "label_classes", "python/capture/test_baselines.py", "baselines divide classes of labels"),
    Row("python/graphs", "query_vertices", "python/execution/test_sparse_relations.py", "graphs of sparse inputs"),
    Row("python/execution", "sparse_queries", "python/sparse/test_site_queries.py", "programs and einsums on sites"),
    Row("python/execution", "run", "python/algebra/test_plan.py", "plans are run there"),
    Row(
        "python/execution",
        "autograd graph_call operands planned_einsum",
        "python/execution/test_einsum.py",
        "steps of an einsum call",
    ),
    Row(
        "python/distributed",
        "safetensors flattened_state dcp_blocks boxes",
        "python/distributed/test_checkpoint.py",
        "what is written into files, and read again",
    ),
    Row(
        "python/distributed",
        "block_tensor operators reductions dtensor",
        "python/distributed/test_distributed_tensor.py",
        "parts of one class, and its conversions",
    ),
    Row("python/distributed", "batch_shards", "distributed", "processes are needed"),
    Row(
        "python/distributed",
        "draws numbers_in_views",
        "python/distributed/test_writing_in_place.py",
        "parts of what is written in place",
    ),
    Row(
        "python/capture/operators",
        "*",
        "python/capture/operators/test_operators.py",
        "each row of the table is compared with torch",
    ),
    Row(
        "python/capture/rules",
        "along form pointwise row undivided",
        "python/capture/operators/test_operators.py",
        "kinds of rule, of which the table's rows consist",
    ),
    Row(
        "python/capture/decompositions",
        "einsum",
        "python/capture/operators/test_operators.py",
        "operators that the table's rows call",
    ),
    Row(
        "python/capture/recording",
        "recorded recorder resolve values vertices",
        "python/capture/test_record.py",
        "steps of recording",
    ),
    Row(
        "python/capture",
        "sparse_calls",
        "python/frontend/test_sparse_models.py",
        "calls of sparse tensors in models that are traced",
    ),
    Row(
        "python/capture",
        "captured_graph executable planned_program rewrite",
        "python/capture/test_captured_models.py",
        "what happens to captured graphs",
    ),
    Row("python/capture", "failures", "python/frontend/tracing/test_errors.py", "errors of others, as users see them"),
    Row("python/capture", "in_place", "python/capture/test_single_site.py", "what a single site runs"),
    Row("python/capture/decompositions", "resize", "python/frontend/tracing/test_resizing.py", "compared with torch's"),
    Row("python/capture/decompositions", "random_nodes", "python/capture/test_single_site.py", "what one site draws"),
    Row(
        "python/capture/decompositions",
        "cross_entropy_nodes",
        "python/capture/decompositions/test_cross_entropy.py",
        "the operators and the graphs that have them",
    ),
    Row(
        "python/frontend/training",
        "step_arguments step_function step_graph updated_graph",
        "python/frontend/training/test_train_step.py",
        "parts of a step",
    ),
    Row(
        "python/frontend/training",
        "update sgd_and_adam other_updates",
        "python/frontend/training/test_optimizers.py",
        "updates of all optimizers",
    ),
    Row(
        "python/frontend/tracing",
        "errors mixed_precision torch_internals",
        "python/frontend/test_models_in_own_loops.py",
        "steps from a model to torch's graphs",
    ),
    Row(
        "python/frontend",
        "distributed_einsum",
        "python/frontend/test_einsum_in_captured_graphs.py",
        "einsums in captured functions",
    ),
    Row("python/frontend", "model_method", "python/frontend/test_save_pretrained.py", "a model's own methods"),
    Row(
        "python/frontend",
        "backend distribute optimizer_state program",
        "python/frontend/test_models_in_own_loops.py",
        "steps from a model to its plan",
    ),
    Row("python/explanation", "explanation", "python/explanation/test_explain.py", "a value with its printed forms"),
    Row("python/explanation", "callables", "python/explanation/test_model_text.py", "what is explained of models"),
    Row("python/extreme", "checkpoint console", "python/extreme/test_train.py", "what training writes and prints"),
    Row(
        "python/ist/subnets",
        "averages bundles optimizers shared_tensors subnets",
        "python/ist/test_rounds.py",
        "rounds, beside plain torch on the same blocks",
    ),
    Row(
        "python/ist/exchange",
        "relations reslicing site_plans trained_blocks",
        "python/ist/test_rounds.py",
        "rounds, beside plain torch on the same blocks",
    ),
    Row("python/ist/exchange", "grouping", "python/ist/exchange/test_exchange.py", "exchanges in parts"),
    Row("python/ist/exchange", "whole_tensors", "python/ist/test_checkpoints.py", "the full model of which they are"),
    Row("python/ist/exchange", "buddies copies", "python/ist/test_recovery.py", "what outlives a site"),
    Row("python/ist/exchange", "options", "python/ist/test_ist.py", "arguments"),
    Row("python/ist", "construction hooks", "python/ist/test_ist.py", "arguments, and what loops may do"),
    Row(
        "python/ist/layers",
        "distributed_models",
        "python/ist/layers/test_explicit_groups.py",
        "refusals by way to distribute",
    ),
    Row(
        "python/ist/layers",
        "calls encoder_layers hidden_layers modules neurons tracing",
        "python/ist/layers/test_discovery.py",
        "what of which module is cut",
    ),
    Row(
        "python/ist/layers",
        "attention attention_trial multihead_attention",
        "python/ist/layers/test_attention_heads.py",
        "heads, beside the full module with the others at zero",
    ),
    Row("python/extreme", "plans", "python/extreme/test_classifier.py", "the plans that the classifier runs"),
    Row(
        "python/cli",
        "calibrate doctor options plan program tables train",
        "python/cli/test_main.py",
        "commands, each called through the group",
    ),
    Row(
        "csrc/bindings",
        "bind_tensors",
        "python/frontend/training/test_trained_parameters.py",
        "what steps read of parameters",
    ),
    Row("csrc/bindings", "bind_sparse", "python/sparse/test_pieces.py", "programs and their pieces, made in Python"),
    Row("csrc/bindings", "bind_sparse_tensor", "python/sparse/test_sparse_tensor.py", "tensors, made in Python"),
    Row(
        "csrc/sparse/kernels/nest",
        "*",
        "cpp/sparse/kernels/interpret_test.cpp",
        "parts of the interpreter, which is compared with brute force over all formats",
    ),
    Row(
        "csrc/sparse/kernels",
        "body interpreter interpret_* execution kernel prepared product_body range_worker",
        "cpp/sparse/kernels/interpret_test.cpp",
        "parts of the interpreter, which is compared with brute force over all formats",
    ),
    Row(
        "csrc/sparse/kernels",
        "body_steps compiled_worker generated_* kernel_writer loop_writer",
        "cpp/sparse/kernels/generate_test.cpp",
        "parts of the generator, whose kernels are compared with the interpreter",
    ),
    Row(
        "csrc/sparse/kernels/compilation",
        "cache_folder program",
        "cpp/sparse/kernels/compilation/compiler_test.cpp",
        "what the compiler runs and where its results are cached",
    ),
    Row(
        "csrc/sparse/program",
        "*",
        "python/sparse/test_program_values.py",
        "programs, written as data, and what is wrong with them",
    ),
    Row("csrc/sparse/statistics", "*", "cpp/sparse/statistics/statistics_test.cpp", "all estimators side by side"),
    Row(
        "csrc/sparse/logical",
        "branch_and_bound distribution search term",
        "cpp/sparse/logical/elimination_test.cpp",
        "whole plans, whose costs are compared with all orders",
    ),
    Row("csrc/sparse/logical", "splitting", "python/sparse/test_corners.py", "large queries, split and run"),
    Row("csrc/sparse/physical", "common", "cpp/sparse/physical/physical_test.cpp", "queries that are one"),
    Row("csrc/sparse", "plan", "python/sparse/test_plans.py", "whole plans, and their runs"),
    Row(
        "csrc/sparse/tensor",
        "coordinates diagonal distinct elements levels order tensor transpose",
        "cpp/sparse/tensor/build_test.cpp",
        "parts of building tensors, over all nestings of formats",
    ),
    Row("python/cli", "sparse", "python/sparse/test_plans.py", "the command beside the plan that it prints"),
    Row("python/sparse", "arrays", "python/sparse/test_sparse_tensor.py", "checks of the arrays that make a tensor"),
    Row("python/sparse", "spellings", "python/sparse/test_sparse_tensor.py", "names of layouts"),
    Row("python/sparse", "scipy_conversions", "python/sparse/test_conversions.py", "to and from other libraries"),
    Row(
        "python/sparse",
        "expressions json_fields plan plan_options program",
        "python/sparse/test_plans.py",
        "programs as data, and their plans",
    ),
    Row("python/sparse", "recorded", "python/sparse/test_recorded_values.py", "values in autograd"),
    Row("csrc/kernels/sparse", "pair query", "python/execution/test_sparse_relations.py", "joins of sparse relations"),
    Row("csrc/kernels/table", "sparsity", "python/execution/test_sparse_relations.py", "kernels with sparse results"),
    Row("csrc/sparse/operators", "arithmetic", "cpp/sparse/tensor/fills_test.cpp", "operators on elements of a dtype"),
    Row("python/sparse", "program_tensors", "python/sparse/test_program_dtypes.py", "tensors of programs"),
)


def sources(project: Path) -> Iterator[tuple[str, Path]]:
    """Each source without its suffix, a header and its .cpp once, and the test file that it should have."""
    names = {path.with_suffix("") for path in (project / "csrc").rglob("*") if path.suffix in {".h", ".cpp", ".cu"}}
    for path in sorted(names):
        own = path.relative_to(project / "csrc")
        yield f"csrc/{own.as_posix()}", project / "tests" / "cpp" / own.with_name(f"{own.name}_test.cpp")
    package = project / "python" / "joinsum"
    for path in sorted(package.rglob("*.py")):
        own = path.relative_to(package)
        if not path.name.startswith("_"):  # doors, and what the build writes
            name = own.with_suffix("").as_posix()
            yield f"python/{name}", project / "tests" / "python" / own.with_name(f"test_{own.name}")


def main(arguments: list[str]) -> int:
    project = Path(arguments[0]) if arguments else Path(__file__).resolve().parent.parent
    untested, problems, used = [], [], set()
    for source, test in sources(project):
        if test.is_file():
            continue
        row = next((row for row in ELSEWHERE if row.covers(source)), None)
        if row is None:
            problems.append(
                f"{source}: no {test.relative_to(project)}, and no row of ELSEWHERE says where it is tested"
            )
            continue
        used.add(row)
        untested.append(f"{source}: {row.reason}: tests/{row.tests}")
    for row in ELSEWHERE:
        if row not in used:
            problems.append(f"{row.folder}: no source needs this row of ELSEWHERE: {row.names}")
        if not (project / "tests" / row.tests).exists():
            problems.append(f"{row.folder}: no such tests: tests/{row.tests}")
    print("\n".join([*untested, *problems]))
    print(f"list_untested: {len(untested)} sources are tested with others, {len(problems)} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
