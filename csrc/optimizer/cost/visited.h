#pragma once

#include <map>
#include <string>

#include "ia/nodes.h"
#include "kernels/table.h"
#include "kernels/typing.h"

namespace joinsum::optimizer {

/// The points that a labelled kernel visits, as a relation over the keys of its calls: one axis for each letter.
struct Visited {
  kernels::Labels labels;
  std::string letters;  ///< of the axes, in their order
  RelationType relation;
};

/// Type of a local join before the kernels that follow its own.
RelationType joined_type(const ia::Node& join, const ia::LocalJoin& op);

/// Of a local join whose kernel is labelled, and of a labelled kernel that maps `input`.
Visited visited_by(const ia::Node& join, const ia::LocalJoin& op);
Visited visited_by(const RelationType& input, const kernels::Kernel& kernel);

/// Elements along each letter of a call that a site visits; none where it has nothing to do.
std::map<char, double> extents_at(const ia::Node& node, const kernels::Call& call, int64_t site);

/// Calls `visit(input, result, next)` for each kernel that follows `kernel`, which by itself gives `type`.
template <class Visit>
void each_follower(RelationType type, const kernels::Kernel& kernel, Visit visit) {
  for (const kernels::Kernel& next : kernel.then) {
    RelationType result = kernels::map_type("local_map", type, 1, KeyMap::identity(type.arity()), next);
    visit(type, result, next);
    type = std::move(result);
  }
}

/// The site that holds most elements of `relation`, and how many.
struct Busiest {
  int64_t site = 0;
  int64_t elements = 0;
};
Busiest busiest_of(const ia::Holding& holding, const RelationType& relation);

}  // namespace joinsum::optimizer
