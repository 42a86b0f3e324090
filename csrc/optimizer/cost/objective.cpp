#include "optimizer/cost/objective.h"

#include <algorithm>
#include <cmath>

#include "ia/analysis/exchange.h"
#include "ia/analysis/volume.h"
#include "ia/nodes.h"
#include "optimizer/cost/move_seconds.h"

namespace joinsum::optimizer::cost {
namespace {

/// Sites up to which the messages of a move are listed to price its seconds. On more, the busiest receiver stands for
/// the busiest link and reductions of partials count nothing, so the price is never more than the move takes.
constexpr int64_t kMostSitesWithListedMessages = 6;

/// Rounding of seconds, relative to them.
constexpr double kSecondsSlack = 1e-9;
/// Values that are whole numbers are equal where they differ by no more.
constexpr double kWholeSlack = 0.5;

double paper_floats_of_move(const ia::PhysicalType& from, const ia::PhysicalType& to, const Cluster&) {
  const auto floats = static_cast<double>(from.relation.elements_over(Box::below(from.relation.frontier)));
  const auto axes = ia::broadcast_axes(from.placement, to.placement);
  const Dims counted = axes ? *axes : to.placement.axes_in<ia::Replicated>();
  return floats * static_cast<double>(checked_product("optimize", project(from.grid.axes, counted)));
}

double wire_bytes_of_move(const ia::PhysicalType& from, const ia::PhysicalType& to, const Cluster&) {
  return static_cast<double>(from.relation.bytes_of(ia::analysis::volume(from, to).elements()));
}

double seconds_of_move(const ia::PhysicalType& from, const ia::PhysicalType& to, const Cluster& cluster) {
  if (from.sites() > kMostSitesWithListedMessages)
    return link_seconds(ia::analysis::volume(from, to), from, to, cluster);
  return node_cost(*ia::move_to(ia::make_input("R", from), to.placement), Fusion::kNone, cluster).seconds;
}

}  // namespace

const std::vector<ObjectiveRow>& objectives() {
  static const std::vector<ObjectiveRow> table{
      {.objective = Objective::kPaperFloats,
       .name = "paper_floats",
       .unit = "floats",
       .description = "floats that moves transfer by the rule of the TRA paper, section 5.3",
       .needs_cluster = false,
       .prices_work = false,
       .drops_replicas_freely = false,
       .always_stages = true,
       .whole_numbers = true,
       .value = [](const Figures& figures) { return figures.paper_floats; },
       .move_price = paper_floats_of_move},
      {.objective = Objective::kWireBytes,
       .name = "wire_bytes",
       .unit = "B",
       .description = "bytes that cross between different sites, exactly",
       .needs_cluster = false,
       .prices_work = false,
       .drops_replicas_freely = true,
       .always_stages = false,
       .whole_numbers = true,
       .value = [](const Figures& figures) { return static_cast<double>(figures.wire_bytes); },
       .move_price = wire_bytes_of_move},
      {.objective = Objective::kSeconds,
       .name = "seconds",
       .unit = "s",
       .description = "seconds of one run on the cluster, one node after another",
       .needs_cluster = true,
       .prices_work = true,
       .drops_replicas_freely = true,
       .always_stages = false,
       .whole_numbers = false,
       .value = [](const Figures& figures) { return figures.seconds; },
       .move_price = seconds_of_move},
  };
  return table;
}

const ObjectiveRow& row_of(Objective objective) { return objectives().at(static_cast<size_t>(objective)); }

Objective objective_named(const std::string& name) {
  std::vector<std::string> names;
  for (const ObjectiveRow& row : objectives()) {
    if (row.name == name) return row.objective;
    names.push_back(row.name);
  }
  throw PlanError(concatenate("optimize: no such cost: minimize=", name, ", costs=", names));
}

const std::string& name_of(Objective objective) { return row_of(objective).name; }

double slack_of(double value, Objective objective) {
  return row_of(objective).whole_numbers ? kWholeSlack : kSecondsSlack * value;
}

double safe_bound(double bound, double value, Objective objective) {
  const double lower = bound - slack_of(value, objective);
  return row_of(objective).whole_numbers ? std::max(std::ceil(lower), 0.0) : lower;
}

}  // namespace joinsum::optimizer::cost
