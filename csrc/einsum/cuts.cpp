#include <algorithm>

#include "einsum/axis_classes.h"
#include "einsum/lower.h"

namespace joinsum::einsum {

relation::RelationType cut_at(const std::string& who, const TensorType& type, const std::vector<CutPoints>& cuts) {
  Dims frontier;
  std::vector<relation::Axis> axes;
  for (size_t a = 0; a < cuts.size(); ++a) {
    const auto parts = static_cast<int64_t>(cuts[a].size()) - 1;
    if (parts == 1) {
      axes.push_back(relation::Axis::whole(type.extents[a]));
    } else {
      axes.push_back(relation::Axis::cut(static_cast<int64_t>(frontier.size()), cuts[a]));
      frontier.push_back(parts);
    }
  }
  auto relation = relation::RelationType::make(who, type.dtype, std::move(frontier), std::move(axes));
  relation.entries = type.entries;
  return relation;
}

relation::RelationType cut_evenly(const std::string& who, const TensorType& type, const Dims& parts) {
  std::vector<CutPoints> cuts;
  for (size_t a = 0; a < parts.size(); ++a) cuts.push_back(joinsum::even_cuts(type.extents[a], parts[a]));
  return cut_at(who, type, cuts);
}

std::map<std::string, relation::RelationType> even_cuts(const Plan& plan, int64_t sites) {
  JOINSUM_USER_CHECK(sites >= 1, "even_cuts: at least one site: sites=", sites);
  AxisClasses classes(plan);
  classes.cut(plan, sites);
  std::map<std::string, relation::RelationType> out;
  for (const NodePtr& node : plan.inputs()) {
    Dims parts;
    for (size_t a = 0; a < node->type().extents.size(); ++a) parts.push_back(classes.parts(*node, a));
    const std::string& name = node->as<Input>()->name;
    out[name] = cut_evenly("input " + name, node->type(), parts);
  }
  return out;
}

NewLetterParts new_letter_parts(const Plan& plan, const std::map<std::string, relation::RelationType>& inputs) {
  const AxisClasses classes(plan);
  std::map<int64_t, int64_t> parts;
  for (const NodePtr& node : plan.inputs()) {
    const auto found = inputs.find(node->as<Input>()->name);
    if (found == inputs.end()) continue;
    const auto& axes = found->second.axes;
    for (size_t a = 0; a < std::min(axes.size(), node->type().extents.size()); ++a) {
      if (axes[a].linked()) parts[classes.of(*node, a)] = static_cast<int64_t>(axes[a].cuts.size()) - 1;
    }
  }
  NewLetterParts out;
  for (const NodePtr& node : plan.order()) {
    const auto* call = node->as<Call>();
    if (call == nullptr) continue;
    for (const auto& [letter, fresh] : call->extents) {
      const auto at = parts.find(classes.of_new_letter(*node, letter));
      if (at != parts.end()) out[node.get()][letter] = at->second;
    }
  }
  return out;
}

}  // namespace joinsum::einsum
