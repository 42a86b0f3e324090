#include "optimizer/solvers/completion.h"

#include <algorithm>

#include "optimizer/resharding/resharding_model.h"
#include "optimizer/solvers/crossing.h"
#include "optimizer/solvers/message_passing.h"

namespace joinsum::optimizer::solvers {
namespace {

/// The most and fewest passes, the passes between two choices, and the strategies that all passes together visit.
constexpr int kMostPasses = 12;
constexpr int kPassesBetweenChoices = 3;
constexpr double kModes = 5e5;
/// The gap between cost and bound that is accepted, relative to the cost.
constexpr double kGap = 1e-3;
/// The smallest step towards a bound, relative to the cost: the rounding of sums of costs.
constexpr double kSmallestStep = 1e-12;
/// The readers that one resharding serves.
constexpr size_t kReaders = 3;

bool everywhere(const model::Vertex& vertex, const model::Strategy& strategy) {
  const auto whole = [](const layouts::Layout* layout) { return layout->type.placement.fully_replicated(); };
  return std::all_of(strategy.operand_layouts.begin(), strategy.operand_layouts.end(), whole) &&
         (vertex.input() != nullptr || whole(strategy.result));
}

model::PlacementConstraints constraints_with(const model::PlacementConstraints& constraints,
                                             const model::PartialPlacement& warm_start) {
  model::PlacementConstraints out = constraints;
  out.warm_starts.clear();
  out.inputs.insert(warm_start.inputs.begin(), warm_start.inputs.end());
  out.pins.insert(warm_start.pins.begin(), warm_start.pins.end());
  return out;
}

/// The costs of strategies; those that the constraints exclude are forbidden.
std::vector<std::vector<double>> allowed_costs(const model::PlacementModel& model,
                                               const model::PlacementConstraints& constraints, bool whole) {
  std::vector<std::vector<double>> out = model.costs;
  for (size_t v = 0; v < out.size(); ++v) {
    const model::Vertex& vertex = model.vertices[v];
    const auto start = vertex.input() != nullptr && !vertex.output ? constraints.inputs.find(vertex.input()->name)
                                                                   : constraints.inputs.end();
    for (size_t m = 0; m < out[v].size(); ++m) {
      const model::Strategy& strategy = vertex.strategies[m];
      if (start != constraints.inputs.end() && strategy.result->type.placement != start->second)
        out[v][m] = min_sum::kForbidden;
      if (whole && !vertex.output && !everywhere(vertex, strategy)) out[v][m] = min_sum::kForbidden;
    }
  }
  return out;
}

int passes_of(const resharding::ReshardingProblem& problem) {
  double strategies = 0;
  for (const auto& costs : problem.costs) strategies += static_cast<double>(costs.size());
  return std::clamp(static_cast<int>(kModes / strategies), kPassesBetweenChoices, kMostPasses);
}

/// A good choice, found by a few passes.
Incumbent searched(const resharding::ReshardingProblem& problem, const min_sum::Deadline& deadline) {
  MessagePassing bound(problem, kReaders);
  Incumbent best(problem, deadline);
  best.consider(bound.choose());
  const int passes = passes_of(problem);
  for (int pass = 1; pass <= passes && !min_sum::expired(deadline); ++pass) {
    if (best.cost() - bound.bound() <= kGap * best.cost()) break;
    bound.ascend(best.cost() + kSmallestStep * best.cost());
    if (pass % kPassesBetweenChoices == 0) best.consider(bound.choose());
  }
  return best;
}

}  // namespace

std::optional<Completion> complete(const model::PlacementModel& model, const model::PartialPlacement& warm_start,
                                   const min_sum::Deadline& deadline) {
  Completion out{constraints_with(model.constraints, warm_start), 0, {}, {}};
  const auto costs = allowed_costs(model, out.constraints, warm_start.everywhere);
  const resharding::ReshardingModel resharding({model.plan, out.constraints, model.cache, model.vertices, costs});
  const Incumbent best = searched(resharding.problem(), deadline);
  if (!best.found()) return std::nullopt;
  out.cost = best.cost();
  out.strategies = resharding.of_vertices(best.strategies());
  out.choice = resharding.choice(best.strategies());
  return out;
}

}  // namespace joinsum::optimizer::solvers
