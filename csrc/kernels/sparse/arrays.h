#pragma once

#include <string>
#include <vector>

#include <ATen/ATen.h>

#include "base/dims.h"
#include "sparse/tensor/tensor.h"

/// Sparse tensors as torch's: their arrays share memory with torch's tensors, which they keep, and the other way round.
namespace joinsum::kernels::sparse {

/// A view of a contiguous tensor's memory.
template <class T>
joinsum::sparse::tensor::Array<T> array_of(const at::Tensor& tensor) {
  JOINSUM_CHECK(tensor.device().is_cpu() && tensor.layout() == at::kStrided && tensor.is_contiguous() &&
                tensor.nbytes() % sizeof(T) == 0);
  auto owner = std::make_shared<at::Tensor>(tensor);
  const auto* data = static_cast<const T*>(tensor.const_data_ptr());
  return {std::move(owner), data, static_cast<int64_t>(tensor.nbytes() / sizeof(T))};
}

joinsum::sparse::tensor::Values values_of(const at::Tensor& tensor);

/// A flat tensor.
template <class T>
at::Tensor tensor_of(const joinsum::sparse::tensor::Array<T>& array, at::ScalarType type) {
  const auto count = array.size() * static_cast<int64_t>(sizeof(T)) / static_cast<int64_t>(c10::elementSize(type));
  // torch has no tensors that cannot be written; joinsum writes to none of these.
  return at::from_blob(const_cast<T*>(array.data()), {count}, [array](void*) {}, at::TensorOptions().dtype(type));
}

at::Tensor tensor_of(const joinsum::sparse::tensor::Values& values);

/// The stored elements of a coalesced `torch.sparse_coo` tensor without dense axes. And back, of ascending ones.
joinsum::sparse::tensor::Coordinates coordinates_of(const at::Tensor& coo);
at::Tensor coo_of(const joinsum::sparse::tensor::Coordinates& elements);

/// A tensor for kernels: a dense one is all dense levels; a coalesced `torch.sparse_coo` one sorted lists below a first
/// dense level where its rows are few enough.
joinsum::sparse::tensor::Tensor levels_of(const at::Tensor& tensor, double fill);

/// Coalesced `torch.sparse_coo` tensors of one shape as one: where several store an element, these are reduced by the
/// kernel `reduction` (add, mul, min or max) in the order of the tensors. An element that is not stored counts as
/// nothing. Raises KernelError for another kernel.
at::Tensor folded(const std::vector<at::Tensor>& parts, const std::string& reduction);

}  // namespace joinsum::kernels::sparse
