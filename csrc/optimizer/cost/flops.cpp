#include "optimizer/cost/flops.h"

#include <algorithm>

#include "kernels/table.h"
#include "optimizer/cost/visited.h"

namespace joinsum::optimizer {
namespace {

using kernels::Form;
using kernels::Row;

int64_t most_elements(const ia::Holding& holding, const RelationType& relation) {
  return busiest_of(holding, relation).elements;
}

int64_t join_flops(const ia::Node& node, const ia::LocalJoin& op) {
  const Row& row = kernels::row_of(op.kernel);
  const RelationType& joined = node.type().relation;
  if (row.form != Form::kLabelled) return row.flops_per_element * most_elements(node.type().holding, joined);
  return row.flops_per_element * most_elements(node.type().holding, visited_by(node, op).relation);
}

int64_t map_flops(const ia::Node& node, const ia::LocalMap& op) {
  const Row& row = kernels::row_of(op.array_map);
  if (row.form != Form::kLabelled) {
    return row.flops_per_element * most_elements(node.type().holding, node.type().relation);
  }
  return row.flops_per_element * most_elements(node.input(0)->type().holding, visited_by(node, op).relation);
}

/// Folding n tuples into a group takes n - 1 calls. Arrays of one group have one shape.
int64_t aggregate_flops(const ia::Node& node, const ia::LocalAggregate& op) {
  const Row& row = kernels::row_of(op.kernel);
  if (row.flops_per_element == 0) return 0;
  const ia::PhysicalType& input = node.input(0)->type();
  const ia::PhysicalType& result = node.type();
  const auto shape = input.relation.uniform_shape();
  int64_t most = 0;
  for (int64_t site = 0; site < input.sites(); ++site) {
    if (row.form == Form::kElementwise || !shape) {
      const int64_t folded =
          input.holding.elements(input.relation, site) - result.holding.elements(result.relation, site);
      most = std::max(most, row.flops_per_element * folded);
    } else {
      const int64_t calls = input.holding.tuples(site) - result.holding.tuples(site);
      most = std::max(most, calls * kernels::flops(op.kernel, {*shape, *shape}));
    }
  }
  return most;
}

}  // namespace

int64_t busiest_flops(const ia::Node& node, bool fused) {
  if (const auto* join = node.as<ia::LocalJoin>()) return join_flops(node, *join);
  if (const auto* map = node.as<ia::LocalMap>()) return map_flops(node, *map);
  const auto* aggregate = node.as<ia::LocalAggregate>();
  return aggregate != nullptr && !fused ? aggregate_flops(node, *aggregate) : 0;
}

int64_t busiest_flops(const ia::Exchange& exchange, int64_t sites) {
  if (exchange.fold.empty()) return 0;
  std::vector<int64_t> folds(sites);
  for (const ia::Share& share : exchange.shares) {
    folds[share.site] += (static_cast<int64_t>(share.holders.size()) - 1) * (share.end - share.begin);
  }
  return kernels::row_of({exchange.fold, {}}).flops_per_element * *std::max_element(folds.begin(), folds.end());
}

}  // namespace joinsum::optimizer
