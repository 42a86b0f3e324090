#include "optimizer/optimizer.h"

#include <gtest/gtest.h>

#include "ia/interpret.h"
#include "random_plans.h"
#include "tra/interpret.h"
#include "tra/lower.h"
#include "tra/text.h"

namespace joinsum::optimizer {
namespace {

OptimizeOptions minimizing(Objective objective) {
  OptimizeOptions options;
  options.minimize = objective;
  return options;
}

/// Every input split along one key dimension on all axes.
InputPlacements starts(const tra::Plan& plan, const ia::Grid& grid, const std::map<std::string, int64_t>& dims) {
  InputPlacements out;
  for (const auto& input : plan.inputs()) {
    const std::string& name = input->as<tra::Input>()->name;
    if (const auto dim = dims.find(name); dim != dims.end())
      out.emplace(name, ia::fill(grid, {dim->second}, input->type().frontier));
  }
  return out;
}

const Candidate* named(const Optimized& found, const std::string& name) {
  for (const Candidate& candidate : found.candidates) {
    if (candidate.name == name) return &candidate;
  }
  return nullptr;
}

std::set<double> values(const Optimized& found) {
  std::set<double> out;
  for (const Candidate& candidate : found.candidates) out.insert(candidate.score.value);
  return out;
}

std::string network(int64_t points, int64_t features, int64_t hidden, int64_t labels, int64_t parts) {
  return concatenate("tra\ninput X: f32[", points, ",", features, "]<", parts, ",", parts, ">\ninput Y: f32[", points,
                     ",", labels, "]<", parts, ",", parts, ">\ninput W1: f32[", features, ",", hidden, "]<", parts, ",",
                     parts, ">\ninput W2: f32[", hidden, ",", labels, "]<", parts, ",", parts, R"(>
A1 = transform[relu](aggregate[0, 2; add](join[1; 0; matmul](X, W1)))
A2 = transform[sigmoid](aggregate[0, 2; add](join[1; 0; matmul](A1, W2)))
E2 = join[0, 1; 0, 1; sub](A2, Y)
G2 = aggregate[1, 2; add](join[0; 0; matmul_tn](A1, E2))
B1 = aggregate[0, 2; add](join[1; 1; matmul_nt](E2, W2))
E1 = join[0, 1; 0, 1; mul](transform[relu_derivative](A1), B1)
G1 = aggregate[1, 2; add](join[0; 0; matmul_tn](X, E1))
output V2 -> W2 = join[0, 1; 0, 1; sub](W2, transform[scale[0.1]](G2))
output V1 -> W1 = join[0, 1; 0, 1; sub](W1, transform[scale[0.1]](G1))
)");
}

TEST(Optimize, RediscoversTheFamiliesOfTable9) {
  struct Case {
    int64_t points, features, hidden, labels;
  };
  const ia::Grid grid = ia::Grid::of_sites(5);
  for (const Case& size : {Case{10000, 1600, 100000, 10}, Case{10000, 1600, 200000, 10},
                           Case{1000, 597540, 1000, 14588}, Case{1000, 597540, 7000, 14588}}) {
    const tra::Plan plan = tra::parse(network(size.points, size.features, size.hidden, size.labels, 5));
    const auto data = optimize(plan, grid, starts(plan, grid, {{"X", 0}, {"Y", 0}, {"W1", 0}, {"W2", 0}}),
                               minimizing(Objective::kPaperFloats));
    const auto model = optimize(plan, grid, starts(plan, grid, {{"X", 1}, {"Y", 1}, {"W1", 0}, {"W2", 1}}),
                                minimizing(Objective::kPaperFloats));
    const double data_parallel = 6.0 * static_cast<double>((size.features + size.labels) * size.hidden);
    const double model_parallel = 2.0 * 5 * static_cast<double>(size.points * size.hidden);
    EXPECT_TRUE(values(data).contains(data_parallel)) << data_parallel << ::testing::PrintToString(values(data));
    EXPECT_TRUE(values(model).contains(model_parallel)) << model_parallel << ::testing::PrintToString(values(model));
    EXPECT_LE(data.candidates[0].score.value, data_parallel);
    EXPECT_LE(model.candidates[0].score.value, model_parallel);
  }
}

TEST(Optimize, SplitsTheHiddenDimensionWhereThatMovesLeast) {
  const ia::Grid grid = ia::Grid::of_sites(4);
  const tra::Plan plan = tra::parse(network(10000, 1600, 100000, 10, 4));
  const auto found = optimize(plan, grid, {}, minimizing(Objective::kWireBytes));
  const auto data = optimize(plan, grid, starts(plan, grid, {{"X", 0}, {"Y", 0}, {"W1", 0}, {"W2", 0}}),
                             minimizing(Objective::kWireBytes));
  // One all-reduce of the scores A2, N x L.
  EXPECT_EQ(found.candidates[0].score.value, 2.0 * 3 * 10000 * 10 * 4);
  ASSERT_NE(named(data, "divide X[0]"), nullptr);
  EXPECT_LT(found.candidates[0].score.value, named(data, "divide X[0]")->score.value / 100);
}

TEST(Optimize, FindsTheProductsOfTable4) {
  for (const int64_t sites : {5, 10, 12}) {
    const ia::Grid grid = ia::Grid::of_sites(sites);
    const auto parts = std::to_string(sites);
    const auto text = [&](const std::string& i, const std::string& k, const std::string& j) {
      return "tra\ninput A: f32[" + i + "," + k + "]<" + parts + "," + parts + ">\ninput B: f32[" + k + "," + j + "]<" +
             parts + "," + parts + ">\noutput C = aggregate[0, 2; add](join[1; 0; matmul](A, B))\n";
    };
    const tra::Plan general = tra::parse(text("40000", "40000", "40000"));
    const double f = 1.6e9;
    const auto rows =
        optimize(general, grid, starts(general, grid, {{"A", 0}, {"B", 0}}), minimizing(Objective::kPaperFloats));
    EXPECT_TRUE(values(rows).contains(static_cast<double>(sites) * f)) << ::testing::PrintToString(values(rows));
    const tra::Plan common = tra::parse(text("10000", "640000", "10000"));
    const auto cross =
        optimize(common, grid, starts(common, grid, {{"A", 1}, {"B", 0}}), minimizing(Objective::kWireBytes));
    // Partials of all sites are scattered: (s - 1) copies of C.
    EXPECT_EQ(cross.candidates[0].score.value, static_cast<double>(sites - 1) * 1e8 * 4);
    for (const char* family : {"divide A[0]", "divide A[1]", "divide B[1]"}) {
      const bool there = std::any_of(cross.candidates.begin(), cross.candidates.end(), [&](const Candidate& candidate) {
        return candidate.name.find(family) != std::string::npos || candidate.name == "placement";
      });
      EXPECT_TRUE(there) << family;
    }
  }
}

/// Whatever the program, the sites and the starts: the best plan means what the program means, and is no dearer than
/// the translation operator by operator.
TEST(Optimize, KeepsTheMeaningOfRandomPrograms) {
  for (uint64_t seed = 0; seed < 150; ++seed) {
    testing::RandomPlans random(seed);
    const tra::Plan plan = random.plan(5);
    const ia::Grid grid = random.grid(6);
    const InputPlacements inputs = random.placements(plan, grid);
    const auto contents = random.relations(plan);
    const auto wanted = tra::interpret(plan, contents);
    for (const Objective objective : {Objective::kWireBytes, Objective::kPaperFloats, Objective::kSeconds}) {
      const Optimized found = optimize(plan, grid, inputs, minimizing(objective));
      const ia::Plan& best = found.candidates[0].plan;
      const auto results = ia::interpret(best, contents);
      for (const auto& output : best.outputs()) {
        const auto got = ia::contents(results.at(output.name), output.node->type());
        ASSERT_TRUE(got == wanted.at(output.name)) << "seed " << seed << "\n" << plan.text() << best.text();
      }
      const ia::Plan lowered = tra::lower(plan, grid, inputs);
      Pricer pricer(objective, {});
      ASSERT_FALSE(pricer.score(lowered) < found.candidates[0].score) << "seed " << seed;
    }
  }
}

TEST(Optimize, RefusesUnknownPhasesAndRules) {
  const tra::Plan plan = tra::parse("tra\ninput X: f32[4]<2>\noutput Y = X\n");
  OptimizeOptions options;
  options.without = {"plalcement"};
  EXPECT_THROW(optimize(plan, ia::Grid::of_sites(2), {}, options), PlanError);
  options.without = {"lower", "placement"};
  EXPECT_THROW(optimize(plan, ia::Grid::of_sites(2), {}, options), PlanError);
  EXPECT_THROW(objective_named("bytes"), PlanError);
}

TEST(Optimize, StopsAtTheDeadlineWithAPlan) {
  const tra::Plan plan = tra::parse(network(1000, 600, 100, 40, 4));
  OptimizeOptions options;
  options.seconds = 0;
  const Optimized found = optimize(plan, ia::Grid::of_sites(4), {}, options);
  EXPECT_TRUE(found.out_of_time);
  EXPECT_FALSE(found.candidates.empty());
}

}  // namespace
}  // namespace joinsum::optimizer
