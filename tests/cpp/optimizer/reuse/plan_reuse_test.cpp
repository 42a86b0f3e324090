#include "optimizer/reuse/plan_reuse.h"

#include <gtest/gtest.h>

#include "einsum/text.h"
#include "ia/text.h"
#include "optimizer/cost/cost.h"
#include "optimizer/verification/verify.h"
#include "tra/text.h"

namespace joinsum::optimizer::reuse {
namespace {

/// A layer and its weights' gradient: `batch` samples of `width` features.
std::string layer(int64_t batch, int64_t width, const std::string& scale = "scale[0.5]") {
  const std::string b = std::to_string(batch), w = std::to_string(width);
  return "einsum\ninput X: f32[" + b + "," + w + "]\ninput W: f32[" + w +
         ",4]\noutput Y = einsum[bi,ij->bj; mul; add](X, W)\n" + "output S = einsum[bi->i; " + scale + "; add](X)\n";
}

Scaling between(const std::string& planned, const std::string& requested) {
  return scaling(einsum::parse(planned), einsum::parse(requested));
}

// --- graphs ----------------------------------------------------------------------------------------------------------

TEST(Scaling, OneLabelMayChangeAndConstantsMay) {
  const Scaling found = between(layer(64, 6), layer(48, 6, "scale[1e-05]"));
  EXPECT_EQ(found.difference, "");
  EXPECT_EQ(found.planned, 64);
  EXPECT_EQ(found.requested, 48);
}

TEST(Scaling, EqualGraphsHaveEqualSizes) {
  const Scaling found = between(layer(64, 6), layer(64, 6));
  EXPECT_EQ(found.difference, "");
  EXPECT_EQ(found.planned, found.requested);
}

TEST(Scaling, ALabelThatIsSeveralTimesTheBatchIsOfItsRatio) {
  const auto graph = [](int64_t batch) {
    return "einsum\ninput X: f32[" + std::to_string(10 * batch) + "]\ninput Y: f32[" + std::to_string(batch) +
           "]\noutput Z = einsum[a->; id; add](X)\noutput V = einsum[a->; id; add](Y)\n";
  };
  const Scaling found = between(graph(8), graph(6));
  EXPECT_EQ(found.difference, "");
  EXPECT_EQ(found.planned, 8);
  EXPECT_EQ(found.requested, 6);
}

TEST(Scaling, TwoLabelsOfOneVertexMayNotChange) {
  EXPECT_NE(between(layer(64, 6), layer(48, 5)).difference, "");
  const auto square = [](const std::string& n) {
    return "einsum\ninput X: f32[" + n + ",3]\noutput Y = einsum[ai,bi->; mul; add](X, X)\n";
  };
  EXPECT_EQ(between(square("8"), square("8")).difference, "");
  EXPECT_NE(between(square("8"), square("6")).difference.find("two labels that change"), std::string::npos);
}

TEST(Scaling, SeveralRatiosAreNoScaling) {
  const auto graph = [](const std::string& a, const std::string& b) {
    return "einsum\ninput X: f32[" + a + "]\ninput Y: f32[" + b +
           "]\noutput Z = einsum[a->; id; add](X)\noutput V = einsum[a->; id; add](Y)\n";
  };
  EXPECT_EQ(between(graph("8", "5"), graph("4", "5")).difference, "");
  EXPECT_EQ(between(graph("8", "6"), graph("4", "2")).difference, "labels change by several ratios");
}

TEST(Scaling, OtherOperationsLabelsDtypesAndNamesAreOtherGraphs) {
  const std::string graph = layer(8, 6);
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string text = graph;
    text.replace(text.find(from), from.size(), to);
    return between(graph, text).difference;
  };
  EXPECT_NE(with("; scale[0.5]; add", "; scale[0.5]; max"), "");
  EXPECT_NE(with("scale[0.5]", "relu"), "");
  EXPECT_NE(with("output S", "output T"), "");
  EXPECT_NE(with("bi->i", "bi->b"), "");
  const std::string wide = "einsum\ninput X: f64[8]\noutput Z = einsum[a->; id; add](X)\n";
  const std::string narrow = "einsum\ninput X: f32[8]\noutput Z = einsum[a->; id; add](X)\n";
  EXPECT_NE(between(wide, narrow).difference, "");
}

// --- plans -----------------------------------------------------------------------------------------------------------

std::string program(int64_t batch, const std::string& first, const std::string& second) {
  return "tra\ninput X: f32[" + std::to_string(batch) + ",6]<2,2>\ninput W: f32[6,4]<2,2>\n" + "t0 = transform[scale[" +
         first + "]](X)\nt1 = transform[scale[" + second + "]](X)\n" +
         "output Y = aggregate[0, 2; add](join[1; 0; matmul](t0, W))\n" +
         "output S = aggregate[1; add](transform[reduce_add[ab->b]](t1))\n";
}

constexpr const char* kDataParallel = R"(ia on 2
input X: f32[8,6]<2,2> (0)
input W: f32[6,4]<2,2> (*)
t0 = map[(k0, k1); scale[0.5]](X)
t1 = map[(k0, k1); scale[0.25]](X)
output Y = broadcast(agg[0, 2; add](join[1; 0; matmul](t0, W)))
output S = broadcast(agg[1; add](map[(k0, k1); reduce_add[ab->b]](t1)))
)";

