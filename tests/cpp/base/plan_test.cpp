#include "base/plan.h"

#include <gtest/gtest.h>

namespace joinsum {
namespace {

struct Input {
  std::string name;
};
struct Step {};

struct Type {
  int64_t extent = 1;
  std::string text() const { return std::to_string(extent); }
  bool operator==(const Type&) const = default;
};

using TestNode = Node<std::variant<Input, Step>, Type>;
using Pointer = TestNode::Pointer;
using TestPlan = Plan<TestNode>;

Pointer input(const std::string& name, int64_t extent = 1) {
  return std::make_shared<const TestNode>(Input{name}, std::vector<Pointer>{}, Type{extent});
}

Pointer step(std::vector<Pointer> inputs, int64_t extent = 1) {
  return std::make_shared<const TestNode>(Step{}, std::move(inputs), Type{extent});
}

std::string error_of(const std::vector<TestPlan::Output>& outputs) {
  try {
    check_plan<Input>(TestPlan(outputs));
  } catch (const PlanError& error) {
    return error.what();
  }
  return "";
}

TEST(Plans, OrderHasEveryNodeOnceAndInputsBeforeUsers) {
  const Pointer x = input("X"), y = input("Y");
  const Pointer shared = step({x, y}), left = step({shared}), right = step({shared, y});
  const TestPlan plan({{"L", left, {}}, {"R", right, {}}});
  EXPECT_EQ(plan.order(), (std::vector<Pointer>{x, y, shared, left, right}));
  EXPECT_EQ(plan_inputs<Input>(plan), (std::vector<Pointer>{x, y}));
}

TEST(Plans, OrderLeavesOutWhatIsDone) {
  const Pointer x = input("X"), below = step({x}), above = step({below});
  EXPECT_EQ(topological<TestNode>({above}, {below.get()}), (std::vector<Pointer>{above}));
}

TEST(Plans, AChainOfAHundredThousandNodesIsWalkedAndFreed) {
  Pointer node = input("X");
  const std::weak_ptr<const TestNode> first = node;
  for (int i = 0; i < 100'000; ++i) node = step({std::move(node)});
  EXPECT_EQ(topological<TestNode>({node}).size(), 100'001u);
  node = nullptr;
  EXPECT_TRUE(first.expired());
}

TEST(Plans, FreeingAPlanLeavesTheNodesThatOthersHold) {
  const Pointer x = input("X"), shared = step({x});
  {
    const Pointer above = step({step({shared})});
  }
  EXPECT_EQ(shared->inputs(), (std::vector<Pointer>{x}));
}

TEST(Plans, NamesAreWordsWithDots) {
  for (const char* name : {"X", "_x", "layer.0.weight", "0.weight", "a_1"})
    EXPECT_NO_THROW(check_plan_name("input", name)) << name;
  for (const char* name : {"", ".x", "a-b", "a b", "é"}) {
    EXPECT_THROW(check_plan_name("input", name), PlanError) << name;
  }
}

TEST(Plans, OutputsAndInputsHaveNamesOfTheirOwn) {
  const Pointer x = input("X");
  EXPECT_EQ(error_of({}), "plan: no output");
  EXPECT_EQ(error_of({{"Z", x, {}}, {"Z", x, {}}}), "plan: two outputs of one name: name=Z");
  EXPECT_EQ(error_of({{"Z", step({x, input("X")}), {}}}), "plan: two inputs of one name: name=X");
  EXPECT_EQ(error_of({{"X", x, {}}}), "");
}

TEST(Plans, ATieIsToOneInputOfTheOutputsType) {
  const Pointer x = input("X", 4);
  EXPECT_EQ(error_of({{"Z", step({x}, 4), "X"}}), "");
  EXPECT_EQ(error_of({{"Z", step({x}, 4), "W"}}), "plan: output tied to an input that is not there: output=Z, input=W");
  EXPECT_EQ(error_of({{"Z", step({x}, 5), "X"}}),
            "plan: a tied output has its input's type: output=Z, type=5, input type=4");
  EXPECT_EQ(error_of({{"Z", step({x}, 4), "X"}, {"Y", step({x}, 4), "X"}}),
            "plan: two outputs tied to one input: input=X");
}

TEST(Plans, EvaluatedComputesEachNodeOnceFromItsOperands) {
  const Pointer x = input("X"), twice = step({x, x}), sum = step({twice, x});
  int64_t computed = 0;
  const auto values =
      evaluated<int64_t>(TestPlan({{"Y", sum, {}}, {"Z", twice, {}}}),
                         [&](const TestNode& node, const std::vector<const int64_t*>& operands) -> int64_t {
                           ++computed;
                           if (node.as<Input>() != nullptr) return 5;
                           return *operands[0] + *operands[1];
                         });
  EXPECT_EQ(values, (std::map<std::string, int64_t>{{"Y", 15}, {"Z", 10}}));
  EXPECT_EQ(computed, 3);
}

}  // namespace
}  // namespace joinsum
