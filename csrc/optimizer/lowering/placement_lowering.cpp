#include "optimizer/lowering/placement_lowering.h"

#include <algorithm>
#include <map>

#include "ia/nodes.h"
#include "tra/lower.h"

namespace joinsum::optimizer::lowering {
namespace {

/// The moves of nodes: one for each node and target.
class Moves {
 public:
  explicit Moves(layouts::PlacementCache& cache) : cache_(cache) {}

  ia::NodePtr move(const ia::NodePtr& node, const ia::Placement& target) {
    auto& moved = moved_[node.get()];
    for (const ia::NodePtr& known : moved) {
      if (known->type().placement == target) return known;
    }
    moved.push_back(ia::move_to(node, target));
    return moved.back();
  }

  /// The value in the required layout, moved from the cheaper of its produced and its staging layout.
  ia::NodePtr fetch(const ia::NodePtr& produced, const ia::NodePtr& staged, const ia::Placement& required) {
    if (produced->type().placement == required) return produced;
    if (staged->type().placement == required) return staged;
    if (produced == staged) return move(staged, required);
    layouts::Layouts& layouts = cache_.layouts;
    const layouts::Layout* target = layouts.placed(layouts.number(produced->type().relation), required);
    const bool straight = cache_.move_prices(*layouts.of(produced->type()), *target) <
                          cache_.move_prices(*layouts.of(staged->type()), *target);
    return move(straight ? produced : staged, required);
  }

 private:
  layouts::PlacementCache& cache_;
  std::unordered_map<const ia::Node*, std::vector<ia::NodePtr>> moved_;
};

/// The type in which an input starts. An input that may start replicated starts in the layout that all its readers
/// require, if that is one layout.
ia::PhysicalType start_of(const model::PlacementModel& model, const model::Choice& choice, size_t v) {
  const model::Vertex& vertex = model.vertices[v];
  const ia::PhysicalType& start = choice.strategies[v]->result->type;
  const std::string& name = vertex.input()->name;
  if (!may_start_as_read(model, vertex) || !start.placement.fully_replicated()) return start;
  const layouts::Layout* required = nullptr;
  for (const auto& output : model.plan.outputs()) {
    if (output.node.get() == vertex.node || output.tied_input == name) return start;
  }
  for (size_t r = 0; r < model.vertices.size(); ++r) {
    const model::Strategy& strategy = *choice.strategies[r];
    for (size_t i = 0; i < model.vertices[r].operands.size(); ++i) {
      if (model.vertices[r].operands[i] != static_cast<int64_t>(v)) continue;
      if (required != nullptr && required->placement != strategy.operand_layouts[i]->placement) return start;
      required = strategy.operand_layouts[i];
    }
  }
  return required == nullptr ? start : required->type;
}

ia::NodePtr operator_node(const model::Vertex& vertex, std::vector<ia::NodePtr> operands) {
  if (vertex.join == nullptr) return ia::make(tra::local_operation(*vertex.node), std::move(operands));
  const ia::NodePtr join = ia::make(tra::local_operation(*vertex.join), std::move(operands));
  return ia::make(tra::local_operation(*vertex.node), {join});
}

}  // namespace

bool may_start_as_read(const model::PlacementModel& model, const model::Vertex& vertex) {
  if (vertex.input() == nullptr || !cost::row_of(model.cache.objective).drops_replicas_freely) return false;
  const std::string& name = vertex.input()->name;
  return !model.constraints.inputs.contains(name) && !model.constraints.starts.contains(name);
}

ia::Plan lowered(const model::PlacementModel& model, const model::Choice& choice, LoweredNodes& nodes) {
  std::unordered_map<const tra::Node*, size_t> number;
  std::vector<ia::NodePtr> produced;  // sources for readers: of a pinned value its staged node
  std::vector<ia::NodePtr> staged;
  Moves moves(model.cache);
  std::map<std::string, ia::Placement> starts;
  std::vector<ia::Plan::Output> outputs;
  for (const auto& output : model.plan.outputs()) outputs.push_back({output.name, nullptr, output.tied_input});
  for (size_t v = 0; v < model.vertices.size(); ++v) {
    const model::Vertex& vertex = model.vertices[v];
    const model::Strategy& strategy = *choice.strategies[v];
    std::vector<ia::NodePtr> operands;
    for (size_t i = 0; i < vertex.operands.size(); ++i) {
      operands.push_back(moves.fetch(produced[vertex.operands[i]], staged[vertex.operands[i]],
                                     strategy.operand_layouts[i]->type.placement));
    }
    if (vertex.output) {
      outputs[*vertex.output].node = operands[0];
      continue;
    }
    const auto* input = vertex.input();
    produced.push_back(input != nullptr ? ia::make_input(input->name, start_of(model, choice, v))
                                        : operator_node(vertex, std::move(operands)));
    number[vertex.node] = v;
    nodes[vertex.node] = produced.back();
    if (vertex.join != nullptr) nodes[vertex.join] = produced.back()->input(0);
    if (input != nullptr) starts.emplace(input->name, produced.back()->type().placement);
    const layouts::Layout* beside = choice.staged[v];
    staged.push_back(beside == nullptr ? produced.back() : moves.move(produced.back(), beside->type.placement));
    if (model.constraints.pins.contains(vertex.node)) produced.back() = staged.back();
  }
  for (size_t i = 0; i < outputs.size(); ++i) {
    auto& output = outputs[i];
    if (output.node != nullptr) continue;
    const size_t v = number.at(model.plan.outputs()[i].node.get());
    output.node = output.tied_input ? moves.fetch(produced[v], staged[v], starts.at(*output.tied_input)) : staged[v];
  }
  return ia::Plan::make(std::move(outputs));
}

}  // namespace joinsum::optimizer::lowering
