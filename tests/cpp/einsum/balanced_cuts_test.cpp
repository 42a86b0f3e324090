#include "einsum/balanced_cuts.h"

#include <algorithm>
#include <random>

#include <gtest/gtest.h>

#include "einsum/text.h"
#include "tra/text.h"

namespace joinsum::einsum {
namespace {

using Cuts = std::map<std::string, relation::RelationType>;

Plan plan_of(const std::string& text) { return parse("einsum\n" + text); }

/// Indices that crowd at the low end: half of them below a sixteenth of the extent.
std::vector<int64_t> crowded(int64_t extent, int64_t count = 1000) {
  std::vector<int64_t> out;
  for (int64_t i = 0; i < count; ++i) {
    const double x = (static_cast<double>(i) + 0.5) / static_cast<double>(count);
    out.push_back(static_cast<int64_t>(x * x * x * x * static_cast<double>(extent)));
  }
  return out;
}

std::vector<int64_t> evenly(int64_t extent, int64_t count = 1000) {
  std::vector<int64_t> out;
  for (int64_t i = 0; i < count; ++i) out.push_back(i * extent / count);
  return out;
}

/// Of how many parts' worth the busiest part has indices.
double busiest(const std::vector<int64_t>& indices, const CutPoints& cuts) {
  int64_t most = 0;
  for (size_t part = 1; part < cuts.size(); ++part) {
    most = std::max<int64_t>(most, std::ranges::count_if(indices, [&](int64_t index) {
                               return cuts[part - 1] <= index && index < cuts[part];
                             }));
  }
  return static_cast<double>(most) * static_cast<double>(cuts.size() - 1) / static_cast<double>(indices.size());
}

const char* const kProduct =
    "input A: f64[5000,3000] sparse{200000}\ninput X: f64[3000,8]\n"
    "output Z = einsum[ij,jk->ik; mul; add](A, X)";

Cuts balanced(const Plan& plan, const EntrySamples& samples, double operations_of_byte = 0, int64_t sites = 4) {
  return balanced_cuts(plan, sites, samples, operations_of_byte, even_cuts(plan, sites));
}

TEST(BalancedCuts, EvenlySpreadEntriesKeepTheCuts) {
  const Plan plan = plan_of(kProduct);
  EXPECT_EQ(balanced(plan, {{"A", {evenly(5000), evenly(3000)}}}), even_cuts(plan, 4));
  EXPECT_EQ(balanced(plan, {}), even_cuts(plan, 4));
  EXPECT_EQ(balanced(plan, {{"A", {{}, {}}}}), even_cuts(plan, 4));
}

TEST(BalancedCuts, PartsHaveAboutEquallyManyEntries) {
  const Plan plan = plan_of(kProduct);
  const auto rows = crowded(5000), columns = evenly(3000);
  for (const int64_t sites : {2, 3, 4, 8}) {
    const Cuts cuts = balanced(plan, {{"A", {rows, columns}}}, 0, sites);
    EXPECT_LE(busiest(rows, cuts.at("A").axes[0].cuts), 1.2) << sites;
    EXPECT_GT(busiest(rows, even_cuts(plan, sites).at("A").axes[0].cuts), 1.5) << sites;
    EXPECT_EQ(cuts.at("A").axes[1], even_cuts(plan, sites).at("A").axes[1]);
    EXPECT_EQ(cuts.at("A").entries, 200000);
  }
}

TEST(BalancedCuts, AxesThatOneLabelNamesAreCutAlike) {
  const Plan plan = plan_of(kProduct);
  const Cuts cuts = balanced(plan, {{"A", {evenly(5000), crowded(3000)}}});
  EXPECT_NE(cuts.at("X").axes[0].cuts, joinsum::even_cuts(3000, 4));
  EXPECT_EQ(cuts.at("X").axes[0].cuts, cuts.at("A").axes[1].cuts);
  EXPECT_NO_THROW(lower(plan, cuts));
}

TEST(BalancedCuts, OneRowMayHoldNearlyAllEntries) {
  const Plan plan = plan_of(kProduct);
  for (const int64_t row : {0, 17, 4999}) {
    std::vector<int64_t> rows(900, row);
    for (const int64_t each : evenly(5000, 100)) rows.push_back(each);
    std::ranges::sort(rows);
    const CutPoints cuts = balanced(plan, {{"A", {rows, evenly(3000)}}}).at("A").axes[0].cuts;
    ASSERT_EQ(cuts.size(), 5);
    EXPECT_TRUE(std::ranges::is_sorted(cuts, std::less_equal<>())) << "an empty part";
    EXPECT_EQ(cuts.front(), 0);
    EXPECT_EQ(cuts.back(), 5000);
  }
  const Plan tiny =
      plan_of("input A: f64[4,3] sparse{9}\ninput X: f64[3,2]\noutput Z = einsum[ij,jk->ik; mul; add](A, X)");
  const Cuts cuts = balanced(tiny, {{"A", {{3, 3, 3, 3, 3, 3}, {0, 0, 0, 0, 0, 0}}}});
  EXPECT_EQ(cuts.at("A").axes[0].cuts, (CutPoints{0, 1, 2, 3, 4}));
}

TEST(BalancedCuts, WorkOnDenseTensorsAndMovesOfResultsLieEvenly) {
  const EntrySamples samples{{"A", {crowded(4000), evenly(4000)}}};
  const Plan dense = plan_of(
      "input A: f64[4000,4000] sparse{8000}\ninput X: f64[4000,4000]\ninput Y: f64[4000,500]\n"
      "n = einsum[ij,jk->ik; mul; add](A, Y)\nm = einsum[ij,jk->ik; mul; add](X, Y)\n"
      "output Z = einsum[ik,ik->k; mul; add](n, m)");
  EXPECT_EQ(balanced(dense, samples), even_cuts(dense, 4));
  const Plan product = plan_of(
      "input A: f64[4000,4000] sparse{100000}\ninput X: f64[4000,8]\n"
      "output Z = einsum[ij,jk->ik; mul; add](A, X)");
  EXPECT_NE(balanced(product, samples), even_cuts(product, 4));
  EXPECT_EQ(balanced(product, samples, 1000), even_cuts(product, 4));
}

TEST(BalancedCuts, CutsStayWhereTheyAreNearlyBalanced) {
  const Plan plan = plan_of(kProduct);
  const EntrySamples first{{"A", {crowded(5000), evenly(3000)}}};
  const EntrySamples alike{{"A", {crowded(5000, 700), evenly(3000, 700)}}};
  const EntrySamples others{{"A", {evenly(5000), crowded(3000)}}};
  const Cuts cuts = balanced(plan, first);
  EXPECT_EQ(balanced_cuts(plan, 4, alike, 0, cuts), cuts);
  EXPECT_NE(balanced_cuts(plan, 4, others, 0, cuts), cuts);
}

TEST(BalancedCuts, ClassesHaveTheCutsOfStoredInputs) {
  const Plan plan = plan_of(kProduct);
  const EntrySamples samples{{"A", {crowded(5000), crowded(3000)}}};
  const CutPoints stored{0, 100, 200, 300, 3000};
  const auto with = [&](const std::vector<CutPoints>& of_x) {
    return balanced_cuts(plan, 4, samples, 0, even_cuts(plan, 4), {{"X", of_x}, {"unknown", {}}});
  };
  const Cuts cuts = with({stored, {}});
  EXPECT_EQ(cuts.at("X").axes[0].cuts, stored);
  EXPECT_EQ(cuts.at("A").axes[1].cuts, stored);
  EXPECT_EQ(cuts.at("A").axes[0], balanced(plan, samples).at("A").axes[0]);
  // In as many parts, of all of the axis.
  EXPECT_EQ(with({{0, 1500, 3000}, {}}), balanced(plan, samples));
  EXPECT_EQ(with({{0, 100, 200, 300, 3001}, {}}), balanced(plan, samples));
  EXPECT_THROW(with({stored}), PlanError);
}

TEST(BalancedCuts, SamplesAreOfAllAxes) {
  const Plan plan = plan_of(kProduct);
  EXPECT_THROW(balanced(plan, {{"A", {crowded(5000)}}}), PlanError);
}

}  // namespace
}  // namespace joinsum::einsum
