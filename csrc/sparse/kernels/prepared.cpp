#include "sparse/kernels/prepared.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "sparse/kernels/nest/arithmetic.h"
#include "sparse/kernels/nest/merged_loops.h"

namespace joinsum::sparse::kernels {
namespace {

/// Loops over lists with fewer entries than this, on average, are merged.
constexpr int64_t kShortList = 8;

/// Whether fills are equal but for rounding: kernels compute those of results in another order than plans.
bool same_fill(double a, double b, DType dtype) {
  const double tolerance = dtype == DType::kFloat32 ? 1e-5 : 1e-12;
  const bool near = std::isfinite(a) && std::isfinite(b) && std::abs(a - b) <= tolerance * std::abs(a);
  return near || a == b || (a != a && b != b);
}

void check_operand(const Kernel& kernel, const KernelArguments& arguments, int64_t o) {
  const Operand& operand = kernel.operands[o];
  const Tensor& tensor = *arguments.operands[o];
  JOINSUM_USER_CHECK(tensor.dtype() == arguments.operands[0]->dtype(), "kernel: operands differ in dtype: operand=", o,
                     ", dtype=", name_of(tensor.dtype()), ", first=", name_of(arguments.operands[0]->dtype()));
  JOINSUM_USER_CHECK(tensor.levels.size() == operand.formats.size(),
                     "kernel: an operand has another number of levels: ", "operand=", o,
                     ", levels=", tensor.levels.size(), ", wanted=", operand.formats.size());
  JOINSUM_USER_CHECK(same_fill(tensor.fill, operand.fill, tensor.dtype()),
                     "kernel: an operand has another fill: ", "operand=", o, ", fill=", tensor.fill,
                     ", wanted=", operand.fill);
  for (size_t l = 0; l < tensor.levels.size(); ++l) {
    const Level& level = tensor.levels[l];
    JOINSUM_USER_CHECK(level.format == operand.formats[l], "kernel: a level has another format: operand=", o,
                       ", level=", l, ", format=", name_of(level.format), ", wanted=", name_of(operand.formats[l]));
    JOINSUM_USER_CHECK(level.size == arguments.extents[operand.loops[l]],
                       "kernel: a level has another extent: operand=", o, ", level=", l, ", size=", level.size,
                       ", wanted=", arguments.extents[operand.loops[l]]);
  }
}

void check_arguments(const Kernel& kernel, const KernelArguments& arguments) {
  JOINSUM_USER_CHECK(arguments.operands.size() == kernel.operands.size(),
                     "kernel: another number of operands: given=", arguments.operands.size(),
                     ", wanted=", kernel.operands.size());
  JOINSUM_USER_CHECK(arguments.extents.size() == kernel.loops.size(),
                     "kernel: another number of extents: given=", arguments.extents.size(),
                     ", wanted=", kernel.loops.size());
  for (const int64_t extent : arguments.extents) {
    JOINSUM_USER_CHECK(extent >= 0, "kernel: an extent is negative: extents=", arguments.extents);
  }
  for (int64_t o = 0; o < std::ssize(arguments.operands); ++o) check_operand(kernel, arguments, o);
}

/// Where each operand's root is among the positions, and the end.
std::vector<int64_t> roots_of(const Kernel& kernel) {
  std::vector<int64_t> roots{0};
  for (const Operand& operand : kernel.operands) roots.push_back(roots.back() + 1 + std::ssize(operand.loops));
  return roots;
}

nest::Participant participant(const Prepared& run, int64_t operand, int64_t loop, int64_t root, bool looked_up) {
  const std::vector<int64_t>& loops = run.kernel->operands[operand].loops;
  const int64_t level = std::ranges::find(loops, loop) - loops.begin();
  return {.operand = operand,
          .level = {run.arguments->operands[operand]->levels[level], looked_up},
          .above = root + level,
          .required = run.kernel->required[operand]};
}

nest::LoopPlan loop_plan(const Prepared& run, int64_t loop, const std::vector<int64_t>& roots) {
  const Loop& from = run.kernel->loops[loop];
  nest::LoopPlan plan{.extent = run.arguments->extents[loop], .walkers = std::ssize(from.walkers)};
  for (const int64_t o : from.walkers) plan.participants.push_back(participant(run, o, loop, roots[o], false));
  JOINSUM_CHECK(!from.single || plan.participants.front().level.single, "a loop has more visits than one: loop=", loop);
  for (const int64_t o : from.lookups) plan.participants.push_back(participant(run, o, loop, roots[o], true));
  // Required ones first, so that a visit ends early; those that are never absent last, as they end none.
  const auto rank_of = [](const nest::Participant& each) {
    return !each.required || each.level.format == LevelFormat::kDense;
  };
  std::stable_sort(plan.participants.begin() + plan.walkers, plan.participants.end(),
                   [&](const auto& a, const auto& b) { return rank_of(a) < rank_of(b); });
  return plan;
}

void prepare_nest(Prepared& run) {
  const Kernel& kernel = *run.kernel;
  const std::vector<int64_t> roots = roots_of(kernel);
  run.nest.positions.assign(roots.back(), -1);
  for (size_t o = 0; o < kernel.operands.size(); ++o) {
    const Tensor& tensor = *run.arguments->operands[o];
    run.nest.positions[roots[o]] = tensor.levels.empty() && !tensor.scalar_stored ? -1 : 0;
    run.nest.last.push_back(roots[o + 1] - 1);
    if (tensor.levels.empty() && kernel.required[o]) run.nest.required_scalars.push_back(roots[o]);
    run.entries += tensor.values.count();
  }
  for (int64_t loop = 0; loop < std::ssize(kernel.loops); ++loop) run.nest.loops.push_back(loop_plan(run, loop, roots));
  // A kernel of scalars has one visit.
  if (kernel.loops.empty()) run.nest.loops.push_back({.extent = 1});
}

/// Whether loops after the last one of the output visit one coordinate at most.
bool ends_with_output(const Kernel& kernel) {
  const auto rest = kernel.loops.begin() + loops_of_prefix(kernel, std::ssize(kernel.output));
  return std::all_of(rest, kernel.loops.end(), [](const Loop& loop) { return loop.single; });
}

/// The first of the loops that are merged: those of short lists, for which starting a loop takes longer than running
/// it. Each element is reduced in the same order as by loops of their own.
int64_t innermost_of(const Prepared& run) {
  const int64_t last = std::ssize(run.nest.loops) - 1;
  if (run.appends) return run.kernel->output.back();
  if (run.way == ResultWay::kInOrder) return last;
  // No element, or fiber, of the result begins among them.
  const int64_t first = std::max(nest::first_merged_loop(run.nest), run.nest.prefix);
  if (first >= last) return last;
  const Level& lists = run.arguments->operands[run.nest.loops[last].participants[0].operand]->levels.back();
  return lists.coordinates.size() < kShortList * (lists.offsets.size() - 1) ? first : last;
}

void prepare_result(Prepared& run) {
  const Kernel& kernel = *run.kernel;
  for (const int64_t loop : kernel.output) run.extents.push_back(run.arguments->extents[loop]);
  run.way = way_of(kernel);
  run.prefix = prefix_of(kernel);
  run.appends = run.way == ResultWay::kInOrder && ends_with_output(kernel) &&
                (kernel.output.back() == std::ssize(kernel.loops) - 1 ||
                 nest::first_merged_loop(run.nest) <= kernel.output.back());
  run.nest.prefix = run.appends ? 0 : loops_of_prefix(kernel, run.prefix);
  // Merged loops then find the elements' coordinates.
  if (run.appends) run.nest.loops[kernel.output.back()].stride = 1;
  const Dims below(run.extents.begin() + run.prefix, run.extents.end());
  run.workspace_size = checked_product("kernel: elements of the result", below);
  int64_t stride = 1;
  for (int64_t level = run.rank() - 1; level >= run.prefix; --level) {
    run.nest.loops[kernel.output[level]].stride = stride;
    stride *= run.extents[level];
  }
  for (int64_t loop = 0; loop < std::ssize(kernel.loops); ++loop) {
    if (!position_of(kernel.output, loop)) run.aggregated *= static_cast<double>(run.arguments->extents[loop]);
  }
  const int64_t innermost = std::ssize(kernel.loops) - 1;
  run.outermost_is_output = kernel.loops.empty() || position_of(kernel.output, 0).has_value();
  run.innermost_is_output = position_of(kernel.output, innermost).has_value();
  run.nest.innermost = innermost_of(run);
}

}  // namespace

ResultWay way_of(const Kernel& kernel) {
  const bool dense = std::ranges::all_of(kernel.formats, [](LevelFormat f) { return f == LevelFormat::kDense; });
  if (dense) return ResultWay::kDense;
  return prefix_of(kernel) == std::ssize(kernel.output) ? ResultWay::kInOrder : ResultWay::kWorkspace;
}

DType dtype_of(const Kernel& kernel, const KernelArguments& arguments) {
  return arguments.operands.empty() ? kernel.dtype : arguments.operands[0]->dtype();
}

int64_t prefix_of(const Kernel& kernel) {
  const bool dense = std::ranges::all_of(kernel.formats, [](LevelFormat f) { return f == LevelFormat::kDense; });
  int64_t prefix = 0;
  for (; !dense && prefix < std::ssize(kernel.output); ++prefix) {
    int64_t next = loops_of_prefix(kernel, prefix);
    while (prefix > 0 && next < kernel.output[prefix] && kernel.loops[next].single) ++next;
    if (kernel.output[prefix] != next) break;
  }
  return prefix;
}

int64_t loops_of_prefix(const Kernel& kernel, int64_t levels) {
  return levels == 0 ? 0 : kernel.output[levels - 1] + 1;
}

Kernel with_single_loops(Kernel out, const KernelArguments& arguments) {
  for (int64_t loop = 0; loop < std::ssize(out.loops); ++loop) {
    const std::vector<int64_t>& walkers = out.loops[loop].walkers;
    if (walkers.size() != 1 || position_of(out.output, loop)) continue;
    const std::vector<int64_t>& of_levels = out.operands[walkers[0]].loops;
    const auto level = std::ranges::find(of_levels, loop) - of_levels.begin();
    out.loops[loop].single = arguments.operands[walkers[0]]->levels[level].single;
  }
  return out;
}

Prepared prepared(const Kernel& kernel, const KernelArguments& arguments) {
  check_arguments(kernel, arguments);
  Prepared run{.kernel = &kernel, .arguments = &arguments, .dtype = dtype_of(kernel, arguments)};
  prepare_nest(run);
  prepare_result(run);
  return run;
}

std::vector<std::vector<nest::LevelView>> outermost_levels(const Prepared& run) {
  std::vector<std::vector<nest::LevelView>> out;
  for (size_t o = 0; o < run.kernel->operands.size(); ++o) {
    const std::vector<int64_t>& loops = run.kernel->operands[o].loops;
    if (loops.empty() || loops.front() != 0) continue;
    std::vector<nest::LevelView>& levels = out.emplace_back();
    for (const Level& level : run.arguments->operands[o]->levels) levels.emplace_back(level, false);
  }
  return out;
}

}  // namespace joinsum::sparse::kernels
