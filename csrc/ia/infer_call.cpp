#include <algorithm>
#include <set>
#include <string>

#include "ia/infer.h"
#include "relation/call_typing.h"

namespace joinsum::ia {
namespace {

/// What one grid axis does with the result of a call.
class CallState {
 public:
  CallState(const kernels::call::Call& call, const std::vector<const PhysicalType*>& inputs, size_t axis)
      : call_(call), inputs_(inputs), axis_(axis) {}

  AxisState run(const RelationType& result) const {
    const auto divided = division();
    if (!divided) return Replicated{};
    const auto [letter, domain] = *divided;
    if (const auto key = relation::key_of(call_.result().letters, result, letter)) return Split{*key, domain};
    const auto by = call_.reduce.find(letter);
    return by == call_.reduce.end() ? AxisState(Replicated{}) : Pending{by->second};
  }

  /// The kernel that reduces the partials of results that lack the letter by which the axis divides operands.
  std::optional<std::string> reduction() const {
    const auto divided = division();
    const auto by = divided ? call_.reduce.find(divided->first) : call_.reduce.end();
    return by == call_.reduce.end() ? std::nullopt : std::optional(by->second);
  }

 private:
  /// The letter by which the axis divides all operands that have it, and the domain of the split.
  std::optional<std::pair<char, int64_t>> division() const {
    std::optional<std::pair<char, int64_t>> divided;
    for (size_t i = 0; i < inputs_.size(); ++i) {
      const auto letter = divided_letter(i);
      if (!letter) continue;
      check(!divided || divided == letter, i);
      divided = letter;
    }
    if (!divided) return std::nullopt;
    const char letter = divided->first;
    for (size_t i = 0; i < inputs_.size(); ++i) {
      const bool has = call_.operands[i].find(letter) != std::string::npos;
      check(!has || divided_letter(i), i);
    }
    JOINSUM_USER_CHECK(
        call_.undivided.find(letter) == std::string::npos,
        "local_call: an operand is divided by a letter that the call needs undivided; broadcast it: letter=", letter,
        ", call=", call_.text());
    return divided;
  }

  /// The letter by which the axis divides operand `i`, and the domain of the split.
  std::optional<std::pair<char, int64_t>> divided_letter(size_t i) const {
    const auto* split = std::get_if<Split>(&inputs_[i]->placement.grid()->states[axis_]);
    if (split == nullptr) return std::nullopt;
    for (const char letter : call_.operands[i]) {
      if (relation::key_of(call_.operands[i], inputs_[i]->relation, letter) == split->dim)
        return std::pair(letter, split->domain);
    }
    return std::nullopt;
  }

  void check(bool meets, size_t operand) const {
    JOINSUM_USER_CHECK(meets, "local_call: operands do not meet on one site; shuffle them by the same letter, ",
                       "or broadcast one: grid axis=", axis_, ", operand=", operand,
                       ", type=", inputs_[operand]->text(), ", call=", call_.text());
  }

  const kernels::call::Call& call_;
  const std::vector<const PhysicalType*>& inputs_;
  size_t axis_;
};

/// The box of result keys that follow from the keys that a site holds of the operands.
std::optional<Box> called_box(const kernels::call::Call& call, const std::vector<const PhysicalType*>& inputs,
                              int64_t site, const RelationType& result) {
  Box box = Box::below(result.frontier);
  for (size_t i = 0; i < inputs.size(); ++i) {
    const auto& held = inputs[i]->holding.box(site);
    if (!held) return std::nullopt;
    for (const char letter : call.operands[i]) {
      const auto from = relation::key_of(call.operands[i], inputs[i]->relation, letter);
      const auto to = relation::key_of(call.result().letters, result, letter);
      if (!from || !to) continue;
      box.lower[*to] = held->lower[*from];
      box.upper[*to] = held->upper[*from];
    }
  }
  return box;
}

}  // namespace

PhysicalType infer_call(const LocalCall& op, const std::vector<const PhysicalType*>& inputs) {
  const kernels::call::Call& call = op.call;
  JOINSUM_USER_CHECK(!inputs.empty(), "local_call: at least one operand: call=", call.text());
  std::vector<RelationType> relations;
  for (const PhysicalType* input : inputs) {
    JOINSUM_USER_CHECK(input->grid == inputs[0]->grid && input->placement.grid() != nullptr &&
                           !input->placement.pending() && input->holding.regular(),
                       "local_call: operands are reduced on one grid; shuffle or broadcast first: type=", input->text(),
                       ", call=", call.text());
    relations.push_back(input->relation);
  }
  RelationType relation = relation::call_type("local_call", call, relations);
  GridPlacement placement;
  std::set<std::string> reductions;  // of all results, so that a division fits all or none
  for (size_t axis = 0; axis < inputs[0]->grid.axes.size(); ++axis) {
    const CallState state(call, inputs, axis);
    placement.states.push_back(state.run(relation));
    if (auto reduction = state.reduction()) reductions.insert(std::move(*reduction));
  }
  JOINSUM_USER_CHECK(reductions.size() < 2, "local_call: partials of different reductions: call=", call.text());
  std::vector<std::optional<Box>> boxes;
  for (int64_t site = 0; site < inputs[0]->sites(); ++site) boxes.push_back(called_box(call, inputs, site, relation));
  return {std::move(relation), inputs[0]->grid, Placement(std::move(placement)), Holding::of_boxes(std::move(boxes))};
}

}  // namespace joinsum::ia
