#include "optimizer/division/key_dims.h"

#include <algorithm>

#include "relation/call_typing.h"
#include "relation/typing.h"

namespace joinsum::optimizer::division {
namespace {

std::vector<KeyDim> dims_of_join(const tra::Node& node, const tra::Join& op) {
  const int64_t left = node.input(0)->type().arity();
  std::vector<KeyDim> out;
  for (const int64_t keys : node.type().frontier) out.push_back({keys, {}});
  for (int64_t dim = 0; dim < left; ++dim) out[dim].at.emplace_back(0, dim);
  const Dims right =
      relation::JoinKeys{op.left_keys, op.right_keys}.right_position(left, node.input(1)->type().arity());
  for (size_t dim = 0; dim < right.size(); ++dim) out[right[dim]].at.emplace_back(1, dim);
  return out;
}

std::vector<KeyDim> dims_of_call(const tra::Node& node, const tra::Call& call) {
  std::string letters;
  std::vector<KeyDim> out;
  for (size_t i = 0; i < call.operands.size(); ++i) {
    const relation::RelationType& operand = node.input(i)->type();
    for (const char letter : call.operands[i]) {
      const auto dim = relation::key_of(call.operands[i], operand, letter);
      if (!dim || call.undivided.find(letter) != std::string::npos) continue;
      const size_t number = std::min(letters.find(letter), letters.size());
      if (number == letters.size()) {
        letters += letter;
        out.push_back({operand.frontier[*dim], {}});
      }
      out[number].at.emplace_back(i, *dim);
    }
  }
  return out;
}

}  // namespace

std::optional<int64_t> KeyDim::of(size_t operand) const {
  const auto found = std::find_if(at.begin(), at.end(), [&](const auto& each) { return each.first == operand; });
  return found == at.end() ? std::nullopt : std::optional(found->second);
}

std::vector<KeyDim> key_dims(const tra::Node& node) {
  if (const auto* join = node.as<tra::Join>()) return dims_of_join(node, *join);
  if (const auto* call = node.as<tra::Call>()) return dims_of_call(node, *call);
  std::vector<KeyDim> out;
  for (const int64_t keys : node.input(0)->type().frontier)
    out.push_back({keys, {{0, static_cast<int64_t>(out.size())}}});
  return out;
}

}  // namespace joinsum::optimizer::division
