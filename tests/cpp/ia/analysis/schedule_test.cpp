#include "ia/analysis/schedule.h"

#include <map>
#include <set>

#include <gtest/gtest.h>

#include "ia/text.h"
#include "random_physical_plans.h"

namespace joinsum::ia::analysis {
namespace {

Schedule scheduled(const Plan& plan) { return Schedule(plan, Materialization(plan)); }

/// Tasks as text: `a`, `start 0`, `advance 0`, `finish 0`.
std::vector<std::string> texts(const Plan& plan, const Schedule& schedule) {
  const auto names = node_names(plan);
  std::vector<std::string> out;
  for (const Task& task : schedule.tasks()) {
    const std::string group = " " + std::to_string(task.group);
    switch (task.kind) {
      case Task::Kind::kCompute:
        out.push_back(names.at(task.node));
        break;
      case Task::Kind::kStart:
        out.push_back("start" + group);
        break;
      case Task::Kind::kAdvance:
        out.push_back("advance" + group);
        break;
      case Task::Kind::kFinish:
        out.push_back("finish" + group);
        break;
    }
  }
  return out;
}

/// Walks a schedule and checks that each value is there when it is read, and that each node runs once.
void check(const Plan& plan) {
  const Materialization materialization(plan);
  const Schedule schedule(plan, materialization);
  std::set<const Node*> there;
  std::map<size_t, int64_t> stages;
  const auto read = [&](const Node& node) {
    for (const Node* operand : materialization.operands(node)) ASSERT_TRUE(there.contains(operand)) << plan.text();
  };
  for (const Task& task : schedule.tasks()) {
    if (task.kind == Task::Kind::kCompute) {
      read(*task.node);
      ASSERT_TRUE(there.insert(task.node).second) << plan.text();
      continue;
    }
    const MoveGroup& moves = schedule.groups()[task.group];
    ASSERT_EQ(stages.contains(task.group), task.kind != Task::Kind::kStart) << plan.text();
    ++stages[task.group];
    for (const Node* move : moves) {
      read(*move);
      ASSERT_FALSE(there.contains(move)) << plan.text();
      if (task.kind == Task::Kind::kFinish) there.insert(move);
    }
  }
  for (const NodePtr& node : plan.order()) {
    ASSERT_EQ(there.contains(node.get()), materialization.materialized(*node)) << plan.text();
  }
}

TEST(Schedule, MessagesTakeNoTimeBehindComputations) {
  const Plan plan = parse(R"(ia on 2
input X: f32[8]<2> (0)
input A: f32[8]<2> (0)
output Z = broadcast(A)
output Y = map[(k0); exp](X)
)");
  const auto seconds = [&](double site, double link) {
    const SecondsOf seconds_of = [&](const Node& node) -> NodeSeconds {
      if (is_move(node.operation())) return {.site = 0.5, .latency = 0.25, .link = link};
      return {.site = node.inputs().empty() ? 0 : site};
    };
    return Schedule(plan, Materialization(plan), seconds_of).seconds();
  };
  EXPECT_NEAR(seconds(4, 1), 0.5 + 4, 1e-9);
  EXPECT_NEAR(seconds(1, 4), 0.5 + 0.25 + 4, 1e-9);
}

/// Seconds of a schedule in which each value that is neither an input nor fused takes one, on its own.
double seconds_at_one_each(const Plan& plan, const Materialization& materialization) {
  const SecondsOf seconds_of = [&](const Node& node) -> NodeSeconds {
    return {.site = node.inputs().empty() || materialization.fused(node) ? 0.0 : 1.0};
  };
  return Schedule(plan, materialization, seconds_of).seconds();
}

TEST(Schedule, CountsAProductThatIsAddedToAWeight) {
  const Plan plan = parse(R"(ia on 2
input W: f64[8,8]<1,1> (*)
input S: f64[]<> (*)
input X: f64[8,8]<1,1> (*)
g = agg[0, 2; add](join[1; 0; matmul](X, X))
output N -> W = local_call[0; aten::addcmul; ab,ab, -> ab:f64; (%0{a,b}, %1{a,b}, %2{}) -> {a,b}; flops=1 ab](W, g, S)
)");
  const Materialization materialization(plan);
  ASSERT_NE(materialization.added_by(*plan.outputs()[0].node), nullptr);
  EXPECT_NEAR(seconds_at_one_each(plan, materialization), 2, 1e-9);
}

TEST(Schedule, CountsARecomputedValueForEachReader) {
  const Plan plan = parse(R"(ia on 2
input X: f64[4,5]<2,1> (0)
input Y: f64[6,5]<1,1> (*)
x = map[(k0, k1); insert_dim[1]](X)
y = map[(k0, k1); arrange[bc->bc]](Y)
j = join[1; 1; add](x, y)
output M = map[(k0, k1, k2); reduce_max[abc->ab]](j)
output L = map[(k0, k1, k2); reduce_min[abc->ab]](j)
)");
  const Materialization materialization(plan, 0);
  ASSERT_EQ(materialization.not_materialized().size(), 1U);
  // Both maps of the operands, and twice the join and a reduction.
  EXPECT_NEAR(seconds_at_one_each(plan, materialization), 2 + 2 * 2, 1e-9);
}

TEST(Schedule, RunsEveryNodeOfRandomPlansOnceAfterItsOperands) {
  for (uint64_t seed = 0; seed < 500; ++seed) {
    testing::RandomPhysicalPlans plans(seed);
    check(plans.plan(8, 24));
  }
}

TEST(Schedule, IsEqualForEqualPlans) {
  for (uint64_t seed = 0; seed < 50; ++seed) {
    const Plan plan = testing::RandomPhysicalPlans(seed).plan(8, 24);
    const Plan again = parse(plan.text());
    EXPECT_EQ(texts(plan, scheduled(plan)), texts(again, scheduled(again)));
  }
}

TEST(Schedule, IsThePlansOrderWithoutMoves) {
  const Plan plan = parse(
      "ia on 1\ninput X: f32[8]<1> ()\na = map[(k0); exp](X)\nb = map[(k0); negate](X)\n"
      "c = map[(k0); relu](a)\noutput Z = join[0; 0; add](c, b)\n");
  EXPECT_EQ(texts(plan, scheduled(plan)), (std::vector<std::string>{"X", "t0", "t1", "t2", "t3"}));
}

TEST(Schedule, ComputesWhileMessagesTravel) {
  const Plan plan = parse(
      "ia on 2\ninput X: f32[64,64]<2,1> (0)\ninput Y: f32[512,512]<1,1> (*)\n"
      "a = map[(k0, k1); exp](X)\nm = broadcast(a)\nb = map[(k0, k1); negate](m)\n"
      "c = agg[0, 2; add](join[1; 0; matmul](Y, Y))\noutput Z = b\noutput V = c\n");
  const auto found = texts(plan, scheduled(plan));
  const std::vector<std::string> wanted{"Y", "X", "t0", "start 0", "t4", "finish 0", "t2"};
  EXPECT_EQ(found, wanted);
}

/// A chain of six products, and six moves that nobody reads, one of which is ready before each product.
Plan moves_beside_products() {
  std::string text = "ia on 2\ninput X: f32[512,512]<1,1> (*)\ninput P: f32[64,8]<2,1> (0)\n";
  std::string outputs;
  std::string last = "X";
  for (int i = 0; i < 6; ++i) {
    const std::string n = std::to_string(i);
    text += "x" + n + " = agg[0, 2; add](join[1; 0; matmul](" + last + ", X))\n";
    text += "p" + n + " = map[(k0, k1); scale[" + n + ".5]](P)\nm" + n + " = broadcast(p" + n + ")\n";
    outputs += "output M" + n + " = m" + n + "\n";
    last = "x" + n;
  }
  return parse(text + "output Z = " + last + "\n" + outputs);
}

TEST(Schedule, SmallMovesThatNobodyWaitsForTravelTogether) {
  const Plan plan = moves_beside_products();
  const Schedule schedule = scheduled(plan);
  ASSERT_EQ(schedule.groups().size(), 1U);
  EXPECT_EQ(schedule.groups()[0].size(), 6U);
}

TEST(Schedule, LargeMovesTravelTogetherWhereSitesCannotComputeMeanwhile) {
  const Plan plan = moves_beside_products();
  const auto with_overlap = [&](double overlap) {
    const SecondsOf seconds_of = [&](const Node& node) -> NodeSeconds {
      if (is_move(node.operation())) return {.latency = 0.25, .link = 8, .overlap = overlap};
      return {.site = node.inputs().empty() || node.as<LocalJoin>() != nullptr ? 0.0 : 1.0};
    };
    return Schedule(plan, Materialization(plan), seconds_of);
  };
  const Schedule apart = with_overlap(1);
  EXPECT_GT(apart.groups().size(), 1U);
  const Schedule together = with_overlap(0);
  ASSERT_EQ(together.groups().size(), 1U);
  EXPECT_EQ(together.groups()[0].size(), 6U);
  // Six products and six maps, and all bytes with one latency.
  EXPECT_NEAR(together.seconds(), 12 + 6 * 8 + 0.25, 1e-6);
}

TEST(Schedule, APendingMoveHasAStageForEachExchange) {
  const Plan plan = parse(
      "ia on 2\ninput X: f32[64,64]<2,1> (0)\ns = agg[1; add](X)\nm = broadcast(s)\n"
      "output Z = map[(k0); negate](m)\n");
  const std::vector<std::string> wanted{"X", "t0", "start 0", "advance 0", "finish 0", "t2"};
  EXPECT_EQ(texts(plan, scheduled(plan)), wanted);
}

TEST(Schedule, WhatOverwritesAnInputComesAfterItsOtherReaders) {
  const Plan plan = parse(
      "ia on 2\ninput W: f32[64]<1> (*)\ninput G: f32[64]<1> (*)\ninput X: f32[64]<1> (*)\n"
      "m = broadcast(X)\nr = join[0; 0; mul](W, m)\noutput R = r\noutput N -> W = join[0; 0; sgd_update[0.1]](W, G)\n");
  const auto found = texts(plan, scheduled(plan));
  EXPECT_EQ(found.back(), node_names(plan).at(plan.outputs()[1].node.get()));
}

}  // namespace
}  // namespace joinsum::ia::analysis
