#pragma once

#include <map>
#include <string>

#include "sparse/physical/physical.h"

namespace joinsum::sparse::physical {

/// A text that two queries share only if they compute the same: indices are numbered by first use, the arguments of
/// commutative operators are ordered, and results of other queries stand under the names in `same_as`.
/// Source: Galley, section 6.4.
std::string canonical_text(const LogicalQuery& query, const std::vector<LevelFormat>& formats, const IndexSpace& space,
                           const std::map<std::string, std::string>& same_as);

}  // namespace joinsum::sparse::physical
