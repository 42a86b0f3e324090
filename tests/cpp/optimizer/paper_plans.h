#pragma once

#include <string>
#include <vector>

#include "ia/text.h"
#include "tra/text.h"

namespace joinsum::testing {

/// A plan of the TRA paper over small arrays, and the program that it computes.
struct PaperPlan {
  std::string name;
  tra::Plan program;
  ia::Plan plan;
};

inline PaperPlan paper_plan(const std::string& name, const std::string& program, const std::string& plan) {
  return {name, tra::parse("tra\n" + program), ia::parse("ia on " + plan)};
}

/// Table 4: the matrix products on 10 sites.
inline std::vector<PaperPlan> matrix_products() {
  const std::string product = "output C = aggregate[0, 2; add](join[1; 0; matmul](A, B))\n";
  const std::string square = "input A: f64[10,10]<5,5>\ninput B: f64[10,10]<5,5>\n" + product;
  return {paper_plan("BMM", square, R"(2x5
input A: f64[10,10]<5,5> (0, 0)
input B: f64[10,10]<5,5> (0, 0)
output C = agg[0, 2; add](join[1; 0; matmul](A, broadcast(B)))
)"),
          paper_plan("CMM", square, R"(2x5
input A: f64[10,10]<5,5> (1, 1)
input B: f64[10,10]<5,5> (0, 0)
output C = agg[0, 2; add](shuffle[0, 2](join[1; 0; matmul](A, B)))
)"),
          paper_plan("CMM, partials", square, R"(2x5
input A: f64[10,10]<5,5> (1, 1)
input B: f64[10,10]<5,5> (0, 0)
output C = shuffle[0](agg[0, 2; add](join[1; 0; matmul](A, B)))
)"),
          paper_plan("RMM", "input A: f64[10,4]<5,2>\ninput B: f64[4,10]<2,5>\n" + product, R"(2x5
input A: f64[10,4]<5,2> (0, 0)
input B: f64[4,10]<2,5> (1, 1)
A3 = shuffle[0, 2](map[5: (k0, k1, m); duplicate](A))
B3 = shuffle[0, 2](map[5: (m, k0, k1); duplicate](B))
output C = agg[0, 2; add](join[0, 1, 2; 0, 1, 2; matmul](A3, B3))
)")};
}

/// Table 6: nearest neighbour on 8 sites.
inline std::vector<PaperPlan> neighbours() {
  const auto program = [](const std::string& x) {
    return "input X: f64[8,12]" + x + R"(
input Q: f64[12]<4>
input M: f64[12,12]<4,4>
D = join[1; 0; sub](X, Q)
P = aggregate[0, 2; add](join[1; 0; matmul](D, M))
output Z = transform[row_sum](aggregate[0; add](join[0, 1; 0, 1; mul](P, D)))
)";
  };
  return {paper_plan("horizontal", program("<8,4>"), R"(2x2x2
input X: f64[8,12]<8,4> (0, 0, 0)
input Q: f64[12]<4> (0, 0, 0)
input M: f64[12,12]<4,4> (0, 0, 0)
D = join[1; 0; sub](X, broadcast(Q))
P = agg[0, 2; add](join[1; 0; matmul](D, broadcast(M)))
output Z = map[(k0); row_sum](agg[0; add](join[0, 1; 0, 1; mul](P, D)))
)"),
          paper_plan("vertical", program("<1,4>"), R"(2x2x2
input X: f64[8,12]<1,4> (1, 1, 1)
input Q: f64[12]<4> (0, 0, 0)
input M: f64[12,12]<4,4> (0, 0, 0)
D = join[1; 0; sub](X, broadcast(Q))
P = agg[0, 2; add](shuffle[2](join[1; 0; matmul](D, M)))
output Z = agg[0; add](shuffle[0](map[(k0, k1); row_sum](join[0, 1; 0, 1; mul](P, D))))
)")};
}

/// Table 9: a step of the feed-forward network on 5 sites.
inline std::vector<PaperPlan> networks() {
  const auto program = [](const std::string& inputs) {
    return inputs + R"(
A1 = transform[relu](aggregate[0, 2; add](join[1; 0; matmul](X, W1)))
A2 = transform[sigmoid](aggregate[0, 2; add](join[1; 0; matmul](A1, W2)))
E2 = join[0, 1; 0, 1; sub](A2, Y)
G2 = aggregate[1, 2; add](join[0; 0; matmul_tn](A1, E2))
B1 = aggregate[0, 2; add](join[1; 1; matmul_nt](E2, W2))
E1 = join[0, 1; 0, 1; mul](transform[relu_derivative](A1), B1)
G1 = aggregate[1, 2; add](join[0; 0; matmul_tn](X, E1))
output N2 -> W2 = join[0, 1; 0, 1; sub](W2, transform[scale[$rate]](G2))
output N1 -> W1 = join[0, 1; 0, 1; sub](W1, transform[scale[$rate]](G1))
)";
  };
  return {paper_plan("data parallel", program(R"(input X: f64[6,4]<5,2>
input Y: f64[6,3]<5,1>
input W1: f64[4,6]<2,3>
input W2: f64[6,3]<3,1>)"),
                     R"(5
input X: f64[6,4]<5,2> (0)
input Y: f64[6,3]<5,1> (0)
input W1: f64[4,6]<2,3> (0)
input W2: f64[6,3]<3,1> (0)
V1 = broadcast(W1)
V2 = broadcast(W2)
A1 = map[(k0, k1); relu](agg[0, 2; add](join[1; 0; matmul](X, V1)))
A2 = map[(k0, k1); sigmoid](agg[0, 2; add](join[1; 0; matmul](A1, V2)))
E2 = join[0, 1; 0, 1; sub](A2, Y)
G2 = shuffle[0](agg[1, 2; add](join[0; 0; matmul_tn](A1, E2)))
B1 = agg[0, 2; add](join[1; 1; matmul_nt](E2, V2))
M1 = map[(k0, k1); relu_derivative](A1)
E1 = join[0, 1; 0, 1; mul](M1, B1)
G1 = shuffle[0](agg[1, 2; add](join[0; 0; matmul_tn](X, E1)))
output N2 -> W2 = join[0, 1; 0, 1; sub](W2, map[(k0, k1); scale[$rate]](G2))
output N1 -> W1 = join[0, 1; 0, 1; sub](W1, map[(k0, k1); scale[$rate]](G1))
)"),
          paper_plan("model parallel", program(R"(input X: f64[6,10]<1,5>
input Y: f64[6,5]<1,5>
input W1: f64[10,4]<5,1>
input W2: f64[4,5]<1,5>)"),
                     R"(5
input X: f64[6,10]<1,5> (1)
input Y: f64[6,5]<1,5> (1)
input W1: f64[10,4]<5,1> (0)
input W2: f64[4,5]<1,5> (1)
A1 = map[(k0, k1); relu](broadcast(agg[0, 2; add](join[1; 0; matmul](X, W1))))
A2 = map[(k0, k1); sigmoid](agg[0, 2; add](join[1; 0; matmul](A1, W2)))
E2 = join[0, 1; 0, 1; sub](A2, Y)
G2 = agg[1, 2; add](join[0; 0; matmul_tn](A1, E2))
B1 = broadcast(agg[0, 2; add](join[1; 1; matmul_nt](E2, W2)))
M1 = map[(k0, k1); relu_derivative](A1)
E1 = join[0, 1; 0, 1; mul](M1, B1)
G1 = agg[1, 2; add](join[0; 0; matmul_tn](X, E1))
output N2 -> W2 = join[0, 1; 0, 1; sub](W2, map[(k0, k1); scale[$rate]](G2))
output N1 -> W1 = join[0, 1; 0, 1; sub](W1, map[(k0, k1); scale[$rate]](G1))
)")};
}

/// Section 5.2.1: the diagonal of X + Y, with filters and a key map.
inline PaperPlan diagonal() {
  return paper_plan("diagonal", R"(input X: f64[8,8]<4,4>
input Y: f64[8,8]<4,4>
output Z = transform[diag](rekey[(k0)](filter[k0 == k1](join[0, 1; 0, 1; add](X, Y))))
)",
                    R"(2x2
input X: f64[8,8]<4,4> (0, 1)
input Y: f64[8,8]<4,4> (0, 1)
output Z = map[(k0); id](join[0, 1; 0, 1; add | diag](broadcast(filter[k0 == k1](X)), filter[k0 == k1](Y)))
)");
}

inline std::vector<PaperPlan> paper_plans() {
  std::vector<PaperPlan> out = matrix_products();
  for (auto& plan : neighbours()) out.push_back(std::move(plan));
  for (auto& plan : networks()) out.push_back(std::move(plan));
  out.push_back(diagonal());
  return out;
}

}  // namespace joinsum::testing
