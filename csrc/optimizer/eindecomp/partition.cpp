#include "optimizer/eindecomp/partition.h"

#include <algorithm>
#include <numeric>

#include "optimizer/eindecomp/linearise.h"
#include "optimizer/min_sum/min_sum.h"

namespace joinsum::optimizer::eindecomp {
namespace {

using Clock = std::chrono::steady_clock;
struct Found {
  Choices choices;
  double cost;
  double lower_bound;
  std::string method;
};

/// The better plan and the better bound of two.
void merge(Found& best, min_sum::Solution next) {
  best.lower_bound = std::max(best.lower_bound, next.lower_bound);
  if (next.cost >= best.cost) return;
  best.choices = std::move(next.values);
  best.cost = next.cost;
}

/// The whole graph at once, if its tables over pairs fit. A low cap comes first: under it the solver drops dominated
/// vectors early, so that on many graphs it finds the same plan faster.
std::optional<Found> eliminate(const PartitionProblem& problem, const min_sum::Limits& limits, double pair_entries) {
  constexpr double kLowCap = 1e6;
  constexpr double kShare = 0.7;  // of the time, the rest is for linearisation
  double entries = 0;
  for (const auto& edge : problem.edges()) entries += problem.entries(edge);
  if (entries > pair_entries || min_sum::expired(limits.deadline)) return std::nullopt;
  std::vector<int64_t> all(problem.vertices());
  std::iota(all.begin(), all.end(), 0);
  const min_sum::Problem whole = problem.part(all, Choices(problem.vertices(), -1));
  const min_sum::Deadline deadline = min_sum::part_of(limits.deadline, kShare);
  min_sum::Solution first = min_sum::solve(whole, {std::min(kLowCap, limits.table_entries), deadline});
  Found best{std::move(first.values), first.cost, first.lower_bound, "elimination"};
  const bool again = best.cost > best.lower_bound && kLowCap < limits.table_entries && !min_sum::expired(deadline);
  if (again) merge(best, min_sum::solve(whole, {limits.table_entries, deadline}));
  return best;
}

Found find(const PartitionProblem& problem, const min_sum::Limits& limits, double pair_entries) {
  std::optional<Found> best = eliminate(problem, limits, pair_entries);
  if (best && best->cost <= best->lower_bound) return *best;
  Choices choices = linearise(problem, limits, pair_entries);
  const double cost = problem.cost(choices);
  const double bound = best ? best->lower_bound : problem.lower_bound();
  if (!best || cost < best->cost) best = Found{std::move(choices), cost, bound, "linearisation"};
  return *best;
}

VertexPartition partition_of(const einsum::json::JsonOperation& operation, const Dims& parts,
                             const PartitionProblem& problem) {
  const EinsumShape shape = shape_of(operation);
  VertexPartition out{parts, join_floats(shape, parts), aggregation_floats(shape, parts), {}};
  for (size_t operand = 0; operand < operation.inputs.size(); ++operand) {
    const auto& stored = problem.stored(operation.inputs[operand]);
    const Dims& labels = shape.operands[operand];
    out.repartitions.push_back(
        stored ? repartition_floats(project(shape.extents, labels), *stored, project(parts, labels)) : 0);
  }
  return out;
}

}  // namespace

PartitionPlan partition(const einsum::json::JsonGraph& graph, const std::vector<PartitionPin>& pins, int64_t calls,
                        const PartitionLimits& limits) {
  const min_sum::Limits bounds{limits.table_entries, min_sum::deadline_after(limits.seconds)};
  const PartitionProblem problem(graph, pins, calls);
  const Found found = find(problem, bounds, limits.pair_entries);
  PartitionPlan plan;
  plan.cost = found.cost;
  plan.lower_bound = found.lower_bound;
  plan.exact = found.cost <= found.lower_bound;
  plan.method = found.method;
  plan.tables = problem.all_tables();
  plan.distinct_tables = problem.distinct_tables();
  for (int64_t v = 0; v < problem.vertices(); ++v) {
    plan.vertices.push_back(partition_of(graph.operations[v], problem.table(v).vectors[found.choices[v]], problem));
  }
  for (const auto& edge : problem.edges()) {
    plan.vertices[edge.consumer].repartitions[edge.operand] = problem.move_floats(edge, found.choices);
  }
  return plan;
}

}  // namespace joinsum::optimizer::eindecomp
