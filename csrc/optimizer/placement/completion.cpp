#include "optimizer/placement/completion.h"

#include <algorithm>

#include "optimizer/placement/crossing.h"
#include "optimizer/placement/dual.h"
#include "optimizer/placement/routing.h"

namespace joinsum::optimizer {
namespace {

/// Passes at most, those between choices, and entries of tables after which none begins.
constexpr int kPasses = 12;
constexpr int kPassesBetweenChoices = 3;
constexpr double kEntries = 1e8;
/// The part of the cost that may be left open.
constexpr double kGap = 1e-3;
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
std::vector<std::vector<double>> allowed_costs(const Choices& from, const PlacementDemands& demands, bool whole) {
  std::vector<std::vector<double>> out = from.costs;
  for (size_t v = 0; v < out.size(); ++v) {
    const Vertex& vertex = from.vertices[v];
    const auto start = vertex.input() != nullptr && !vertex.output ? demands.inputs.find(vertex.input()->name)
                                                                   : demands.inputs.end();
    for (size_t m = 0; m < out[v].size(); ++m) {
      const Mode& mode = vertex.modes[m];
      if (start != demands.inputs.end() && mode.result->type.placement != start->second) out[v][m] = kForbidden;
      if (whole && !vertex.output && !everywhere(vertex, mode)) out[v][m] = kForbidden;
    }
  }
  return out;
}

}  // namespace

std::optional<Completed> completed(const Choices& from, const PartialPlacement& given,
                                   const min_sum::Deadline& deadline) {
  Completed out{demands_with(from.demands, given), {}, {}};
  const Routing routing(from.plan, out.demands, from.vertices, allowed_costs(from, out.demands, given.everywhere),
                        from.memory);
  Dual dual(routing.problem(), kReaders);
  BestChoice best(routing.problem(), deadline);
  best.look_at(dual.choose());
  for (int pass = 1; pass <= kPasses && dual.entries() < kEntries && !min_sum::expired(deadline); ++pass) {
    if (best.cost() - dual.bound() <= kGap * best.cost()) break;
    dual.ascend(best.cost());
    if (pass % kPassesBetweenChoices == 0) best.look_at(dual.choose());
  }
  if (!best.found()) return std::nullopt;
  out.modes = routing.of_vertices(best.modes());
  out.choice = routing.choice(best.modes());
  return out;
}

}  // namespace joinsum::optimizer
