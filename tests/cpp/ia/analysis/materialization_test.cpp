#include "ia/analysis/materialization.h"

#include <gtest/gtest.h>

#include "ia/text.h"

namespace joinsum::ia::analysis {
namespace {

/// Texts of the operators that are recomputed by tiles, in the plan's order.
std::vector<std::string> recomputed(const std::string& text, int64_t most_bytes) {
  const Plan plan = parse("ia on 2\ninput X: f64[4,5]<2,1> on 2 (0)\ninput Y: f64[6,5]<1,1> on 2 (*)\n" + text);
  const Materialization materialization(plan, most_bytes);
  std::vector<std::string> out;
  for (const NodePtr& node : plan.order()) {
    if (materialization.recomputed(*node)) out.push_back(operation_text(node->operation(), node->type()));
  }
  return out;
}

using Texts = std::vector<std::string>;

const std::string kJoined = R"(
x = map[(k0, k1); insert_dim[1]](X)
y = map[(k0, k1); arrange[bc->bc]](Y)
j = join[1; 1; add](x, y)
)";

TEST(Materialization, RecomputesAJoinThatIsOnlyReduced) {
  // 2 x 6 x 5 doubles on each site.
  const std::string plan = kJoined + "output Z = map[(k0, k1, k2); reduce_max[abc->ab]](j)\n";
  EXPECT_EQ(recomputed(plan, 479), Texts{"local_join[1; 1; add]"});
  EXPECT_EQ(recomputed(plan, 480), Texts{}) << "it is not larger";
}

TEST(Materialization, RecomputesChainsUpToReductions) {
  const std::string chain = kJoined + "e = map[(k0, k1, k2); exp | negate](j)\n";
  const Texts both{"local_join[1; 1; add]", "local_map[(k0, k1, k2); exp | negate]"};
  EXPECT_EQ(recomputed(chain + "output Z = map[(k0, k1, k2); reduce_add[abc->ab]](e)\n" +
                           "output V = map[(k0, k1, k2); reduce_max[abc->bc]](j)\n",
                       0),
            both);
}

TEST(Materialization, MaterializesOutputsAndWhatMoves) {
  EXPECT_EQ(recomputed(kJoined + "output Z = map[(k0, k1, k2); reduce_max[abc->ab]](j)\noutput J = j\n", 0), Texts{});
  EXPECT_EQ(recomputed(kJoined + "output Z = broadcast(j)\n", 0), Texts{});
  EXPECT_EQ(recomputed(kJoined + "e = map[(k0, k1, k2); exp](j)\noutput Z = broadcast(e)\n", 0), Texts{})
      << "nor what it is made of";
}

TEST(Materialization, MaterializesWhatIsNoLargerThanItsOperands) {
  EXPECT_EQ(recomputed("e = map[(k0, k1); exp](X)\noutput Z = map[(k0, k1); reduce_add[ab->a]](e)\n", 0), Texts{});
}

TEST(Materialization, ListsWhatAReductionReadsOnce) {
  const Plan plan =
      parse("ia on 2\ninput X: f64[4,5]<2,1> on 2 (0)\ninput Y: f64[6,5]<1,1> on 2 (*)\n" + kJoined +
            "s = join[0, 1, 2; 0, 1, 2; mul](j, j)\n" + "output Z = map[(k0, k1, k2); reduce_add[abc->ab]](s)\n");
  const Materialization materialization(plan, 0);
  const Node& reduction = *plan.outputs()[0].node;
  EXPECT_TRUE(materialization.reduces_recomputed(reduction));
  EXPECT_EQ(materialization.operands(reduction).size(), 2);
  for (const Node* operand : materialization.operands(reduction)) EXPECT_EQ(materialization.uses().at(operand), 1);
  EXPECT_EQ(materialization.not_materialized().size(), 2);
}

/// The update of W, 3 x 5, by a gradient that is a product, and what else the plan has.
Plan update(const std::string& call, const std::string& rest = "", const std::string& second = "X") {
  return parse(
      "ia on 2\ninput W: f64[4,5]<2,1> on 2 (0)\ninput A: f64[6,4]<1,2> on 2 (1)\ninput X: f64[6,5]<1,1> on 2 (*)\n"
      "input S: f64[]<> on 2 (*)\ng = aggregate[1, 2; add](join[0; 0; contract[ab,ac->bc]](A, " +
      second +
      "))\n"
      "output V -> W = local_call[0; " +
      call + "](W, g, S)\n" + rest);
}
const std::string kUpdate = "aten::addcmul; ab,ab, -> ab:f64; (%0{a,b}, %1{a,b}, %2{}) -> {a,b}; flops=1 ab";

TEST(Materialization, AddsAProductToWhatItsOnlyReaderUpdates) {
  const Plan plan = update(kUpdate);
  const Node& updated = *plan.outputs()[0].node;
  const Materialization materialization(plan);
  ASSERT_EQ(materialization.added_by(updated), updated.input(1).get());
  EXPECT_FALSE(materialization.materialized(*updated.input(1)));
  const auto inputs = plan.inputs();
  std::vector<std::string> read;
  for (const Node* operand : materialization.operands(updated)) read.push_back(operand->as<Input>()->name);
  EXPECT_EQ(read, (std::vector<std::string>{"W", "S", "A", "X"}));
}

TEST(Materialization, AddsNoProductThatOthersRead) {
  const Plan plan = update(kUpdate, "output G = g\n");
  EXPECT_EQ(Materialization(plan).added_by(*plan.outputs()[0].node), nullptr);
}

TEST(Materialization, AddsNoProductByAnotherFormula) {
  const Plan plan = update("aten::addcdiv; ab,ab, -> ab:f64; (%0{a,b}, %1{a,b}, %2{}) -> {a,b}; flops=1 ab");
  EXPECT_EQ(Materialization(plan).added_by(*plan.outputs()[0].node), nullptr);
  const Plan scaled = update("aten::addcmul; ab,ab, -> ab:f64; (%0{a,b}, %1{a,b}, %2{}, 2) -> {a,b}; flops=1 ab");
  EXPECT_EQ(Materialization(scaled).added_by(*scaled.outputs()[0].node), nullptr);
}

/// Whether the map and the aggregate at the end of this plan are one reduction.
bool reduced_as_one(const std::string& map, const std::string& aggregate, const std::string& rest = "") {
  const Plan plan = parse("ia on 2\ninput X: f64[8,6,5]<4,3,1> on 2 (0)\nm = map[(k0, k1, k2); " + map +
                          "](X)\noutput Z = broadcast(aggregate[" + aggregate + "](m))\n" + rest);
  const Node& node = *plan.outputs()[0].node->input(0);
  return Materialization(plan).fused(*node.input(0));
}

TEST(Materialization, ReducesAxesWithTheirKeys) {
  EXPECT_TRUE(reduced_as_one("reduce_add[abc->c]", "2; add"));
  EXPECT_TRUE(reduced_as_one("reduce_max[abc->bc]", "1, 2; max"));
  EXPECT_FALSE(reduced_as_one("reduce_max[abc->c]", "2; add")) << "by another kernel";
  EXPECT_FALSE(reduced_as_one("reduce_add[abc->c] | negate", "2; add")) << "a kernel comes between them";
  EXPECT_FALSE(reduced_as_one("reduce_add[abc->bc]", "2; add")) << "keys of an axis that is kept";
  EXPECT_FALSE(reduced_as_one("reduce_add[abc->c]", "2; add", "output M = broadcast(m)\n")) << "another reader";
}

}  // namespace
}  // namespace joinsum::ia::analysis
