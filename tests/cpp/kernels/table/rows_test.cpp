#include "kernels/table/rows.h"

#include <functional>
#include <set>

#include <gtest/gtest.h>

#include "kernels/table/derivative.h"
#include "kernels/table/expression_kernel.h"

namespace joinsum::kernels::table {
namespace {

using semiring::Join;
using semiring::Reduction;

template <class Step>
int rows_with(std::optional<Step> Row::* field, Step step) {
  int count = 0;
  for (const Row& row : builtin_rows()) count += row.*field == step ? 1 : 0;
  return count;
}

/// Laws over all rows: each names what a new row lacks.
TEST(Rows, AnElementwiseRowHasItsReference) {
  for (const Row& row : builtin_rows()) {
    const bool by_label = row.name == "cast" || row.name == "expression";
    EXPECT_EQ(row.element != nullptr, row.form == Form::kElementwise && !by_label)
        << row.name << " needs `.element` in its row";
  }
}

TEST(Rows, AnElementwiseRowHasItsDerivative) {
  // Losses and optimizer steps are ends of graphs that nothing differentiates; expressions derive themselves.
  std::set<std::string> without{"expression"};
  for (const auto& rows : {loss_rows(), update_rows()}) {
    for (const Row& row : rows) without.insert(row.name);
  }
  for (const Row& row : builtin_rows()) {
    const bool derives = row.form == Form::kElementwise && !without.contains(row.name);
    EXPECT_EQ(!row.derivative.empty(), derives) << row.name << " needs `.derivative` in its row";
  }
}

/// Checks the names of a formula of `row`; returns how many factors of it read `d`.
int check_formula(const Row& row, const Formula& formula) {
  const std::string& name = formula.kernel.name;
  const std::string where = row.name + ": " + name;
  if (formula.operands.empty()) {
    EXPECT_TRUE(name == "d" || name == "x" || name == "z" || (name == "y" && row.operands == 2)) << where;
    return name == "d" ? 1 : 0;
  }
  std::vector<int> degrees;
  for (const Formula& operand : formula.operands) degrees.push_back(check_formula(row, operand));
  const Row* used = find_row(name == "this" ? row.name : name);
  EXPECT_TRUE(used != nullptr && used->form == Form::kElementwise) << where << " is no elementwise kernel";
  if (used == nullptr) return 0;
  EXPECT_EQ(static_cast<int64_t>(degrees.size()), used->operands) << where;
  if (degrees.size() == 1) {
    EXPECT_TRUE(degrees[0] == 0 || used->facts.linear || used->name == "conjugate" || used->name == "cast") << where;
    return degrees[0];
  }
  if (name == "mul" || name == "div") return degrees[0] + degrees[1];
  EXPECT_EQ(degrees[0], degrees[1]) << where;
  return degrees[0];
}

TEST(Rows, ADerivativeIsLinearInWhatArrives) {
  for (const Row& row : builtin_rows()) {
    const size_t most = row.operands == 2 && !row.facts.commutative ? 2 : 1;
    const bool flat = row.derivative == std::vector<std::string>{"zero"};
    EXPECT_TRUE(row.derivative.empty() || flat || row.derivative.size() == most) << row.name;
    for (const std::string& text : row.derivative) {
      if (text == "zero") continue;
      EXPECT_EQ(check_formula(row, Formula::parse(text)), 1) << row.name << ": " << text;
    }
  }
}

TEST(Rows, EachStepOfTheLoopsIsThatOfOneRow) {
  for (const Join join : {Join::kMul, Join::kAdd, Join::kSub, Join::kDiv, Join::kMax, Join::kMin,
                          Join::kSquaredDifference, Join::kAbsDifference}) {
    EXPECT_EQ(rows_with(&Row::joins_by, join), 1) << "join=" << static_cast<int>(join);
  }
  for (const Reduction reduction :
       {Reduction::kAdd, Reduction::kMul, Reduction::kMax, Reduction::kMin, Reduction::kLogAddExp}) {
    EXPECT_EQ(rows_with(&Row::reduces_by, reduction), 1) << "reduction=" << static_cast<int>(reduction);
  }
  // The others serve operands that change places, and unsigned integers.
  for (const Join join : {Join::kReversedSub, Join::kReversedDiv, Join::kUnsignedDifference}) {
    EXPECT_EQ(rows_with(&Row::joins_by, join), 0) << "join=" << static_cast<int>(join);
  }
}

TEST(Rows, EveryJoinAndReductionMakeAContractionAndEveryReductionAKernel) {
  std::set<std::string> names;
  for (const Row& row : builtin_rows()) names.insert(row.name);
  for (const Row& reduction : builtin_rows()) {
    if (!reduction.reduces_by) continue;
    EXPECT_TRUE(names.contains("reduce_" + reduction.name)) << reduction.name;
    EXPECT_TRUE(names.contains("expression_" + reduction.name)) << reduction.name;
    for (const Row& join : builtin_rows()) {
      if (!join.joins_by) continue;
      const bool product = join.name == "mul" && reduction.name == "add";
      EXPECT_TRUE(names.contains(product ? "contract" : "contract_" + join.name + "_" + reduction.name))
          << join.name << ", " << reduction.name;
    }
  }
}

TEST(Rows, AKernelThatReducesIsAssociativeAndCommutativeAndHasAnIdentity) {
  for (const Row& row : builtin_rows()) {
    if (!row.reduces_by) continue;
    EXPECT_TRUE(row.facts.associative && row.facts.commutative && row.facts.identity) << row.name;
    EXPECT_FALSE(row.aggregation.empty()) << row.name << " needs `.aggregation` in its row";
    EXPECT_EQ(reduction_of(row.name), *row.reduces_by) << row.name;
  }
  EXPECT_THROW(reduction_of("sub"), KernelError);
  EXPECT_THROW(reduction_of("no_such_kernel"), KernelError);
}

TEST(Rows, JoinsThatAreReorderedCommuteAndDistribute) {
  const auto reordered = [](const std::string& join, const std::string& reduction) {
    return reorders(Kernel::parse(join), reduction);
  };
  EXPECT_TRUE(reordered("mul", "add") && reordered("add", "max") && reordered("add", "logaddexp"));
  EXPECT_TRUE(reordered("min", "max") && reordered("max", "min"));
  EXPECT_FALSE(reordered("mul", "max"));
  EXPECT_FALSE(reordered("sub", "max"));
  EXPECT_FALSE(reordered("squared_difference", "add"));
  EXPECT_FALSE(reordered("mul | exp", "add"));
}

TEST(Rows, AContractionHasTheAnnihilatorThatItsJoinGives) {
  const auto annihilator = [](const std::string& name) { return find_row(name)->facts.annihilator; };
  EXPECT_EQ(annihilator("contract_add_max"), -std::numeric_limits<double>::infinity());
  EXPECT_EQ(annihilator("contract_min_max"), -std::numeric_limits<double>::infinity());
  EXPECT_EQ(annihilator("contract_max_min"), std::numeric_limits<double>::infinity());
  EXPECT_EQ(annihilator("contract_mul_max"), std::nullopt);
  EXPECT_EQ(annihilator("contract_sub_max"), std::nullopt);
}

}  // namespace
}  // namespace joinsum::kernels::table
