#include "runtime/execution/dim_modes.h"

#include <gtest/gtest.h>

namespace joinsum::runtime::execution {
namespace {

using kernels::table::Kernel;
using relation::RelationType;

TEST(DimModes, ElementwiseKernelsTakeAllPartsOfAnAxisAtOnce) {
  const auto type = RelationType::parse("f64[6,4]<3,2>");
  const Kernel kernel{"add", {}};
  EXPECT_EQ(dim_modes(kernel, {{type, {0, 1}}, {type, {0, 1}}}, type, {}),
            (std::vector<DimMode>{DimMode::kWhole, DimMode::kWhole}));
}

TEST(DimModes, KeysWithoutAnAxisAreBatchAxes) {
  const auto type = RelationType::parse("f64[6@1]<3,2>");
  EXPECT_EQ(dim_modes({"negate", {}}, {{type, {0, 1}}}, type, {}),
            (std::vector<DimMode>{DimMode::kBatch, DimMode::kWhole}));
}

TEST(DimModes, ContractedPartsAreWholeWhereTheyAreReducedToo) {
  const auto x = RelationType::parse("f64[6,4]<3,2>"), w = RelationType::parse("f64[4,8]<2,2>");
  const auto joined = RelationType::parse("f64[6@0,8@2]<3,2,2>");
  const Kernel kernel{"matmul", {}};
  const std::vector<ModeOperand> operands{{x, {0, 1}}, {w, {1, 2}}};
  EXPECT_EQ(dim_modes(kernel, operands, joined, {1}), (std::vector<DimMode>(3, DimMode::kWhole)));
  EXPECT_EQ(dim_modes(kernel, operands, joined, {}),
            (std::vector<DimMode>{DimMode::kWhole, DimMode::kSingle, DimMode::kWhole}));
}

TEST(DimModes, LettersOfElementwiseAxesAreAlignedAtTheRight) {
  const auto x = RelationType::parse("f64[6,4]<1,1>"), v = RelationType::parse("f64[4]<1>");
  const auto letters = letters_of({"add", {}}, {{x, {0, 1}}, {v, {1}}});
  ASSERT_TRUE(letters.has_value());
  EXPECT_EQ(letters->operands, (std::vector<std::string>{"ab", "b"}));
  EXPECT_EQ(letters->result, "ab");
}

}  // namespace
}  // namespace joinsum::runtime::execution
