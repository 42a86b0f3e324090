#include "kernels/sparse/arrays.h"

#include <map>
#include <numeric>

#include "base/check.h"
#include "kernels/dense/dense.h"

namespace joinsum::kernels::sparse {

using joinsum::sparse::operators::Operator;
using joinsum::sparse::tensor::Array;
using joinsum::sparse::tensor::Coordinates;
using joinsum::sparse::tensor::Level;
using joinsum::sparse::tensor::LevelFormat;
using joinsum::sparse::tensor::Tensor;
using joinsum::sparse::tensor::Values;

namespace {

/// A first level is dense where it has at most this many times as many coordinates as elements are stored.
constexpr int64_t kRowsPerEntry = 4;

Operator operator_of(const std::string& reduction) {
  static const std::map<std::string, Operator> table = {{"add", Operator::kAdd},
                                                        {"mul", Operator::kMultiply},
                                                        {"min", Operator::kMin},
                                                        {"max", Operator::kMax},
                                                        {"logaddexp", Operator::kLogAddExp}};
  const auto found = table.find(reduction);
  JOINSUM_KERNEL_CHECK(found != table.end(), "sparse arrays are not reduced by this kernel; there are add, mul, min, ",
                       "max and logaddexp: kernel=", reduction);
  return found->second;
}

}  // namespace

Values values_of(const at::Tensor& tensor) {
  return {dense::dtype_of(tensor.scalar_type()), array_of<std::byte>(tensor)};
}

at::Tensor tensor_of(const Values& values) { return tensor_of(values.bytes, dense::scalar_type(values.dtype)); }

Coordinates coordinates_of(const at::Tensor& coo) {
  Coordinates out{.shape = coo.sizes().vec(), .axes = {}, .values = values_of(coo._values().contiguous())};
  const at::Tensor indices = coo._indices().contiguous();
  for (int64_t axis = 0; axis < coo.dim(); ++axis) out.axes.push_back(array_of<int64_t>(indices.select(0, axis)));
  return out;
}

at::Tensor coo_of(const Coordinates& elements) {
  const int64_t count = elements.count();
  const at::Tensor indices = at::empty({static_cast<int64_t>(elements.shape.size()), count}, at::kLong);
  auto* out = indices.mutable_data_ptr<int64_t>();
  for (const Array<int64_t>& axis : elements.axes) out = std::copy(axis.begin(), axis.end(), out);
  const at::Tensor values = tensor_of(elements.values);
  return at::_sparse_coo_tensor_unsafe(indices, values, elements.shape, values.options().layout(at::kSparse),
                                       /*is_coalesced=*/true);
}

Tensor levels_of(const at::Tensor& tensor, double fill) {
  const auto rank = static_cast<size_t>(tensor.dim());
  std::vector<int64_t> axes(rank);
  std::iota(axes.begin(), axes.end(), 0);
  if (!tensor.is_sparse()) {
    Tensor out{.shape = tensor.sizes().vec(), .axes = axes, .fill = fill};
    for (const int64_t extent : out.shape) out.levels.push_back(Level{.format = LevelFormat::kDense, .size = extent});
    out.values = values_of(tensor.contiguous());
    return out;
  }
  std::vector<LevelFormat> formats(rank, LevelFormat::kSortedList);
  if (rank > 1 && tensor.size(0) <= kRowsPerEntry * tensor._nnz()) formats.front() = LevelFormat::kDense;
  return from_coordinates(coordinates_of(tensor), axes, formats, fill);
}

at::Tensor folded(const std::vector<at::Tensor>& parts, const std::string& reduction) {
  const Operator fold = operator_of(reduction);
  if (parts.size() == 1) return parts.front();
  std::vector<at::Tensor> indices, values;
  for (const at::Tensor& part : parts) {
    indices.push_back(part._indices());
    values.push_back(part._values());
  }
  const at::Tensor all = at::_sparse_coo_tensor_unsafe(at::cat(indices, 1), at::cat(values), parts.front().sizes(),
                                                       parts.front().options(), /*is_coalesced=*/false);
  if (fold == Operator::kAdd && !at::isIntegralType(all.scalar_type(), true) && all.scalar_type() != at::kFloat &&
      all.scalar_type() != at::kDouble) {
    return all.coalesce();  // of half and complex numbers
  }
  const Coordinates elements = coordinates_of(all);
  std::vector<int64_t> axes(elements.shape.size());
  std::iota(axes.begin(), axes.end(), 0);
  const std::vector<LevelFormat> lists(axes.size(), LevelFormat::kSortedList);
  return coo_of(to_coordinates(from_coordinates(elements, axes, lists, 0, fold)));
}

}  // namespace joinsum::kernels::sparse
