#include <map>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "optimizer/eindecomp/partition.h"
#include "optimizer/eindecomp/partition_reference.h"

namespace joinsum::optimizer::eindecomp {
namespace {

TEST(PartitionPins, FixAVertexWhollyOrInPart) {
  GraphWriter graph = product(8);
  const PartitionPlan whole = partition(graph.pin("Z", {{"i", 1}, {"j", 8}, {"k", 1}}).graph, 8);
  EXPECT_EQ(whole.vertices[0].parts, (Dims{1, 8, 1}));
  EXPECT_EQ(whole.cost, 128 + 7 * 64);
  const PartitionPlan part = partition(product(8).pin("Z", {{"k", 4}}).graph, 8);
  EXPECT_EQ(part.vertices[0].parts, (Dims{2, 1, 4}));
}

TEST(PartitionPins, SayHowAnInputIsStored) {
  GraphWriter graph = product(8);
  graph.pin("Z", {{"i", 4}, {"j", 1}, {"k", 2}}).pin("X", {{"0", 2}, {"1", 4}});
  const PartitionPlan plan = partition(graph.graph, 8);
  EXPECT_EQ(plan.vertices[0].repartitions, (std::vector<double>{320, 0}));
  EXPECT_EQ(plan.cost, total(plan));
  const PartitionPlan free = partition(product(8).pin("X", {{"0", 2}, {"1", 4}}).graph, 8);
  EXPECT_EQ(free.vertices[0].parts, (Dims{2, 4, 1}));
}

TEST(PartitionPins, OfAnOutputSayHowItsVertexLeavesIt) {
  GraphWriter graph = product(8);
  graph.output("out", "Z").pin("out", {{"i", 1}, {"k", 1}});
  EXPECT_EQ(partition(graph.graph, 8).vertices[0].parts, (Dims{1, 8, 1}));
}

TEST(PartitionPins, AgreeWithTheEnumerationOfPlansThatHaveThem) {
  RandomGraphs random(5);
  for (int64_t i = 0; i < 100; ++i) {
    PinnedGraph graph = random.graph(3, false);
    const JsonOperation& vertex = graph.operations()[random.below(3)];
    double least = kNothing;
    std::map<int64_t, double> by_parts;
    for (const Parts& way : ways(vertex, 4)) {
      PinnedGraph pinned = graph;
      pinned.pins.push_back({vertex.name, way});
      const double cost = partition(pinned, 4).cost;
      least = std::min(least, cost);
      const auto [found, added] = by_parts.try_emplace(way.at("i"), cost);
      if (!added) found->second = std::min(found->second, cost);
    }
    EXPECT_EQ(least, partition(graph, 4).cost);
    for (const auto& [parts, cost] : by_parts) {
      PinnedGraph pinned = graph;
      pinned.pins.push_back({vertex.name, {{"i", parts}}});
      EXPECT_EQ(partition(pinned, 4).cost, cost);
    }
  }
}

TEST(PartitionPins, ThatContradictAreNamedAndNoOthers) {
  GraphWriter graph = product(8);
  graph.output("out", "Z").pin("Z", {{"i", 2}, {"j", 2}, {"k", 4}}).pin("out", {{"i", 4}});
  EXPECT_EQ(message_of([&] { partition(graph.graph, 8); }),
            "partition: pins contradict each other or the vectors of Z, whose parts are powers of two that divide "
            "their extents and multiply to 8; change or remove one of them: pins=[Z.i=2, out.i=4]");
  GraphWriter single = product(8);
  single.pin("Z", {{"i", 2}, {"j", 3}, {"k", 2}});
  EXPECT_NE(message_of([&] { partition(single.graph, 8); }).find(": pins=[Z.j=3]"), std::string::npos);
  GraphWriter stored = product(8);
  stored.output("out", "X").pin("X", {{"0", 2}, {"1", 4}}).pin("out", {{"1", 2}});
  EXPECT_EQ(message_of([&] { partition(stored.graph, 8); }),
            "partition: pins contradict each other; change or remove one of them: pins=[X.1=4, out.1=2]");
}

TEST(PartitionPins, ThatNameNothingAreRejected) {
  const auto message = [](const std::string& name, const Parts& parts) {
    return message_of([&] { partition(product(8).output("out", "Z").pin(name, parts).graph, 8); });
  };
  EXPECT_EQ(message("V", {{"i", 2}}), "partition: a pin names no input, vertex or output: pin=V");
  EXPECT_EQ(message("Z", {{"x", 2}}),
            "partition: a pin names a label that its value lacks: pin=Z, label=x, labels=[i, j, k]");
  EXPECT_EQ(message("out", {{"j", 2}}),
            "partition: a pin names a label that its value lacks: pin=out, label=j, labels=[i, k]");
  EXPECT_EQ(message("X", {{"0", 2}}), "partition: a pin of an input names all its axes: input=X, extents=[8, 8]");
  EXPECT_EQ(message("X", {{"0", 3}, {"1", 1}}),
            "partition: an input's parts are powers of two that divide its extents: pin=X.0=3, extents=[8, 8]");
}

// --- Wrong graphs ----------------------------------------------------------------------------------------------------

TEST(PartitionGraph, ThatCannotBeRightIsNamed) {
  const auto message = [](const auto& change) {
    PinnedGraph graph = product(8).graph;
    change(graph.graph);
    return message_of([&] { partition(graph, 8); });
  };
  EXPECT_EQ(message([](JsonGraph& graph) { graph.operations[0].name = "X"; }),
            "partition: two values have one name: name=X");
  EXPECT_EQ(message([](JsonGraph& graph) { graph.inputs[0].first = ""; }), "partition: a name is empty");
  EXPECT_EQ(message([](JsonGraph& graph) { graph.inputs[0].second.extents[0] = -1; }),
            "partition: an extent is negative: input=X, extents=[-1, 8]");
  EXPECT_EQ(message([](JsonGraph& graph) { graph.operations[0].inputs[1] = "V"; }),
            "partition: an operand is no input or earlier operation: operation=Z, operand=V");
  EXPECT_EQ(message([](JsonGraph& graph) { graph.operations[0].inputs[1] = "Z"; }),
            "partition: an operand is no input or earlier operation: operation=Z, operand=Z");
  EXPECT_EQ(message([](JsonGraph& graph) { graph.operations[0].in_labels[0].pop_back(); }),
            "partition: an operand has another number of axes than labels: operation=Z, labels=[i], extents=[8, 8]");
  EXPECT_EQ(message([](JsonGraph& graph) { graph.operations[0].extents["j"] = 4; }),
            "partition: a label has two extents: operation=Z, label=j, extents=[4, 8]");
  EXPECT_EQ(message([](JsonGraph& graph) { graph.operations[0].extents.erase("k"); }),
            "partition: a label has no extent; give one to labels that no operand has: operation=Z, label=k");
  EXPECT_EQ(message([](JsonGraph& graph) { graph.operations[0].out_labels = {"i", "i"}; }),
            "partition: a result has a label twice; write to one label: operation=Z, labels=[i, i]");
  EXPECT_EQ(message([](JsonGraph& graph) { graph.operations[0].aggregate.reset(); }),
            "partition: a label vanishes but nothing aggregates it; keep it in the result, or name an aggregation: "
            "operation=Z, label=j");
  EXPECT_EQ(message([](JsonGraph& graph) { graph.operations[0].inputs.clear(); }),
            "partition: an operation has no operand, or not as many as lists of labels: operation=Z");
  EXPECT_EQ(message([](JsonGraph& graph) { graph.outputs = {{"X", "Z"}}; }),
            "partition: an output has the name of another value: output=X, of=Z");
  EXPECT_EQ(message([](JsonGraph& graph) { graph.outputs = {{"out", "V"}}; }),
            "partition: an output has no name or no value: output=out, of=V");
}

}  // namespace
}  // namespace joinsum::optimizer::eindecomp
