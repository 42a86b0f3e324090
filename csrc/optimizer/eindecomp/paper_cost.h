#pragma once

#include <vector>

#include "base/dims.h"

namespace joinsum::optimizer::eindecomp {

/// An einsum whose labels are numbered 0, 1, ...: an extent per label, and the labels of each axis.
struct EinsumShape {
  Dims extents;
  std::vector<Dims> operands;
  Dims result;
};

// The EinDecomp paper's costs: elements that move in the worst case, when every block is needed on another processor
// than where it is. `parts` is a partition vector: the number of parts of each label. Sources: EinDecomp paper,
// section 7; what is printed wrong there is in docs/deviations.md.

/// Kernel calls: the product of `parts`.
double calls_of(const Dims& parts);

/// Elements that arrive at the kernel calls: each call gets one block of each operand.
double join_floats(const EinsumShape& shape, const Dims& parts);

/// Elements that move to be aggregated: of the blocks that add up to one, all but one move.
double aggregation_floats(const EinsumShape& shape, const Dims& parts);

/// Elements that move between a producer that cuts a tensor of these extents in `produced` parts by axis and a
/// consumer that reads it in `consumed` parts. Not symmetric. Exact where each part count divides the extent, and the
/// lesser of two counts divides the greater one.
double repartition_floats(const Dims& extents, const Dims& produced, const Dims& consumed);

}  // namespace joinsum::optimizer::eindecomp
