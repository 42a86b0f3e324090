#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "kernels/table/table.h"
#include "relation/relation_type.h"

namespace joinsum::relation {

/// What the rules of typing.h share.

using KeyVisitor = std::function<bool(const Key&)>;
/// Calls its argument with each key of a relation until that returns false.
using KeySource = std::function<void(const KeyVisitor&)>;

/// The keys `keys`, or where that is null all below `frontier`.
KeySource source_of(const std::string& who, const Dims& frontier, std::shared_ptr<const std::vector<Key>> keys);

/// Extent shared by all parts of `axis`, if there is one.
std::optional<int64_t> uniform_extent(const Axis& axis);

/// A kernel in an operator of either algebra, which runs on the tuples at `keys`.
struct KernelUse {
  const std::string& who;  ///< opens messages
  const kernels::table::Kernel& kernel;
  KeySource keys;
};

/// Raises PlanError unless the kernel takes so many operands.
void check_operands(const std::string& who, const kernels::table::Kernel& kernel, int64_t operands);

/// Result axes by the kernel's form, where they follow from the operands' axes, whose key dimensions are the result's;
/// nothing where only tuple by tuple will do.
std::optional<std::vector<Axis>> symbolic_axes(const KernelUse& use, const std::vector<std::vector<Axis>>& operands);

}  // namespace joinsum::relation
