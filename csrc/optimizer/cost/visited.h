#pragma once

#include <string>

#include "ia/nodes.h"
#include "kernels/table.h"

namespace joinsum::optimizer {

/// The points that a labelled kernel visits, as a relation over the keys of its calls: one axis for each letter.
struct Visited {
  kernels::Labels labels;
  std::string letters;  ///< of the axes, in their order
  RelationType relation;
};

/// Of a local join, or of a local map, whose kernel is labelled.
Visited visited_by(const ia::Node& join, const ia::LocalJoin& op);
Visited visited_by(const ia::Node& map, const ia::LocalMap& op);

/// The site that holds most elements of `relation`, and how many.
struct Busiest {
  int64_t site = 0;
  int64_t elements = 0;
};
Busiest busiest_of(const ia::Holding& holding, const RelationType& relation);

}  // namespace joinsum::optimizer
