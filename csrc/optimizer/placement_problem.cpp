#include "optimizer/placement_problem.h"

#include <algorithm>
#include <mutex>

#include "optimizer/model/strategies.h"
#include "optimizer/resharding/resharding_model.h"
#include "optimizer/solvers/crossing.h"
#include "optimizer/solvers/message_passing.h"

namespace joinsum::optimizer {
namespace {

/// The most passes that raise a bound, the passes between two choices, and the passes of which some must close this
/// part of the gap.
constexpr int kPasses = 60;
constexpr int kPassesBetweenChoices = 3;
constexpr int kPassesOfGain = 6;
constexpr double kLeastGain = 0.02;
/// After so many table entries, passes stop at a gap of this part of the cost; and after so many at any gap.
constexpr double kEntries = 3e8;
constexpr double kSmallGap = 0.005;
constexpr double kMostEntries = 2e9;
constexpr double kMostEntriesThorough = 4.5e9;
/// The same limit of entries for `thorough` constraints.
constexpr double kJointEntriesThorough = 1.5e9;
/// The passes that raise the bound before branch and bound.
constexpr int kPassesToFit = 12;
/// The rounding of sums of costs, relative to them.
constexpr double kRounding = 1e-12;
/// What a bound in whole numbers may lack: the weight of flops in ties is less than that, and both together are less
/// than half a unit.
constexpr double kSlackBytes = 0.2;

}  // namespace

PlacementProblem::PlacementProblem(const tra::Plan& plan, const model::PlacementConstraints& constraints,
                                   std::shared_ptr<layouts::PlacementCache> cache)
    : plan_(plan),
      constraints_(constraints),
      cache_(std::move(cache)),
      turn_(cache_->turn),
      labels_(plan_),
      vertices_(model::enumerated_vertices(plan_, constraints_, *cache_, labels_)),
      model_{plan_, constraints_, *cache_, vertices_, costs_} {
  price_strategies();
}

std::optional<PlacementSolution> PlacementProblem::solve(const std::optional<std::vector<int64_t>>& only,
                                                         const min_sum::Limits& limits) {
  const auto solution = solution_of(only, limits);
  if (!solution) return std::nullopt;
  return lowered(tables().choice(solution->values), solution->lower_bound, solution->exact);
}

solvers::Searched<PlacementSolution> PlacementProblem::within(int64_t limit, double most) const {
  if (!solvers::is_searchable(model_)) return {};
  const resharding::ReshardingModel resharding(model_);
  solvers::MessagePassing bound(resharding.problem());
  for (int pass = 0; pass < kPassesToFit; ++pass) bound.ascend(most);
  const auto fitted = solvers::branch_and_bound(model_, resharding, bound, limit, most);
  if (!fitted.best) return {std::nullopt, fitted.complete};
  return {lowered(*fitted.best, 0, false), fitted.complete};
}

std::vector<std::optional<PlacementSolution>> PlacementProblem::warm_starts(const min_sum::Limits& limits) {
  std::vector<std::optional<PlacementSolution>> out;
  for (const auto& each : completions(limits)) {
    auto& placed = out.emplace_back();
    if (!each) continue;
    placed.emplace();
    placed->plan =
        lowering::lowered({plan_, each->constraints, *cache_, vertices_, costs_}, each->choice, placed->nodes);
  }
  return out;
}

/// The completed warm starts, computed once.
const std::vector<std::optional<solvers::Completion>>& PlacementProblem::completions(const min_sum::Limits& limits) {
  while (completions_.size() < constraints_.warm_starts.size())
    completions_.push_back(solvers::complete(model_, constraints_.warm_starts[completions_.size()], limits.deadline));
  return completions_;
}

const model::MinSumTables& PlacementProblem::tables() {
  if (!tables_) tables_.emplace(model_);
  return *tables_;
}

std::optional<min_sum::Solution> PlacementProblem::solution_of(const std::optional<std::vector<int64_t>>& only,
                                                               const min_sum::Limits& limits) {
  std::vector<std::vector<double>> costs = costs_;
  for (size_t v = 0; only && v < costs.size(); ++v) costs[v] = restricted(v, *only);
  const model::MinSumTables& all = tables();
  try {
    return min_sum::solve(all.problem(std::move(costs)), limits);
  } catch (const PlanError&) {
    return std::nullopt;
  }
}

PlacementSolution PlacementProblem::lowered(const model::Choice& choice, double bound, bool exact) const {
  // Nothing is known of plans whose axes divide one by one.
  const bool all = !model::in_bundles(plan_, constraints_, cache_->layouts.grid());
  PlacementSolution out{{}, all ? bound : 0, all && exact};
  out.plan = lowering::lowered(model_, choice, out.nodes);
  return out;
}

// --- costs of strategies ---------------------------------------------------------------------------------------------

/// Flops decide between plans of one value.
double PlacementProblem::weight_of_flops() const {
  double most = 1;
  for (const model::Vertex& vertex : vertices_) {
    double largest = 0;
    for (const model::Strategy& strategy : vertex.strategies) largest = std::max(largest, strategy.flops);
    most += largest;
  }
  return cost::row_of(cache_->objective).prices_work ? 0 : 0.25 / most;
}

void PlacementProblem::price_strategies() {
  const double weight = weight_of_flops();
  const std::vector<size_t> first = model::first_results(vertices_);
  for (size_t v = 0; v < vertices_.size(); ++v) {
    const model::Vertex& vertex = vertices_[v];
    const double byte_price = vertex.output ? 0 : constraints_.byte_price;
    auto& costs = costs_.emplace_back();
    for (const model::Strategy& strategy : vertex.strategies) {
      // All results of a call come from one run, which the first one pays for.
      const double run = first[v] == v ? strategy.value + weight * strategy.flops : 0;
      const double bytes = byte_price > 0 ? static_cast<double>(strategy.result->type.most_bytes()) : 0;
      costs.push_back(run + byte_price * bytes);
    }
    JOINSUM_USER_CHECK(!costs.empty(), "optimize: no placement lets an operator run: operator=",
                       tra::operator_name(vertex.node->operation()), ", type=", vertex.node->type().text());
  }
}

std::vector<double> PlacementProblem::restricted(size_t v, const std::vector<int64_t>& only) const {
  const model::Vertex& vertex = vertices_[v];
  std::vector<double> costs = costs_[v];
  if (vertex.joined() == nullptr) return costs;
  const auto allowed = [&](int64_t label) { return std::find(only.begin(), only.end(), label) != only.end(); };
  if (std::none_of(vertex.labels.begin(), vertex.labels.end(), allowed)) return costs;
  for (size_t m = 0; m < costs.size(); ++m) {
    const auto divided = divided_labels(vertex, vertex.strategies[m]);
    if (!std::all_of(divided.begin(), divided.end(), allowed)) costs[m] = min_sum::kForbidden;
  }
  return costs;
}

/// Labels of the dimensions of a vertex's operands that a strategy divides.
std::vector<int64_t> PlacementProblem::divided_labels(const model::Vertex& vertex,
                                                      const model::Strategy& strategy) const {
  std::vector<int64_t> out;
  for (size_t i = 0; i < strategy.operand_layouts.size(); ++i) {
    const ia::Placement& required = strategy.operand_layouts[i]->type.placement;
    const auto& labels = labels_.of(*vertices_[vertex.operands[i]].node);
    for (const int64_t axis : required.axes_in<ia::Split>())
      out.push_back(labels[std::get<ia::Split>(required.grid()->states[axis]).dim]);
  }
  return out;
}

/// Choices come from the passes that raise the bound; where these leave a large gap, elimination proposes another one.
std::optional<PlacementSolution> PlacementProblem::bounded(const min_sum::Limits& limits) {
  const resharding::ReshardingModel resharding(model_);
  const resharding::ReshardingProblem& problem = resharding.problem();
  solvers::MessagePassing bound(problem, solvers::MessagePassing::kMostReaders,
                                constraints_.thorough ? kJointEntriesThorough : solvers::MessagePassing::kJointEntries);
  const double most_entries = constraints_.thorough ? kMostEntriesThorough : kMostEntries;
  solvers::Incumbent best(problem, limits.deadline);
  const auto slack = [&](double cost) {
    return cost::row_of(cache_->objective).whole_numbers ? kSlackBytes : kRounding * cost;
  };
  const auto gap = [&](double part) {
    return !best.found() || best.cost() - bound.bound() > std::max(slack(best.cost()), part * best.cost());
  };
  best.consider(bound.choose(), !bound.large());
  for (const auto& each : completions(limits)) {
    if (each) best.consider(resharding.of_problem(each->strategies));
  }
  double before = bound.bound();
  for (int pass = 1; pass <= kPasses && gap(0) && !min_sum::expired(limits.deadline); ++pass) {
    bound.ascend(best.cost() + slack(best.cost()));
    if (pass % kPassesBetweenChoices != 0) continue;
    best.consider(bound.choose());
    if (bound.entries() > most_entries || (bound.entries() > kEntries && !gap(kSmallGap))) break;
    if (pass % kPassesOfGain != 0 || !best.found()) continue;
    if (bound.bound() - before < kLeastGain * (best.cost() - before)) break;
    before = bound.bound();
  }
  if (!best.found() || (gap(kSmallGap) && !bound.large())) {
    if (const auto solution = solution_of({}, limits))
      best.consider(resharding.of_problem(tables().strategies(solution->values)));
  }
  if (!best.found()) return std::nullopt;
  return lowered(resharding.choice(best.strategies()), std::min(bound.bound(), best.cost()), false);
}

}  // namespace joinsum::optimizer
