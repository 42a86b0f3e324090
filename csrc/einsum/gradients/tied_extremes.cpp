#include "einsum/gradients/tied_extremes.h"

namespace joinsum::einsum::gradients {

void TiedTerms::count(const NodePtr& end, const std::unordered_set<const Node*>& operands) {
  std::unordered_map<const Node*, Terms> terms;
  for (const NodePtr& node : topological<Node>({end}, operands)) {
    std::vector<Terms>& inputs = operands_[node.get()];
    for (const NodePtr& input : node->inputs()) inputs.push_back(terms[input.get()]);
    terms[node.get()] = step(node, inputs);
  }
  ends_[end.get()] = terms[end.get()];
}

TiedTerms::Terms TiedTerms::step(const NodePtr& node, const std::vector<Terms>& operands) {
  const Einsum& op = *node->as<Einsum>();
  const Terms& first = operands[0];
  if (operands.size() == 2) {
    const Terms& second = operands[1];
    if (!first || !second) return first ? first : second;
    return einsum(*first, *second, labels_of({first->labels, second->labels}), {}, kMul);
  }
  if (op.aggregate == kAdd) return first;
  const Labelled x{node->input(0), op.operands[0]};
  const auto whole = aggregations_.find(node.get());
  const NodePtr& extreme = whole == aggregations_.end() ? node : whole->second;
  const Labelled& ties = ties_[node.get()] = einsum(x, {extreme, op.result}, x.labels, {}, Kernel{"equal", {}});
  return first ? einsum(ties, *first, op.result, {}, kMul) : einsum(ties, op.result, {});
}

Labelled TiedTerms::shared(const Node& node, const Labelled& d) const {
  const auto end = ends_.find(&node);
  if (end == ends_.end() || !end->second) return d;
  return einsum(d, *end->second, d.labels, {}, Kernel{"div", {}});
}

Labelled TiedTerms::passed(const Node& node, size_t i, const Labelled& d) const {
  const auto operands = operands_.find(&node);
  if (operands == operands_.end() || operands->second.size() < 2) return d;
  const Terms& other = operands->second[1 - i];
  return other ? einsum(d, *other, d.labels, {}, kMul) : d;
}

}  // namespace joinsum::einsum::gradients
