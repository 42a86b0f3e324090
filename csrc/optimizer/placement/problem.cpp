#include "optimizer/placement/problem.h"

#include <algorithm>
#include <mutex>

#include "optimizer/placement/completion.h"
#include "optimizer/placement/crossing.h"
#include "optimizer/placement/dual.h"
#include "optimizer/placement/fitting.h"
#include "optimizer/placement/routing.h"
#include "optimizer/placement/tables.h"

namespace joinsum::optimizer {
namespace {

/// Passes that raise a bound at most, those between plans that are looked at, and those of which some must close this
/// part of the gap.
constexpr int kPasses = 60;
constexpr int kPassesBetweenChoices = 3;
constexpr int kPassesOfGain = 6;
constexpr double kLeastGain = 0.02;
/// Entries of tables that passes look at, after which a gap that is this part of the cost is left; and any gap.
constexpr double kEntries = 3e8;
constexpr double kSmallGap = 0.005;
constexpr double kMostEntries = 2e9;
constexpr double kMostEntriesThorough = 4.5e9;
/// Entries of a pass up to which most readers are delivered to together then.
constexpr double kTogetherThorough = 1.5e9;
/// Passes that sharpen the bound of parts of placements.
constexpr int kPassesToFit = 12;
/// What sums of costs may differ by, in parts of them.
constexpr double kRounding = 1e-12;
/// What a bound in bytes may lack: flops weigh less than that besides, and both together less than half a byte.
constexpr double kSlackBytes = 0.2;

}  // namespace

class PlacementProblem::Builder {
 public:
  Builder(const tra::Plan& plan, const PlacementDemands& demands, std::shared_ptr<PlacementMemory> memory)
      : plan_(plan),
        demands_(demands),
        memory_(std::move(memory)),
        turn_(memory_->turn),
        objective_(memory_->objective),
        labels_(plan_),
        vertices_(Ways(plan_, demands_, *memory_, labels_).run()),
        readers_(plan_, demands_, vertices_),
        tables_(plan_, demands_, *memory_, vertices_, readers_) {
    make_costs();
  }

  bool whole() const { return tables_.whole(); }

  const Labels& labels() const { return labels_; }

  std::optional<Placed> solve(const std::optional<std::vector<int64_t>>& only, const MinSumLimits& limits) {
    const auto solution = solution_of(only, limits);
    if (!solution) return std::nullopt;
    return placed(tables_.choice(solution->values), solution->lower_bound, solution->exact);
  }

  std::optional<Placed> bounded(const MinSumLimits& limits);

  PlacedWithin within(int64_t limit, double most) {
    const ProblemParts from{plan_, demands_, vertices_, mode_costs_, *memory_};
    if (!Fitting::possible(from)) return {};
    const Routing routing(plan_, demands_, vertices_, mode_costs_, *memory_);
    Dual dual(routing.problem());
    for (int pass = 0; pass < kPassesToFit; ++pass) dual.ascend(most);
    const Fitted fitted = Fitting(from, routing, dual, limit).search(most);
    PlacedWithin out{std::nullopt, fitted.complete};
    if (fitted.choice) out.placed = placed(*fitted.choice, 0, false);
    return out;
  }

  std::vector<std::optional<Placed>> given(double most, const MinSumLimits& limits) {
    std::vector<std::optional<Placed>> out;
    for (const auto& each : completions(limits)) {
      auto& placed = out.emplace_back();
      if (!each || each->cost > most) continue;
      placed.emplace();
      placed->plan = Lowering(plan_, each->demands, *memory_, vertices_).plan_of(each->choice, placed->nodes);
    }
    return out;
  }

 private:
  /// The given parts of plans, filled in; once.
  const std::vector<std::optional<Completed>>& completions(const MinSumLimits& limits) {
    const ProblemParts from{plan_, demands_, vertices_, mode_costs_, *memory_};
    while (completions_.size() < demands_.given.size())
      completions_.push_back(completed(from, demands_.given[completions_.size()], limits.deadline));
    return completions_;
  }

  std::optional<MinSumSolution> solution_of(const std::optional<std::vector<int64_t>>& only,
                                            const MinSumLimits& limits) {
    tables_.make();
    std::vector<std::vector<double>> costs;
    for (size_t v = 0; v < vertices_.size(); ++v) costs.push_back(restricted(vertices_[v], mode_costs_[v], only));
    try {
      return joinsum::optimizer::solve(tables_.problem(std::move(costs)), limits);
    } catch (const PlanError&) {
      return std::nullopt;
    }
  }

  Placed placed(const Choice& choice, double bound, bool exact) const {
    // Nothing is known of plans whose axes divide one by one.
    const bool all = !in_bundles(plan_, demands_, memory_->places.grid());
    Placed out{{}, all ? bound : 0, all && exact};
    out.plan = Lowering(plan_, demands_, *memory_, vertices_).plan_of(choice, out.nodes);
    return out;
  }

  // --- costs of ways -------------------------------------------------------------------------------------------------

  /// Flops decide between plans of one value.
  double weight_of_flops() const {
    double most = 1;
    for (const Vertex& vertex : vertices_) {
      double largest = 0;
      for (const Mode& mode : vertex.modes) largest = std::max(largest, mode.flops);
      most += largest;
    }
    return objective_ == Objective::kSeconds ? 0 : 0.25 / most;
  }

