#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "kernels/call/call.h"
#include "relation/relation_type.h"

namespace joinsum::relation {

/// How the result is cut: as the operands are along each letter. Raises PlanError where a letter is cut otherwise in
/// one operand than in another, or an operand is no tensor's relation.
RelationType call_type(const std::string& who, const kernels::call::Call& call,
                       const std::vector<RelationType>& operands);

/// The axis of each letter, as `operands` have it; of a letter that the results add, as they are cut.
std::map<char, Axis> letters_of(const std::string& who, const kernels::call::Call& call,
                                const std::vector<RelationType>& operands);

/// Key dimension of `letter` in a relation whose axes have these letters; nothing where it is not cut, or not there.
std::optional<int64_t> key_of(const std::string& letters, const RelationType& relation, char letter);

}  // namespace joinsum::relation
