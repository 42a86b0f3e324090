#pragma once

#include <algorithm>
#include <memory>
#include <string>

#include "ia/text.h"
#include "optimizer/cost/cost.h"

namespace joinsum::optimizer::cost {

inline const NodeCost& node_named(const PlanCost& cost, const std::string& name) {
  const auto found =
      std::find_if(cost.nodes.begin(), cost.nodes.end(), [&](const NodeCost& n) { return n.node == name; });
  JOINSUM_CHECK(found != cost.nodes.end(), "no node ", name);
  return *found;
}

inline PlanCost cost_of(const std::string& text, const Cluster& cluster = {}) {
  return plan_cost(ia::parse(text), cluster);
}

inline std::string error_of(const std::string& text, const Cluster& cluster) {
  try {
    cost_of(text, cluster);
  } catch (const PlanError& error) {
    return error.what();
  }
  return "no error";
}

/// A by rows, B broadcast: each of two sites multiplies 4x6 by 6x4.
inline constexpr const char* kProduct = R"(ia on 2
input A: f32[8,6]<2,2> (0)
input B: f32[6,4]<2,1> (0)
output Z = agg[0, 2; add](join[1; 0; matmul](A, broadcast(B)))
)";

/// 24 tuples of 100 floats, two partials of each.
inline constexpr const char* kPartials = R"(ia on 2
input A: f32[100]<24,2> (1)
P = agg[0; add](A)
)";

inline Curve line(double alpha, double beta) { return {"line", {0, 1}, {alpha, alpha + beta}}; }

/// Rates that are powers of two, so that sums tell what was counted.
inline Cluster measured() {
  Profile profile;
  profile.run_seconds = 4096;
  profile.node_seconds = 1024;
  profile.links = {{{0}, line(64, 8), line(32, 4)}};
  profile.products.emplace_back(DType::kFloat32, std::vector<double>{1, 2},
                                std::vector<double>{1025, 1026, 1026, 1028, 1026, 1028, 1028, 1032});
  profile.elementwise = {{1, 1, Domain::kOrdered, 4, line(1024, 1)}, {2, 1, Domain::kAny, 4, line(1024, 2)}};
  profile.reductions = {{4, line(1024, 0.5), line(1024, 0.25)}};
  profile.copies = line(0, 0.125);
  Cluster cluster;
  cluster.profile = std::make_shared<const Profile>(std::move(profile));
  return cluster;
}

inline double seconds_of(const std::string& text, const std::string& node) {
  return node_named(cost_of(text, measured()), node).seconds - 1024;
}

}  // namespace joinsum::optimizer::cost
