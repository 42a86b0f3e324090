#include "optimizer/verification/computed_vertices.h"

#include <gtest/gtest.h>

#include "einsum/text.h"
#include "ia/text.h"

namespace joinsum::optimizer::verification {
namespace {

/// The vertices of a graph, in its order.
std::vector<einsum::NodePtr> vertices_of(const einsum::Plan& graph) {
  std::vector<einsum::NodePtr> out;
  for (const auto& node : graph.order()) {
    if (!node->inputs().empty()) out.push_back(node);
  }
  return out;
}

std::map<std::string, size_t> computed(const ia::Plan& plan, const std::string& graph) {
  const einsum::Plan parsed = einsum::parse("einsum\n" + graph);
  return computed_vertices(plan, parsed, {}, vertices_of(parsed));
}

TEST(ComputedVertices, FollowValuesThroughPartialSumsAndMoves) {
  const ia::Plan plan = ia::parse(R"(ia on 2
input X: f32[4,6]<2,2> (1)
input W: f32[6,8]<2,2> (0)
joined = local_join[1; 0; contract[ab,bc->ac]](X, W)
partial = local_aggregate[0, 2; add](joined)
h = shuffle[0](partial)
e = local_map[(k0, k1); exp](h)
output Z = broadcast(e)
)");
  const auto found = computed(plan, R"(input X: f32[4,6]
input W: f32[6,8]
h = einsum[ij,jk->ik; mul; add](X, W)
output Z = einsum[ik->ik; exp; add](h)
)");
  const std::map<std::string, size_t> wanted{{"t1", 0}, {"t2", 0}, {"t3", 1}, {"t4", 1}};
  EXPECT_EQ(found, wanted) << plan.text();
}

TEST(ComputedVertices, FollowValuesIntoKernelsThatRulesHaveFused) {
  const ia::Plan plan = ia::parse(R"(ia on 2
input X: f32[4,6]<2,1> (0)
input W: f32[6,8]<1,1> (*)
output Z = local_aggregate[0, 2; add](local_join[1; 0; contract[ab,bc->ac] | negate](X, W))
)");
  const auto found = computed(plan, R"(input X: f32[4,6]
input W: f32[6,8]
h = einsum[ij,jk->ik; mul; add](X, W)
output Z = einsum[ik->ik; negate; add](h)
)");
  EXPECT_EQ(found.at("t1"), 1U) << plan.text();
  EXPECT_FALSE(found.contains("t0"));
}

TEST(ComputedVertices, AreThoseOfDecompositionsThatRunAtOnce) {
  const std::string undecomposed = "{0; aten::_softmax; ab -> ab:f32; (%0{a,b}, 1, false) -> {a,b}; undivided=b}";
  const ia::Plan plan = ia::parse("ia on 2\ninput X: f32[8,4]<2,2> (0)\noutput Z = local_call[" +
                                  undecomposed.substr(1, undecomposed.size() - 2) + "](X)\n");
  const auto found = computed(plan,
                              "input X: f32[8,4]\n"
                              "s = call[0; joinsum::total; ab -> a:f32; (%0{a,b}) -> {a}; reduce b=add](X)\n"
                              "output Z = call[0; joinsum::quotient; ab,a -> ab:f32; (%0{a,b}, %1{a}) -> {a,b}; "
                              "undecomposed (0) " +
                                  undecomposed + "](X, s)\n");
  EXPECT_EQ(found, (std::map<std::string, size_t>{{"t0", 1}}));
}

TEST(ComputedVertices, OfAPlanOfAnotherGraphAreNone) {
  const ia::Plan plan = ia::parse("ia on 2\ninput X: f32[4]<2> (0)\noutput Z = map[(k0); exp](X)\n");
  EXPECT_TRUE(computed(plan, "input X: f32[4]\noutput Z = einsum[i->i; sqrt; add](X)\n").empty());
}

}  // namespace
}  // namespace joinsum::optimizer::verification
