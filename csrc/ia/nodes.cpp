#include "ia/nodes.h"

#include <array>

#include "ia/infer.h"
#include "ia/text.h"

namespace joinsum::ia {

NodePtr make_input(std::string name, PhysicalType type) {
  check_plan_name("input", name);
  return std::make_shared<const Node>(Input{std::move(name)}, std::vector<NodePtr>{}, std::move(type));
}

NodePtr make(Operation operation, std::vector<NodePtr> inputs) {
  std::vector<const PhysicalType*> types;
  types.reserve(inputs.size());
  for (const NodePtr& input : inputs) types.push_back(&input->type());
  PhysicalType type = infer(operation, types);
  return std::make_shared<const Node>(std::move(operation), std::move(inputs), std::move(type));
}

NodePtr broadcast(NodePtr input) {
  Broadcast all{all_dims(input->type().grid.rank())};
  return make(std::move(all), {std::move(input)});
}

NodePtr shuffle(NodePtr input, const Dims& dims) {
  const PhysicalType& type = input->type();
  return make(Shuffle{fill(type.grid, dims, type.relation.frontier)}, {input});
}

std::optional<Dims> broadcast_axes(const Placement& from, const Placement& to) {
  if (to.grid() == nullptr) return std::nullopt;
  if (from.grid() == nullptr) {
    if (to.fully_replicated()) return all_dims(static_cast<int64_t>(to.grid()->states.size()));
    return std::nullopt;
  }
  Dims axes;
  for (size_t a = 0; a < to.grid()->states.size(); ++a) {
    const AxisState& state = to.grid()->states[a];
    if (state == from.grid()->states[a]) continue;
    if (!std::holds_alternative<Replicated>(state)) return std::nullopt;
    axes.push_back(static_cast<int64_t>(a));
  }
  // Of the axes that split one dimension the faster ones are gathered first.
  for (const int64_t a : axes) {
    const auto* split = std::get_if<Split>(&from.grid()->states[a]);
    if (split == nullptr) continue;
    for (const int64_t b : from.axes_splitting(split->dim)) {
      if (b > a && !position_of(axes, b)) return std::nullopt;
    }
  }
  return axes;
}

NodePtr move_to(const NodePtr& node, const Placement& target) {
  if (node->type().placement == target) return node;
  if (auto axes = broadcast_axes(node->type().placement, target)) {
    return make(Broadcast{std::move(*axes)}, {node});
  }
  return make(Shuffle{*target.grid()}, {node});
}

bool is_move(const Operation& operation) {
  return std::holds_alternative<Broadcast>(operation) || std::holds_alternative<Shuffle>(operation);
}

std::string operator_name(const Operation& operation) {
  static constexpr std::array<const char*, 9> kNames{"input",      "broadcast",       "shuffle",
                                                     "local_join", "local_aggregate", "local_filter",
                                                     "local_map",  "local_call",      "local_upsert"};
  return kNames[operation.index()];
}

namespace {

uint64_t mix(uint64_t seed, const Dims& dims) {
  seed = hash_mix(seed, dims.size());
  for (const int64_t dim : dims) seed = hash_mix(seed, static_cast<uint64_t>(dim));
  return seed;
}

struct HashState {
  uint64_t operator()(const Replicated&) const { return 1; }
  uint64_t operator()(const Split& split) const { return mix(2, {split.dim, split.domain}); }
  uint64_t operator()(const Pending& pending) const { return hash_mix(3, hash_text(pending.kernel)); }
};

struct HashOperation {
  uint64_t operator()(const Input& op) const { return hash_text(op.name); }
  uint64_t operator()(const Broadcast& op) const { return mix(1, op.axes); }
  uint64_t operator()(const Shuffle& op) const {
    uint64_t hash = 2;
    for (const AxisState& state : op.target.states) hash = hash_mix(hash, std::visit(HashState{}, state));
    return hash;
  }
  uint64_t operator()(const LocalJoin& op) const {
    return hash_mix(mix(mix(3, op.left_keys), op.right_keys), op.kernel.hash());
  }
  uint64_t operator()(const LocalAggregate& op) const { return hash_mix(mix(4, op.group_by), op.kernel.hash()); }
  uint64_t operator()(const LocalFilter& op) const { return hash_mix(5, op.predicate.hash()); }
  uint64_t operator()(const LocalMap& op) const {
    return hash_mix(hash_mix(mix(6, {op.outputs}), op.key_map.hash()), op.array_map.hash());
  }
  uint64_t operator()(const LocalCall& op) const { return hash_mix(7, op.call.hash()); }
  uint64_t operator()(const LocalUpsert&) const { return 8; }
};

}  // namespace

uint64_t operation_hash(const Operation& operation) {
  return hash_mix(operation.index(), std::visit(HashOperation{}, operation));
}

std::vector<std::string> scalars_of(const Operation& operation) {
  if (const auto* join = std::get_if<LocalJoin>(&operation)) return join->kernel.scalar_names();
  if (const auto* aggregate = std::get_if<LocalAggregate>(&operation)) return aggregate->kernel.scalar_names();
  if (const auto* map = std::get_if<LocalMap>(&operation)) return map->array_map.scalar_names();
  return {};
}

Plan Plan::make(std::vector<Output> outputs) {
  Plan plan(std::move(outputs));
  check_plan<Input>(plan);
  plan.grid_ = plan.order().front()->type().grid;
  for (const NodePtr& node : plan.inputs()) {
    JOINSUM_USER_CHECK(node->type().grid == plan.grid_,
                       "plan: inputs lie on different grids: input=", node->as<Input>()->name,
                       ", grid=", node->type().grid.text(), ", others=", plan.grid_.text());
  }
  return plan;
}

std::vector<NodePtr> Plan::inputs() const { return plan_inputs<Input>(*this); }

std::string Plan::text() const { return print(*this); }

}  // namespace joinsum::ia
