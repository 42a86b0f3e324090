#include "optimizer/model/vertices.h"

#include <algorithm>
#include <map>

#include "kernels/call/first_results.h"
#include "kernels/table/table.h"

namespace joinsum::optimizer::model {
namespace {

/// With more operators, dividing each of many axes independently gives too many strategies.
constexpr size_t kManyOperators = 100;

/// Joins that run as one with the sum above them.
std::set<const tra::Node*> joins_below_sums(const tra::Plan& plan, const PlacementConstraints& constraints) {
  const auto uses = use_counts(plan);
  std::set<const tra::Node*> out;
  for (const auto& node : plan.order()) {
    const auto* sum = node->as<tra::Aggregate>();
    if (sum == nullptr || node->input(0)->as<tra::Join>() == nullptr) continue;
    const tra::Node* join = node->input(0).get();
    if (uses.at(join) == 1 && kernels::table::reduces_in_any_order(sum->kernel.first()) &&
        !constraints.pins.contains(join))
      out.insert(join);
  }
  return out;
}

}  // namespace

bool in_bundles(const tra::Plan& plan, const PlacementConstraints& constraints, const ia::Grid& grid) {
  return !constraints.thorough && plan.order().size() > kManyOperators &&
         division::bundles_of(grid) != all_dims(grid.rank());
}

const tra::Node* Vertex::joined() const {
  if (join != nullptr) return join;
  return !output && node->as<tra::Join>() != nullptr ? node : nullptr;
}

const layouts::Layout* Vertex::layout_like(const layouts::Layout* layout) const {
  const auto at = std::find_if(layouts.begin(), layouts.end(),
                               [&](const layouts::Layout* other) { return other->placement == layout->placement; });
  JOINSUM_CHECK(at != layouts.end(), "optimize: a value has no layout of this placement: placement=",
                layout->type.placement.text(layout->type.relation.frontier));
  return *at;
}

std::vector<Vertex> vertices_of(const tra::Plan& plan, const PlacementConstraints& constraints,
                                layouts::PlacementCache& cache, const division::LabelClasses& labels) {
  std::vector<Vertex> out;
  std::unordered_map<const tra::Node*, int64_t> number;
  const auto inner = joins_below_sums(plan, constraints);
  for (const auto& node : plan.order()) {
    if (inner.contains(node.get())) continue;
    Vertex vertex;
    vertex.node = node.get();
    if (!node->inputs().empty() && inner.contains(node->input(0).get())) vertex.join = node->input(0).get();
    const tra::Node& reads = vertex.join != nullptr ? *vertex.join : *node;
    for (const auto& input : reads.inputs()) {
      vertex.operands.push_back(number.at(input.get()));
      const auto& own = labels.of(*input);
      vertex.labels.insert(own.begin(), own.end());
    }
    number[node.get()] = static_cast<int64_t>(out.size());
    vertex.relation = cache.layouts.number(node->type());
    if (vertex.input() == nullptr) vertex.operation = cache.operator_costs.number(*node, vertex.join);
    out.push_back(std::move(vertex));
  }
  for (size_t i = 0; i < plan.outputs().size(); ++i) {
    const auto& output = plan.outputs()[i];
    if (!constraints.ends.contains(output.name)) continue;
    Vertex& vertex = out.emplace_back();
    vertex.node = output.node.get();
    vertex.output = i;
    vertex.operands = {number.at(output.node.get())};
    vertex.relation = cache.layouts.number(output.node->type());
  }
  return out;
}

std::vector<Consumers> consumers_of(const PlacementModel& model) {
  std::vector<Consumers> out(model.vertices.size());
  std::unordered_map<const tra::Node*, size_t> number;
  std::map<std::string, size_t> inputs;
  for (size_t v = 0; v < model.vertices.size(); ++v) {
    const Vertex& vertex = model.vertices[v];
    for (size_t i = 0; i < vertex.operands.size(); ++i) out[vertex.operands[i]].operands.emplace_back(v, i);
    if (vertex.output) continue;
    number[vertex.node] = v;
    if (vertex.input() != nullptr) inputs[vertex.input()->name] = v;
  }
  for (const auto& output : model.plan.outputs()) {
    if (model.constraints.ends.contains(output.name)) continue;
    const size_t v = number.at(output.node.get());
    ++out[v].outputs;
    if (!output.tied_input) continue;
    ++out[v].tied;
    const auto input = inputs.find(*output.tied_input);
    if (input != inputs.end() && input->second != v) out[v].starts.push_back(input->second);
  }
  return out;
}

std::vector<size_t> first_results(const std::vector<Vertex>& vertices) {
  std::vector<size_t> out;
  kernels::call::FirstResults<std::vector<int64_t>, size_t> results;
  for (size_t v = 0; v < vertices.size(); ++v) {
    const tra::Call* call = vertices[v].call();
    out.push_back(call == nullptr ? v : results.first(vertices[v].operands, *call, v));
    JOINSUM_CHECK(vertices[v].strategies.size() == vertices[out.back()].strategies.size(), "vertex=", v);
  }
  return out;
}

}  // namespace joinsum::optimizer::model
