#include "einsum/interpret.h"

#include <gtest/gtest.h>

#include "einsum/text.h"

namespace joinsum::einsum {
namespace {

using kernels::reference::Array;

Array run(const std::string& vertex, const std::vector<Array>& operands) {
  std::string text = "einsum\n", names;
  std::map<std::string, Array> inputs;
  for (size_t i = 0; i < operands.size(); ++i) {
    const std::string name = "X" + std::to_string(i);
    text += "input " + name + ": " + TensorType{DType::kFloat64, operands[i].shape}.text() + "\n";
    names += (i > 0 ? ", " : "") + name;
    inputs[name] = operands[i];
  }
  return interpret(parse(text + "output Z = " + vertex + "(" + names + ")"), inputs).at("Z");
}

const Array kA{{2, 3}, {1, 2, 3, 4, 5, 6}};
const Array kB{{3, 2}, {1, 0, 0, 1, 1, 1}};
const Array kSquare{{2, 2}, {1, 2, 3, 4}};

TEST(EinsumInterpret, IsTheDefinition) {
  EXPECT_EQ(run("einsum[ij,jk->ik; mul; add]", {kA, kB}), (Array{{2, 2}, {4, 5, 10, 11}}));
  EXPECT_EQ(run("einsum[ij,jk->ik; add; max]", {kA, kB}), (Array{{2, 2}, {4, 4, 7, 7}}));
  EXPECT_EQ(run("einsum[ij,jk->ik; sub | square; min]", {kA, kB}), (Array{{2, 2}, {0, 1, 9, 16}}));
  EXPECT_EQ(run("einsum[ij->j; id; mul]", {kA}), (Array{{3}, {4, 10, 18}}));
  EXPECT_EQ(run("einsum[ij->; square; add]", {kA}), (Array{{}, {91}}));
}

TEST(EinsumInterpret, MoreThanTwoOperandsAreTakenFromTheLeft) {
  EXPECT_EQ(run("einsum[i,i,i->i; sub; add]", {{{2}, {9, 8}}, {{2}, {1, 2}}, {{2}, {3, 4}}}), (Array{{2}, {5, 2}}));
}

TEST(EinsumInterpret, AnExpressionReadsAllOperandsAtOnce) {
  EXPECT_EQ(run("einsum[i,i,i->i; expression[3, x2-x0*x1]; add]", {{{2}, {9, 8}}, {{2}, {1, 2}}, {{2}, {3, 4}}}),
            (Array{{2}, {-6, -12}}));
  // Labels of an operand that it does not read are aggregated all the same.
  EXPECT_EQ(run("einsum[i,j->i; expression[2, x0]; add]", {{{2}, {9, 8}}, {{3}, {1, 2, 3}}}), (Array{{2}, {27, 24}}));
}

TEST(EinsumInterpret, RepeatedLabelsAreDiagonals) {
  EXPECT_EQ(run("einsum[ii->i; id; add]", {kSquare}), (Array{{2}, {1, 4}}));
  EXPECT_EQ(run("einsum[ii->; id; add]", {kSquare}), (Array{{}, {5}}));
  EXPECT_EQ(run("einsum[i->ii; id; add]", {{{2}, {7, 8}}}), (Array{{2, 2}, {7, 0, 0, 8}}));
}

TEST(EinsumInterpret, ALabelThatOnlyTheResultHasIsABroadcast) {
  EXPECT_EQ(run("einsum[i->ij; id; add; j=2]", {{{2}, {7, 8}}}), (Array{{2, 2}, {7, 7, 8, 8}}));
}

TEST(EinsumInterpret, AnAggregationOfNothingIsItsIdentity) {
  const Array nothing{{2, 0}, {}};
  EXPECT_EQ(run("einsum[ij->i; id; add]", {nothing}), (Array{{2}, {0, 0}}));
  EXPECT_EQ(run("einsum[ij->i; id; mul]", {nothing}), (Array{{2}, {1, 1}}));
  EXPECT_EQ(run("einsum[ij->i; id; max]", {nothing}).values[0], -std::numeric_limits<double>::infinity());
}

}  // namespace
}  // namespace joinsum::einsum
