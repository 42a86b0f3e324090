#pragma once

#include <optional>

#include "einsum/nodes.h"

namespace joinsum::einsum::gradients {

inline const Kernel kId{"id", {}};
inline const Kernel kAdd{"add", {}};
inline const Kernel kMul{"mul", {}};

/// A tensor with a label for each axis.
struct Labelled {
  NodePtr node;
  Labels labels;
};

/// Labels `a`, `b`, ... for a tensor's axes.
Labels fresh_labels(size_t count);

/// `map` of each element.
Labelled mapped(const Labelled& x, const Kernel& map);

/// The complex conjugate; of real numbers they themselves.
Labelled conjugate(const Labelled& x);

/// An einsum of one operand, with extents for labels that only the result has.
Labelled einsum(const Labelled& x, const Labels& result, const Extents& extents, const Kernel& map = kId,
                const Kernel& aggregate = kAdd);

/// An einsum of two operands, summed over the labels that the result lacks.
Labelled einsum(const Labelled& x, const Labelled& y, const Labels& result, const Extents& extents, const Kernel& join);

}  // namespace joinsum::einsum::gradients
