#include "einsum/text.h"

#include <gtest/gtest.h>

#include "random_einsums.h"

namespace joinsum::einsum {
namespace {

std::string error_of(const std::string& text) {
  try {
    parse(text);
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(EinsumText, PrintsOneLinePerNodeInputsFirst) {
  const std::string nested =
      "einsum\n"
      "input X: f32[4,5]\n"
      "input Y: f32[5,6]\n"
      "product = einsum[ij,jk->ik; mul; add](X, Y)\n"
      "output Z = einsum[{row}{col},{col}->{row}; sub | square; max](product, einsum[jk->k; id; add](Y))\n";
  const std::string printed = print(parse(nested));
  EXPECT_EQ(printed,
            "einsum\n"
            "input X: f32[4,5]\n"
            "input Y: f32[5,6]\n"
            "t0 = einsum[ij,jk->ik; mul; add](X, Y): f32[4,6]\n"
            "t1 = einsum[jk->k; id; add](Y): f32[6]\n"
            "t2 = einsum[{row}{col},{col}->{row}; sub | square; max](t0, t1): f32[4]\n"
            "output Z = t2\n");
  EXPECT_EQ(print(parse(printed)), printed);
  EXPECT_TRUE(parse(printed) == parse(nested));
}

TEST(EinsumText, ExtentsOfLabelsThatOnlyTheResultHasComeLast) {
  const std::string text =
      "einsum\n"
      "input X: c64[]\n"
      "t0 = einsum[->i{n2}; id; add; i=3, {n2}=0](X): c64[3,0]\n"
      "output Z = t0\n";
  EXPECT_EQ(print(parse(text)), text);
}

TEST(EinsumText, ErrorsNameTheLine) {
  const std::string head = "einsum\ninput X: f32[4,5]\n";
  EXPECT_EQ(error_of(head + "output Z = einsum[ij,j->i; mul; add](X)"),
            "einsum: labels for another number of operands: labels=2, operands=1, line=3");
  EXPECT_EQ(error_of(head + "output Z = einsum[i->i; id; add](X)"),
            "einsum: labels and axes of an operand differ in number: operand=0, labels=i, type=f32[4,5], line=3");
  EXPECT_EQ(error_of(head + "output Z = einsum[ii->i; id; add](X)"),
            "einsum: extents of a label differ: label=i, operand 0=4, operand 0=5, line=3");
  EXPECT_NE(error_of(head + "output Z = einsum[ij; id; add](X)").find("expected `->`"), std::string::npos);
  EXPECT_NE(error_of(head + "output Z = einsum[i1->i; id; add](X)").find("not a letter"), std::string::npos);
}

TEST(EinsumText, RandomPlansReadBack) {
  RandomEinsums random(1);
  for (int round = 0; round < 300; ++round) {
    const Plan plan = random.plan({});
    const Plan again = parse(print(plan));
    ASSERT_TRUE(again == plan) << print(plan);
    ASSERT_EQ(print(again), print(plan));
    ASSERT_EQ(again.hash(), plan.hash());
  }
}

}  // namespace
}  // namespace joinsum::einsum
