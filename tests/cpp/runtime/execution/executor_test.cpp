#include "runtime/execution/executor.h"

#include <algorithm>
#include <mutex>

#include <gtest/gtest.h>

#include "ia/analysis/exchange.h"
#include "ia/interpret.h"
#include "ia/text.h"
#include "kernels/dense/dense.h"
#include "random_physical_plans.h"
#include "runtime/communication/memory_group.h"
#include "runtime/test_store.h"
#include "tra/lower.h"

namespace joinsum::runtime::execution {
namespace {

using communication::make_loopback;
using storage::Ownership;
using storage::place_tensor;
using storage::place_tuples;
using storage::StoredRelation;
using storage::tuples;
using storage::whole_tensor;
using testing::make_test_store;

at::Tensor tensor_of(const kernels::reference::Array& array, DType dtype) {
  return at::tensor(array.values, at::kDouble).reshape(array.shape).to(kernels::dense::scalar_type(dtype));
}

std::vector<std::pair<Key, at::Tensor>> tensors_of(const ia::Contents& contents, DType dtype) {
  std::vector<std::pair<Key, at::Tensor>> out;
  for (const auto& [key, array] : contents) out.emplace_back(key, tensor_of(array, dtype));
  return out;
}

std::map<std::string, StoredRelation> placed(const ia::Plan& plan, const std::map<std::string, ia::Contents>& contents,
                                             Executor& executor) {
  std::map<std::string, StoredRelation> inputs;
  for (const auto& node : plan.inputs()) {
    const std::string& name = node->as<ia::Input>()->name;
    const auto tuples = tensors_of(contents.at(name), node->type().relation.dtype);
    inputs.emplace(name, place_tuples(tuples, node->type(), executor.transport().local_sites(), executor.store(),
                                      Ownership::kCopied));
  }
  return inputs;
}

class Loopback {
 public:
  explicit Loopback(int64_t sites) : executor(make_loopback(sites), make_test_store()) {}

  RunResult run(const ia::Plan& plan, const std::map<std::string, ia::Contents>& contents) {
    try {
      return executor.run(plan, placed(plan, contents, executor));
    } catch (const std::exception& error) {
      throw Error(std::string(error.what()).substr(0, 300) + "\n" + plan.text());
    }
  }

  Executor executor;
};

std::vector<double> values(const at::Tensor& array) {
  const at::Tensor flat = array.to(at::kDouble).contiguous();
  return {flat.data_ptr<double>(), flat.data_ptr<double>() + flat.numel()};
}

void expect_equal(const ia::Relation& wanted, const StoredRelation& given, const std::string& text) {
  auto contents = ia::contents(wanted, *given.type);
  std::vector<std::pair<Key, at::Tensor>> found;
  ASSERT_NO_THROW(found = tuples(given)) << text;
  ASSERT_EQ(contents.size(), found.size()) << text;
  std::vector<std::pair<Key, std::vector<double>>> a;
  std::vector<std::pair<Key, std::vector<double>>> b;
  for (const auto& [key, array] : contents) a.emplace_back(key, array.values);
  for (const auto& [key, array] : found) b.emplace_back(key, values(array));
  std::sort(a.begin(), a.end());
  std::sort(b.begin(), b.end());
  EXPECT_EQ(a, b) << text;
}

TEST(Executor, RunsRandomPhysicalPlansAsTheInterpreterDoes) {
  for (uint64_t seed = 0; seed < 1500; ++seed) {
    joinsum::testing::RandomPhysicalPlans random(seed);
    const ia::Plan plan = random.plan();
    const auto inputs = random.inputs(plan);
    const std::string text = "seed " + std::to_string(seed) + "\n" + plan.text();
    const auto wanted = ia::interpret(plan, inputs);
    Loopback loopback(plan.grid().sites());
    const RunResult result = loopback.run(plan, inputs);
    for (const auto& [name, relation] : result.outputs) expect_equal(wanted.at(name), relation, text);
    int64_t bytes = 0;
    for (const auto& node : plan.order()) {
      if (node->as<ia::Broadcast>() == nullptr && node->as<ia::Shuffle>() == nullptr) continue;
      bytes += ia::analysis::wire_bytes(node->input(0)->type(), node->type());
    }
    EXPECT_EQ(loopback.executor.transport().counters().sent, bytes) << text;
    if (HasFailure()) return;
  }
}

/// Whether a key has one tuple, in each output.
bool unique(const ia::Plan& plan) {
  return std::all_of(plan.outputs().begin(), plan.outputs().end(),
                     [](const auto& output) { return output.node->type().relation.unique(); });
}

/// The values of an output by key, from the tuples that the ranks have, which must agree.
class RanksOutputs {
 public:
  void add(const std::string& name, const StoredRelation& relation) {
    const std::lock_guard lock(mutex_);
    std::map<Key, std::vector<double>>& found = found_[name];  // also of a relation without tuples
    for (const auto& [key, array] : tuples(relation)) {
      const auto [at, fresh] = found.emplace(key, values(array));
      EXPECT_EQ(at->second, values(array)) << name;
    }
  }
  const std::map<std::string, std::map<Key, std::vector<double>>>& found() const { return found_; }

