#include "sparse/kernels/argument_order.h"

#include <gtest/gtest.h>

namespace joinsum::sparse::kernels {
namespace {

using enum LevelFormat;

/// out_i = aggregate over j of op(v_ij dense, w_ij listed, x_i, y), with the operands in this order.
Kernel kernel_of_four(Operator op, Operator aggregate) {
  Kernel kernel;
  kernel.loops = {{{1}, {0, 2}}, {{1}, {0}}};
  kernel.operands = {{{0, 1}, {kDense, kDense}}, {{0, 1}, {kSortedList, kSortedList}}, {{0}, {kDense}}, {{}, {}}};
  kernel.required = {false, true, false, false};
  for (int64_t o = 0; o < 4; ++o) kernel.body.push_back({.kind = BodyNode::Kind::kOperand, .operand = o});
  kernel.body.push_back({.kind = BodyNode::Kind::kMap, .op = op, .children = {0, 1, 2, 3}});
  kernel.aggregate = aggregate;
  kernel.output = {0};
  kernel.formats = {kDense};
  return kernel;
}

std::vector<int64_t> ordered(Operator op, Operator aggregate) {
  Kernel kernel = kernel_of_four(op, aggregate);
  order_arguments(kernel);
  return kernel.body.back().children;
}

TEST(ArgumentOrder, WhatChangesInInnerLoopsComesLastAndItsWalkersBeforeTheRest) {
  EXPECT_EQ(ordered(Operator::kMultiply, Operator::kAdd), (std::vector<int64_t>{3, 2, 1, 0}));
  EXPECT_EQ(ordered(Operator::kAdd, Operator::kAdd), (std::vector<int64_t>{3, 2, 1, 0}));
}

TEST(ArgumentOrder, WhatIsComparedKeepsItsOrder) {
  EXPECT_EQ(ordered(Operator::kMultiply, Operator::kMax), (std::vector<int64_t>{0, 1, 2, 3}));
}

TEST(ArgumentOrder, AMapHasThePlaceOfItsLastArgument) {
  Kernel kernel = kernel_of_four(Operator::kMultiply, Operator::kAdd);
  // square(w) · v · x
  kernel.body.back() = {.kind = BodyNode::Kind::kMap, .op = Operator::kSquare, .children = {0}};
  kernel.body.push_back({.kind = BodyNode::Kind::kMap, .op = Operator::kMultiply, .children = {4, 1, 2}});
  order_arguments(kernel);
  EXPECT_EQ(kernel.body.back().children, (std::vector<int64_t>{2, 1, 4}));
}

}  // namespace
}  // namespace joinsum::sparse::kernels
