#include "tra/nodes.h"

#include <array>

#include "tra/infer.h"
#include "tra/text.h"

namespace joinsum::tra {

NodePtr make_input(std::string name, RelationType type) {
  check_plan_name("input", name);
  const std::optional<int64_t> entries = type.entries;
  type = RelationType::make("input", type.dtype, std::move(type.frontier), std::move(type.axes), std::move(type.keys));
  type.entries = entries;
  return std::make_shared<const Node>(Input{std::move(name)}, std::vector<NodePtr>{}, std::move(type));
}

NodePtr make(Operation operation, std::vector<NodePtr> inputs) {
  RelationType type = infer(operation, types_of<Node>(inputs));
  return std::make_shared<const Node>(std::move(operation), std::move(inputs), std::move(type));
}

std::string operator_name(const Operation& operation) {
  static constexpr std::array<const char*, 10> kNames{"input",     "aggregate", "join",   "rekey", "filter",
                                                      "transform", "tile",      "concat", "call",  "upsert"};
  return kNames[operation.index()];
}

Plan Plan::make(std::vector<Output> outputs) {
  Plan plan(std::move(outputs));
  check_plan<Input>(plan);
  return plan;
}

std::vector<NodePtr> Plan::inputs() const { return plan_inputs<Input>(*this); }

std::string Plan::text() const { return print(*this); }

}  // namespace joinsum::tra
