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

bool is_move(const Operation& operation) {
  return std::holds_alternative<Broadcast>(operation) || std::holds_alternative<Shuffle>(operation);
}

std::string operator_name(const Operation& operation) {
  static constexpr std::array<const char*, 8> kNames{"input",           "broadcast",    "shuffle",   "local_join",
                                                     "local_aggregate", "local_filter", "local_map", "local_call"};
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
