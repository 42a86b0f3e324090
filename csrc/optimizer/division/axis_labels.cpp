#include "optimizer/division/axis_labels.h"

namespace joinsum::optimizer::division {
namespace {

einsum::Labels single(const std::string& letters) {
  einsum::Labels out;
  for (const char letter : letters) out.emplace_back(1, letter);
  return out;
}

}  // namespace

std::vector<einsum::Labels> axis_labels(const einsum::Node& node) {
  std::vector<einsum::Labels> out;
  if (const auto* op = node.as<einsum::Einsum>()) {
    out = op->operands;
    out.push_back(op->result);
  } else if (const auto* call = node.as<einsum::Call>()) {
    for (const std::string& letters : call->operands) out.push_back(single(letters));
    out.push_back(single(call->result().letters));
  } else {
    out.emplace_back();
    for (size_t axis = 0; axis < node.type().extents.size(); ++axis) out.back().push_back(std::to_string(axis));
  }
  return out;
}

}  // namespace joinsum::optimizer::division
