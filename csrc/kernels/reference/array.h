#pragma once

#include <vector>

#include "base/dims.h"

namespace joinsum::kernels::reference {

/// A dense array of doubles in row-major order: what the reference kernels and the interpreters compute on.
struct Array {
  Dims shape;
  std::vector<double> values;

  static Array zeros(Dims shape);
  int64_t rank() const { return static_cast<int64_t>(shape.size()); }
  int64_t count() const { return static_cast<int64_t>(values.size()); }
  double& at(const Key& index);
  double at(const Key& index) const;
  bool operator==(const Array&) const = default;
};

}  // namespace joinsum::kernels::reference
