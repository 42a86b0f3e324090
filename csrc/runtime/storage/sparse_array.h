#pragma once

#include <utility>
#include <vector>

#include <ATen/ATen.h>

#include "base/dims.h"

namespace joinsum::runtime::storage {

/// Sparse arrays of blocks: coalesced tensors of torch's layout `sparse_coo` with all axes sparse. Their entries are in
/// row-major order.

/// The array itself, or its entries in order and without repeats. Raises PlanError for another layout, and for axes
/// that are not sparse.
at::Tensor as_sparse_array(const at::Tensor& array);

/// A dense array on torch's meta device that has the array's shape and dtype.
at::Tensor geometry_of(const at::Tensor& sparse);

/// The elements of `sparse` that `view` describes, which was narrowed from its geometry.
at::Tensor part_of(const at::Tensor& sparse, const at::Tensor& view);

/// The array of `shape` that has each part where its offset says. Parts do not overlap.
at::Tensor put_together(const std::vector<std::pair<Dims, at::Tensor>>& parts, const Dims& shape, at::ScalarType dtype);

/// Its entries whose row-major positions are in [begin, end), in an array of its shape.
at::Tensor entries_between(const at::Tensor& sparse, int64_t begin, int64_t end);

/// A dense array in another shape, or a sparse one with its entries at the same row-major positions.
at::Tensor reshaped(const at::Tensor& array, at::IntArrayRef shape);

/// The entries with other values, one for each.
at::Tensor with_values(const at::Tensor& sparse, const at::Tensor& values);

/// Which part of the points that a kernel would visit meets a stored entry of each operand, if entries are spread
/// evenly; 1 of dense ones.
double stored_share(c10::ArrayRef<at::Tensor> operands);

/// Bytes of indices and values.
int64_t stored_bytes(const at::Tensor& sparse);

/// The entries as bytes: all indices, then all values. And back.
at::Tensor to_bytes(const at::Tensor& sparse);
at::Tensor from_bytes(const at::Tensor& bytes, const Dims& shape, at::ScalarType dtype);

}  // namespace joinsum::runtime::storage
