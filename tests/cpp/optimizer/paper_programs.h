#pragma once

#include <map>
#include <set>
#include <string>

#include "optimizer/optimizer.h"
#include "tra/text.h"

namespace joinsum::testing {

// The logical programs of the TRA paper's experiments: nothing is placed.

/// A of i x k times B of k x j, cut in `a_parts` and `b_parts`.
inline tra::Plan product(int64_t i, int64_t k, int64_t j, const std::string& a_parts, const std::string& b_parts) {
  return tra::parse(concatenate("tra\ninput A: f32[", i, ",", k, "]<", a_parts, ">\ninput B: f32[", k, ",", j, "]<",
                                b_parts, ">\noutput C = aggregate[0, 2; add](join[1; 0; matmul](A, B))\n"));
}

/// Distances of n points of d features to a query, in a metric M; X in `x_parts`, features of Q and M in `parts`.
inline tra::Plan neighbours_program(int64_t n, int64_t d, const std::string& x_parts, int64_t parts) {
  return tra::parse(concatenate("tra\ninput X: f32[", n, ",", d, "]<", x_parts, ">\ninput Q: f32[", d, "]<", parts,
                                ">\ninput M: f32[", d, ",", d, "]<", parts, ",", parts, R"(>
D = join[1; 0; sub](X, Q)
P = aggregate[0, 2; add](join[1; 0; matmul](D, M))
output Z = transform[row_sum](aggregate[0; add](join[0, 1; 0, 1; mul](P, D)))
)"));
}

/// A step of the feed-forward network, as ten equations; everything cut in parts x parts.
inline tra::Plan network(int64_t points, int64_t features, int64_t hidden, int64_t labels, int64_t parts) {
  const auto input = [&](const char* name, int64_t rows, int64_t columns) {
    return concatenate("input ", name, ": f32[", rows, ",", columns, "]<", parts, ",", parts, ">\n");
  };
  return tra::parse("tra\n" + input("X", points, features) + input("Y", points, labels) +
                    input("W1", features, hidden) + input("W2", hidden, labels) + R"(
A1 = transform[relu](aggregate[0, 2; add](join[1; 0; matmul](X, W1)))
A2 = transform[sigmoid](aggregate[0, 2; add](join[1; 0; matmul](A1, W2)))
E2 = join[0, 1; 0, 1; sub](A2, Y)
G2 = aggregate[1, 2; add](join[0; 0; matmul_tn](A1, E2))
B1 = aggregate[0, 2; add](join[1; 1; matmul_nt](E2, W2))
E1 = join[0, 1; 0, 1; mul](transform[relu_derivative](A1), B1)
G1 = aggregate[1, 2; add](join[0; 0; matmul_tn](X, E1))
output V2 -> W2 = join[0, 1; 0, 1; sub](W2, transform[scale[0.1]](G2))
output V1 -> W1 = join[0, 1; 0, 1; sub](W1, transform[scale[0.1]](G1))
)");
}

/// The named inputs start split along one key dimension each, on all axes.
inline optimizer::model::InputPlacements starts(const tra::Plan& plan, const ia::Grid& grid,
                                                const std::map<std::string, int64_t>& dims) {
  optimizer::model::InputPlacements out;
  for (const auto& input : plan.inputs()) {
    const std::string& name = input->as<tra::Input>()->name;
    if (const auto dim = dims.find(name); dim != dims.end())
      out.emplace(name, ia::fill(grid, {dim->second}, input->type().frontier));
  }
  return out;
}

inline optimizer::OptimizeOptions minimizing(optimizer::cost::Objective objective) {
  optimizer::OptimizeOptions options;
  options.minimize = objective;
  return options;
}

/// What the candidates cost.
inline std::set<double> values(const optimizer::Optimized& found) {
  std::set<double> out;
  for (const auto& candidate : found.candidates) out.insert(candidate.score.value);
  return out;
}

}  // namespace joinsum::testing
