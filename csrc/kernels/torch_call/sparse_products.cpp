// Products of a sparse matrix, given by the rows, columns and values of its entries, with a dense one, and their
// gradient for the values. Shards of both axes of the sparse matrix leave partial results, and so do shards of entries.

#include <algorithm>

#include <ATen/ATen.h>
#include <ATen/Dispatch.h>
#include <ATen/OpMathType.h>
#include <torch/library.h>

#include "kernels/dense/sparse_rows.h"
#include "kernels/threads/parallel.h"
#include "kernels/torch_call/axis_shard.h"

namespace joinsum::kernels::torch_call {
namespace {

using Numbers = at::IntArrayRef;

/// Entries with both indices in their shards, and these indices there.
struct Present {
  at::Tensor which;  ///< of the entries; undefined where all are present
  at::Tensor rows;
  at::Tensor columns;

  at::Tensor of(const at::Tensor& values) const { return which.defined() ? values.index_select(0, which) : values; }
};

at::Tensor found(const at::Tensor& index, const AxisShard& shard) {
  const at::Tensor wanted = index.to(at::kLong).cpu().contiguous();
  if (shard.is_whole()) {
    if (wanted.numel() > 0) {
      const auto [least, most] = at::aminmax(wanted);
      for (const at::Tensor& end : {least, most}) (void)shard.find(end.item<int64_t>());
    }
    return wanted;
  }
  at::Tensor out = at::empty_like(wanted);
  const auto* from = wanted.const_data_ptr<int64_t>();
  auto* to = out.mutable_data_ptr<int64_t>();
  for (int64_t i = 0; i < wanted.numel(); ++i) to[i] = shard.find(from[i]);
  return out;
}

Present present(const at::Tensor& rows, const at::Tensor& columns, const AxisShard& of_rows,
                const AxisShard& of_columns) {
  const at::Tensor row = found(rows, of_rows);
  const at::Tensor column = found(columns, of_columns);
  const bool whole = of_rows.is_whole() && of_columns.is_whole();
  const at::Tensor inside = whole ? at::Tensor() : row.ge(0).logical_and_(column.ge(0));
  if (whole || inside.all().item<bool>()) return {{}, row.to(rows.device()), column.to(rows.device())};
  const at::Tensor which = inside.nonzero().squeeze(1);
  return {which.to(rows.device()), row.index_select(0, which).to(rows.device()),
          column.index_select(0, which).to(rows.device())};
}

void check_entries(const at::Tensor& rows, const at::Tensor& columns, const at::Tensor& dense) {
  TORCH_CHECK(rows.dim() == 1 && columns.sizes() == rows.sizes() && !at::isFloatingType(rows.scalar_type()) &&
                  !at::isFloatingType(columns.scalar_type()) && dense.dim() == 2,
              "sparse_mm: an entry has a row and a column, and a dense operand is a matrix: rows=", rows.sizes(),
              ", columns=", columns.sizes(), ", dense=", dense.sizes());
}

int64_t product(Numbers extents) {
  int64_t out = 1;
  for (const int64_t extent : extents) out *= extent;
  return out;
}

at::Tensor sparse_mm_shard(const at::Tensor& rows, const at::Tensor& columns, const at::Tensor& values,
                           const at::Tensor& dense, Numbers row_offsets, Numbers row_local, Numbers row_extents,
                           Numbers column_offsets, Numbers column_local, Numbers column_extents) {
  check_entries(rows, columns, dense);
  TORCH_CHECK(values.sizes() == rows.sizes() && values.scalar_type() == dense.scalar_type(),
              "sparse_mm: each entry has a value, of the dense operand's dtype: values=", values.sizes(), " ",
              values.scalar_type(), ", rows=", rows.sizes(), ", dense=", dense.scalar_type());
  TORCH_CHECK(dense.size(0) == product(column_local), "sparse_mm: columns=", product(column_local),
              ", rows of the dense operand=", dense.size(0));
  const Present entries = present(rows, columns, AxisShard(row_offsets, row_local, row_extents),
                                  AxisShard(column_offsets, column_local, column_extents));
  const at::ScalarType type = at::toOpMathType(dense.scalar_type());
  const at::Tensor result = at::zeros({product(row_local), dense.size(1)}, dense.options().dtype(type));
  const dense::SparseRows operation{.values = entries.of(values).to(type).contiguous(),
                                    .from = entries.columns,
                                    .to = entries.rows,
                                    .dense = dense.to(type).contiguous(),
                                    .result = result};
  dense::add_rows(operation);
  return result.to(dense.scalar_type());
}

at::Tensor sparse_mm_values_shard(const at::Tensor& rows, const at::Tensor& columns, const at::Tensor& grad,
                                  const at::Tensor& dense, Numbers row_offsets, Numbers row_local, Numbers row_extents,
                                  Numbers column_offsets, Numbers column_local, Numbers column_extents) {
  check_entries(rows, columns, dense);
  TORCH_CHECK(grad.dim() == 2 && grad.size(1) == dense.size(1) && grad.scalar_type() == dense.scalar_type() &&
                  grad.size(0) == product(row_local) && dense.size(0) == product(column_local),
              "sparse_mm_values: shapes or dtypes do not fit: grad=", grad.sizes(), ", dense=", dense.sizes());
  const Present entries = present(rows, columns, AxisShard(row_offsets, row_local, row_extents),
                                  AxisShard(column_offsets, column_local, column_extents));
  const at::ScalarType type = at::toOpMathType(dense.scalar_type());
  const at::Tensor left = grad.to(type).contiguous(), right = dense.to(type).contiguous();
  at::Tensor dots = at::empty({entries.rows.numel()}, dense.options().dtype(type));
  if (!dense.is_cpu()) {
    dots = left.index_select(0, entries.rows).mul_(right.index_select(0, entries.columns)).sum(1);
  } else {
    const int64_t width = right.size(1);
    const auto* row = entries.rows.const_data_ptr<int64_t>();
    const auto* column = entries.columns.const_data_ptr<int64_t>();
    AT_DISPATCH_FLOATING_AND_COMPLEX_TYPES(type, "sparse_mm_values", [&] {
      const auto* x = left.const_data_ptr<scalar_t>();
      const auto* y = right.const_data_ptr<scalar_t>();
      auto* out = dots.mutable_data_ptr<scalar_t>();
      constexpr int64_t kOfAThread = 32768;
      threads::for_each_range(dots.numel(), kOfAThread / std::max<int64_t>(width, 1) + 1,
                              [&](int64_t begin, int64_t end) {
                                for (int64_t e = begin; e < end; ++e) {
                                  scalar_t sum(0);
                                  for (int64_t c = 0; c < width; ++c)
                                    sum += x[row[e] * width + c] * y[column[e] * width + c];
                                  out[e] = sum;
                                }
                              });
    });
  }
  const at::Tensor result = dots.to(dense.scalar_type());
  if (!entries.which.defined()) return result;
  return at::zeros({rows.numel()}, result.options()).index_copy_(0, entries.which, result);
}

at::Tensor sparse_mm(const at::Tensor& rows, const at::Tensor& columns, const at::Tensor& values,
                     const at::Tensor& dense, int64_t extent) {
  const int64_t none = 0, inner = dense.size(0);
  return sparse_mm_shard(rows, columns, values, dense, none, extent, extent, none, inner, inner);
}

at::Tensor sparse_mm_values(const at::Tensor& rows, const at::Tensor& columns, const at::Tensor& grad,
                            const at::Tensor& dense) {
  const int64_t none = 0, outer = grad.size(0), inner = dense.size(0);
  return sparse_mm_values_shard(rows, columns, grad, dense, none, outer, outer, none, inner, inner);
}

TORCH_LIBRARY_FRAGMENT(joinsum, library) {
  library.def("sparse_mm(Tensor rows, Tensor columns, Tensor values, Tensor dense, SymInt extent) -> Tensor");
  library.def("sparse_mm_values(Tensor rows, Tensor columns, Tensor grad, Tensor dense) -> Tensor");
  library.def(
      "sparse_mm_shard(Tensor rows, Tensor columns, Tensor values, Tensor dense, SymInt[] row_offsets, SymInt[] "
      "row_local, SymInt[] row_extents, SymInt[] column_offsets, SymInt[] column_local, SymInt[] column_extents) -> "
      "Tensor");
  library.def(
      "sparse_mm_values_shard(Tensor rows, Tensor columns, Tensor grad, Tensor dense, SymInt[] row_offsets, SymInt[] "
      "row_local, SymInt[] row_extents, SymInt[] column_offsets, SymInt[] column_local, SymInt[] column_extents) -> "
      "Tensor");
}

TORCH_LIBRARY_IMPL(joinsum, CompositeExplicitAutograd, library) {
  library.impl("sparse_mm", &sparse_mm);
  library.impl("sparse_mm_values", &sparse_mm_values);
  library.impl("sparse_mm_shard", &sparse_mm_shard);
  library.impl("sparse_mm_values_shard", &sparse_mm_values_shard);
}

}  // namespace
}  // namespace joinsum::kernels::torch_call
