#pragma once

#include <map>
#include <string>
#include <vector>

#include "einsum/transforms/binary.h"
#include "ia/nodes.h"

namespace joinsum::optimizer::verification {

/// Which vertices of a graph of einsums the nodes of a physical plan compute: for a node's name, the position in
/// `vertices`, the first if it computes several. `plan` was made from `graph`, whose vertices of several operands were
/// joined in the orders `paths`. A node computes a vertex if both have one normal form, so moves do, and what rules
/// have rewritten does as far as laws tell. Nodes that compute a step of a vertex, or several vertices at once, are
/// absent.
std::map<std::string, size_t> computed_vertices(const ia::Plan& plan, const einsum::Plan& graph,
                                                const std::map<std::string, einsum::transforms::Path>& paths,
                                                const std::vector<einsum::NodePtr>& vertices);

}  // namespace joinsum::optimizer::verification
