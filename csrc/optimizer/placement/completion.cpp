#include "optimizer/placement/completion.h"

#include <algorithm>

#include "optimizer/placement/crossing.h"
#include "optimizer/placement/dual.h"
#include "optimizer/placement/routing.h"

namespace joinsum::optimizer {
namespace {

/// Passes at most and at least, those between choices, and modes that they look at.
constexpr int kMostPasses = 12;
constexpr int kPassesBetweenChoices = 3;
constexpr double kModes = 5e5;
/// The part of the cost that may be left open.
constexpr double kGap = 1e-3;
/// What sums of costs may differ by, in parts of them.
constexpr double kRounding = 1e-12;
/// Readers that are delivered to together.
constexpr size_t kReaders = 3;

bool everywhere(const Vertex& vertex, const Mode& mode) {
  const auto whole = [](const Place* place) { return place->type.placement.fully_replicated(); };
  return std::all_of(mode.needs.begin(), mode.needs.end(), whole) && (vertex.input() != nullptr || whole(mode.result));
}

PlacementDemands demands_with(const PlacementDemands& demands, const PartialPlacement& given) {
  PlacementDemands out = demands;
  out.given.clear();
  out.inputs.insert(given.inputs.begin(), given.inputs.end());
  out.pins.insert(given.pins.begin(), given.pins.end());
  return out;
}

/// Costs of modes, of which those are forbidden that a vertex may not have.
std::vector<std::vector<double>> allowed_costs(const ProblemParts& from, const PlacementDemands& demands, bool whole) {
  std::vector<std::vector<double>> out = from.costs;
  for (size_t v = 0; v < out.size(); ++v) {
    const Vertex& vertex = from.vertices[v];
    const auto start =
        vertex.input() != nullptr && !vertex.output ? demands.inputs.find(vertex.input()->name) : demands.inputs.end();
    for (size_t m = 0; m < out[v].size(); ++m) {
      const Mode& mode = vertex.modes[m];
      if (start != demands.inputs.end() && mode.result->type.placement != start->second) out[v][m] = kForbidden;
      if (whole && !vertex.output && !everywhere(vertex, mode)) out[v][m] = kForbidden;
    }
  }
  return out;
}

int passes_of(const DeliveryProblem& problem) {
  double modes = 0;
  for (const auto& costs : problem.costs) modes += static_cast<double>(costs.size());
  return std::clamp(static_cast<int>(kModes / modes), kPassesBetweenChoices, kMostPasses);
}

/// A good choice, by a few passes.
BestChoice searched(const DeliveryProblem& problem, const min_sum::Deadline& deadline) {
  Dual dual(problem, kReaders);
  BestChoice best(problem, deadline);
  best.look_at(dual.choose());
  const int passes = passes_of(problem);
  for (int pass = 1; pass <= passes && !min_sum::expired(deadline); ++pass) {
    if (best.cost() - dual.bound() <= kGap * best.cost()) break;
    dual.ascend(best.cost() + kRounding * best.cost());
    if (pass % kPassesBetweenChoices == 0) best.look_at(dual.choose());
  }
  return best;
}

}  // namespace

std::optional<Completed> completed(const ProblemParts& from, const PartialPlacement& given,
                                   const min_sum::Deadline& deadline) {
  Completed out{demands_with(from.demands, given), 0, {}, {}};
  const Routing routing(from.plan, out.demands, from.vertices, allowed_costs(from, out.demands, given.everywhere),
                        from.memory);
  const BestChoice best = searched(routing.problem(), deadline);
  if (!best.found()) return std::nullopt;
  out.cost = best.cost();
  out.modes = routing.of_vertices(best.modes());
  out.choice = routing.choice(best.modes());
  return out;
}

}  // namespace joinsum::optimizer
