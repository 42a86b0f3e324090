#include "optimizer/cost/peak.h"

#include <gtest/gtest.h>

#include "optimizer/cost/priced_plans.h"

namespace joinsum::optimizer::cost {
namespace {

TEST(Peak, HoldsInputsResultsAndMessages) {
  // Broadcast: A 96, B 48, its copy 96, received 48. Product: A, B, the copy, and the result 64.
  EXPECT_EQ(cost_of(kProduct).peak.bytes, 96 + 48 + 96 + 64);
  const char* wide = "ia on 2\ninput A: f32[8]<2> (0)\noutput Z = broadcast(A)\n";
  EXPECT_EQ(cost_of(wide).peak.bytes, 16 + 32 + 16);
}

TEST(Peak, IsReportedForEachNodeAndTheLargestIsThePlans) {
  const PlanCost cost = cost_of(kProduct);
  std::vector<int64_t> peaks;
  for (const NodeCost& node : cost.nodes) peaks.push_back(node.peak_bytes);
  // A, B, its broadcast, the join that is fused, its sum.
  EXPECT_EQ(peaks, (std::vector<int64_t>{96 + 48, 96 + 48, 96 + 48 + 96 + 48, 0, 96 + 48 + 96 + 64}));
}

TEST(Peak, FreesResultsAfterTheirLastUse) {
  const std::string chain = "ia on 1\ninput A: f32[100]<1> ()\nX = map[(k0); relu](A)\nY = map[(k0); negate](X)\n";
  EXPECT_EQ(cost_of(chain + "output Z = map[(k0); relu](Y)\n").peak.bytes, 3 * 400);
  EXPECT_EQ(cost_of(chain + "output Z = join[0; 0; add](X, Y)\n").peak.bytes, 4 * 400);
  EXPECT_EQ(cost_of(chain + "output X = X\noutput Z = map[(k0); relu](Y)\n").peak.bytes, 4 * 400);
  EXPECT_EQ(cost_of(chain + "output Z = join[0; 0; mul](Y, Y)\n").peak.bytes, 3 * 400);
}

TEST(Peak, HoldsOperandsOfAFusedJoinForItsSum) {
  const char* text = R"(ia on 1
input A: f32[10,10]<1,1> ()
X = map[(k0, k1); relu](A)
J = join[1; 0; matmul](X, X)
output Z = agg[0, 2; add](J)
)";
  EXPECT_EQ(cost_of(text).peak.bytes, 3 * 400);
}

TEST(Peak, OverwritesATiedInputOnlyWhereItDiesInAnElementwiseNode) {
  const std::string inputs = "ia on 1\ninput W: f32[100]<1> ()\ninput G: f32[100]<1> ()\n";
  const std::string update = "join[0; 0; sgd_update[0.1]](W, G)\n";
  EXPECT_EQ(cost_of(inputs + "output N -> W = " + update).peak.bytes, 2 * 400);
  EXPECT_EQ(cost_of(inputs + "output N = " + update).peak.bytes, 3 * 400);
  EXPECT_EQ(cost_of(inputs + "output N -> W = " + update + "output V = map[(k0); relu](W)\n").peak.bytes, 4 * 400);
  EXPECT_EQ(cost_of("ia on 1\ninput W: f32[10,10]<1,1> ()\noutput N -> W = map[(k1, k0); transpose](W)\n").peak.bytes,
            2 * 400);
}

TEST(Peak, BeyondTheLimitNamesTheNodeAndTheShortfall) {
  Cluster cluster;
  cluster.memory_bytes = 300;
  EXPECT_EQ(error_of(kProduct, cluster),
            "cost: a site needs more memory than it has: node=t2, site=0, needs=304, limit=300, short by=4");
  cluster.memory_bytes = 100;
  EXPECT_EQ(error_of(kProduct, cluster),
            "cost: a site needs more memory than it has: node=B, site=0, needs=144, limit=100, short by=44");
  cluster.memory_bytes = 304;
  EXPECT_EQ(error_of(kProduct, cluster), "no error");
}

}  // namespace
}  // namespace joinsum::optimizer::cost
