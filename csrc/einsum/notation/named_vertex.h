#pragma once

#include <optional>

#include "einsum/nodes.h"

namespace joinsum::einsum::notation {

/// A vertex as users name it: ⊗ and ⊕ by name, its labels, and the extents of those that only the result has.
struct NamedVertex {
  std::string join = "mul";       ///< a kernel, several that follow each other (`sub | square`), or an expression
  std::string aggregate = "sum";  ///< one of `aggregation_names`
  std::vector<Labels> operands;
  Labels result;
  Extents extents = {};
  Labels order = {};  ///< in which argmax and argmin count positions, where it is not the order of the operands
};

/// Names of ⊕: sum, prod, max, min, logsumexp, any, all, argmax, argmin.
const std::vector<std::string>& aggregation_names();

/// The name of the ⊕ whose kernel is `kernel`, if it does nothing to an element first.
std::optional<std::string> aggregation_name(const Kernel& kernel);

/// Whether the ⊕ of this name gives positions: argmax, argmin.
bool is_position(const std::string& aggregation);

/// Raises PlanError or KernelError for a text that is no join of so many operands, whatever their dtypes.
void check_named_join(const std::string& join, size_t operands);

/// The node of a vertex. `mul` of one operand is `id`; of truth values, under any and all, it is `min`.
///
/// argmax and argmin are two aggregations: the extreme, then the least position whose element equals it (the first that
/// is not a number, if there is one). `positions` names the input that they add, of 64-bit integers: the numbers 0, 1,
/// ... in the shape of the aggregated labels. `who` opens messages. Raises PlanError, or KernelError where a kernel
/// does not fit.
NodePtr make_named(const std::string& who, const std::vector<NodePtr>& inputs, NamedVertex vertex,
                   const std::string& positions);

}  // namespace joinsum::einsum::notation
