#include "optimizer/verification/computed_vertices.h"

#include "einsum/lower.h"
#include "ia/text.h"
#include "optimizer/verification/normal_form.h"

namespace joinsum::optimizer::verification {
namespace {

/// The logical value of each vertex, over inputs that are divided as the plan's are; null where nothing is left of it.
std::vector<tra::NodePtr> logical_values(const ia::Plan& plan, const einsum::Plan& graph,
                                         const std::map<std::string, einsum::transforms::Path>& paths,
                                         const std::vector<einsum::NodePtr>& vertices) {
  std::unordered_map<const einsum::Node*, einsum::NodePtr> joined;
  const einsum::Plan binary = einsum::transforms::binary(graph, paths, joined);
  auto relations = einsum::even_cuts(binary, plan.grid().sites());
  for (const ia::NodePtr& input : plan.inputs()) {
    relations.insert_or_assign(input->as<ia::Input>()->name, input->type().relation);
  }
  einsum::LoweredVertices lowered;
  einsum::lower(binary, relations, lowered);
  std::vector<tra::NodePtr> out;
  for (const einsum::NodePtr& vertex : vertices) {
    const auto two_operands = joined.find(vertex.get());
    const auto found = two_operands == joined.end() ? lowered.end() : lowered.find(two_operands->second.get());
    out.push_back(found == lowered.end() ? nullptr : found->second.value);
  }
  return out;
}

}  // namespace

std::map<std::string, size_t> computed_vertices(const ia::Plan& plan, const einsum::Plan& graph,
                                                const std::map<std::string, einsum::transforms::Path>& paths,
                                                const std::vector<einsum::NodePtr>& vertices) {
  const std::vector<tra::NodePtr> logical = logical_values(plan, graph, paths, vertices);
  std::vector<tra::Plan::Output> values;
  for (size_t i = 0; i < logical.size(); ++i) {
    if (logical[i] != nullptr) values.push_back({"v" + std::to_string(i), logical[i], std::nullopt});
  }
  std::vector<ia::Plan::Output> nodes;
  for (const ia::NodePtr& node : plan.order()) {
    if (!node->inputs().empty()) nodes.push_back({"n" + std::to_string(nodes.size()), node, std::nullopt});
  }
  if (values.empty() || nodes.empty()) return {};
  NormalForm forms;
  std::unordered_map<const ia::Node*, size_t> vertex_of;
  size_t position = 0;
  for (const ia::NodePtr& form : forms.of(tra::Plan::make(std::move(values)))) {
    while (logical[position] == nullptr) ++position;
    vertex_of.emplace(form.get(), position++);
  }
  const auto names = ia::node_names(plan);
  std::map<std::string, size_t> out;
  size_t next = 0;
  for (const ia::NodePtr& form : forms.of(ia::Plan::make(nodes))) {
    const ia::Node* node = nodes[next++].node.get();
    if (const auto found = vertex_of.find(form.get()); found != vertex_of.end()) out[names.at(node)] = found->second;
  }
  return out;
}

}  // namespace joinsum::optimizer::verification
