#include "optimizer/eindecomp/paper_cost.h"

#include <algorithm>

namespace joinsum::optimizer::eindecomp {
namespace {

/// Elements of one block of an array with these labels.
double block_floats(const EinsumShape& shape, const Dims& labels, const Dims& parts) {
  double out = 1;
  for (const int64_t label : labels) {
    out *= static_cast<double>(shape.extents[label]) / static_cast<double>(parts[label]);
  }
  return out;
}

/// Blocks that are aggregated to one.
double aggregated_blocks(const EinsumShape& shape, const Dims& parts) {
  double out = 1;
  for (int64_t label = 0; label < static_cast<int64_t>(parts.size()); ++label) {
    if (!position_of(shape.result, label)) out *= static_cast<double>(parts[label]);
  }
  return out;
}

}  // namespace

double calls_of(const Dims& parts) {
  double out = 1;
  for (const int64_t count : parts) out *= static_cast<double>(count);
  return out;
}

double join_floats(const EinsumShape& shape, const Dims& parts) {
  double blocks = 0;
  for (const Dims& labels : shape.operands) blocks += block_floats(shape, labels, parts);
  return calls_of(parts) * blocks;
}

double aggregation_floats(const EinsumShape& shape, const Dims& parts) {
  const double aggregated = aggregated_blocks(shape, parts);
  return calls_of(parts) / aggregated * (aggregated - 1) * block_floats(shape, shape.result, parts);
}

double repartition_floats(const Dims& extents, const Dims& produced, const Dims& consumed) {
  double all = 1;
  double producer = 1;
  double consumer = 1;
  double common = 1;
  for (size_t axis = 0; axis < extents.size(); ++axis) {
    const auto extent = static_cast<double>(extents[axis]);
    const auto written = static_cast<double>(produced[axis]);
    const auto read = static_cast<double>(consumed[axis]);
    all *= extent;
    producer *= extent / written;
    consumer *= extent / read;
    common *= extent / std::max(written, read);
  }
  if (all == 0) return 0;
  const double consumers = all / consumer;
  const double merged = (consumer / common - 1) * consumers * (consumer + producer);
  return merged + (producer != common ? producer * consumers : 0);
}

}  // namespace joinsum::optimizer::eindecomp
