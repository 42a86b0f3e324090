#include "relation/call_typing.h"

#include <algorithm>

#include "relation/typing.h"

namespace joinsum::relation {

std::optional<int64_t> key_of(const std::string& letters, const RelationType& relation, char letter) {
  const size_t at = letters.find(letter);
  if (at == std::string::npos || !relation.axes[at].linked()) return std::nullopt;
  return relation.axes[at].key_dim;
}

std::map<char, Axis> letters_of(const std::string& who, const kernels::call::Call& call,
                                const std::vector<RelationType>& operands) {
  std::vector<Dims> shapes;
  for (const RelationType& relation : operands) {
    if (!kernels::call::takes_sparse(call)) check_dense(who, relation);
    Dims keys;
    for (const Axis& axis : relation.axes) {
      if (axis.linked()) keys.push_back(axis.key_dim);
    }
    std::sort(keys.begin(), keys.end());
    JOINSUM_USER_CHECK(relation.regular() && keys == all_dims(relation.arity()), who,
                       ": an operand's relation has each key once, and each key dimension cuts one axis: type=",
                       relation.text(), ", call=", call.text());
    Dims& shape = shapes.emplace_back();
    for (const Axis& axis : relation.axes) shape.push_back(axis.extent);
  }
  kernels::call::extents_of(call, shapes);
  std::map<char, Axis> out;
  for (size_t i = 0; i < operands.size(); ++i) {
    for (size_t a = 0; a < call.operands[i].size(); ++a) {
      const Axis& axis = operands[i].axes[a];
      const char letter = call.operands[i][a];
      const auto known = out.emplace(letter, axis).first;
      const CutPoints whole{0, axis.extent};
      const CutPoints& before = known->second.linked() ? known->second.cuts : whole;
      JOINSUM_USER_CHECK(before == (axis.linked() ? axis.cuts : whole), who,
                         ": a letter is cut at different points; give its axes the same parts: letter=", letter,
                         ", cuts=", before, " and ", axis.linked() ? axis.cuts : whole, ", call=", call.text());
      if (axis.linked()) known->second = axis;
    }
  }
  for (const auto& [letter, fresh] : call.extents) {
    out[letter] = fresh.parts > 1 ? Axis::cut(0, even_cuts(fresh.extent, fresh.parts)) : Axis::whole(fresh.extent);
  }
  return out;
}

RelationType call_type(const std::string& who, const kernels::call::Call& call,
                       const std::vector<RelationType>& operands) {
  const auto letters = letters_of(who, call, operands);
  Dims frontier;
  std::vector<Axis> axes;
  for (const char letter : call.result().letters) {
    Axis axis = letters.at(letter);
    if (axis.linked()) {
      axis.key_dim = static_cast<int64_t>(frontier.size());
      frontier.push_back(static_cast<int64_t>(axis.cuts.size()) - 1);
    }
    axes.push_back(std::move(axis));
  }
  RelationType type = RelationType::make(who, call.result().dtype, std::move(frontier), std::move(axes));
  type.entries = call.result().entries;
  return type;
}

}  // namespace joinsum::relation
