#include "sparse/kernels/body_steps.h"

#include <algorithm>

namespace joinsum::sparse::kernels {
namespace {

bool compares(Operator op) {
  return op == Operator::kEqual || op == Operator::kGreater || op == Operator::kMin || op == Operator::kMax;
}

/// Nodes whose rounding decides, as they are compared: the same expression must round alike in every kernel.
std::vector<bool> compared(const Kernel& kernel) {
  std::vector<bool> found(kernel.body.size(), false);
  found.back() = kernel.aggregate && compares(*kernel.aggregate);
  for (size_t n = kernel.body.size(); n-- > 0;) {
    const BodyNode& node = kernel.body[n];
    for (const int64_t child : node.children) found[child] = found[child] || found[n] || compares(node.op);
  }
  return found;
}

/// Appends the steps of a map; returns its depth. What does not change in inner loops comes first, unless arguments are
/// taken `in_order`.
int64_t add_map(const BodyNode& node, int64_t n, bool in_order, const std::vector<int64_t>& depths,
                std::vector<BodyStep>& steps) {
  const std::string name = "x" + std::to_string(n);
  std::vector<int64_t> children = node.children;
  if (is_associative(node.op) && is_commutative(node.op) && !in_order) {
    std::ranges::stable_sort(children, {}, [&](int64_t child) { return depths[child]; });
  }
  BodyStep step{.kind = BodyStep::Kind::kMap, .node = n, .depth = depths[children[0]]};
  step.left = "x" + std::to_string(children[0]);
  if (children.size() == 1) {
    step.name = name;
    steps.push_back(step);
    return step.depth;
  }
  for (size_t i = 1; i < children.size(); ++i) {
    step.finishes = i + 1 == children.size();
    step.name = step.finishes ? name : name + "_" + std::to_string(i);
    step.right = "x" + std::to_string(children[i]);
    step.depth = std::max(step.depth, depths[children[i]]);
    steps.push_back(step);
    step.left = step.name;
  }
  return step.depth;
}

}  // namespace

std::vector<BodyStep> body_steps(const Kernel& kernel) {
  std::vector<BodyStep> steps;
  std::vector<int64_t> depths;
  const std::vector<bool> in_order = compared(kernel);
  for (int64_t n = 0; n < std::ssize(kernel.body); ++n) {
    const BodyNode& node = kernel.body[n];
    if (node.kind == BodyNode::Kind::kMap) {
      depths.push_back(add_map(node, n, in_order[n] && node.children.size() > 2, depths, steps));
      continue;
    }
    BodyStep step{.node = n, .name = "x" + std::to_string(n)};
    if (node.kind == BodyNode::Kind::kOperand) {
      step.kind = BodyStep::Kind::kOperand;
      const std::vector<int64_t>& loops = kernel.operands[node.operand].loops;
      step.depth = loops.empty() ? -1 : loops.back();
    }
    depths.push_back(step.depth);
    steps.push_back(step);
  }
  return steps;
}

}  // namespace joinsum::sparse::kernels
