#include "runtime/storage/sparse_array.h"

#include "base/check.h"
#include "kernels/dense/dense.h"

namespace joinsum::runtime::storage {
namespace {

/// Entries in row-major order, without repeats.
at::Tensor in_order(const at::Tensor& indices, const at::Tensor& values, at::IntArrayRef shape) {
  const auto options = values.options().layout(at::kSparse);
  return at::_sparse_coo_tensor_unsafe(indices, values, shape, options, /*is_coalesced=*/true);
}

/// Of each entry, row-major.
at::Tensor positions_of(const at::Tensor& sparse) {
  const at::Tensor indices = sparse._indices();
  at::Tensor position = at::zeros({sparse._nnz()}, indices.options());
  for (int64_t axis = 0; axis < sparse.dim(); ++axis) position.mul_(sparse.size(axis)).add_(indices.select(0, axis));
  return position;
}

}  // namespace

at::Tensor as_sparse_array(const at::Tensor& array) {
  JOINSUM_USER_CHECK(array.layout() == at::kSparse && array.dense_dim() == 0,
                     "relation: sparse arrays are torch.sparse_coo tensors without dense axes: layout=",
                     array.layout() == at::kSparse ? "sparse_coo" : "another",
                     ", dense axes=", array.layout() == at::kSparse ? array.dense_dim() : 0);
  return array.detach().coalesce();
}

at::Tensor geometry_of(const at::Tensor& sparse) {
  return at::empty(sparse.sizes(), at::TensorOptions().dtype(sparse.scalar_type()).device(at::kMeta));
}

at::Tensor part_of(const at::Tensor& sparse, const at::Tensor& view) {
  if (view.sizes() == sparse.sizes()) return sparse;
  JOINSUM_CHECK(view.dim() == sparse.dim(), "axes of a part=", view.dim(), ", of the array=", sparse.dim());
  const at::Tensor indices = sparse._indices();
  at::Tensor inside = at::ones({sparse._nnz()}, indices.options().dtype(at::kBool));
  Dims begins;
  int64_t rest = view.storage_offset();
  for (int64_t axis = 0; axis < view.dim(); ++axis) {
    const int64_t stride = view.stride(axis);
    begins.push_back(stride == 0 ? 0 : rest / stride);
    rest -= begins.back() * stride;
    if (view.size(axis) == sparse.size(axis)) continue;
    const at::Tensor at = indices.select(0, axis);
    inside.logical_and_(at.ge(begins.back())).logical_and_(at.lt(begins.back() + view.size(axis)));
  }
  JOINSUM_CHECK(rest == 0, "a view of a sparse block is no box of it");
  const at::Tensor which = inside.nonzero().squeeze(1);
  const at::Tensor offset = at::tensor(begins, indices.options()).unsqueeze(1);
  return in_order(indices.index_select(1, which).sub_(offset), sparse._values().index_select(0, which), view.sizes());
}

at::Tensor put_together(const std::vector<std::pair<Dims, at::Tensor>>& parts, const Dims& shape,
                        at::ScalarType dtype) {
  const auto rank = static_cast<int64_t>(shape.size());
  std::vector<at::Tensor> indices{at::empty({rank, 0}, at::kLong)};
  std::vector<at::Tensor> values{at::empty({0}, dtype)};
  for (const auto& [offset, array] : parts) {
    indices.push_back(array._indices() + at::tensor(offset, at::kLong).unsqueeze(1));
    values.push_back(array._values());
  }
  const auto options = at::TensorOptions().dtype(dtype).layout(at::kSparse);
  return at::_sparse_coo_tensor_unsafe(at::cat(indices, 1), at::cat(values), shape, options, false).coalesce();
}

at::Tensor entries_between(const at::Tensor& sparse, int64_t begin, int64_t end) {
  if (begin == 0 && end == sparse.numel()) return sparse;
  const at::Tensor indices = sparse._indices();
  const at::Tensor ends = at::searchsorted(positions_of(sparse), at::tensor({begin, end}, indices.options()));
  const auto first = ends[0].item<int64_t>();
  const int64_t count = ends[1].item<int64_t>() - first;
  return in_order(indices.narrow(1, first, count), sparse._values().narrow(0, first, count), sparse.sizes());
}

at::Tensor reshaped(const at::Tensor& array, at::IntArrayRef shape) {
  if (!array.is_sparse() || array.sizes() == shape) return array.is_sparse() ? array : array.reshape(shape);
  at::Tensor position = positions_of(array);
  const at::Tensor indices = at::empty({static_cast<int64_t>(shape.size()), array._nnz()}, position.options());
  for (auto axis = static_cast<int64_t>(shape.size()) - 1; axis >= 0; --axis) {
    const int64_t extent = std::max<int64_t>(shape[axis], 1);
    indices.select(0, axis).copy_(at::remainder(position, extent));
    position = at::floor_divide(position, extent);
  }
  return in_order(indices, array._values(), shape);
}

at::Tensor with_values(const at::Tensor& sparse, const at::Tensor& values) {
  return in_order(sparse._indices(), values, sparse.sizes());
}

double stored_share(c10::ArrayRef<at::Tensor> operands) {
  double share = 1;
  for (const at::Tensor& operand : operands) {
    if (operand.is_sparse() && operand.numel() > 0)
      share *= static_cast<double>(operand._nnz()) / static_cast<double>(operand.numel());
  }
  return share;
}

int64_t stored_bytes(const at::Tensor& sparse) {
  return static_cast<int64_t>(sparse._indices().nbytes() + sparse._values().nbytes());
}

at::Tensor to_bytes(const at::Tensor& sparse) {
  const at::Tensor indices = kernels::dense::bytes_of(sparse._indices().contiguous());
  return at::cat({indices, kernels::dense::bytes_of(sparse._values().contiguous())});
}

at::Tensor from_bytes(const at::Tensor& bytes, const Dims& shape, at::ScalarType dtype) {
  const auto rank = static_cast<int64_t>(shape.size());
  const auto each = rank * static_cast<int64_t>(sizeof(int64_t)) + static_cast<int64_t>(c10::elementSize(dtype));
  JOINSUM_CHECK(bytes.numel() % each == 0, "bytes=", bytes.numel(), ", of an entry=", each);
  const int64_t entries = bytes.numel() / each;
  const int64_t split = entries * rank * static_cast<int64_t>(sizeof(int64_t));
  // Copies, as the values might not be aligned.
  const at::Tensor indices = bytes.narrow(0, 0, split).clone().view(at::kLong).view({rank, entries});
  return in_order(indices, bytes.narrow(0, split, bytes.numel() - split).clone().view(dtype), shape);
}

}  // namespace joinsum::runtime::storage
