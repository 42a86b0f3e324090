#include "ia/moves.h"

namespace joinsum::ia {

std::optional<Dims> broadcast_axes(const Placement& from, const Placement& to) {
  if (to.grid() == nullptr) return std::nullopt;
  if (from.grid() == nullptr) {
    if (to.fully_replicated()) return all_dims(static_cast<int64_t>(to.grid()->states.size()));
    return std::nullopt;
  }
  Dims axes;
  for (size_t a = 0; a < to.grid()->states.size(); ++a) {
    const AxisState& state = to.grid()->states[a];
    if (state == from.grid()->states[a]) continue;
    if (!std::holds_alternative<Replicated>(state)) return std::nullopt;
    axes.push_back(static_cast<int64_t>(a));
  }
  // Of the axes that split one dimension the faster ones are gathered first.
  for (const int64_t a : axes) {
    const auto* split = std::get_if<Split>(&from.grid()->states[a]);
    if (split == nullptr) continue;
    for (const int64_t b : from.axes_splitting(split->dim)) {
      if (b > a && !position_of(axes, b)) return std::nullopt;
    }
  }
  return axes;
}

NodePtr move_to(const NodePtr& node, const Placement& target) {
  if (node->type().placement == target) return node;
  if (auto axes = broadcast_axes(node->type().placement, target)) {
    return make(Broadcast{std::move(*axes)}, {node});
  }
  return make(Shuffle{*target.grid()}, {node});
}

}  // namespace joinsum::ia
