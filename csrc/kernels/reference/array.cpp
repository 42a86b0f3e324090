#include "kernels/reference/array.h"

namespace joinsum::kernels::reference {
namespace {

size_t offset_of(const Dims& shape, const Key& index) {
  JOINSUM_CHECK(index.size() == shape.size(), "index=", index, ", shape=", shape);
  int64_t offset = 0;
  for (size_t d = 0; d < shape.size(); ++d) {
    JOINSUM_CHECK(index[d] >= 0 && index[d] < shape[d], "index=", index, ", shape=", shape);
    offset = offset * shape[d] + index[d];
  }
  return static_cast<size_t>(offset);
}

}  // namespace

Array Array::zeros(Dims shape) {
  const int64_t count = checked_product("array", shape);
  return {std::move(shape), std::vector<double>(static_cast<size_t>(count), 0.0)};
}

double& Array::at(const Key& index) { return values[offset_of(shape, index)]; }

double Array::at(const Key& index) const { return values[offset_of(shape, index)]; }

}  // namespace joinsum::kernels::reference
