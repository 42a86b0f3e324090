// What the optimizer finds by itself, from the logical programs of the TRA paper's experiments and the layouts that its
// plans start from: the families of Tables 4, 6 and 9, at their printed costs. tables_test.cpp prices the plans as the
// paper writes them.

#include <algorithm>
#include <limits>
#include <optional>
#include <set>

#include <gtest/gtest.h>

#include "ia/text.h"
#include "optimizer/cost/cost.h"
#include "optimizer/optimizer.h"
#include "optimizer/paper_programs.h"

namespace joinsum {
namespace {

using optimizer::Optimized;
using optimizer::cost::Objective;
using testing::minimizing;
using testing::starts;
using testing::values;

bool costs(const Optimized& found, double value) { return values(found).contains(value); }

// --- Table 4 ---------------------------------------------------------------------------------------------------------

/// A of I x K times B of K x J.
struct Product {
  int64_t i = 0;
  int64_t k = 0;
  int64_t j = 0;

  double left() const { return static_cast<double>(i * k); }
  double right() const { return static_cast<double>(k * j); }
  double result() const { return static_cast<double>(i * j); }
  tra::Plan program(const std::string& a_parts, const std::string& b_parts) const {
    return testing::product(i, k, j, a_parts, b_parts);
  }
  tra::Plan program(int64_t parts) const {
    return program(concatenate(parts, ",", parts), concatenate(parts, ",", parts));
  }
};

constexpr Product kProducts[] = {{40'000, 40'000, 40'000}, {10'000, 640'000, 10'000}, {80'000, 10'000, 80'000}};
constexpr int64_t kSites[] = {5, 10, 12};

TEST(Rediscovery, BroadcastBasedProductsCostWhatTable4Prints) {
  for (const int64_t sites : kSites) {
    const ia::Grid grid = ia::Grid::of_sites(sites);
    for (const Product& product : kProducts) {
      const tra::Plan program = product.program(sites);
      const auto found =
          optimize(program, grid, starts(program, grid, {{"A", 0}, {"B", 0}}), minimizing(Objective::kPaperFloats));
      EXPECT_TRUE(costs(found, static_cast<double>(sites) * product.right()))
          << sites << ::testing::PrintToString(values(found));
    }
  }
}

/// The printed plan shuffles the partial products of all sites and adds them up afterwards; rule R2-5 would add first.
TEST(Rediscovery, CrossProductsCostWhatTable4Prints) {
  for (const int64_t sites : kSites) {
    const ia::Grid grid = ia::Grid::of_sites(sites);
    for (const Product& product : kProducts) {
      const tra::Plan program = product.program(sites);
      auto options = minimizing(Objective::kPaperFloats);
      const auto placed = starts(program, grid, {{"A", 1}, {"B", 0}});
      const double added_first = optimize(program, grid, placed, options).candidates[0].score.value;
      options.without = {"R2-5"};
      const auto found = optimize(program, grid, placed, options);
      EXPECT_TRUE(costs(found, static_cast<double>(sites) * product.result()))
          << sites << ::testing::PrintToString(values(found));
      EXPECT_LE(added_first, product.result());
    }
  }
}

/// p x 1 x p voxels; 5 x 1 x 5 on 10 sites are the printed ones. 5 sites have one axis, which divides the rows of A as
/// they lie: only B is copied.
TEST(Rediscovery, ReplicationBasedProductsCostWhatTable4Prints) {
  for (const auto& [sites, p] : {std::pair<int64_t, int64_t>{5, 5}, {10, 5}, {12, 6}}) {
    const ia::Grid grid = ia::Grid::of_sites(sites);
    for (const Product& product : kProducts) {
      const tra::Plan program = product.program(concatenate(p, ",1"), concatenate("1,", p));
      const auto found =
          optimize(program, grid, starts(program, grid, {{"A", 0}, {"B", 1}}), minimizing(Objective::kPaperFloats));
      const double copied = grid.rank() == 1 ? product.right() : product.left() + product.right();
      EXPECT_TRUE(costs(found, static_cast<double>(p) * copied)) << sites << ::testing::PrintToString(values(found));
    }
  }
}

/// Wire bytes of a product as the paper writes it, A and B lying by rows.
double wire_bytes(const Product& product, const ia::Grid& grid, int64_t parts, const std::string& plan) {
  std::string rows;
  for (int64_t axis = 0; axis < grid.rank(); ++axis) rows += axis == 0 ? "0" : ", 0";
  const auto input = [&](const char* name, int64_t height, int64_t width) {
    return concatenate("input ", name, ": f32[", height, ",", width, "]<", parts, ",", parts, "> (", rows, ")\n");
  };
  const ia::Plan parsed = ia::parse("ia on " + grid.text() + "\n" + input("A", product.i, product.k) +
                                    input("B", product.k, product.j) + plan);
  return static_cast<double>(optimizer::cost::plan_cost(parsed).wire_bytes);
}

TEST(Rediscovery, TheThreeFamiliesOfProductsAreFoundFromOneStart) {
  for (const int64_t sites : kSites) {
    const ia::Grid grid = ia::Grid::of_sites(sites);
    for (const Product& product : kProducts) {
      const tra::Plan program = product.program(sites);
      const auto found =
          optimize(program, grid, starts(program, grid, {{"A", 0}, {"B", 0}}), minimizing(Objective::kWireBytes));
      const double broadcast_based =
          wire_bytes(product, grid, sites, "output C = agg[0, 2; add](join[1; 0; matmul](A, broadcast(B)))\n");
      const double cross_product = wire_bytes(
          product, grid, sites, "output C = shuffle[0](agg[0, 2; add](join[1; 0; matmul](shuffle[1](A), B)))\n");
      const double replication_based =
          wire_bytes(product, grid, sites,
                     concatenate("A3 = shuffle[0, 2](map[", sites, ": (k0, k1, m); duplicate](A))\n",
                                 "B3 = shuffle[0, 2](map[", sites, ": (m, k0, k1); duplicate](B))\n",
                                 "output C = agg[0, 2; add](join[0, 1, 2; 0, 1, 2; matmul](A3, B3))\n"));
      EXPECT_EQ(broadcast_based, static_cast<double>(sites - 1) * product.right() * 4);
      for (const double family : {broadcast_based, cross_product, replication_based}) {
        EXPECT_TRUE(costs(found, family)) << sites << " " << family << ::testing::PrintToString(values(found));
      }
    }
  }
}

/// The least wire bytes of all ways to let each axis of the grid divide i, k or j, and to reduce what is then pending
/// by i or by j.
class Grids {
 public:
  Grids(const Product& product, const ia::Grid& grid, int64_t parts) : product_(product), grid_(grid), parts_(parts) {}

  double least() {
    divide({}, {}, {}, {});
    return least_;
  }

 private:
  static std::string placement(const std::vector<std::string>& states) {
    std::string out;
    for (const std::string& state : states) out += (out.empty() ? "(" : ", ") + state;
    return out + ")";
  }

  void divide(std::vector<std::string> a, std::vector<std::string> b, std::vector<std::string> made,
              std::vector<std::string> reduced) {
    if (static_cast<int64_t>(a.size()) == grid_.rank()) {
      const std::string product = "J = agg[0, 2; add](join[1; 0; matmul](shuffle[" + placement(a) + "](A), shuffle[" +
                                  placement(b) + "](B)))\n";
      const std::string output =
          made == reduced ? "output C = J\n" : "output C = shuffle[" + placement(reduced) + "](J)\n";
      least_ = std::min(least_, wire_bytes(product_, grid_, parts_, product + output));
      return;
    }
    const auto with = [](std::vector<std::string> states, const char* state) {
      states.emplace_back(state);
      return states;
    };
    divide(with(a, "0"), with(b, "*"), with(made, "0"), with(reduced, "0"));
    divide(with(a, "*"), with(b, "1"), with(made, "1"), with(reduced, "1"));
    divide(with(a, "1"), with(b, "0"), with(made, "+"), with(reduced, "0"));
    divide(with(a, "1"), with(b, "0"), with(made, "+"), with(reduced, "1"));
  }

  const Product& product_;
  const ia::Grid& grid_;
  int64_t parts_;
  double least_ = std::numeric_limits<double>::infinity();
};

TEST(Rediscovery, TheBestProductByWireBytesHasTheBestGrid) {
  for (const int64_t sites : kSites) {
    const ia::Grid grid = ia::Grid::of_sites(sites);
    for (const Product& product : kProducts) {
      const tra::Plan program = product.program(sites);
      const auto found =
          optimize(program, grid, starts(program, grid, {{"A", 0}, {"B", 0}}), minimizing(Objective::kWireBytes));
      EXPECT_EQ(found.candidates[0].score.value, Grids(product, grid, sites).least()) << sites;
    }
  }
}

// --- Table 6 ---------------------------------------------------------------------------------------------------------

/// Key dimension of the joined points and features that all axes divide where the points meet the metric; none where
/// they divide several.
std::optional<int64_t> divided_by_product(const ia::Plan& plan) {
  for (const ia::NodePtr& node : plan.order()) {
    const auto* join = node->as<ia::LocalJoin>();
    if (join == nullptr || join->kernel.name != "matmul") continue;
    std::set<int64_t> dims;
    for (const ia::AxisState& state : node->type().placement.grid()->states) {
      const auto* split = std::get_if<ia::Split>(&state);
      dims.insert(split != nullptr ? split->dim : -1);
    }
    if (dims.size() == 1) return *dims.begin();
  }
  return std::nullopt;
}

constexpr int64_t kMachines = 8;

double horizontal(int64_t, int64_t d) { return static_cast<double>(kMachines * d * d + kMachines * d); }
double vertical(int64_t n, int64_t d) { return static_cast<double>(kMachines * (n * d + d + n)); }

/// By points where there are many points, by features where there are many features.
TEST(Rediscovery, NearestNeighbourDividesPointsOfTheFirstShapeAndFeaturesOfTheSecond) {
  struct Shape {
    int64_t n, d;
    double printed;
    int64_t divided;
  };
  for (const Shape& shape :
       {Shape{1'500'000, 6'000, horizontal(1'500'000, 6'000), 0}, Shape{6'000, 100'000, vertical(6'000, 100'000), 1}}) {
    const tra::Plan program = testing::neighbours_program(shape.n, shape.d, "8,8", kMachines);
    for (const ia::Grid& grid : {ia::Grid::of_sites(kMachines), ia::Grid{{kMachines}}}) {
      const auto placed = starts(program, grid, {{"X", shape.divided}, {"Q", 0}, {"M", 0}});
      const auto paper = optimize(program, grid, placed, minimizing(Objective::kPaperFloats));
      EXPECT_EQ(divided_by_product(paper.candidates[0].plan), shape.divided) << paper.candidates[0].plan.text();
      EXPECT_LE(paper.candidates[0].score.value, shape.printed);
      for (const auto& start : {placed, starts(program, grid, {{"X", 0}, {"Q", 0}, {"M", 0}})}) {
        const auto wire = optimize(program, grid, start, minimizing(Objective::kWireBytes));
        EXPECT_EQ(divided_by_product(wire.candidates[0].plan), shape.divided) << wire.candidates[0].plan.text();
      }
    }
  }
}

/// The paper's sites have no axes. Along several, the rule charges a broadcast in stages less than one at once.
TEST(Rediscovery, TheHorizontalPlanCostsWhatTable6Prints) {
  const ia::Grid grid{{kMachines}};
  const tra::Plan program = testing::neighbours_program(1'500'000, 6'000, "8,8", kMachines);
  const auto found = optimize(program, grid, starts(program, grid, {{"X", 0}, {"Q", 0}, {"M", 0}}),
                              minimizing(Objective::kPaperFloats));
  EXPECT_EQ(found.candidates[0].score.value, horizontal(1'500'000, 6'000));
}

// --- Table 9 ---------------------------------------------------------------------------------------------------------

struct Network {
  int64_t points, features, hidden, labels;

  tra::Plan program(int64_t parts) const { return testing::network(points, features, hidden, labels, parts); }
  double data_parallel() const { return 6.0 * static_cast<double>((features + labels) * hidden); }
  double model_parallel() const { return 2.0 * 5 * static_cast<double>(points * hidden); }
};

std::vector<Network> printed_networks() {
  std::vector<Network> out;
  for (const int64_t hidden : {100'000, 150'000, 200'000}) out.push_back({10'000, 1'600, hidden, 10});
  for (const int64_t hidden : {1'000, 3'000, 5'000, 7'000}) out.push_back({1'000, 597'540, hidden, 14'588});
  return out;
}

TEST(Rediscovery, DataAndModelParallelStepsCostWhatTable9Prints) {
  const ia::Grid grid = ia::Grid::of_sites(5);
  for (const Network& net : printed_networks()) {
    const tra::Plan plan = net.program(5);
    const auto data = optimize(plan, grid, starts(plan, grid, {{"X", 0}, {"Y", 0}, {"W1", 0}, {"W2", 0}}),
                               minimizing(Objective::kPaperFloats));
    const auto model = optimize(plan, grid, starts(plan, grid, {{"X", 1}, {"Y", 1}, {"W1", 0}, {"W2", 1}}),
                                minimizing(Objective::kPaperFloats));
    EXPECT_TRUE(costs(data, net.data_parallel())) << ::testing::PrintToString(values(data));
    EXPECT_TRUE(costs(model, net.model_parallel())) << ::testing::PrintToString(values(model));
    EXPECT_LE(data.candidates[0].score.value, net.data_parallel());
    EXPECT_LE(model.candidates[0].score.value, net.model_parallel());
  }
}

TEST(Rediscovery, TheHiddenDimensionIsSplitWhereThatMovesLeast) {
  const ia::Grid grid = ia::Grid::of_sites(4);
  const tra::Plan plan = testing::network(10'000, 1'600, 100'000, 10, 4);
  const auto found = optimize(plan, grid, {}, minimizing(Objective::kWireBytes));
  const auto data = optimize(plan, grid, starts(plan, grid, {{"X", 0}, {"Y", 0}, {"W1", 0}, {"W2", 0}}),
                             minimizing(Objective::kWireBytes));
  // One all-reduce of the scores A2, N x L.
  EXPECT_EQ(found.candidates[0].score.value, 2.0 * 3 * 10'000 * 10 * 4);
  const auto parallel = std::find_if(data.candidates.begin(), data.candidates.end(),
                                     [](const auto& candidate) { return candidate.name == "divide X[0]"; });
  ASSERT_NE(parallel, data.candidates.end());
  EXPECT_LT(found.candidates[0].score.value, parallel->score.value / 100);
}

}  // namespace
}  // namespace joinsum
