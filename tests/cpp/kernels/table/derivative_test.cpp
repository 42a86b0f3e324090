#include "kernels/table/derivative.h"

#include <gtest/gtest.h>

namespace joinsum::kernels::table {
namespace {

TEST(Derivative, AFormulaIsReadAsKernelsOfValues) {
  const Formula formula = Formula::parse("scale[0.5](mul(d, conjugate(y)))");
  EXPECT_EQ(formula.kernel, (Kernel{"scale", {0.5}}));
  ASSERT_EQ(formula.operands.size(), 1);
  EXPECT_EQ(formula.operands[0].kernel.name, "mul");
  EXPECT_TRUE(formula.operands[0].operands[0].is("d"));
  EXPECT_TRUE(formula.reads("d") && formula.reads("y"));
  EXPECT_FALSE(formula.reads("x") || formula.is("scale"));
}

TEST(Derivative, WhatIsNoFormulaIsRefused) {
  for (const char* text : {"mul(d", "mul(d,)", "mul(d) y", ""}) EXPECT_THROW(Formula::parse(text), PlanError) << text;
}

TEST(Derivative, OneFormulaServesOperandsThatMayChangePlaces) {
  EXPECT_EQ(derivative(Kernel::parse("mul"), 0), derivative(Kernel::parse("mul"), 1));
  EXPECT_NE(derivative(Kernel::parse("div"), 0), derivative(Kernel::parse("div"), 1));
  EXPECT_EQ(derivative(Kernel::parse("sgd_update[0.5]"), 0), std::nullopt);
}

}  // namespace
}  // namespace joinsum::kernels::table
