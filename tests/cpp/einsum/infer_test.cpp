#include "einsum/infer.h"

#include <gtest/gtest.h>

#include "einsum/text.h"

namespace joinsum::einsum {
namespace {

/// The type, or the error, of one vertex over inputs of these types.
std::string inferred(const std::string& vertex, const std::vector<std::string>& types) {
  std::string text = "einsum\n", operands;
  for (size_t i = 0; i < types.size(); ++i) {
    text += "input X" + std::to_string(i) + ": " + types[i] + "\n";
    operands += (i > 0 ? ", X" : "X") + std::to_string(i);
  }
  try {
    return parse(text + "output Z = " + vertex + "(" + operands + ")").outputs()[0].node->type().text();
  } catch (const Error& error) {
    const std::string what = error.what();
    return what.substr(0, what.rfind(", line="));
  }
}

TEST(EinsumInfer, TheResultHasTheExtentsOfItsLabels) {
  EXPECT_EQ(inferred("einsum[ij,jk->ki; mul; add]", {"f32[4,5]", "f32[5,6]"}), "f32[6,4]");
  EXPECT_EQ(inferred("einsum[iji->ij; id; add]", {"f64[4,5,4]"}), "f64[4,5]");
  EXPECT_EQ(inferred("einsum[i->ii; id; add]", {"f64[4]"}), "f64[4,4]");
  EXPECT_EQ(inferred("einsum[i->ji; id; add; j=3]", {"i32[4]"}), "i32[3,4]");
  EXPECT_EQ(inferred("einsum[,,->; mul; add]", {"f32[]", "f32[]", "f32[]"}), "f32[]");
  EXPECT_EQ(inferred("einsum[i,i->; mul | cast[bool]; max]", {"f32[3]", "f32[3]"}), "bool[]");
}

TEST(EinsumInfer, ExtentsOfALabelAreOne) {
  EXPECT_EQ(inferred("einsum[ij,jk->ik; mul; add]", {"f32[4,5]", "f32[6,5]"}),
            "einsum: extents of a label differ: label=j, operand 0=5, operand 1=6");
  EXPECT_EQ(inferred("einsum[i->ij; id; add]", {"f32[4]"}),
            "einsum: a label that only the result has needs an extent: label=j, labels=i->ij");
  EXPECT_EQ(inferred("einsum[i->i; id; add; i=4]", {"f32[4]"}),
            "einsum: an extent is given for a label that only the result has: label=i");
}

TEST(EinsumInfer, JoinsAndAggregationsAreElementwiseAndFit) {
  EXPECT_EQ(inferred("einsum[ij,jk->ik; matmul; add]", {"f32[4,5]", "f32[5,6]"}),
            "einsum: a join is an elementwise kernel: join=matmul");
  EXPECT_EQ(inferred("einsum[ij->i; mul; add]", {"f32[4,5]"}),
            "einsum: the join has another number of operands: join=mul, takes=2, given=1");
  EXPECT_EQ(inferred("einsum[ij->i; id; sub]", {"f32[4,5]"}),
            "einsum: an aggregation is an elementwise kernel, associative and commutative: aggregate=sub");
  EXPECT_EQ(inferred("einsum[i,i->; add; add]", {"f32[4]", "f64[4]"}),
            "add: dtypes of the operands differ; cast one: dtypes=[f32, f64]");
  EXPECT_EQ(inferred("einsum[i->; id; max]", {"c64[4]"}),
            "max: not defined on this dtype; cast the operand: dtype=c64");
}

}  // namespace
}  // namespace joinsum::einsum
