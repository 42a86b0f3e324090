#include "runtime/execution/executable.h"

#include <algorithm>

#include <gtest/gtest.h>

#include "ia/text.h"

namespace joinsum::runtime::execution {
namespace {

const char* const kProduct = R"(ia on 2
input X: f64[4,4]<1,2> on 2 (1)
input W: f64[4,6]<2,1> on 2 (0)
p = agg[0, 2; add](join[1; 0; matmul](X, W))
z = broadcast(p)
output Z = map[(k0, k1); negate](z)
)";

bool contains(const std::vector<size_t>& values, size_t value) {
  return std::find(values.begin(), values.end(), value) != values.end();
}

TEST(Executable, ListsStepsWithWhatTheyReadAndFree) {
  const Executable executable(ia::parse(kProduct), {0, 1}, ia::analysis::kMostJoinedBytes);
  ASSERT_EQ(executable.steps().size(), 5U);
  const auto& steps = executable.steps();
  EXPECT_TRUE(std::holds_alternative<ReadInput>(steps[0].action));
  const Step& product = steps[2];
  EXPECT_EQ(product.operands, (std::vector<size_t>{0, 1}));
  EXPECT_EQ(executable.tasks()[2].last_reads, (std::vector<size_t>{0, 1}));
  EXPECT_EQ(product.overwritable, (std::vector<bool>{false, false}));
  EXPECT_EQ(steps[4].overwritable, std::vector<bool>{true});
  const auto& move = *std::get<std::unique_ptr<const communication::moves::PreparedMove>>(steps[3].action);
  EXPECT_EQ(move.operation, "broadcast " + executable.values()[3].name);
  EXPECT_EQ(move.reduce.messages.size(), 2U);
  EXPECT_EQ(executable.results().size(), 1U);
  EXPECT_FALSE(executable.results()[0].own_blocks);
}

TEST(Executable, AMoveReadsItsOperandUntilItIsFinished) {
  const Executable executable(ia::parse(kProduct), {0, 1}, ia::analysis::kMostJoinedBytes);
  for (const Task& task : executable.tasks()) {
    const bool reads_product = contains(task.last_reads, 2);
    EXPECT_EQ(reads_product, task.kind == Task::Kind::kFinish);
  }
}

TEST(Executable, PrintsMessagesModesAndWhatIsFreed) {
  const Executable executable(ia::parse(kProduct), {0, 1}, ia::analysis::kMostJoinedBytes);
  const std::string text = executable.text();
  EXPECT_NE(text.find("reduce: 2 messages, 192 B, gather: 2 messages, 192 B"), std::string::npos) << text;
  EXPECT_NE(text.find("modes=[whole, whole, whole]"), std::string::npos) << text;
  EXPECT_NE(text.find("frees X, W"), std::string::npos) << text;
}

TEST(Executable, RecognisesItsPlanAndHashesIt) {
  const ia::Plan plan = ia::parse(kProduct), equal = ia::parse(kProduct);
  const Executable executable(plan, {0, 1}, ia::analysis::kMostJoinedBytes);
  EXPECT_TRUE(executable.is_of(plan));
  EXPECT_FALSE(executable.is_of(equal));
  EXPECT_TRUE(executable.common_text().starts_with(equal.text()));
  const Executable of_equal(equal, {0, 1}, ia::analysis::kMostJoinedBytes);
  EXPECT_EQ(executable.hash(), of_equal.hash());
  std::string text = kProduct;
  text.replace(text.find("negate"), 6, "sqrt");
  const Executable of_other(ia::parse(text), {0, 1}, ia::analysis::kMostJoinedBytes);
  EXPECT_NE(executable.hash(), of_other.hash());
}

TEST(Executable, RepeatedResultsAndInputsGetBlocksOfTheirOwn) {
  const ia::Plan plan = ia::parse(
      "ia on 1\ninput X: f64[4]<1> on 1 ()\na = map[(k0); negate](X)\noutput A = a\noutput B = a\noutput C = X\n");
  const Executable executable(plan, {0}, ia::analysis::kMostJoinedBytes);
  std::vector<bool> own;
  for (const Result& result : executable.results()) own.push_back(result.own_blocks);
  EXPECT_EQ(own, (std::vector<bool>{false, true, true}));
}

TEST(Executable, OnlyTiedInputsMayBeOverwritten) {
  const ia::Plan plan = ia::parse(
      "ia on 1\ninput W: f64[4]<1> on 1 ()\ninput G: f64[4]<1> on 1 ()\noutput V -> W = join[0; 0; sub](W, G)\n");
  const Executable executable(plan, {0}, ia::analysis::kMostJoinedBytes);
  EXPECT_EQ(executable.steps().back().overwritable, (std::vector<bool>{true, false}));
}

}  // namespace
}  // namespace joinsum::runtime::execution
