#include "optimizer/cost/cost.h"

#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include "ia/analysis/exchange.h"
#include "ia/analysis/materialization.h"
#include "ia/analysis/schedule.h"
#include "ia/text.h"
#include "kernels/table/table.h"
#include "optimizer/cost/priced_plans.h"
#include "random_plans.h"
#include "tra/lower.h"

namespace joinsum::optimizer::cost {
namespace {

using testing::RandomPlans;

TEST(Cost, PricesAProductByHand) {
  const PlanCost cost = cost_of(kProduct);
  ASSERT_EQ(cost.nodes.size(), 5u);
  const NodeCost& broadcast = node_named(cost, "t0");
  EXPECT_EQ(broadcast.operation, "broadcast[0]");
  EXPECT_EQ(broadcast.paper_floats, 24 * 2);
  EXPECT_EQ(broadcast.wire_bytes, 2 * 12 * 4);
  EXPECT_DOUBLE_EQ(broadcast.seconds, 5e-5 + 48 / 1.25e9);
  EXPECT_EQ(node_named(cost, "t1").flops, 2 * 4 * 6 * 4);
  EXPECT_EQ(node_named(cost, "t2").flops, 0) << "the sum is part of the product";
  EXPECT_EQ(cost.paper_floats, 48);
  EXPECT_EQ(cost.wire_bytes, 96);
  EXPECT_EQ(cost.flops, 192);
  EXPECT_DOUBLE_EQ(cost.seconds, 5e-5 + 48 / 1.25e9 + 192 / 1e11);
}

TEST(Cost, CountsAJoinThatIsUsedTwiceAndItsSum) {
  const PlanCost shared = cost_of(R"(ia on 2
input A: f32[8,6]<2,2> (0)
input B: f32[6,4]<2,1> (*)
J = join[1; 0; matmul](A, B)
output Y = J
output Z = agg[0, 2; add](J)
)");
  EXPECT_EQ(node_named(shared, "t0").flops, 192);
  EXPECT_EQ(node_named(shared, "t1").flops, 4 * 4) << "one call per tuple beyond the first";
}

TEST(Cost, CountsTheBusiestSite) {
  const PlanCost cost = cost_of("ia on 2\ninput A: f32[5]<5> (0)\noutput Z = map[(k0); sigmoid](A)\n");
  EXPECT_EQ(cost.flops, 3 * 4);
}

TEST(Cost, ChargesByTheFrontierWhateverIsThere) {
  const char* text = R"(ia on 2x2
input A: f32[3]<4,5> (0, 1)
F = filter[k0 != 1](A)
output Z = broadcast[1](F)
output Y = shuffle[(1, 0)](F)
)";
  const PlanCost cost = cost_of(text);
  EXPECT_EQ(node_named(cost, "t1").paper_floats, 4 * 5 * 3 * 2);
  EXPECT_EQ(node_named(cost, "t2").paper_floats, 4 * 5 * 3);
  // Rows 0, 2, 3 of five tuples; sites of one row lack what the other one has.
  EXPECT_EQ(node_named(cost, "t1").wire_bytes, 3 * 5 * 3 * 4);
}

TEST(Cost, ChargesNothingForLocalOperators) {
  const PlanCost cost = cost_of("ia on 2\ninput A: f32[8]<4> (0)\noutput Z = agg[; add](map[(k0); relu](A))\n");
  EXPECT_EQ(cost.paper_floats, 0);
  EXPECT_EQ(cost.wire_bytes, 0);
}

TEST(Cost, CountsReductionsOfPartials) {
  const PlanCost split = cost_of(std::string(kPartials) + "output Z = shuffle[0](P)\n");
  EXPECT_EQ(node_named(split, "t1").flops, 1200);
  EXPECT_EQ(node_named(split, "t1").wire_bytes, 2400 * 4);
  EXPECT_EQ(node_named(split, "t1").paper_floats, 2400);
  EXPECT_DOUBLE_EQ(node_named(split, "t1").seconds, 5e-5 + 1200 * 4 / 1.25e9 + 1200 / 1e11);
}

TEST(Cost, AddsUpTheStagesOfAMove) {
  const PlanCost whole = cost_of(std::string(kPartials) + "output Z = broadcast(P)\n");
  EXPECT_EQ(whole.wire_bytes, 2 * 2400 * 4);
  EXPECT_DOUBLE_EQ(whole.seconds, 2 * (5e-5 + 1200 * 4 / 1.25e9) + 1200 / 1e11);
}

TEST(Cost, OfAMoveThatMovesNothingIsNothing) {
  const PlanCost cost = cost_of("ia on 2\ninput A: f32[8]<4> (*)\noutput Z = shuffle[0](A)\n");
  EXPECT_EQ(cost.wire_bytes, 0);
  EXPECT_EQ(cost.seconds, 0);
  EXPECT_EQ(cost.paper_floats, 8);
}

TEST(Cost, AnEstimateIsExactInBytesAndHasNoLimitOfMemory) {
  for (const char* input : {"ia on 2x2\ninput A: f32[512]<256> (0, 0)\n", "ia on 128\ninput A: f32[512]<256> (0)\n"}) {
    const ia::Plan plan = ia::parse(std::string(input) + "output Z = broadcast(A)\n");
    const PlanCost cost = plan_cost(plan);
    const PlanCost estimate = estimated_cost(plan, {.memory_bytes = 1});
    EXPECT_EQ(estimate.wire_bytes, cost.wire_bytes);
    EXPECT_EQ(estimate.paper_floats, cost.paper_floats);
    EXPECT_DOUBLE_EQ(estimate.seconds, cost.seconds);
    EXPECT_EQ(estimate.nodes.size(), plan.order().size());
  }
}

// --- against plain counting
// -------------------------------------------------------------------------------------------

/// Flops of one site, call by call.
int64_t flops_at(const ia::Node& node, int64_t site) {
  const auto here = node.inputs().empty() ? nullptr : node.input(0)->type().holding.keys(site);
  int64_t flops = 0;
  if (const auto* op = node.as<ia::LocalJoin>()) {
    const relation::RelationType& left = node.input(0)->type().relation;
    const relation::RelationType& right = node.input(1)->type().relation;
    const auto there = node.input(1)->type().holding.keys(site);
    for (const Key& a : *here) {
      for (const Key& b : *there) {
        if (project(a, op->left_keys) != project(b, op->right_keys)) continue;
        flops += kernels::table::flops(op->kernel, {left.array_shape(a), right.array_shape(b)});
      }
    }
  } else if (const auto* map = node.as<ia::LocalMap>()) {
    for (const Key& key : *here)
      flops += map->outputs * kernels::table::flops(map->array_map, {node.input(0)->type().relation.array_shape(key)});
  } else if (const auto* aggregate = node.as<ia::LocalAggregate>()) {
    std::map<Key, int64_t> groups;
    for (const Key& key : *here) {
      const Dims shape = node.input(0)->type().relation.array_shape(key);
      const kernels::table::Kernel kernel = aggregate->kernel.first();
      if (groups[project(key, aggregate->group_by)]++ > 0) {
        flops += kernels::table::flops(kernel, {shape, shape});
      } else {
        flops +=
            kernels::table::flops(aggregate->kernel, {shape, shape}) - kernels::table::flops(kernel, {shape, shape});
      }
    }
  }
  return flops;
}

/// Reductions of a move at one site: each of its needed elements has one partial less to add than there are.
int64_t reductions_at(const ia::Node& node, int64_t site) {
  const ia::analysis::Exchange exchange = ia::analysis::exchange(node.input(0)->type(), node.type());
  int64_t reductions = 0;
  for (const ia::analysis::Share& share : exchange.shares) {
    if (share.site == site) reductions += (static_cast<int64_t>(share.holders.size()) - 1) * (share.end - share.begin);
  }
  return reductions;
}

void check_node(const ia::Plan& plan, const ia::Node& node, const NodeCost& cost) {
  const auto fused = ia::analysis::fused_joins(plan);
  const bool move = node.as<ia::Broadcast>() != nullptr || node.as<ia::Shuffle>() != nullptr;
  const bool sum_of_fused = !node.inputs().empty() && fused.contains(node.input(0).get());
  int64_t most = 0;
  const bool then = sum_of_fused && !node.as<ia::LocalAggregate>()->kernel.epilogue.empty();
  for (int64_t site = 0; site < plan.grid().sites() && (!sum_of_fused || then); ++site) {
    most = std::max(most, move ? reductions_at(node, site) : flops_at(node, site));
  }
  if (then) return;  // the aggregation's own part is in the join's figure
  EXPECT_EQ(cost.flops, most) << cost.operation;
  EXPECT_EQ(cost.wire_bytes, move ? ia::analysis::wire_bytes(node.input(0)->type(), node.type()) : 0) << cost.operation;
}

/// The plan's nodes as they are scheduled: moves when they are finished, fused joins before their sums.
std::vector<ia::NodePtr> scheduled(const ia::Plan& plan) {
  const ia::analysis::Schedule schedule(plan, ia::analysis::Materialization(plan));
  const auto fused = ia::analysis::fused_joins(plan);
  std::vector<const ia::Node*> nodes;
  for (const ia::analysis::Task& task : schedule.tasks()) {
    if (task.node != nullptr) {
      for (const auto& input : task.node->inputs()) {
        if (fused.contains(input.get())) nodes.push_back(input.get());
      }
      nodes.push_back(task.node);
    } else if (task.kind == ia::analysis::Task::Kind::kFinish) {
      const ia::analysis::MoveGroup& moves = schedule.groups()[task.group];
      nodes.insert(nodes.end(), moves.begin(), moves.end());
    }
  }
  std::vector<ia::NodePtr> order;
  for (const ia::Node* node : nodes) {
    order.push_back(*std::find_if(plan.order().begin(), plan.order().end(),
                                  [&](const ia::NodePtr& each) { return each.get() == node; }));
  }
  return order;
}

/// Results that are kept while node `at` of `order` runs, node by node.
bool kept(const ia::Plan& plan, const std::vector<ia::NodePtr>& order, size_t node, size_t at) {
  const auto fused = ia::analysis::fused_joins(plan);
  if (order[node]->inputs().empty()) return true;
  if (node > at || fused.contains(order[node].get())) return false;
  if (node == at) return true;
  for (const auto& output : plan.outputs()) {
    if (output.node == order[node]) return true;
  }
  for (size_t user = at; user < order.size(); ++user) {
    for (const auto& input : order[user]->inputs()) {
      const bool through =
          fused.contains(input.get()) && (input->inputs()[0] == order[node] || input->inputs()[1] == order[node]);
      if (through || (input == order[node] && !fused.contains(order[user].get()))) return true;
    }
  }
  return false;
}

int64_t peak_without_moves(const ia::Plan& plan) {
  int64_t peak = 0;
  const auto order = scheduled(plan);
  for (size_t at = 0; at < order.size(); ++at) {
    for (int64_t site = 0; site < plan.grid().sites(); ++site) {
      int64_t bytes = 0;
      for (size_t node = 0; node < order.size(); ++node) {
        if (kept(plan, order, node, at)) bytes += order[node]->type().bytes(site);
      }
      peak = std::max(peak, bytes);
    }
  }
  return peak;
}

void check_plan(const ia::Plan& plan) {
  const PlanCost cost = optimizer::cost::plan_cost(plan);
  ASSERT_EQ(cost.nodes.size(), plan.order().size());
  PlanCost sums;
  for (size_t i = 0; i < cost.nodes.size(); ++i) {
    check_node(plan, *plan.order()[i], cost.nodes[i]);
    sums.wire_bytes += cost.nodes[i].wire_bytes;
    sums.flops += cost.nodes[i].flops;
    sums.paper_floats += cost.nodes[i].paper_floats;
  }
  EXPECT_EQ(cost.wire_bytes, sums.wire_bytes);
  EXPECT_EQ(cost.flops, sums.flops);
  EXPECT_EQ(cost.paper_floats, sums.paper_floats);
  const bool tied =
      std::any_of(plan.outputs().begin(), plan.outputs().end(), [](const auto& o) { return o.tied_input; });
  const int64_t results = peak_without_moves(plan);
  EXPECT_TRUE(tied || cost.peak.bytes >= results);
  EXPECT_TRUE(tied || cost.wire_bytes > 0 || cost.peak.bytes == results);
}

TEST(Cost, LargeMessagesHaveAPartOfALatencyForThemselves) {
  const Cluster cluster = measured();
  const auto link = [&](int64_t elements, const std::string& moved) {
    const ia::Plan plan = ia::parse("ia on 2\ninput A: f32[" + std::to_string(elements) + "]<2> (0)\n" +
                                    "output Z = broadcast(" + moved + ")\n");
    return schedule_seconds(plan, cluster)(*plan.outputs()[0].node).link;
  };
  constexpr int64_t kElements = ia::analysis::kSeparateBytes / 4;
  // Each site sends half of the elements; a byte takes 8, a latency 64.
  EXPECT_NEAR(link(2 * kElements - 4, "A"), 8.0 * 4 * (kElements - 2), 0.1);
  EXPECT_NEAR(link(2 * kElements, "A"), 8.0 * 4 * kElements + 64.0 / 8, 0.1);
  // Each site has a partial of half of the elements, and sends half of it in each of two stages.
  EXPECT_NEAR(link(2 * kElements - 4, "agg[; add](A)"), 8.0 * 4 * (kElements - 2), 0.1);
  EXPECT_NEAR(link(2 * kElements, "agg[; add](A)"), 8.0 * 4 * kElements + 2 * 64.0 / 8, 0.1);
}

TEST(Cost, AgreesWithPlainCountingOnRandomPlans) {
  for (uint64_t seed = 0; seed < 400; ++seed) {
    RandomPlans random(seed);
    const tra::Plan logical = random.plan();
    const ia::Grid grid = random.grid(6);
    const ia::Plan plan = tra::lower(logical, grid, random.placements(logical, grid));
    check_plan(plan);
    if (HasFailure()) FAIL() << "seed " << seed << ":\n" << plan.text();
  }
}

/// A sum of a join of two random relations, neither of which moves.
ia::Plan draw_contraction(RandomPlans& random) {
  const ia::Grid grid = random.grid(6);
  const auto input = [&](const char* name) {
    const relation::RelationType relation = random.relation_type();
    return ia::make_input(name, ia::PhysicalType::placed("input", relation, grid, random.placement(relation, grid)));
  };
  const ia::NodePtr a = input("A");
  const ia::NodePtr x = random.chance(50) ? a : ia::broadcast(a);
  const ia::NodePtr b = input("B");
  const auto kernel =
      random.one_of<std::string>({"matmul", "mul", "contract[i,j->ij]", "contract[i,i->i]", "contract[ij,j->i]"});
  const ia::NodePtr join = ia::make(ia::LocalJoin{{0}, {0}, kernels::table::Kernel::parse(kernel)}, {x, b});
  const ia::NodePtr sum =
      ia::make(ia::LocalAggregate{all_dims(random.between(0, join->type().relation.arity())), {"add", {}}}, {join});
  std::vector<ia::Plan::Output> outputs{{"Z", sum, std::nullopt}};
  if (random.chance(20)) outputs.push_back({"J", join, std::nullopt});
  return ia::Plan::make(outputs);
}

TEST(Cost, AgreesWithPlainCountingOnContractions) {
  int64_t fused = 0;
  for (uint64_t seed = 0; seed < 6000; ++seed) {
    RandomPlans random(seed);
    ia::Plan plan;
    try {
      plan = draw_contraction(random);
    } catch (const PlanError&) {
      continue;
    } catch (const KernelError&) {
      continue;
    }
    check_plan(plan);
    fused += ia::analysis::fused_joins(plan).empty() ? 0 : 1;
    if (HasFailure()) FAIL() << "seed " << seed << ":\n" << plan.text();
  }
  EXPECT_GT(fused, 60);
}

/// `steps` layers of an 8 x 8 x ... contraction on 64 sites, each with a move of its result.
ia::Plan many_layers(int64_t steps) {
  std::string text = "ia on 2x2x2x2x2x2\ninput X: f32[65536,8192]<64,64> (0, 0, 0, *, *, *)\n";
  std::string last = "X";
  for (int64_t i = 0; i < steps; ++i) {
    const std::string n = std::to_string(i);
    text += "input W" + n + ": f32[8192,8192]<64,64> (*, *, *, 0, 0, 0)\n";
    text += "S" + n + " = shuffle[(0, 0, 0, 1, 1, 1)](" + last + ")\n";
    text += "P" + n + " = agg[0, 2; add](join[1; 0; matmul](S" + n + ", W" + n + "))\n";
    text += "Y" + n + " = shuffle[(0, 0, 0, 1, 1, 1)](P" + n + ")\n";
    last = "Y" + n;
  }
  return ia::parse(text + "output Z = " + last + "\n");
}

TEST(Cost, CountsBigFrontiersInClosedForm) {
  const PlanCost cost = optimizer::cost::plan_cost(many_layers(8));
  constexpr int64_t kRows = 65536;
  constexpr int64_t kColumns = 8192;
  EXPECT_EQ(node_named(cost, "t1").flops, 2 * (kRows / 8) * (kColumns / 8) * kColumns);
  EXPECT_EQ(node_named(cost, "t3").wire_bytes, 7 * 4 * kRows * kColumns);
}

}  // namespace
}  // namespace joinsum::optimizer::cost
