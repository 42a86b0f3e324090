#pragma once

#include <string>
#include <unordered_map>
#include <vector>

#include "optimizer/placement/ways.h"

namespace joinsum::optimizer {

/// How each vertex runs, and where its value is put; null where that is nowhere but where it is made.
struct Choice {
  std::vector<const Mode*> modes;
  std::vector<const Place*> put;
};

/// For each vertex itself; for a result of a call the first vertex that is a result of it: they come from one run, so
/// they have equal numbers of modes and run in the same one.
std::vector<size_t> first_results(const std::vector<Vertex>& vertices);

/// Nodes that operators of a logical plan have become, also joins that run below a sum.
using Lowered = std::unordered_map<const tra::Node*, ia::NodePtr>;

/// Makes plans of choices.
class Lowering {
 public:
  Lowering(const tra::Plan& plan, const PlacementDemands& demands, PlacementMemory& memory,
           const std::vector<Vertex>& vertices);

  ia::Plan plan_of(const Choice& choice, Lowered& nodes) const;

 private:
  ia::PhysicalType start_of(int64_t v, const Choice& choice) const;
  ia::NodePtr operator_node(const Vertex& vertex, std::vector<ia::NodePtr> operands) const;

  const tra::Plan& plan_;
  const PlacementDemands& demands_;
  PlacementMemory& memory_;
  const std::vector<Vertex>& vertices_;
};

}  // namespace joinsum::optimizer
