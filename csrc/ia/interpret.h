#pragma once

#include <map>

#include "ia/nodes.h"
#include "relation/tuples.h"

namespace joinsum::ia {

/// A physical relation, tuple by tuple: key, array and site.
struct Tuple {
  Key key;
  kernels::reference::Array array;
  int64_t site = 0;
};
using Relation = std::vector<Tuple>;

/// The logical content: each tuple once, whatever its replicas; partial values reduced in site order.
using Contents = relation::Tuples;

/// Places the tuples of a logical relation as an input's type says.
Relation place(const Contents& contents, const PhysicalType& type);

/// Runs a plan on lists of tuples by the definitions of section 4, naively. Also proves the types' promises: raises
/// InternalError if what a node leaves on a site is not what its type's holding says, or if replicas differ.
std::map<std::string, Relation> interpret(const Plan& plan, const std::map<std::string, Contents>& inputs,
                                          const kernels::table::Scalars& scalars = {});

/// What a physical relation holds, sites projected away, ascending by key, equal keys by array.
Contents contents(const Relation& relation, const PhysicalType& type);

}  // namespace joinsum::ia
