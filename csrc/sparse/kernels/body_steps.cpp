#include "sparse/kernels/body_steps.h"

#include <algorithm>

namespace joinsum::sparse::kernels {
namespace {

/// Appends the steps of a map; returns its depth.
int64_t add_map(const BodyNode& node, int64_t n, const std::vector<int64_t>& depths, std::vector<BodyStep>& steps) {
  const std::string name = "x" + std::to_string(n);
  const std::vector<int64_t>& children = node.children;
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
  for (int64_t n = 0; n < std::ssize(kernel.body); ++n) {
    const BodyNode& node = kernel.body[n];
    if (node.kind == BodyNode::Kind::kMap) {
      depths.push_back(add_map(node, n, depths, steps));
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
