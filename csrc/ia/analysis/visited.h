#pragma once

#include <map>
#include <string>

#include "ia/nodes.h"
#include "kernels/table/table.h"
#include "relation/typing.h"

namespace joinsum::ia::analysis {

/// The points that a labelled kernel visits, as a relation over the keys of its calls: one axis for each letter.
struct Visited {
  kernels::table::Subscripts labels;
  std::string letters;  ///< of the axes, in their order
  relation::RelationType relation;
};

/// Type of a local join before the kernels that follow its own.
relation::RelationType joined_type(const Node& join, const LocalJoin& op);

/// Type of a local aggregate before the kernels that follow its own.
relation::RelationType aggregated_type(const Node& node, const LocalAggregate& op);

/// The tuples on which a local map runs its kernels, and their type after the first one. A key map changes no array, so
/// kernels are counted on the keys that tuples come from, unless a tuple gives several.
struct Mapped {
  const Holding& holding;
  relation::RelationType relation;
};
Mapped mapped_by(const Node& node, const LocalMap& op);

/// Of a local join whose kernel is labelled, and of a labelled kernel that maps `input`.
Visited visited_by(const Node& join, const LocalJoin& op);
Visited visited_by(const relation::RelationType& input, const kernels::table::Kernel& kernel);

/// Which part of the points that a join visits meets a stored entry of its operands, at least for sparse ones whose
/// entries are spread evenly; 1 where both are dense.
double visited_share(const Node& join);

/// Elements along each letter of a call that a site visits; none where it has nothing to do.
std::map<char, double> extents_at(const Node& node, const kernels::call::Call& call, int64_t site);

/// Calls `visit(input, result, next)` for each kernel that follows `kernel`, which by itself gives `type`.
template <class Visit>
void each_follower(relation::RelationType type, const kernels::table::Kernel& kernel, Visit visit) {
  for (const kernels::table::Kernel& next : kernel.epilogue) {
    relation::RelationType result =
        relation::map_type("local_map", type, 1, relation::KeyMap::identity(type.arity()), next);
    visit(type, result, next);
    type = std::move(result);
  }
}

/// The site that holds most elements of `relation`, and how many.
struct Busiest {
  int64_t site = 0;
  int64_t elements = 0;
};
Busiest busiest_of(const Holding& holding, const relation::RelationType& relation);

}  // namespace joinsum::ia::analysis
