#include "ia/analysis/flops.h"

#include <algorithm>

#include "ia/analysis/visited.h"

namespace joinsum::ia::analysis {
namespace {

using kernels::table::Form;
using kernels::table::Row;

/// Flops by site.
using Flops = std::vector<int64_t>;

/// Adds `each` for every element of `relation` that a site holds.
void add(const Holding& holding, const relation::RelationType& relation, int64_t each, Flops& flops) {
  if (each == 0) return;
  for (int64_t site = 0; site < holding.sites(); ++site) flops[site] += each * holding.elements(relation, site);
}

/// What one kernel of one operand does to each tuple of `input`.
void add_unary(const Holding& holding, const relation::RelationType& input, const relation::RelationType& result,
               const kernels::table::Kernel& kernel, Flops& flops) {
  const Row& row = kernels::table::row_of(kernel);
  if (row.form != Form::kLabelled) return add(holding, result, kernels::table::flops_per_element(kernel), flops);
  add(holding, visited_by(input, kernel).relation, kernels::table::flops_per_element(kernel), flops);
}

/// What the kernels that follow `kernel` do, which by itself gives `type`.
void add_followers(const Holding& holding, const relation::RelationType& type, const kernels::table::Kernel& kernel,
                   Flops& flops) {
  each_follower(type, kernel,
                [&](const relation::RelationType& input, const relation::RelationType& result,
                    const kernels::table::Kernel& next) { add_unary(holding, input, result, next, flops); });
}

void add_join(const Node& node, const LocalJoin& op, Flops& flops) {
  const Row& row = kernels::table::row_of(op.kernel);
  const Holding& holding = node.type().holding;
  const relation::RelationType joined = joined_type(node, op);
  const bool labelled = row.form == Form::kLabelled;
  add(holding, labelled ? visited_by(node, op).relation : joined, kernels::table::flops_per_element(op.kernel), flops);
  if (const double share = visited_share(node); share < 1) {
    for (int64_t& count : flops) count = static_cast<int64_t>(static_cast<double>(count) * share);
  }
  add_followers(holding, joined, op.kernel, flops);
}

void add_map(const Node& node, const LocalMap& op, Flops& flops) {
  const PhysicalType& input = node.input(0)->type();
  const kernels::table::Kernel first = op.array_map.first();
  const bool labelled = kernels::table::row_of(first).form == Form::kLabelled;
  if (op.array_map.epilogue.empty() && !labelled) {
    return add_unary(node.type().holding, input.relation, node.type().relation, first, flops);
  }
  const Mapped mapped = mapped_by(node, op);
  add_unary(mapped.holding, input.relation, mapped.relation, first, flops);
  add_followers(mapped.holding, mapped.relation, op.array_map, flops);
}

/// Aggregating n tuples into a group takes n - 1 calls. Arrays of one group have one shape.
void add_aggregation(const Node& node, const LocalAggregate& op, const relation::RelationType& aggregated,
                     Flops& flops) {
  const Row& row = kernels::table::row_of(op.kernel);
  if (row.flops_per_element == 0) return;
  const PhysicalType& input = node.input(0)->type();
  const Holding& result = node.type().holding;
  const auto shape = input.relation.uniform_shape();
  for (int64_t site = 0; site < input.sites(); ++site) {
    if (row.form == Form::kElementwise || !shape) {
      const int64_t gone = input.holding.elements(input.relation, site) - result.elements(aggregated, site);
      flops[site] += row.flops_per_element * gone;
    } else {
      const int64_t calls = input.holding.tuples(site) - result.tuples(site);
      flops[site] += calls * kernels::table::flops(op.kernel.first(), {*shape, *shape});
    }
  }
}

void add_aggregate(const Node& node, const LocalAggregate& op, bool fused, Flops& flops) {
  const relation::RelationType aggregated = aggregated_type(node, op);
  if (!fused) add_aggregation(node, op, aggregated, flops);
  add_followers(node.type().holding, aggregated, op.kernel, flops);
}

void add_call(const Node& node, const kernels::call::Call& call, Flops& flops) {
  for (int64_t site = 0; site < node.type().sites(); ++site)
    flops[site] += static_cast<int64_t>(visited_share(node) * kernels::call::flops(call, extents_at(node, call, site)));
}

}  // namespace

int64_t busiest_flops(const Node& node, bool fused) {
  Flops flops(std::max<int64_t>(1, node.type().sites()));
  if (const auto* join = node.as<LocalJoin>()) add_join(node, *join, flops);
  if (const auto* map = node.as<LocalMap>()) add_map(node, *map, flops);
  if (const auto* aggregate = node.as<LocalAggregate>()) add_aggregate(node, *aggregate, fused, flops);
  if (const auto* op = node.as<LocalCall>()) add_call(node, op->call, flops);
  return *std::max_element(flops.begin(), flops.end());
}

int64_t busiest_flops(const Exchange& exchange, int64_t sites) {
  if (exchange.reduction.empty()) return 0;
  std::vector<int64_t> reductions(sites);
  for (const Share& share : exchange.shares) {
    reductions[share.site] += (static_cast<int64_t>(share.holders.size()) - 1) * (share.end - share.begin);
  }
  return kernels::table::row_of({exchange.reduction, {}}).flops_per_element *
         *std::max_element(reductions.begin(), reductions.end());
}

}  // namespace joinsum::ia::analysis
