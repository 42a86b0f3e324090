#include "optimizer/placement/lowering.h"

#include <algorithm>
#include <map>

#include "tra/lower.h"

namespace joinsum::optimizer {
namespace {

/// Moves of nodes, each to a target once.
class Moves {
 public:
  explicit Moves(PlacementMemory& memory) : memory_(memory) {}

  ia::NodePtr move(const ia::NodePtr& node, const ia::Placement& target) {
    auto& moved = moved_[node.get()];
    for (const ia::NodePtr& known : moved) {
      if (known->type().placement == target) return known;
    }
    moved.push_back(move_to(node, target));
    return moved.back();
  }

  /// The value where it is needed, from what is cheaper: where it was made, or where it was put.
  ia::NodePtr bring(const ia::NodePtr& made, const ia::NodePtr& put, const ia::Placement& need) {
    if (made->type().placement == need) return made;
    if (put->type().placement == need) return put;
    if (made == put) return move(put, need);
    Places& places = memory_.places;
    const Place* target = places.placed(places.number(made->type().relation), need);
    const bool straight =
        memory_.moves(*places.of(made->type()), *target) < memory_.moves(*places.of(put->type()), *target);
    return move(straight ? made : put, need);
  }

 private:
  PlacementMemory& memory_;
  std::unordered_map<const ia::Node*, std::vector<ia::NodePtr>> moved_;
};

}  // namespace

std::vector<size_t> first_results(const std::vector<Vertex>& vertices) {
  std::vector<size_t> out;
  std::map<std::vector<int64_t>, std::vector<size_t>> by_operands;
  for (size_t v = 0; v < vertices.size(); ++v) {
    out.push_back(v);
    const tra::Call* call = vertices[v].call();
    if (call == nullptr) continue;
    auto& others = by_operands[vertices[v].operands];
    const auto same = std::find_if(others.begin(), others.end(),
                                   [&](size_t other) { return vertices[other].call()->runs_with(*call); });
    if (same == others.end()) {
      others.push_back(v);
      continue;
    }
    JOINSUM_CHECK(vertices[v].modes.size() == vertices[*same].modes.size(), "call=", call->text());
    out.back() = *same;
  }
  return out;
}

Lowering::Lowering(const tra::Plan& plan, const PlacementDemands& demands, PlacementMemory& memory,
                   const std::vector<Vertex>& vertices)
    : plan_(plan), demands_(demands), memory_(memory), vertices_(vertices) {}

ia::Plan Lowering::plan_of(const Choice& choice, Lowered& nodes) const {
  std::unordered_map<const tra::Node*, size_t> number;
  std::vector<ia::NodePtr> made;  // what readers may take it from: of a pinned value, where it was put
  std::vector<ia::NodePtr> put;
  Moves moves(memory_);
  std::map<std::string, ia::Placement> starts;
  std::vector<ia::Plan::Output> outputs;
  for (const auto& output : plan_.outputs()) outputs.push_back({output.name, nullptr, output.tied_input});
  for (size_t v = 0; v < vertices_.size(); ++v) {
    const Vertex& vertex = vertices_[v];
    const Mode& mode = *choice.modes[v];
    std::vector<ia::NodePtr> operands;
    for (size_t i = 0; i < vertex.operands.size(); ++i) {
      operands.push_back(moves.bring(made[vertex.operands[i]], put[vertex.operands[i]], mode.needs[i]->type.placement));
    }
    if (vertex.output) {
      outputs[*vertex.output].node = operands[0];
      continue;
    }
    const auto* input = vertex.input();
    made.push_back(input != nullptr ? ia::make_input(input->name, start_of(static_cast<int64_t>(v), choice))
                                    : operator_node(vertex, std::move(operands)));
    number[vertex.node] = v;
    nodes[vertex.node] = made.back();
    if (vertex.join != nullptr) nodes[vertex.join] = made.back()->input(0);
    if (input != nullptr) starts.emplace(input->name, made.back()->type().placement);
    const Place* beside = choice.put[v];
    put.push_back(beside == nullptr ? made.back() : moves.move(made.back(), beside->type.placement));
    if (demands_.pins.contains(vertex.node)) made.back() = put.back();
  }
  for (size_t i = 0; i < outputs.size(); ++i) {
    auto& output = outputs[i];
    if (output.node != nullptr) continue;
    const size_t v = number.at(plan_.outputs()[i].node.get());
    output.node = output.tied_input ? moves.bring(made[v], put[v], starts.at(*output.tied_input)) : put[v];
  }
  return ia::Plan::make(std::move(outputs));
}

/// Where an input starts: one that may start whole on every site starts where all its readers need it, if that is
/// one place.
ia::PhysicalType Lowering::start_of(int64_t v, const Choice& choice) const {
  const Vertex& vertex = vertices_[v];
  const ia::PhysicalType& start = choice.modes[v]->result->type;
  const std::string& name = vertex.input()->name;
  if (demands_.inputs.contains(name) || demands_.starts.contains(name) || !start.placement.fully_replicated() ||
      memory_.objective == Objective::kPaperFloats) {
    return start;
  }
  const Place* need = nullptr;
  for (const auto& output : plan_.outputs()) {
    if (output.node.get() == vertex.node || output.tied_input == name) return start;
  }
  for (size_t r = 0; r < vertices_.size(); ++r) {
    const Mode& mode = *choice.modes[r];
    for (size_t i = 0; i < vertices_[r].operands.size(); ++i) {
      if (vertices_[r].operands[i] != v) continue;
      if (need != nullptr && need->placement != mode.needs[i]->placement) return start;
      need = mode.needs[i];
    }
  }
  return need == nullptr ? start : need->type;
}

ia::NodePtr Lowering::operator_node(const Vertex& vertex, std::vector<ia::NodePtr> operands) const {
  if (vertex.join == nullptr) return ia::make(tra::local_operation(*vertex.node), std::move(operands));
  const ia::NodePtr join = ia::make(tra::local_operation(*vertex.join), std::move(operands));
  return ia::make(tra::local_operation(*vertex.node), {join});
}

}  // namespace joinsum::optimizer
