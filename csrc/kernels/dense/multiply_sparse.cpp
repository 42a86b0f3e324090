// Products of a sparse array with a dense one: one pass over the entries, each of which adds a multiple of a stretch of
// the dense operand to a stretch of the result.

#include <algorithm>

#include <ATen/Dispatch.h>
#include <ATen/OpMathType.h>
#include <ATen/Parallel.h>

#include "base/check.h"
#include "kernels/dense/letters.h"
#include "kernels/dense/loops.h"
#include "kernels/dense/sparse_rows.h"
#include "kernels/threads/parallel.h"

namespace joinsum::kernels::dense {

using table::Subscripts;

namespace {

Dims axes_of(const std::string& letters, const std::string& order) {
  Dims axes;
  for (const char letter : order) axes.push_back(static_cast<int64_t>(letters.find(letter)));
  return axes;
}

/// The row-major position of each entry among the axes with these letters.
at::Tensor positions(const at::Tensor& sparse, const std::string& letters, const std::string& among) {
  at::Tensor out = at::zeros({sparse._nnz()}, sparse._indices().options());
  for (const char letter : among) {
    const auto axis = static_cast<int64_t>(letters.find(letter));
    out.mul_(sparse.size(axis)).add_(sparse._indices().select(0, axis));
  }
  return out;
}

/// In the order of the entries, which ends of ranges of about equal length have different rows of the result on both
/// sides.
std::vector<int64_t> bounds(const int64_t* to, int64_t entries, int64_t parts) {
  std::vector<int64_t> out{0};
  for (int64_t part = 1; part < parts; ++part) {
    int64_t at = std::max(out.back(), entries * part / parts);
    while (at > 0 && at < entries && to[at] == to[at - 1]) ++at;
    out.push_back(at);
  }
  out.push_back(entries);
  return out;
}

template <class T>
void add_stretches(const SparseRows& rows, int64_t begin, int64_t end, int64_t first, int64_t last) {
  const int64_t width = rows.dense.size(1);
  const T* values = rows.values.const_data_ptr<T>();
  const auto* from = rows.from.const_data_ptr<int64_t>();
  const auto* to = rows.to.const_data_ptr<int64_t>();
  const T* dense = rows.dense.const_data_ptr<T>();
  T* result = rows.result.mutable_data_ptr<T>();
  for (int64_t e = begin; e < end; ++e) {
    const T value = values[e];
    const T* __restrict x = dense + from[e] * width;
    T* __restrict sum = result + to[e] * width;
    for (int64_t c = first; c < last; ++c) sum[c] += value * x[c];
  }
}

template <class T>
void add_on_threads(const SparseRows& rows) {
  constexpr int64_t kOfAThread = 32768;
  constexpr int64_t kColumns = 16;  // a cache line of floats
  const int64_t width = rows.dense.size(1);
  const int64_t entries = rows.values.numel();
  const int64_t threads = std::clamp<int64_t>(entries * width / kOfAThread, 1, at::get_num_threads());
  const auto* to = rows.to.const_data_ptr<int64_t>();
  if (threads > 1 && to[0] != to[entries - 1] && std::is_sorted(to, to + entries)) {
    const std::vector<int64_t> ends = bounds(to, entries, threads);
    threads::for_each_range(
        threads, [&](int64_t begin, int64_t end) { add_stretches<T>(rows, ends[begin], ends[end], 0, width); });
    return;
  }
  const int64_t stretches = (width + kColumns - 1) / kColumns;
  threads::for_each_range(stretches, (stretches + threads - 1) / threads, [&](int64_t begin, int64_t end) {
    add_stretches<T>(rows, 0, entries, begin * kColumns, std::min(end * kColumns, width));
  });
}

void add_by_torch(const SparseRows& rows) {
  rows.result.index_add_(0, rows.to, rows.dense.index_select(0, rows.from).mul_(rows.values.unsqueeze(1)));
}

}  // namespace

void add_rows(const SparseRows& rows) {
  if (rows.values.numel() == 0) return;
  if (!rows.dense.is_cpu()) return add_by_torch(rows);
  AT_DISPATCH_ALL_TYPES_AND_COMPLEX(rows.dense.scalar_type(), "add_rows", [&] { add_on_threads<scalar_t>(rows); });
}

at::Tensor multiply_sparse(const Subscripts& labels, const at::Tensor& left, const at::Tensor& right, at::Tensor out,
                           bool accumulate) {
  const bool is_left = left.is_sparse();
  JOINSUM_KERNEL_CHECK(is_left != right.is_sparse(), "contract: both operands are sparse: labels=", labels.text());
  const at::Tensor& sparse = is_left ? left : right;
  const std::string& of_sparse = labels.operands[is_left ? 0 : 1];
  const std::string& all_of_dense = labels.operands[is_left ? 1 : 0];
  const auto in_sparse = [&](char letter) { return has(of_sparse, letter); };
  const auto in_result = [&](char letter) { return has(labels.result, letter); };

  at::Tensor dense = is_left ? right : left;
  const std::string of_dense = select(all_of_dense, [&](char c) { return in_sparse(c) || in_result(c); });
  const std::string summed = select(all_of_dense, [&](char c) { return !has(of_dense, c); });
  if (!summed.empty()) dense = dense.sum(axes_of(all_of_dense, summed), false, dense.scalar_type());
  const at::ScalarType type = at::toOpMathType(dense.scalar_type());

  const std::string outer_letters = select(of_sparse, in_result);
  const std::string met = select(of_sparse, [&](char c) { return has(of_dense, c); });
  const std::string free = select(labels.result, [&](char c) { return !in_sparse(c); });
  Dims shape;
  int64_t count = 1;
  for (const char letter : outer_letters) {
    shape.push_back(sparse.size(static_cast<int64_t>(of_sparse.find(letter))));
    count *= shape.back();
  }
  int64_t width = 1;
  for (const char letter : free) {
    shape.push_back(dense.size(static_cast<int64_t>(of_dense.find(letter))));
    width *= shape.back();
  }
  int64_t outer = 1;
  for (const char letter : met) outer *= sparse.size(static_cast<int64_t>(of_sparse.find(letter)));

  // The result where it is contiguous in the order of the loops, else an array that is copied there.
  const std::string order = outer_letters + free;
  const bool direct = out.defined() && order == labels.result && out.is_contiguous() && type == dense.scalar_type();
  at::Tensor result = direct ? out : at::zeros(shape, dense.options().dtype(type));
  if (direct && !accumulate) result.zero_();
  add_rows({.values = sparse._values().to(type).contiguous(),
            .from = positions(sparse, of_sparse, met),
            .to = positions(sparse, of_sparse, outer_letters),
            .dense = dense.permute(axes_of(of_dense, met + free)).to(type).reshape({outer, width}).contiguous(),
            .result = result.view({count, width})});
  if (direct) return out;
  const at::Tensor permuted = result.permute(axes_of(order, labels.result));
  if (!out.defined()) return permuted.to(dense.scalar_type());
  return accumulate ? out.add_(permuted) : out.copy_(permuted);
}

}  // namespace joinsum::kernels::dense
