#include "tra/infer.h"

#include "relation/call_typing.h"
#include "relation/typing.h"

namespace joinsum::tra {
namespace {

RelationType infer_tile(const Tile& op, const RelationType& input) {
  const relation::TileMap map = relation::tile_map("tile", input, op.axis, op.size);
  return relation::map_type("tile", input, map.outputs, map.key_map, map.array_map);
}

RelationType infer_concat(const Concat& op, const RelationType& input) {
  JOINSUM_USER_CHECK(op.key_dim >= 0 && op.key_dim < input.arity(),
                     "concat: key dimension out of range: key dimension=", op.key_dim, ", key arity=", input.arity());
  return relation::aggregate_type("concat", input, complement({op.key_dim}, input.arity()),
                                  Kernel{"concat", {op.axis}});
}

struct Infer {
  const std::vector<RelationType>& inputs;

  RelationType operator()(const Input& op) const {
    throw PlanError("input: the type of an input is given, not inferred: name=" + op.name);
  }
  RelationType operator()(const Aggregate& op) const {
    return relation::aggregate_type("aggregate", inputs[0], op.group_by, op.kernel);
  }
  RelationType operator()(const Join& op) const {
    return relation::join_type("join", inputs[0], inputs[1], {op.left_keys, op.right_keys}, op.kernel);
  }
  RelationType operator()(const Rekey& op) const {
    return relation::map_type("rekey", inputs[0], 1, op.key_map, Kernel{"id", {}});
  }
  RelationType operator()(const Filter& op) const { return relation::filter_type("filter", inputs[0], op.predicate); }
  RelationType operator()(const Transform& op) const {
    return relation::map_type("transform", inputs[0], 1, KeyMap::identity(inputs[0].arity()), op.kernel);
  }
  RelationType operator()(const Tile& op) const { return infer_tile(op, inputs[0]); }
  RelationType operator()(const Concat& op) const { return infer_concat(op, inputs[0]); }
  RelationType operator()(const Call& call) const { return relation::call_type("call", call, inputs); }
  RelationType operator()(const Upsert&) const { return relation::upsert_type("upsert", inputs[0], inputs[1]); }
};

}  // namespace

RelationType infer(const Operation& operation, const std::vector<RelationType>& inputs) {
  const auto* call = std::get_if<Call>(&operation);
  const size_t wanted = call != nullptr                            ? call->operands.size()
                        : std::holds_alternative<Input>(operation) ? 0
                        : std::holds_alternative<Join>(operation) || std::holds_alternative<Upsert>(operation) ? 2
                                                                                                               : 1;
  JOINSUM_USER_CHECK(inputs.size() == wanted, operator_name(operation),
                     ": wrong number of inputs: inputs=", inputs.size(), ", wanted=", wanted);
  return std::visit(Infer{inputs}, operation);
}

}  // namespace joinsum::tra
