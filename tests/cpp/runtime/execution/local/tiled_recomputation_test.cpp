#include "runtime/execution/local/tiled_recomputation.h"

#include <limits>

#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include "einsum/gradients/gradient.h"
#include "einsum/lower.h"
#include "einsum/transforms/binary.h"
#include "ia/text.h"
#include "kernels/dense/dense.h"
#include "random_einsums.h"
#include "random_plans.h"
#include "runtime/execution/executor.h"
#include "runtime/test_store.h"
#include "tra/lower.h"

namespace joinsum::runtime::execution::local {
namespace {

using communication::make_loopback;
using storage::Ownership;
using storage::place_tensor;
using storage::place_tuples;
using storage::StoredRelation;
using storage::tuples;
using storage::whole_tensor;
using testing::make_test_store;

/// A random graph of einsums, or of its gradients, on random sites.
struct Drawn {
  ia::Plan plan;
  std::map<std::string, tra::Relation> inputs;
};

Drawn draw(uint64_t seed) {
  einsum::RandomEinsums einsums(seed);
  joinsum::testing::RandomPlans random(seed);
  einsum::Plan graph = einsums.plan({.differentiable = seed % 2 == 0, .expressions = seed % 3 == 0});
  if (seed % 2 == 0) {
    std::vector<std::string> names;
    for (const auto& input : graph.inputs()) names.push_back(input->as<einsum::Input>()->name);
    graph = einsum::gradients::gradient(graph, names);
  } else {
    graph = einsum::transforms::binary(graph);
  }
  graph = einsum::transforms::binary(graph);
  const ia::Grid grid = random.grid(6);
  const tra::Plan logical = einsum::lower(graph, einsum::even_cuts(graph, random.chance(50) ? grid.sites() : 2));
  return Drawn{tra::lower(logical, grid, random.placements(logical, grid)), random.relations(logical)};
}

std::map<std::string, StoredRelation> run(const Drawn& drawn, int64_t most_joined_bytes) {
  const auto store = make_test_store();
  Executor executor(make_loopback(drawn.plan.grid().sites()), store, most_joined_bytes);
  std::map<std::string, StoredRelation> inputs;
  for (const auto& node : drawn.plan.inputs()) {
    const std::string& name = node->as<ia::Input>()->name;
    std::vector<std::pair<Key, at::Tensor>> tensors;
    for (const auto& [key, array] : drawn.inputs.at(name)) {
      tensors.emplace_back(key, at::tensor(array.values, at::kDouble).reshape(array.shape));
    }
    inputs.emplace(name,
                   place_tuples(tensors, node->type(), executor.transport().local_sites(), *store, Ownership::kCopied));
  }
  return executor.run(drawn.plan, inputs).outputs;
}

TEST(TiledRecomputation, ReducesAsMaterializedValuesDo) {
  const auto store = make_test_store();
  int64_t recomputed = 0;
  for (uint64_t seed = 0; seed < 600; ++seed) {
    const Drawn drawn = draw(seed);
    const ia::analysis::Materialization materialization(drawn.plan, 0);
    for (const auto& node : drawn.plan.order()) recomputed += materialization.recomputed(*node) ? 1 : 0;
    const auto wanted = run(drawn, std::numeric_limits<int64_t>::max());
    const auto given = run(drawn, 0);
    for (const auto& [name, relation] : wanted) {
      const auto a = tuples(relation), b = tuples(given.at(name));
      ASSERT_EQ(a.size(), b.size());
      for (size_t i = 0; i < a.size(); ++i) {
        ASSERT_EQ(a[i].first, b[i].first);
        ASSERT_TRUE(at::allclose(a[i].second, b[i].second, 1e-11, 1e-11, true)) << "seed " << seed << "\n"
                                                                                << drawn.plan.text() << name << "\n"
                                                                                << a[i].second << b[i].second;
      }
    }
  }
  EXPECT_GT(recomputed, 100);
}

/// Blocks of all axes, on one thread and on several.
TEST(TiledRecomputation, GoesThroughLargeArraysByBlocks) {
  const ia::Plan plan = ia::parse(R"(ia on 1
input X: f64[150,170]<> on 1 ()
input Y: f64[190,170]<> on 1 ()
x = map[(); insert_dim[1]](X)
j = join[; ; abs_difference](x, Y)
output Z = map[(); reduce_max[abc->ab]](j)
output V = map[(); reduce_add[abc->bc]](j)
output S = map[(); reduce_add[abc->]](j)
)");
  const at::Tensor x = at::randint(-9, 10, {150, 170}, at::kDouble), y = at::randint(-9, 10, {190, 170}, at::kDouble);
  const at::Tensor joined = (x.unsqueeze(1) - y.unsqueeze(0)).abs();
  const int before = at::get_num_threads();
  for (const int threads : {1, 3}) {
    at::set_num_threads(threads);
    const auto store = make_test_store();
    Executor executor(make_loopback(1), store, 0);
    std::map<std::string, StoredRelation> inputs;
    for (const auto& node : plan.inputs()) {
      const std::string& name = node->as<ia::Input>()->name;
      inputs.emplace(name, place_tensor(name == "X" ? x : y, node->type(), {0}, *store, Ownership::kShared));
    }
    const RunResult result = executor.run(plan, inputs);
    EXPECT_TRUE(at::equal(whole_tensor(result.outputs.at("Z"), *store), joined.amax(2)));
    EXPECT_TRUE(at::equal(whole_tensor(result.outputs.at("V"), *store), joined.sum(0)));
    EXPECT_TRUE(at::equal(whole_tensor(result.outputs.at("S"), *store), joined.sum()));
    for (const NodeTrace& node : result.trace.entries()) EXPECT_LT(node.peak_bytes, joined.nbytes() / 10) << node.node;
  }
  at::set_num_threads(before);
}

}  // namespace
}  // namespace joinsum::runtime::execution::local