 private:
  std::mutex mutex_;
  std::map<std::string, std::map<Key, std::vector<double>>> found_;
};

/// Under the thread sanitizer this looks for races between executors, their messages and the threads that watch them.
TEST(Executor, RunsRandomPhysicalPlansOnAThreadForEachRankAsTheInterpreterDoes) {
  int runs = 0;
  for (uint64_t seed = 0; runs < 40; ++seed) {
    joinsum::testing::RandomPhysicalPlans random(seed);
    const ia::Plan plan = random.plan();
    const auto ranks = static_cast<int>(plan.grid().sites());
    if (ranks < 2 || ranks > 4 || !unique(plan)) continue;
    const auto inputs = random.inputs(plan);
    RanksOutputs outputs;
    communication::testing::expect_no_errors(communication::testing::on_group(
        ranks,
        [&](communication::Transport& transport, int) {
          Executor executor({&transport, [](communication::Transport*) {}}, make_test_store());
          const RunResult result = executor.run(plan, placed(plan, inputs, executor));
          for (const auto& [name, relation] : result.outputs) outputs.add(name, relation);
          transport.agree("end", "");  // a rank that ends closes its connections
        },
        "gloo", runs % 2 == 0));
    const auto wanted = ia::interpret(plan, inputs);
    for (const auto& output : plan.outputs()) {
      std::map<Key, std::vector<double>> expected;
      for (const auto& [key, array] : ia::contents(wanted.at(output.name), output.node->type()))
        expected.emplace(key, array.values);
      EXPECT_EQ(outputs.found().at(output.name), expected) << "seed " << seed << "\n" << plan.text();
    }
    if (HasFailure()) return;
    ++runs;
  }
}

TEST(Executor, RunsLoweredRandomPlansAsTheLogicalInterpreterDoes) {
  for (uint64_t seed = 0; seed < 800; ++seed) {
    joinsum::testing::RandomPlans random(seed);
    const tra::Plan logical = random.plan();
    const ia::Grid grid = random.grid(8);
    const ia::Plan plan = tra::lower(logical, grid, random.placements(logical, grid));
    const auto inputs = random.relations(logical);
    const std::string text = "seed " + std::to_string(seed) + "\n" + plan.text();
    const auto wanted = ia::interpret(plan, inputs);
    Loopback loopback(grid.sites());
    const RunResult result = loopback.run(plan, inputs);
    for (const auto& [name, relation] : result.outputs) expect_equal(wanted.at(name), relation, text);
    if (HasFailure()) return;
  }
}

ia::Plan matmul_plan(const std::string& grid, const std::string& left, const std::string& right) {
  return ia::parse("ia on " + grid + "\ninput X: f64[100,50]<4,4> on " + grid + " " + left +
                   "\ninput W: f64[50,60]<4,4> on " + grid + " " + right +
                   "\noutput Z = broadcast(agg[0, 2; add](join[1; 0; matmul](X, W)))\n");
}

RunResult run_matmul(Executor& executor, const ia::Plan& plan, const at::Tensor& x, const at::Tensor& w) {
  std::map<std::string, StoredRelation> inputs;
  for (const auto& node : plan.inputs()) {
    const std::string& name = node->as<ia::Input>()->name;
    inputs.emplace(name, place_tensor(name == "X" ? x : w, node->type(), executor.transport().local_sites(),
                                      executor.store(), Ownership::kShared));
  }
  return executor.run(plan, inputs);
}

TEST(Executor, MultipliesMatricesWithOneCallPerSite) {
  const at::Tensor x = at::rand({100, 50}, at::kDouble);
  const at::Tensor w = at::rand({50, 60}, at::kDouble);
  for (const auto& [left, right] :
       {std::pair{"(0, 0)", "(*, *)"}, {"(1, 1)", "(0, 0)"}, {"(0, *)", "(*, 1)"}, {"(0, 1)", "(*, 0)"}}) {
    const ia::Plan plan = matmul_plan("2x2", left, right);
    Executor executor(make_loopback(4), make_test_store());
    const RunResult result = run_matmul(executor, plan, x, w);
    EXPECT_TRUE(at::allclose(whole_tensor(result.outputs.at("Z"), executor.store()), at::mm(x, w))) << left << right;
    int64_t gemm_calls = 0;
    for (const NodeTrace& node : result.trace.entries()) {
      if (node.operation.starts_with("local_aggregate")) gemm_calls += node.kernel_calls;
    }
    EXPECT_EQ(gemm_calls, 4) << left << right;
  }
}

TEST(Executor, ComputesWorkThatAllSitesRepeatOnce) {
  const ia::Plan plan = matmul_plan("2x2x2", "(*, *, *)", "(*, *, *)");
  Executor executor(make_loopback(8), make_test_store());
  const at::Tensor x = at::rand({100, 50}, at::kDouble);
  const RunResult result = run_matmul(executor, plan, x, at::rand({50, 60}, at::kDouble));
  for (const NodeTrace& node : result.trace.entries()) {
    if (node.operation.starts_with("local_aggregate")) {
      EXPECT_EQ(node.kernel_calls, 1);
    }
  }
}

TEST(Executor, OverwritesTiedInputsAndNothingElse) {
  const ia::Plan plan = ia::parse(
      "ia on 2\ninput W: f64[4,4]<2,1> on 2 (0)\ninput G: f64[4,4]<2,1> on 2 (0)\n"
      "output V -> W = join[0, 1; 0, 1; sub](W, G)\n");
  Executor executor(make_loopback(2), make_test_store());
  const auto& sites = executor.transport().local_sites();
  const at::Tensor w = at::rand({4, 4}, at::kDouble);
  const at::Tensor g = at::rand({4, 4}, at::kDouble);
  const at::Tensor kept = g.clone();
  std::map<std::string, StoredRelation> inputs;
  for (const auto& node : plan.inputs()) {
    const bool state = node->as<ia::Input>()->name == "W";
    inputs.emplace(state ? "W" : "G", place_tensor(state ? w : g, node->type(), sites, executor.store(),
                                                   state ? Ownership::kCopied : Ownership::kShared));
  }
  const void* before = inputs.at("W").sites.at(0)[0].memory();
  const RunResult result = executor.run(plan, inputs);
  EXPECT_EQ(result.outputs.at("V").sites.at(0)[0].memory(), before);
  EXPECT_TRUE(at::equal(whole_tensor(result.outputs.at("V"), executor.store()), w - g));
  EXPECT_TRUE(at::equal(g, kept));
}

/// The update of W by a product, with X and Y replicated or divided as their types say.
ia::Plan update_plan(const std::string& w, const std::string& a, const std::string& x) {
  return ia::parse("ia on 2\ninput W: " + w + "\ninput A: " + a + "\ninput X: " + x +
                   "\ninput S: f64[]<> on 2 (*)\n"
                   "g = aggregate[1, 2; add](join[0; 0; contract[ab,ac->bc]](A, X))\n"
                   "output V -> W = local_call[0; aten::addcmul; ab,ab, -> ab:f64; (%0{a,b}, %1{a,b}, %2{}) -> {a,b}; "
                   "flops=1 ab](W, g, S)\n");
}

TEST(Executor, AddsAProductToTheTiedInputItself) {
  const std::vector<ia::Plan> plans{
      update_plan("f64[5,7]<2,1> on 2 (0)", "f64[6,5]<1,2> on 2 (1)", "f64[6,7]<1,1> on 2 (*)"),
      update_plan("f64[5,7]<1,2> on 2 (1)", "f64[6,5]<1,1> on 2 (*)", "f64[6,7]<1,2> on 2 (1)"),
      update_plan("f64[5,7]<2,2> on 2 (1)", "f64[6,5]<3,2> on 2 (*)", "f64[6,7]<3,2> on 2 (1)"),
  };
  for (const ia::Plan& plan : plans) {
    Executor executor(make_loopback(2), make_test_store());
    std::map<std::string, at::Tensor> given{{"W", at::rand({5, 7}, at::kDouble)},
                                            {"A", at::rand({6, 5}, at::kDouble)},
                                            {"X", at::rand({6, 7}, at::kDouble)},
                                            {"S", at::full({}, -0.25, at::kDouble)}};
    std::map<std::string, StoredRelation> inputs;
    for (const auto& node : plan.inputs()) {
      const std::string& name = node->as<ia::Input>()->name;
      inputs.emplace(name, place_tensor(given.at(name), node->type(), executor.transport().local_sites(),
                                        executor.store(), Ownership::kCopied));
    }
    const void* before = inputs.at("W").sites.at(1)[0].memory();
    const at::Tensor wanted = given.at("W") - 0.25 * at::mm(given.at("A").t(), given.at("X"));
    const RunResult result = executor.run(plan, inputs);
    EXPECT_TRUE(at::allclose(whole_tensor(result.outputs.at("V"), executor.store()), wanted)) << plan.text();
    EXPECT_EQ(result.outputs.at("V").sites.at(1)[0].memory(), before);
    EXPECT_TRUE(at::equal(whole_tensor(inputs.at("A"), executor.store()), given.at("A")));
    EXPECT_TRUE(at::equal(whole_tensor(inputs.at("X"), executor.store()), given.at("X")));
  }
}

TEST(Executor, OverwritesTiedInputsByAllResultsOfOneCall) {
  const std::string call =
      "; joinsum::adam_update; a,a,a,a,,,,,, -> a:f32, a:f32, a:f32; (%0{a}, %1{a}, %2{a}, %3{a}, %4{}, %5{}, %6{}, "
      "%7{}, %8{}, %9{}, true, false) -> {a}, {a}, {a}; flops=1 a](P, G, M, V, N, N, N, N, N, N)\n";
  const ia::Plan plan = ia::parse(
      "ia on 2\ninput P: f32[6]<2> on 2 (0)\ninput G: f32[6]<2> on 2 (0)\ninput M: f32[6]<2> on 2 (0)\n"
      "input V: f32[6]<2> on 2 (0)\ninput N: f32[]<> on 2 (*)\noutput P2 -> P = local_call[0" +
      call + "output M2 -> M = local_call[1" + call + "output V2 -> V = local_call[2" + call);
  Executor executor(make_loopback(2), make_test_store());
  const auto& sites = executor.transport().local_sites();
  std::map<std::string, StoredRelation> inputs;
  for (const auto& node : plan.inputs()) {
    const std::string& name = node->as<ia::Input>()->name;
    const at::Tensor given = name == "N" ? at::full({}, 0.5, at::kFloat) : at::rand({6}, at::kFloat);
    inputs.emplace(name, place_tensor(given, node->type(), sites, executor.store(), Ownership::kCopied));
  }
  // The first run lets torch allocate the results.
  auto outputs = executor.run(plan, inputs).outputs;
  for (const std::string name : {"P", "M", "V"}) inputs.at(name) = std::move(outputs.at(name + "2"));
  std::map<std::string, const void*> before;
  for (const std::string name : {"P", "M", "V"}) before[name] = inputs.at(name).sites.at(1)[0].memory();
  outputs = executor.run(plan, inputs).outputs;
  for (const std::string name : {"P", "M", "V"}) {
    EXPECT_EQ(outputs.at(name + "2").sites.at(1)[0].memory(), before.at(name)) << name;
  }
}

TEST(Executor, AddsAProductToACopyOfWhatSomebodyElseSees) {
  const ia::Plan plan = update_plan("f64[5,7]<2,1> on 2 (0)", "f64[6,5]<1,2> on 2 (1)", "f64[6,7]<1,1> on 2 (*)");
  Executor executor(make_loopback(2), make_test_store());
  const at::Tensor w = at::rand({5, 7}, at::kDouble), kept = w.clone();
  std::map<std::string, StoredRelation> inputs;
  for (const auto& node : plan.inputs()) {
    const std::string& name = node->as<ia::Input>()->name;
    const std::map<std::string, at::Tensor> given{{"W", w},
                                                  {"A", at::ones({6, 5}, at::kDouble)},
                                                  {"X", at::ones({6, 7}, at::kDouble)},
                                                  {"S", at::ones({}, at::kDouble)}};
    const at::Tensor& array = given.at(name);
    inputs.emplace(name, place_tensor(array, node->type(), executor.transport().local_sites(), executor.store(),
                                      Ownership::kShared));
  }
  const RunResult result = executor.run(plan, inputs);
  EXPECT_TRUE(at::allclose(whole_tensor(result.outputs.at("V"), executor.store()), kept + 6));
  EXPECT_TRUE(at::equal(w, kept));
}

TEST(Executor, CountsABlockOnceThatIsOverwritten) {
  const ia::Plan plan =
      ia::parse("ia on 1\ninput X: f64[4,4]<1,1> on 1 ()\noutput Y = map[(k0, k1); negate](map[(k0, k1); exp](X))\n");
  Executor executor(make_loopback(1), make_test_store());
  const std::map<std::string, StoredRelation> inputs{
      {"X", place_tensor(at::rand({4, 4}, at::kDouble), plan.inputs()[0]->type(), {0}, executor.store(),
                         Ownership::kCopied)}};
  for (const NodeTrace& node : executor.run(plan, inputs).trace.entries()) {
    const int64_t blocks = node.operation == "X" ? 1 : 2;  // the input, and one that the second map overwrites
    EXPECT_EQ(node.peak_bytes, blocks * 128) << node.operation;
    EXPECT_EQ(node.site_bytes, blocks * 128) << node.operation;
  }
}

TEST(Executor, LeavesATiedInputAloneThatSomebodyElseSees) {
  const ia::Plan plan =
      ia::parse("ia on 1\ninput W: f64[4,4]<1,1> on 1 ()\noutput V -> W = map[(k0, k1); scale[2.0]](W)\n");
  Executor executor(make_loopback(1), make_test_store());
  const at::Tensor w = at::rand({4, 4}, at::kDouble);
  const at::Tensor kept = w.clone();
  const auto node = plan.inputs()[0];
  const std::map<std::string, StoredRelation> inputs{
      {"W", place_tensor(w, node->type(), {0}, executor.store(), Ownership::kShared)}};
  const RunResult result = executor.run(plan, inputs);
  EXPECT_TRUE(at::equal(whole_tensor(result.outputs.at("V"), executor.store()), kept * 2));
  EXPECT_TRUE(at::equal(w, kept));
}

TEST(Executor, DistinguishesPlansThatDifferOnlyInNamesAndTies) {
  const ia::Plan tied = ia::parse("ia on 1\ninput W: f64[4]<1> on 1 ()\noutput V -> W = map[(k0); scale[2.0]](W)\n");
  const ia::Plan free = ia::Plan::make({{"U", tied.outputs()[0].node, std::nullopt}});
  Executor executor(make_loopback(1), make_test_store());
  const auto at_start = [&] {
    return place_tensor(at::ones({4}, at::kDouble), tied.inputs()[0]->type(), {0}, executor.store(),
                        Ownership::kCopied);
  };
  for (int turn = 0; turn < 3; ++turn) {
    const std::map<std::string, StoredRelation> inputs{{"W", at_start()}};
    EXPECT_TRUE(at::equal(whole_tensor(executor.run(free, inputs).outputs.at("U"), executor.store()),
                          at::full({4}, 2.0, at::kDouble)));
    EXPECT_TRUE(at::equal(whole_tensor(inputs.at("W"), executor.store()), at::ones({4}, at::kDouble)));
    executor.run(tied, inputs);
    EXPECT_TRUE(at::equal(whole_tensor(inputs.at("W"), executor.store()), at::full({4}, 2.0, at::kDouble)));
  }
}

TEST(Executor, RunsMorePlansInTurnThanItCaches) {
  Executor executor(make_loopback(1), make_test_store());
  for (int turn = 0; turn < 2; ++turn) {
    for (int n = 0; n < 100; ++n) {
      const ia::Plan plan = ia::parse("ia on 1\ninput X: f64[4]<1> on 1 ()\noutput Z = map[(k0); scale[" +
                                      std::to_string(n) + ".0]](X)\n");
      const std::map<std::string, StoredRelation> inputs{
          {"X", place_tensor(at::ones({4}, at::kDouble), plan.inputs()[0]->type(), {0}, executor.store(),
                             Ownership::kShared)}};
      const RunResult result = executor.run(plan, inputs);
      EXPECT_TRUE(at::equal(whole_tensor(result.outputs.at("Z"), executor.store()), at::full({4}, n, at::kDouble)));
      EXPECT_EQ(result.trace.entries().back().operation,
                ia::operation_text(plan.outputs()[0].node->operation(), plan.outputs()[0].node->type()));
    }
  }
}

TEST(Executor, FreesBlocksAfterTheirLastUse) {
  std::string text = "ia on 1\ninput X: f64[1000,1000]<1,1> on 1 ()\n";
  std::string last = "X";
  for (int i = 0; i < 20; ++i) {
    text += "a" + std::to_string(i) + " = join[0, 1; 0, 1; add](" + last + ", X)\n";
    last = "a" + std::to_string(i);
  }
  const ia::Plan plan = ia::parse(text + "output Z = " + last + "\n");
  Executor executor(make_loopback(1), make_test_store());
  const std::map<std::string, StoredRelation> inputs{
      {"X", place_tensor(at::ones({1000, 1000}, at::kDouble), plan.inputs()[0]->type(), {0}, executor.store(),
                         Ownership::kShared)}};
  const RunResult result = executor.run(plan, inputs);
  for (const NodeTrace& node : result.trace.entries()) EXPECT_LE(node.peak_bytes, 3 * 8'000'000) << node.node;
}

TEST(Executor, TracesTheBytesOfTheBusiestSite) {
  const ia::Plan plan =
      ia::parse("ia on 2\ninput W: f64[4]<2> on 2 (0)\nb = broadcast(W)\noutput V = map[(k0); negate](b)\n");
  Executor executor(make_loopback(2), make_test_store());
  const auto& sites = executor.transport().local_sites();
  const auto type = plan.inputs()[0]->type();
  const std::map<std::string, StoredRelation> inputs{
      {"W", place_tensor(at::ones({4}, at::kDouble), type, sites, executor.store(), Ownership::kCopied)}};
  const auto result = executor.run(plan, inputs);
  std::vector<int64_t> bytes;
  for (const NodeTrace& node : result.trace.entries()) bytes.push_back(node.site_bytes);
  // The input's share; with it all of it and the half that came; then its negation, written over it.
  EXPECT_EQ(bytes, (std::vector<int64_t>{16, 16 + 32 + 16, 16 + 32}));
}

TEST(Executor, NamesTheInputThatIsMissingOrWrong) {
  const ia::Plan plan = ia::parse("ia on 2\ninput X: f64[4]<2> on 2 (0)\noutput Z = broadcast(X)\n");
  Executor executor(make_loopback(2), make_test_store());
  try {
    executor.run(plan, {});
    FAIL();
  } catch (const PlanError& error) {
    EXPECT_STREQ(error.what(), "run: input is missing: input=X");
  }
  const auto other = ia::PhysicalType::placed("input", relation::RelationType::parse("f64[4]<1>"),
                                              ia::Grid::of_sites(2), ia::Placement::replicated(ia::Grid::of_sites(2)));
  const std::map<std::string, StoredRelation> inputs{
      {"X", place_tensor(at::ones({4}, at::kDouble), other, {0, 1}, executor.store(), Ownership::kShared)}};
  EXPECT_THROW(executor.run(plan, inputs), PlanError);
}

}  // namespace
}  // namespace joinsum::runtime::execution
