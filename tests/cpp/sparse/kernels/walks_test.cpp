#include "sparse/kernels/walks.h"

#include <algorithm>
#include <limits>

#include <gtest/gtest.h>

#include "sparse/kernels/random_kernels.h"

namespace joinsum::sparse::kernels {

using namespace operators;  // NOLINT: the tests' own words
using namespace tensor;     // NOLINT
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr auto kList = LevelFormat::kSortedList;
constexpr auto kDense = LevelFormat::kDense;

BodyNode operand(int64_t o) { return {.kind = BodyNode::Kind::kOperand, .operand = o}; }
BodyNode map(Operator op, std::vector<int64_t> children) {
  return {.kind = BodyNode::Kind::kMap, .op = op, .children = std::move(children)};
}

/// A kernel of operands with these loops, whose loops look all of them up.
Kernel kernel_of(int64_t loops, const std::vector<std::vector<int64_t>>& operands, std::vector<BodyNode> body) {
  Kernel kernel{.loops = std::vector<Loop>(loops), .body = std::move(body)};
  for (const std::vector<int64_t>& each : operands) {
    const auto o = std::ssize(kernel.operands);
    kernel.operands.push_back({.loops = each, .formats = std::vector<LevelFormat>(each.size(), kList)});
    for (const int64_t loop : each) kernel.loops[loop].lookups.push_back(o);
  }
  for (int64_t loop = 0; loop < loops; ++loop) {
    kernel.output.push_back(loop);
    kernel.formats.push_back(kDense);
  }
  derive(kernel);
  return kernel;
}

void walk(Kernel& kernel, int64_t loop, const std::vector<int64_t>& walkers) {
  kernel.loops[loop].walkers = walkers;
  std::erase_if(kernel.loops[loop].lookups, [&](int64_t o) { return std::ranges::count(walkers, o) > 0; });
}

TEST(Walks, EachFactorOfAProductIsRequiredAndLeads) {
  Kernel kernel = kernel_of(1, {{0}, {0}}, {operand(0), operand(1), map(Operator::kMultiply, {0, 1})});
  EXPECT_EQ(kernel.required, (std::vector<bool>{true, true}));
  EXPECT_EQ(kernel.body_fill, 0);
  walk(kernel, 0, {1});
  check(kernel);
}

TEST(Walks, TheTermsOfASumWalkTogether) {
  Kernel kernel = kernel_of(1, {{0}, {0}}, {operand(0), operand(1), map(Operator::kAdd, {0, 1})});
  EXPECT_EQ(kernel.required, (std::vector<bool>{false, false}));
  Kernel both = kernel;
  walk(both, 0, {0, 1});
  check(both);
  walk(kernel, 0, {0});
  EXPECT_EQ(error_of([&] { check(kernel); }),
            "kernel: the walkers of a loop leave out visits that matter: loop=0, walkers=[0]");
}

TEST(Walks, AFactorLeadsWhereTheTermsOfItsSumAreLookedUp) {
  // A_i · (B_ij + C_ij)
  Kernel kernel =
      kernel_of(2, {{0}, {0, 1}, {0, 1}},
                {operand(0), operand(1), operand(2), map(Operator::kAdd, {1, 2}), map(Operator::kMultiply, {0, 3})});
  EXPECT_EQ(kernel.required, (std::vector<bool>{true, false, false}));
  walk(kernel, 0, {0});
  walk(kernel, 1, {1, 2});
  check(kernel);
  walk(kernel, 1, {2});
  EXPECT_NE(error_of([&] { check(kernel); }), "no error");
}

TEST(Walks, AnExponentialOfFillOneLeadsOnlyAlone) {
  // exp(B_j) has the fill 1, which annihilates no product.
  Kernel alone = kernel_of(1, {{0}}, {operand(0), map(Operator::kExp, {0})});
  EXPECT_EQ(alone.body_fill, 1);
  EXPECT_EQ(alone.required, (std::vector<bool>{true}));
  Kernel product =
      kernel_of(1, {{0}, {0}}, {operand(0), operand(1), map(Operator::kExp, {1}), map(Operator::kMultiply, {0, 2})});
  EXPECT_EQ(product.required, (std::vector<bool>{true, false}));
  walk(product, 0, {1});
  EXPECT_NE(error_of([&] { check(product); }), "no error");
}

TEST(Walks, TheLoopsOfOneTermOfASumRunOverTheWholeRange) {
  // A_ij + B_jk: where B stores nothing at k, A still does at (i, j).
  Kernel kernel = kernel_of(3, {{0, 1}, {1, 2}}, {operand(0), operand(1), map(Operator::kAdd, {0, 1})});
  check(kernel);
  for (const auto& [loop, walker] : {std::pair{0, 0}, std::pair{1, 1}, std::pair{2, 1}}) {
    Kernel walked = kernel;
    walk(walked, loop, {walker});
    EXPECT_NE(error_of([&] { check(walked); }), "no error") << loop;
  }
  walk(kernel, 1, {0, 1});
  check(kernel);
}

TEST(Walks, InfinityAnnihilatesASum) {
  Kernel kernel = kernel_of(1, {{0}, {0}}, {operand(0), operand(1), map(Operator::kAdd, {0, 1})});
  kernel.operands[0].fill = kInfinity;
  derive(kernel);
  EXPECT_EQ(kernel.body_fill, kInfinity);
  EXPECT_EQ(kernel.required, (std::vector<bool>{true, false}));
}

TEST(Walks, ZeroTimesAFillOfInfinityIsZero) {
  Kernel kernel = kernel_of(1, {{0}, {0}}, {operand(0), operand(1), map(Operator::kMultiply, {0, 1})});
  kernel.operands[1].fill = kInfinity;
  derive(kernel);
  EXPECT_EQ(kernel.body_fill, 0);
  EXPECT_EQ(kernel.required, (std::vector<bool>{true, false}));
}

TEST(Walks, ASumOfFactorsIsGuardedOnlyWhereAVisitFindsItAtItsFill) {
  const auto guards = [](const Kernel& kernel) -> bool { return nodes_to_guard(kernel).back(); };
  Kernel kernel =
      kernel_of(2, {{0}, {0, 1}, {0, 1}},
                {operand(0), operand(1), operand(2), map(Operator::kAdd, {1, 2}), map(Operator::kMultiply, {0, 3})});
  walk(kernel, 0, {0});
  EXPECT_TRUE(guards(kernel));
  walk(kernel, 1, {1, 2});
  EXPECT_FALSE(guards(kernel));
}

TEST(Walks, AKernelThatBreaksItsPromisesIsAnErrorThatNamesThePlace) {
  const Kernel good = kernel_of(2, {{0, 1}, {1}}, {operand(0), operand(1), map(Operator::kMultiply, {0, 1})});
  const auto error = [&](const auto& change) {
    Kernel kernel = good;
    change(kernel);
    return error_of([&] { check(kernel); });
  };
  EXPECT_EQ(error([](Kernel&) {}), "no error");
  EXPECT_EQ(error([](Kernel& k) { k.operands[0].loops = {1, 0}; }),
            "kernel: an operand's loops must ascend within the nest: operand=0, loops=[1, 0], nest=2");
  EXPECT_EQ(error([](Kernel& k) { k.loops[1].lookups = {0}; }),
            "kernel: a loop must name each operand that has it once: loop=1, named=[0], having=[0, 1]");
  EXPECT_EQ(error([](Kernel& k) { k.loops[1].walkers = {0}; }),
            "kernel: a loop must name each operand that has it once: loop=1, named=[0, 0, 1], having=[0, 1]");
  EXPECT_EQ(error([](Kernel& k) { k.output = {0, 0}; }),
            "kernel: the output must name distinct loops: output=[0, 0], loops=2");
  EXPECT_EQ(error([](Kernel& k) { k.output = {0}; }),
            "kernel: the result needs a format for each level: output=[0], formats=2");
  EXPECT_EQ(error([](Kernel& k) { k.output.pop_back(), k.formats.pop_back(); }),
            "kernel: loops that are not of the output need an aggregate: output=[0], loops=2");
  EXPECT_EQ(error([](Kernel& k) { k.aggregate = Operator::kExp; }),
            "kernel: the operator does not aggregate: operator=exp");
  EXPECT_EQ(error([](Kernel& k) { k.body[2].children = {0, 2}; }),
            "kernel: a child must come before its node: node=2, child=2");
  EXPECT_EQ(error([](Kernel& k) { k.body[0].operand = 2; }), "kernel: a node names no operand: node=0, operand=2");
  EXPECT_EQ(error([](Kernel& k) { k.body_fill = 1; }), "kernel: the body's fill is another: body_fill=1, derived=0");
  EXPECT_EQ(error([](Kernel& k) { k.required.clear(); }),
            "kernel: `required` needs a value for each operand: operands=2, required=0");
}

TEST(Walks, AnOperandIsRequiredOnlyIfItsAbsenceDecides) {
  Kernel kernel = kernel_of(1, {{0}, {0}}, {operand(0), operand(1), map(Operator::kAdd, {0, 1})});
  kernel.required[1] = true;
  EXPECT_EQ(error_of([&] { check(kernel); }),
            "kernel: an operand is required whose absence leaves the body open: operand=1");
}

}  // namespace
}  // namespace joinsum::sparse::kernels
