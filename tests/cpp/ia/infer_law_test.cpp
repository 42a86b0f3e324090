#include <set>

#include <gtest/gtest.h>

#include "ia/text.h"
#include "random_plans.h"

namespace joinsum::ia {
namespace {

using testing::RandomPlans;

/// The keys on each site, ascending, with repeats.
using Keys = std::vector<std::vector<Key>>;

/// Leaves on each site what the definitions of the operators say, from what its inputs leave there.
struct Definition {
  const Node& node;
  const std::vector<const Keys*>& inputs;
  int64_t site;

  const std::vector<Key>& here(size_t input) const { return (*inputs[input])[site]; }
  std::vector<Key> operator()(const Input&) const {
    std::vector<Key> out;
    for (const Key& key : node.type().relation.all_keys()) {
      if (node.type().placement.box(node.type().grid, site, node.type().relation.frontier).contains(key))
        out.push_back(key);
    }
    return out;
  }
  std::vector<Key> operator()(const Broadcast&) const { return moved(); }
  std::vector<Key> operator()(const Shuffle&) const { return moved(); }
  std::vector<Key> operator()(const LocalJoin& op) const {
    std::vector<Key> out;
    for (const Key& left : here(0)) {
      for (const Key& right : here(1)) {
        if (project(left, op.left_keys) != project(right, op.right_keys)) continue;
        out.push_back(left);
        for (const int64_t d : complement(op.right_keys, static_cast<int64_t>(right.size())))
          out.back().push_back(right[d]);
      }
    }
    return out;
  }
  std::vector<Key> operator()(const LocalAggregate& op) const {
    std::set<Key> out;
    for (const Key& key : here(0)) out.insert(project(key, op.group_by));
    return {out.begin(), out.end()};
  }
  std::vector<Key> operator()(const LocalFilter& op) const {
    std::vector<Key> out;
    for (const Key& key : here(0)) {
      if (op.predicate.evaluate(key) != 0) out.push_back(key);
    }
    return out;
  }
  std::vector<Key> operator()(const LocalMap& op) const {
    std::vector<Key> out;
    for (const Key& key : here(0)) {
      for (int64_t m = 0; m < op.outputs; ++m) out.push_back(op.key_map.evaluate(key, m));
    }
    return out;
  }
  std::vector<Key> operator()(const LocalUpsert&) const {
    std::set<Key> written;
    for (const std::vector<Key>& on_site : *inputs[1]) written.insert(on_site.begin(), on_site.end());
    std::vector<Key> out = (*inputs[1])[site];
    for (const Key& key : here(0)) {
      if (!written.contains(key)) out.push_back(key);
    }
    return out;
  }
  /// Random plans have none; kernels/call_test.cpp says what they hold.
  std::vector<Key> operator()(const LocalCall&) const { return {}; }

  /// Sites that agree along the axes that the source replicates and along those that stay pending exchange tuples.
  std::vector<Key> moved() const {
    const PhysicalType& source = node.input(0)->type();
    const PhysicalType& target = node.type();
    Dims apart = source.placement.axes_in<Replicated>();
    const Dims kept = target.placement.axes_in<Pending>();
    apart.insert(apart.end(), kept.begin(), kept.end());
    const bool reduces = source.placement.axes_in<Pending>() != kept;
    std::vector<Key> out;
    for (int64_t other = 0; other < source.sites(); ++other) {
      const Grid& grid = source.grid;
      if (project(grid.coordinates(other), apart) != project(grid.coordinates(site), apart)) continue;
      for (const Key& key : (*inputs[0])[other]) {
        const bool had = reduces && std::find(out.begin(), out.end(), key) != out.end();
        if (!had && target.placement.box(grid, site, target.relation.frontier).contains(key)) out.push_back(key);
      }
    }
    return out;
  }
};

Keys evaluate(const Node& node, const std::vector<const Keys*>& inputs) {
  Keys out(node.type().sites());
  for (int64_t site = 0; site < node.type().sites(); ++site) {
    out[site] = std::visit(Definition{node, inputs, site}, node.operation());
    std::sort(out[site].begin(), out[site].end());
  }
  return out;
}

/// Tuples once each, whatever their replicas; partials of one key count as one.
std::vector<Key> contents(const PhysicalType& type, const Keys& keys) {
  std::vector<Key> out;
  for (int64_t site = 0; site < type.sites(); ++site) {
    const Dims replica = project(type.grid.coordinates(site), type.placement.axes_in<Replicated>());
    if (std::any_of(replica.begin(), replica.end(), [](int64_t c) { return c != 0; })) continue;
    out.insert(out.end(), keys[site].begin(), keys[site].end());
  }
  std::sort(out.begin(), out.end());
  if (type.placement.pending()) out.erase(std::unique(out.begin(), out.end()), out.end());
  return out;
}

bool meet(const Keys& keys, const Dims& dims) {
  std::map<Key, size_t> first;
  for (size_t site = 0; site < keys.size(); ++site) {
    for (const Key& key : keys[site]) {
      if (first.emplace(project(key, dims), site).first->second != site) return false;
    }
  }
  return true;
}

void check_promises(const PhysicalType& type, const Keys& keys) {
  for (int64_t site = 0; site < type.sites(); ++site) {
    ASSERT_EQ(*type.holding.keys(site), keys[site]) << "site " << site;
    ASSERT_EQ(type.holding.tuples(site), static_cast<int64_t>(keys[site].size()));
    int64_t stored = 0;
    for (const Box& box : type.stored(site)) stored += box.count();
    ASSERT_EQ(stored, static_cast<int64_t>(keys[site].size()));
  }
  ASSERT_EQ(contents(type, keys), type.relation.all_keys());
  const auto* scattered = type.placement.scattered();
  if (scattered == nullptr) return;
  const bool one_site_per_key = meet(keys, all_dims(type.relation.arity()));
  ASSERT_TRUE(!scattered->together || (one_site_per_key && meet(keys, *scattered->together)));
}

class Pool {
 public:
  explicit Pool(uint64_t seed) : random_(seed), grid_(random_.grid(12)) { nodes_.push_back(input("A")); }