TEST(CarriedPlan, ComputesTheOtherProgramWithTheSameMoves) {
  const tra::Plan planned = tra::parse(program(8, "0.5", "0.25"));
  const ia::Plan plan = ia::parse(kDataParallel);
  ASSERT_TRUE(verification::verify(plan, planned).accepted());
  for (const int64_t batch : {8, 12, 7}) {
    const tra::Plan requested = tra::parse(program(batch, "0.125", "3"));
    const ia::Plan found = reused(plan, planned, requested);
    const verification::Verdict verdict = verification::verify(found, requested);
    EXPECT_TRUE(verdict.accepted()) << verdict.reason << "\n" << found.text();
    ASSERT_EQ(found.order().size(), plan.order().size());
    for (size_t n = 0; n < plan.order().size(); ++n) {
      EXPECT_EQ(found.order()[n]->type().placement, plan.order()[n]->type().placement);
    }
  }
  EXPECT_EQ(reused(plan, planned, planned), plan);
}

TEST(CarriedPlan, OperatorsThatDidTheSameAndNoLongerDoAreRefused) {
  const tra::Plan planned = tra::parse(program(8, "0.5", "0.5"));
  std::string text = kDataParallel;
  const std::string line = "t1 = map[(k0, k1); scale[0.25]](X)\n";
  text.replace(text.find(line), line.size(), "");
  text.replace(text.find("(t1)"), 4, "(t0)");
  const ia::Plan plan = ia::parse(text);
  ASSERT_TRUE(verification::verify(plan, planned).accepted());
  const tra::Plan alike = tra::parse(program(12, "0.25", "0.25"));
  EXPECT_TRUE(verification::verify(reused(plan, planned, alike), alike).accepted());
  EXPECT_THROW(reused(plan, planned, tra::parse(program(12, "0.25", "0.5"))), PlanError);
}

TEST(CarriedPlan, OtherCutsAreRefused) {
  const tra::Plan planned = tra::parse(program(8, "0.5", "0.25"));
  const ia::Plan plan = ia::parse(kDataParallel);
  std::string text = program(8, "0.5", "0.25");
  text.replace(text.find("[8,6]<2,2>"), 10, "[8,6]<4,2>");
  const tra::Plan requested = tra::parse(text);
  EXPECT_THROW(reused(plan, planned, requested), PlanError);
}

TEST(CarriedPlan, OperatorsWithTheTransformsThatFollowThemAreKnown) {
  const auto chain = [](const std::string& batch, const std::string& factor) {
    return tra::parse("tra\ninput X: f32[" + batch + ",6]<2,2>\nt0 = transform[relu](join[0, 1; 0, 1; add](X, X))\n" +
                      "t1 = transform[square](transform[scale[" + factor + "]](t0))\noutput Y = t1\n");
  };
  const tra::Plan planned = chain("8", "0.5");
  const ia::Plan plan = ia::parse(
      "ia on 2\ninput X: f32[8,6]<2,2> (0)\noutput Y = map[(k0, k1); scale[0.5] | square](join[0, 1; 0, 1; add | "
      "relu](X, X))\n");
  ASSERT_TRUE(verification::verify(plan, planned).accepted());
  const tra::Plan requested = chain("6", "3");
  const ia::Plan found = reused(plan, planned, requested);
  EXPECT_TRUE(verification::verify(found, requested).accepted()) << found.text();
  EXPECT_EQ(found.order().size(), plan.order().size());
}

TEST(CarriedPlan, OperatorsThatTheProgramLacksAreRefused) {
  const tra::Plan planned = tra::parse(program(8, "0.5", "0.25"));
  std::string text = kDataParallel;
  text.replace(text.find("scale[0.25]"), 11, "scale[0.5] | scale[0.5]");
  const ia::Plan rewritten = ia::parse(text);
  EXPECT_THROW(reused(rewritten, planned, planned), PlanError);
}

TEST(OneSite, DoesAllTheWorkOnceAndMovesNothing) {
  const tra::Plan requested = tra::parse(program(8, "0.5", "0.25"));
  const ia::Plan alone = on_one_site(requested);
  EXPECT_TRUE(verification::verify(alone, requested).accepted());
  const cost::PlanCost found = cost::plan_cost(alone, cost::Cluster{});
  EXPECT_EQ(found.wire_bytes, 0);
  EXPECT_EQ(alone.order().size(), requested.order().size());
}

}  // namespace
}  // namespace joinsum::optimizer::reuse
