#include "optimizer/eindecomp/partition.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "optimizer/eindecomp/linearise.h"
#include "optimizer/eindecomp/partition_graphs.h"
#include "optimizer/eindecomp/partition_reference.h"

namespace joinsum::optimizer::eindecomp {
namespace {

TEST(Partition, EqualsTheEnumerationOfAllPlansOnRandomGraphs) {
  RandomGraphs random(1);
  int64_t shared = 0;
  int64_t twice = 0;
  for (int64_t i = 0; i < 600; ++i) {
    const PinnedGraph graph = random.graph(1 + random.below(5), false);
    const int64_t calls = int64_t{1} << (1 + random.below(graph.operations().size() > 4 ? 2 : 3));
    const PartitionPlan plan = partition(graph, calls);
    ASSERT_TRUE(plan.exact) << i;
    ASSERT_EQ(plan.cost, Enumeration(graph, calls).least()) << i;
    ASSERT_EQ(plan.cost, recount(graph, plan)) << i;
    ASSERT_EQ(plan.cost, total(plan)) << i;
    std::map<std::string, int64_t> readers;
    for (const auto& vertex : graph.operations()) {
      for (const std::string& operand : vertex.inputs) readers[operand] += producer(graph, operand) ? 1 : 0;
      const auto& all = vertex.inputs;
      twice += all.size() == 2 && all[0] == all[1] && producer(graph, all[0]);
    }
    shared += std::any_of(readers.begin(), readers.end(), [](const auto& reader) { return reader.second > 1; });
  }
  EXPECT_GT(shared, 100);
  EXPECT_GT(twice, 20);
}

TEST(Partition, EqualsThePapersRecurrenceOnTrees) {
  RandomGraphs random(2);
  for (int64_t i = 0; i < 600; ++i) {
    const PinnedGraph graph = random.graph(1 + random.below(12), true);
    const int64_t calls = int64_t{1} << random.below(5);
    const PartitionPlan plan = partition(graph, calls);
    ASSERT_TRUE(plan.exact) << i;
    ASSERT_EQ(plan.cost, recurrence(graph, calls)) << i;
  }
}

TEST(Partition, ADiamondIsPlannedAsAWhole) {
  GraphWriter graph({{'i', 16}, {'j', 64}, {'k', 16}});
  graph.input("X", "ij").input("Y", "ij").vertex("S", {"X", "Y"}, {"ij", "ij"}, "ij");
  graph.vertex("L", {"S", "S"}, {"ij", "kj"}, "ik").vertex("R", {"S"}, {"ij"}, "ij");
  graph.vertex("T", {"L", "R"}, {"ik", "kj"}, "ij");
  for (const int64_t calls : {2, 4, 8, 16}) {
    const PartitionPlan plan = partition(graph.graph, calls);
    EXPECT_TRUE(plan.exact);
    EXPECT_EQ(plan.cost, Enumeration(graph.graph, calls).least());
    EXPECT_EQ(plan.method, "elimination");
  }
}

TEST(Partition, InputsAreFreeHoweverManyReadThem) {
  GraphWriter graph = product(8);
  graph.vertex("W", {"Y", "X"}, {"ij", "jk"}, "ik");
  const PartitionPlan plan = partition(graph.graph, 8);
  EXPECT_EQ(plan.cost, 2 * partition(product(8).graph, 8).cost);
}

TEST(Partition, AGraphWithoutVerticesCostsNothing) {
  const PartitionPlan plan = partition(PinnedGraph{}, 8);
  EXPECT_EQ(plan.cost, 0);
  EXPECT_TRUE(plan.exact);
}

TEST(Partition, LabelsThatOnlyTheResultHasAreCutToo) {
  GraphWriter graph({{'i', 2}, {'k', 8}});
  graph.input("X", "i").vertex("Z", {"X"}, {"i"}, "ik");
  const PartitionPlan plan = partition(graph.graph, 16);
  EXPECT_EQ(plan.vertices[0].parts, (Dims{2, 8}));
  EXPECT_EQ(plan.vertices[0].join, 16);
}

// --- Layers, limits, deadlines ---------------------------------------------------------------------------------------

/// Layers of two products and an elementwise step around a sum of what comes in and what went out.
PinnedGraph layers(int64_t count) {
  GraphWriter out({{'i', 256}, {'j', 64}, {'k', 128}});
  out.input("h0", "ij");
  for (int64_t layer = 0; layer < count; ++layer) {
    const auto name = [&](const char* of, int64_t number) { return of + std::to_string(number); };
    out.input(name("a", layer), "jk").input(name("b", layer), "jk");
    out.vertex(name("u", layer), {name("h", layer), name("a", layer)}, {"ij", "jk"}, "ik");
    out.vertex(name("g", layer), {name("u", layer)}, {"ik"}, "ik");
    out.vertex(name("d", layer), {name("g", layer), name("b", layer)}, {"ik", "jk"}, "ij");
    out.vertex(name("h", layer + 1), {name("h", layer), name("d", layer)}, {"ij", "ij"}, "ij");
  }
  return out.graph;
}

TEST(Partition, IdenticalLayersShareTables) {
  const PartitionPlan few = partition(layers(4), 16);
  const PartitionPlan many = partition(layers(40), 16);
  EXPECT_EQ(many.distinct_tables, few.distinct_tables);
  EXPECT_LT(many.distinct_tables, 20);
  EXPECT_EQ(many.tables, 40 * (4 + 5) - 2);
  EXPECT_TRUE(many.exact);
  EXPECT_GE(many.cost, 9 * few.cost);
}

/// Every product reads all arrays before it in pairs: too wide to eliminate.
PinnedGraph dense(int64_t count) {
  GraphWriter out({{'i', 32}, {'j', 32}, {'k', 32}});
  out.input("x", "ij");
  std::vector<std::string> names{"x"};
  for (int64_t v = 0; v < count; ++v) {
    for (size_t other = 0; other < names.size() && v > 0; ++other) {
      if ((v + other) % 3 == 0) continue;
      const std::string name = "v" + std::to_string(v) + "_" + std::to_string(other);
      out.vertex(name, {names.back(), names[other]}, {"ij", "kj"}, "ik");
    }
    names.push_back("w" + std::to_string(v));
    out.vertex(names.back(), {names[names.size() - 2], names[(v * 7) / 9]}, {"ij", "jk"}, "ik");
  }
  return out.graph;
}

TEST(Partition, BeyondTheWidthCapTheBoundHolds) {
  RandomGraphs random(3);
  int64_t open = 0;
  int64_t linearised = 0;
  for (int64_t i = 0; i < 300; ++i) {
    const PinnedGraph graph = random.graph(4 + random.below(12), false);
    const PartitionPlan best = partition(graph, 8);
    for (const PartitionLimits limits : {PartitionLimits{.table_entries = 30}, PartitionLimits{.pair_entries = 40}}) {
      const PartitionPlan plan = partition(graph, 8, limits);
      ASSERT_TRUE(best.exact);
      ASSERT_LE(plan.lower_bound, best.cost) << i;
      ASSERT_GE(plan.cost, best.cost) << i;
      ASSERT_EQ(plan.cost, recount(graph, plan)) << i;
      ASSERT_EQ(plan.exact, plan.cost == plan.lower_bound) << i;
      open += !plan.exact;
      linearised += plan.method == "linearisation";
    }
  }
  EXPECT_GT(open, 50);
  EXPECT_GT(linearised, 50);
}

TEST(Partition, ChargesMovesBetweenPaths) {
  // Charged or not, each path alone would take what is best for itself.
  RandomGraphs random(4);
  double chosen = 0;
  double best = 0;
  for (int64_t i = 0; i < 200; ++i) {
    const PinnedGraph graph = random.graph(10, false);
    const PartitionProblem problem(graph.graph, {}, 8);
    chosen += problem.cost(linearise(problem, {}, 1e6));
    best += partition(graph, 8).cost;
  }
  EXPECT_GE(chosen, best);
  EXPECT_LE(chosen, 1.05 * best);
}

TEST(Partition, SaysWhereAnOperandHasTooManyMoves) {
  GraphWriter graph({{'a', 1 << 20}, {'b', 1 << 20}, {'c', 1 << 20}, {'d', 1 << 20}, {'e', 1 << 20}, {'f', 1 << 20}});
  graph.input("X", "abcdef").vertex("Y", {"X"}, {"abcdef"}, "abcdef").vertex("Z", {"Y"}, {"abcdef"}, "abcdef");
  EXPECT_EQ(message_of([&] { partition(graph.graph, 1 << 20); }),
            "partition: more moves of an operand than can be compared; plan for fewer calls, or pin labels: "
            "limit=1e+08, operation=Z, moves=2.8228e+09");
}

TEST(Partition, ADeadlineEndsTheSearchWithAPlan) {
  using std::chrono::duration;
  using std::chrono::steady_clock;
  const PinnedGraph graph = dense(20);
  for (const double seconds : {0.0, 0.2}) {
    const auto start = steady_clock::now();
    const PartitionPlan plan = partition(graph, 64, {.table_entries = 1e9, .seconds = seconds});
    // Generous, for slow machines under load.
    EXPECT_LT(duration<double>(steady_clock::now() - start).count(), seconds + 1.5);
    EXPECT_EQ(plan.cost, recount(graph, plan));
    EXPECT_LE(plan.lower_bound, plan.cost);
    EXPECT_GT(plan.lower_bound, 0);
  }
  EXPECT_EQ(partition(layers(3), 8, {.seconds = 1e300}).cost, partition(layers(3), 8).cost);
}

}  // namespace
}  // namespace joinsum::optimizer::eindecomp