  void grow() {
    const NodePtr node = draw();
    if (node->type().relation.tuples() <= 200) nodes_.push_back(node);
  }
  const std::vector<NodePtr>& nodes() const { return nodes_; }

 private:
  NodePtr input(const std::string& name) {
    const RelationType relation = random_.relation_type();
    return make_input(name, PhysicalType::placed("input", relation, grid_, random_.placement(relation, grid_)));
  }

  Dims some_dims(int64_t arity) {
    Dims out;
    for (int64_t d = 0; d < arity; ++d) {
      if (random_.chance(60)) out.push_back(d);
    }
    return out;
  }

  /// Prefers nodes that are pending or scattered.
  NodePtr operand() {
    std::vector<NodePtr> preferred;
    for (const NodePtr& node : nodes_) {
      const Placement& placement = node->type().placement;
      if (placement.pending() || placement.scattered() != nullptr) preferred.push_back(node);
    }
    return random_.one_of(preferred.empty() || random_.chance(60) ? nodes_ : preferred);
  }

  NodePtr draw() {
    static const std::vector<std::string> kPredicates{"k0 != 1", "k0 % 2 == 0", "k0 + k1 < 3", "k0 < 2", "false"};
    static const std::vector<std::string> kMaps{
        "(k0 // 2); id",         "(k1, k0); id", "(k0 + k1); id",        "(); id", "(k0); relu", "(k0); negate",
        "2: (k0, m); duplicate", "(k0, k0); id", "2: (m, k0); duplicate"};
    const NodePtr node = operand();
    const PhysicalType& type = node->type();
    const Dims dims = some_dims(type.relation.arity());
    switch (random_.between(0, 6)) {
      case 0:
        return input("B");
      case 1:
        return make(LocalAggregate{dims, {random_.one_of<std::string>({"add", "max", "sub"}), {}}}, {node});
      case 2:
        return make(LocalFilter{KeyExpression::parse(random_.one_of(kPredicates))}, {node});
      case 3:
        return mapped(random_.one_of(kMaps), node);
      case 4: {
        const NodePtr drawn = random_.one_of(nodes_);
        const NodePtr other = random_.chance(50) ? broadcast(drawn) : drawn;
        Dims right = some_dims(other->type().relation.arity());
        Dims left = dims;
        left.resize(std::min(left.size(), right.size()));
        right.resize(left.size());
        const kernels::table::Kernel kernel{random_.one_of<std::string>({"mul", "add", "matmul"}), {}};
        if (other != drawn) nodes_.push_back(other);
        return make(LocalJoin{left, right, kernel}, {node, other});
      }
      case 5:
        return make(Broadcast{some_dims(grid_.rank())}, {node});
      default: {
        GridPlacement target = *random_.placement(type.relation, grid_).grid();
        for (const int64_t a : type.placement.axes_in<Pending>()) {
          if (random_.chance(40)) target.states[a] = type.placement.grid()->states[a];
        }
        return make(Shuffle{target}, {node});
      }
    }
  }

  static NodePtr mapped(const std::string& text, const NodePtr& node) {
    Scanner scanner(text);
    LocalMap map;
    if (scanner.peek_number()) {
      map.outputs = scanner.integer();
      scanner.expect(":");
    }
    map.key_map = KeyMap::parse(scanner, {});
    scanner.expect(";");
    map.array_map = kernels::table::Kernel::parse(scanner);
    return make(map, {node});
  }

  RandomPlans random_;
  Grid grid_;
  std::vector<NodePtr> nodes_;
};

TEST(Infer, TypesSayWhatPlansLeaveOnEachSite) {
  std::map<std::string, int64_t> seen;
  for (uint64_t seed = 0; seed < 1500; ++seed) {
    Pool pool(seed);
    std::map<const Node*, Keys> keys;
    for (int attempt = 0; attempt < 15; ++attempt) {
      try {
        pool.grow();
      } catch (const PlanError&) {
      } catch (const KernelError&) {
      }
    }
    for (const NodePtr& node : pool.nodes()) {
      std::vector<const Keys*> inputs;
      for (const NodePtr& input : node->inputs()) inputs.push_back(&keys.at(input.get()));
      keys[node.get()] = evaluate(*node, inputs);
      check_promises(node->type(), keys.at(node.get()));
      const Placement& placement = node->type().placement;
      ++seen[operator_name(node->operation()) + (placement.pending() ? " pending"
                                                 : placement.grid()  ? ""
                                                                     : " scattered")];
      if (::testing::Test::HasFailure()) {
        FAIL() << "seed " << seed << ": " << operation_text(node->operation(), node->type()) << ": "
               << node->type().text(true);
      }
    }
  }
  for (const char* kind :
       {"broadcast", "shuffle", "shuffle pending", "local_join", "local_join pending", "local_join scattered",
        "local_aggregate", "local_aggregate pending", "local_aggregate scattered", "local_filter",
        "local_filter pending", "local_filter scattered", "local_map", "local_map pending", "local_map scattered"}) {
    EXPECT_GT(seen[kind], 10) << kind;
  }
}

}  // namespace
}  // namespace joinsum::ia
