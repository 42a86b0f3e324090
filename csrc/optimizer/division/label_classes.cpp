#include "optimizer/division/label_classes.h"

#include <map>
#include <numeric>

#include "base/disjoint_sets.h"
#include "relation/call_typing.h"
#include "tra/text.h"

namespace joinsum::optimizer::division {
namespace {

/// Labels of a node's key dimensions from those of its operands; an operator that adds a dimension adds a label.
struct Derive {
  const tra::Node& node;
  const std::vector<std::vector<int64_t>>& inputs;
  DisjointSets& sets;

  std::vector<int64_t> fresh(int64_t arity) const {
    std::vector<int64_t> out;
    for (int64_t d = 0; d < arity; ++d) out.push_back(sets.add());
    return out;
  }
  std::vector<int64_t> operator()(const tra::Input&) const { return fresh(node.type().arity()); }
  std::vector<int64_t> operator()(const tra::Aggregate& op) const { return project(inputs[0], op.group_by); }
  std::vector<int64_t> operator()(const tra::Join& op) const {
    std::vector<int64_t> out = inputs[0];
    for (size_t i = 0; i < op.left_keys.size(); ++i) sets.unite(out[op.left_keys[i]], inputs[1][op.right_keys[i]]);
    for (const int64_t d : complement(op.right_keys, static_cast<int64_t>(inputs[1].size())))
      out.push_back(inputs[1][d]);
    return out;
  }
  std::vector<int64_t> operator()(const tra::Rekey& op) const {
    std::vector<int64_t> out;
    for (const int64_t from : op.key_map.copied_dims()) out.push_back(from >= 0 ? inputs[0][from] : sets.add());
    return out;
  }
  std::vector<int64_t> operator()(const tra::Filter&) const { return inputs[0]; }
  std::vector<int64_t> operator()(const tra::Transform&) const { return inputs[0]; }
  std::vector<int64_t> operator()(const tra::Tile&) const {
    std::vector<int64_t> out = inputs[0];
    out.push_back(sets.add());
    return out;
  }
  std::vector<int64_t> operator()(const tra::Concat& op) const {
    return project(inputs[0], complement({op.key_dim}, static_cast<int64_t>(inputs[0].size())));
  }
  std::vector<int64_t> operator()(const tra::Upsert&) const {
    for (size_t d = 0; d < inputs[0].size(); ++d) sets.unite(inputs[0][d], inputs[1][d]);
    return inputs[0];
  }
  std::vector<int64_t> operator()(const tra::Call& call) const {
    std::map<char, int64_t> known;
    for (size_t i = 0; i < inputs.size(); ++i) {
      for (const char letter : call.operands[i]) {
        const auto dim = relation::key_of(call.operands[i], node.input(i)->type(), letter);
        if (!dim) continue;
        const auto [at, fresh] = known.emplace(letter, inputs[i][*dim]);
        if (!fresh) sets.unite(at->second, inputs[i][*dim]);
      }
    }
    std::vector<int64_t> out;
    const std::string& letters = call.result().letters;
    for (const char letter : letters) {
      if (!relation::key_of(letters, node.type(), letter)) continue;
      const auto at = known.find(letter);
      out.push_back(at != known.end() ? at->second : sets.add());
    }
    return out;
  }
};

}  // namespace

LabelClasses::LabelClasses(const tra::Plan& plan) {
  DisjointSets sets;
  for (const auto& node : plan.order()) {
    std::vector<std::vector<int64_t>> inputs;
    for (const auto& input : node->inputs()) inputs.push_back(labels_.at(input.get()));
    labels_[node.get()] = std::visit(Derive{*node, inputs, sets}, node->operation());
  }
  for (const auto& output : plan.outputs()) {
    if (!output.tied_input) continue;
    for (const auto& input : plan.inputs()) {
      if (input->as<tra::Input>()->name != *output.tied_input) continue;
      const auto& a = labels_.at(input.get());
      const auto& b = labels_.at(output.node.get());
      for (size_t d = 0; d < a.size(); ++d) sets.unite(a[d], b[d]);
    }
  }
  std::unordered_map<int64_t, int64_t> number;
  const auto names = tra::node_names(plan);
  for (const auto& node : plan.order()) {
    auto& labels = labels_.at(node.get());
    for (size_t d = 0; d < labels.size(); ++d) {
      const auto [at, fresh] = number.try_emplace(sets.find(labels[d]), count());
      if (fresh) names_.push_back(names.at(node.get()) + "[" + std::to_string(d) + "]");
      labels[d] = at->second;
    }
  }
}

}  // namespace joinsum::optimizer::division
