#include "optimizer/partition/partition.h"

#include <algorithm>
#include <chrono>
#include <numeric>

#include "optimizer/partition/linearise.h"

namespace joinsum::optimizer {
namespace {

using Clock = std::chrono::steady_clock;
using Deadline = std::optional<Clock::time_point>;

bool expired(const Deadline& deadline) { return deadline && Clock::now() >= *deadline; }

Deadline deadline_of(const PartitionLimits& limits) {
  constexpr double kEndless = 1e9;
  if (!limits.seconds || *limits.seconds >= kEndless) return std::nullopt;
  return Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(*limits.seconds));
}

/// When most of the time until the deadline is gone.
Deadline most_of(const Deadline& deadline) {
  constexpr double kShare = 0.7;
  if (!deadline) return std::nullopt;
  const auto now = Clock::now();
  return now + std::chrono::duration_cast<Clock::duration>(kShare * (*deadline - now));
}

struct Found {
  Choices choices;
  double cost;
  double lower_bound;
  std::string method;
};

/// The better plan and the better bound of two.
void merge(Found& best, MinSumSolution next) {
  best.lower_bound = std::max(best.lower_bound, next.lower_bound);
  if (next.cost >= best.cost) return;
  best.choices = std::move(next.values);
  best.cost = next.cost;
}

/// The whole graph at once, if its tables over pairs fit. A low cap comes first: under it the solver drops dominated
/// vectors early, so that on many graphs it is the quicker way to the same plan.
std::optional<Found> eliminate(const PartitionProblem& problem, const MinSumLimits& limits, double pair_entries) {
  constexpr double kLowCap = 1e6;
  double entries = 0;
  for (const auto& edge : problem.edges()) entries += problem.entries(edge);
  if (entries > pair_entries || expired(limits.deadline)) return std::nullopt;
  std::vector<int64_t> all(problem.vertices());
  std::iota(all.begin(), all.end(), 0);
  const MinSumProblem whole = problem.part(all, Choices(problem.vertices(), -1));
  const Deadline deadline = most_of(limits.deadline);
  MinSumSolution first = solve(whole, {std::min(kLowCap, limits.table_entries), deadline});
  Found best{std::move(first.values), first.cost, first.lower_bound, "elimination"};
  const bool again = best.cost > best.lower_bound && kLowCap < limits.table_entries && !expired(deadline);
  if (again) merge(best, solve(whole, {limits.table_entries, deadline}));
  return best;
}

Found find(const PartitionProblem& problem, const MinSumLimits& limits, double pair_entries) {
  std::optional<Found> best = eliminate(problem, limits, pair_entries);
  if (best && best->cost <= best->lower_bound) return *best;
  Choices choices = linearise(problem, limits, pair_entries);
  const double cost = problem.cost(choices);
  const double bound = best ? best->lower_bound : problem.lower_bound();
  if (!best || cost < best->cost) best = Found{std::move(choices), cost, bound, "linearisation"};
  return *best;
}

VertexPartition partition_of(const PartitionVertex& vertex, const Dims& parts, const PartitionProblem& problem) {
  const EinsumShape shape = shape_of(vertex);
  VertexPartition out{parts, join_floats(shape, parts), aggregation_floats(shape, parts), {}};
  for (size_t operand = 0; operand < vertex.operands.size(); ++operand) {
    out.repartitions.push_back(0);
    const auto& [kind, index] = vertex.operands[operand].source;
    if (kind == PartitionSource::Kind::kVertex || !problem.stored()[index]) continue;
    const Dims& labels = shape.operands[operand];
    out.repartitions.back() =
        repartition_floats(project(shape.extents, labels), *problem.stored()[index], project(parts, labels));
  }
  return out;
}

}  // namespace

PartitionPlan partition(const PartitionGraph& graph, int64_t calls, const PartitionLimits& limits) {
  const MinSumLimits bounds{limits.table_entries, deadline_of(limits)};
  const PartitionProblem problem(graph, calls);
  const Found found = find(problem, bounds, limits.pair_entries);
  PartitionPlan plan;
  plan.cost = found.cost;
  plan.lower_bound = found.lower_bound;
  plan.exact = found.cost <= found.lower_bound;
  plan.method = found.method;
  plan.tables = problem.all_tables();
  plan.distinct_tables = problem.distinct_tables();
  for (int64_t v = 0; v < problem.vertices(); ++v) {
    plan.vertices.push_back(partition_of(graph.vertices[v], problem.table(v).vectors[found.choices[v]], problem));
  }
  for (const auto& edge : problem.edges()) {
    plan.vertices[edge.consumer].repartitions[edge.operand] = problem.move_floats(edge, found.choices);
  }
  return plan;
}

}  // namespace joinsum::optimizer