  void make_costs() {
    const double weight = weight_of_flops();
    const std::vector<size_t> first = first_results(vertices_);
    for (size_t v = 0; v < vertices_.size(); ++v) {
      const Vertex& vertex = vertices_[v];
      std::vector<double> costs;
      for (const Mode& mode : vertex.modes) {
        const double run = first[v] == v ? mode.value + weight * mode.flops : 0;  // once for all results of a call
        const bool keeps = !vertex.output && demands_.byte_price > 0;
        const double kept = keeps ? demands_.byte_price * busiest_bytes(mode.result->type) : 0;
        costs.push_back(run + kept);
      }
      JOINSUM_USER_CHECK(!costs.empty(), "optimize: no placement lets an operator run: operator=",
                         tra::operator_name(vertex.node->operation()), ", type=", vertex.node->type().text());
      mode_costs_.push_back(std::move(costs));
    }
  }

  std::vector<double> restricted(const Vertex& vertex, std::vector<double> costs,
                                 const std::optional<std::vector<int64_t>>& only) const {
    if (!only || vertex.joined() == nullptr) return costs;
    const auto allowed = [&](int64_t label) { return std::find(only->begin(), only->end(), label) != only->end(); };
    if (std::none_of(vertex.labels.begin(), vertex.labels.end(), allowed)) return costs;
    for (size_t m = 0; m < costs.size(); ++m) {
      const auto divided = divided_labels(vertex, vertex.modes[m]);
      if (!std::all_of(divided.begin(), divided.end(), allowed)) costs[m] = kForbidden;
    }
    return costs;
  }

  /// Labels of the dimensions of a vertex's operands that a mode divides.
  std::vector<int64_t> divided_labels(const Vertex& vertex, const Mode& mode) const {
    std::vector<int64_t> out;
    for (size_t i = 0; i < mode.needs.size(); ++i) {
      const ia::Placement& need = mode.needs[i]->type.placement;
      const auto& labels = labels_.of(*vertices_[vertex.operands[i]].node);
      for (const int64_t axis : need.axes_in<ia::Split>())
        out.push_back(labels[std::get<ia::Split>(need.grid()->states[axis]).dim]);
    }
    return out;
  }

  const tra::Plan plan_;
  PlacementDemands demands_;
  std::shared_ptr<PlacementMemory> memory_;
  std::unique_lock<std::mutex> turn_;
  Objective objective_;
  Labels labels_;
  std::vector<Vertex> vertices_;
  Readers readers_;
  PlacementTables tables_;
  std::vector<std::vector<double>> mode_costs_;
  std::vector<std::optional<Completed>> completions_;
};

/// Plans come from the passes that raise the bound; where these leave much open, another one from an elimination.
std::optional<Placed> PlacementProblem::Builder::bounded(const MinSumLimits& limits) {
  const Routing routing(plan_, demands_, vertices_, mode_costs_, *memory_);
  const DeliveryProblem& problem = routing.problem();
  Dual dual(problem, Dual::kMostReaders, demands_.thorough ? kTogetherThorough : Dual::kTogether);
  const double most_entries = demands_.thorough ? kMostEntriesThorough : kMostEntries;
  BestChoice best(problem, limits.deadline);
  const auto slack = [&](double cost) { return objective_ == Objective::kSeconds ? kRounding * cost : kSlackBytes; };
  const auto gap = [&](double part) {
    return !best.found() || best.cost() - dual.bound() > std::max(slack(best.cost()), part * best.cost());
  };
  best.look_at(dual.choose(), !dual.large());
  for (const auto& each : completions(limits)) {
    if (each) best.look_at(routing.of_problem(each->modes));
  }
  double before = dual.bound();
  for (int pass = 1; pass <= kPasses && gap(0) && !min_sum::expired(limits.deadline); ++pass) {
    dual.ascend(best.cost() + slack(best.cost()));
    if (pass % kPassesBetweenChoices != 0) continue;
    best.look_at(dual.choose());
    if (dual.entries() > most_entries || (dual.entries() > kEntries && !gap(kSmallGap))) break;
    if (pass % kPassesOfGain != 0 || !best.found()) continue;
    if (dual.bound() - before < kLeastGain * (best.cost() - before)) break;
    before = dual.bound();
  }
  if (!best.found() || (gap(kSmallGap) && !dual.large())) {
    if (const auto solution = solution_of({}, limits))
      best.look_at(routing.of_problem(tables_.modes(solution->values)));
  }
  if (!best.found()) return std::nullopt;
  return placed(routing.choice(best.modes()), std::min(dual.bound(), best.cost()), false);
}

PlacementProblem::PlacementProblem(const tra::Plan& plan, const PlacementDemands& demands,
                                   std::shared_ptr<PlacementMemory> memory)
    : builder_(std::make_unique<Builder>(plan, demands, std::move(memory))) {}

PlacementProblem::~PlacementProblem() = default;

const Labels& PlacementProblem::labels() const { return builder_->labels(); }

bool PlacementProblem::whole() const { return builder_->whole(); }

std::optional<Placed> PlacementProblem::bounded(const MinSumLimits& limits) const { return builder_->bounded(limits); }

PlacedWithin PlacementProblem::within(int64_t limit, double most) const { return builder_->within(limit, most); }

std::vector<std::optional<Placed>> PlacementProblem::given(double most, const MinSumLimits& limits) const {
  return builder_->given(most, limits);
}

std::optional<Placed> PlacementProblem::solve(const std::optional<std::vector<int64_t>>& only,
                                              const MinSumLimits& limits) const {
  return builder_->solve(only, limits);
}

}  // namespace joinsum::optimizer
