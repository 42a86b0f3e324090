#include "sparse/kernels/argument_order.h"

#include <algorithm>
#include <utility>

namespace joinsum::sparse::kernels {
namespace {

bool compares(Operator op) {
  return op == Operator::kEqual || op == Operator::kGreater || op == Operator::kMin || op == Operator::kMax;
}

/// Nodes whose rounding decides, as they are compared.
std::vector<bool> compared(const Kernel& kernel) {
  std::vector<bool> found(kernel.body.size(), false);
  found.back() = kernel.aggregate && compares(*kernel.aggregate);
  for (size_t n = kernel.body.size(); n-- > 0;) {
    const BodyNode& node = kernel.body[n];
    for (const int64_t child : node.children) found[child] = found[child] || found[n] || compares(node.op);
  }
  return found;
}

/// The last loop that a node depends on, -1 if none, and its place among those of this loop.
using Place = std::pair<int64_t, int64_t>;

Place place_of(const Kernel& kernel, int64_t operand) {
  const std::vector<int64_t>& loops = kernel.operands[operand].loops;
  if (loops.empty()) return {-1, 0};
  const std::vector<int64_t>& walkers = kernel.loops[loops.back()].walkers;
  return {loops.back(), std::ranges::find(walkers, operand) - walkers.begin()};
}

}  // namespace

void order_arguments(Kernel& kernel) {
  if (!kernel.aggregate) return;
  const std::vector<bool> in_order = compared(kernel);
  std::vector<Place> places;
  for (size_t n = 0; n < kernel.body.size(); ++n) {
    BodyNode& node = kernel.body[n];
    Place place{-1, 0};
    if (node.kind == BodyNode::Kind::kOperand) place = place_of(kernel, node.operand);
    for (const int64_t child : node.children) place = std::max(place, places[child]);
    places.push_back(place);
    const bool is_any_order = is_associative(node.op) && is_commutative(node.op);
    if (node.children.size() < 3 || !is_any_order || in_order[n]) continue;
    std::ranges::stable_sort(node.children, {}, [&](int64_t child) { return places[child]; });
  }
}

}  // namespace joinsum::sparse::kernels
