// Softmaxes whose axis is divided: sums over a shard of each row, and results of the sums over all shards. Rows of
// adjacent elements go through memory once. Others do so in tiles: what is between two operations stays in the
// processor's cache.

#include <algorithm>
#include <cstring>

#include <ATen/ATen.h>
#include <ATen/Dispatch.h>
#include <torch/library.h>

#include "kernels/torch_call/row_pieces.h"

namespace joinsum::kernels::torch_call {
namespace {

// --- by torch's operators --------------------------------------------------------------------------------------------

/// Σ exp(input - most) along `dim`, which remains with one element; the results of shards are summed.
at::Tensor composed_total(const at::Tensor& input, const at::Tensor& most, int64_t dim) {
  return at::sub(wide(input), most).exp_().sum(dim, true);
}

/// exp(input - most) / total.
at::Tensor composed_softmax(const at::Tensor& input, const at::Tensor& most, const at::Tensor& total,
                            at::ScalarType dtype) {
  return at::sub(input.to(total.scalar_type()), most).exp_().div_(total).to(dtype);
}

/// input - most - log(total).
at::Tensor composed_log_softmax(const at::Tensor& input, const at::Tensor& most, const at::Tensor& total,
                                at::ScalarType dtype) {
  return at::sub(input.to(total.scalar_type()), most).sub_(total.log()).to(dtype);
}

/// Σ grad · output along `dim`, which remains with one element; the results of shards are summed.
at::Tensor composed_slope(const at::Tensor& grad, const at::Tensor& output, int64_t dim) {
  return at::mul(wide(grad), output).sum(dim, true);
}

/// The gradient of a softmax's input: output · (grad - slope).
at::Tensor composed_softmax_grad(const at::Tensor& grad, const at::Tensor& output, const at::Tensor& slope,
                                 at::ScalarType dtype) {
  return at::sub(grad.to(slope.scalar_type()), slope).mul_(output).to(dtype);
}

/// The gradient of a log softmax's input: grad - exp(output) · total, the sum of `grad`.
at::Tensor composed_log_softmax_grad(const at::Tensor& grad, const at::Tensor& output, const at::Tensor& total,
                                     at::ScalarType dtype) {
  return at::sub(grad.to(total.scalar_type()), at::exp(output.to(total.scalar_type())).mul_(total)).to(dtype);
}

/// Elements of a tile: 128 KiB of single precision.
constexpr int64_t kTileElements = 32'768;

/// Computes `result` of tiles of the first axis of `full` into those of `out`. It is called with what takes a tile of a
/// tensor, all of it where that axis is broadcast.
template <class Result>
at::Tensor& by_tiles(const at::Tensor& full, at::Tensor& out, Result result) {
  if (full.numel() == 0) return out.zero_();
  const int64_t rows = full.dim() == 0 ? 1 : full.size(0);
  const int64_t step = std::max<int64_t>(1, kTileElements / (full.numel() / rows));
  for (int64_t begin = 0; begin < rows; begin += step) {
    const int64_t count = std::min(step, rows - begin);
    const auto tile = [=](const at::Tensor& x) {
      return x.dim() == 0 || x.size(0) == 1 ? x : x.narrow(0, begin, count);
    };
    tile(out).copy_(result(tile));
  }
  return out;
}

bool is_first(int64_t dim, const at::Tensor& x) { return at::maybe_wrap_dim(dim, x.dim()) == 0; }

// --- by loops over rows ----------------------------------------------------------------------------------------------

at::Tensor& softmax_total_out(const at::Tensor& input, const at::Tensor& most, int64_t dim, at::Tensor& out) {
  const auto all = rows_of(input, out);
  if (!all || !single_type(input, {most, out})) {
    if (is_first(dim, input)) return out.copy_(composed_total(input, most, dim));
    return by_tiles(input, out, [&](auto tile) { return composed_total(tile(input), tile(most), dim); });
  }
  const at::Tensor own = input.contiguous();
  const at::Tensor greatest = most.contiguous();
  AT_DISPATCH_FLOATING_TYPES(input.scalar_type(), "softmax_total", [&] {
    const scalar_t* x = data_of<scalar_t>(own);
    const scalar_t* m = data_of<scalar_t>(greatest);
    scalar_t* to = out.mutable_data_ptr<scalar_t>();
    const auto& loops = row_loops<scalar_t>();
    sum_rows<1>(
        *all, all->count,
        [&](const Piece& p) -> Sums<1> {
          return {static_cast<double>(loops.sum_of_exponentials(x + p.at, p.count, m[p.row]))};
        },
        [&](int64_t row, const Sums<1>& sums) { to[row] = static_cast<scalar_t>(sums[0]); });
  });
  return out;
}

at::Tensor& softmax_slope_out(const at::Tensor& grad, const at::Tensor& output, int64_t dim, at::Tensor& out) {
  const auto all = rows_of(grad, out);
  if (!all || !single_type(grad, {output, out})) {
    if (is_first(dim, grad)) return out.copy_(composed_slope(grad, output, dim));
    return by_tiles(grad, out, [&](auto tile) { return composed_slope(tile(grad), tile(output), dim); });
  }
  const at::Tensor left = grad.contiguous();
  const at::Tensor right = output.contiguous();
  AT_DISPATCH_FLOATING_TYPES(grad.scalar_type(), "softmax_slope", [&] {
    const scalar_t* x = data_of<scalar_t>(left);
    const scalar_t* y = data_of<scalar_t>(right);
    scalar_t* to = out.mutable_data_ptr<scalar_t>();
    const auto& loops = row_loops<scalar_t>();
    sum_rows<1>(
        *all, all->count,
        [&](const Piece& p) -> Sums<1> {
          return {static_cast<double>(loops.sum_of_products(x + p.at, y + p.at, p.count))};
        },
        [&](int64_t row, const Sums<1>& sums) { to[row] = static_cast<scalar_t>(sums[0]); });
  });
  return out;
}

/// What each piece of `out` is computed of: two tensors of its rows, or one twice, and two of a number for each.
struct Operands {
  at::Tensor first;
  at::Tensor second;
  at::Tensor high;
  at::Tensor low;
};

/// Calls `compute(loops, first, second, high, low, count, to)` with all pieces; false where these are not rows of
/// adjacent elements of a type that the loops take.
template <class Compute>
bool by_pieces(const Operands& given, at::Tensor& out, Compute compute) {
  const auto all = rows_of(given.first, given.low);
  const bool fits = all && given.high.sizes() == given.low.sizes() && given.second.sizes() == given.first.sizes();
  if (!fits || !single_type(given.first, {given.second, given.high, given.low, out})) return false;
  const Operands own{given.first.contiguous(), given.second.contiguous(), given.high.contiguous(),
                     given.low.contiguous()};
  AT_DISPATCH_FLOATING_TYPES(out.scalar_type(), "softmax", [&] {
    const scalar_t* x = data_of<scalar_t>(own.first);
    const scalar_t* y = data_of<scalar_t>(own.second);
    const scalar_t* high = data_of<scalar_t>(own.high);
    const scalar_t* low = data_of<scalar_t>(own.low);
    scalar_t* to = out.mutable_data_ptr<scalar_t>();
    for_each_piece(*all, [&](const Piece& p) {
      compute(row_loops<scalar_t>(), x + p.at, y + p.at, high[p.row], low[p.row], p.count, to + p.at);
    });
  });
  return true;
}

at::Tensor& softmax_of_out(const at::Tensor& input, const at::Tensor& most, const at::Tensor& total,
                           at::ScalarType dtype, at::Tensor& out) {
  const bool done =
      by_pieces({input, input, most, total}, out,
                []<class T>(const rows::RowLoops<T>& loops, const T* x, const T*, T high, T sum, int64_t n, T* to) {
                  loops.scaled_exponentials(x, n, high, T(0), 1 / sum, to);
                });
  if (done) return out;
  return by_tiles(input, out, [&](auto tile) { return composed_softmax(tile(input), tile(most), tile(total), dtype); });
}

at::Tensor& log_softmax_of_out(const at::Tensor& input, const at::Tensor& most, const at::Tensor& total,
                               at::ScalarType dtype, at::Tensor& out) {
  const bool done = by_pieces({input, input, most, total.log()}, out,
                              []<class T>(const rows::RowLoops<T>& loops, const T* x, const T*, T high, T log,
                                          int64_t n, T* to) { loops.lowered(x, n, high, log, to); });
  if (done) return out;
  return by_tiles(input, out,
                  [&](auto tile) { return composed_log_softmax(tile(input), tile(most), tile(total), dtype); });
}

at::Tensor& softmax_grad_of_out(const at::Tensor& grad, const at::Tensor& output, const at::Tensor& slope,
                                at::ScalarType dtype, at::Tensor& out) {
  const bool done =
      by_pieces({grad, output, slope, slope}, out,
                []<class T>(const rows::RowLoops<T>& loops, const T* g, const T* y, T mean, T, int64_t n, T* to) {
                  if (to != g) std::memcpy(to, g, static_cast<size_t>(n) * sizeof(T));
                  loops.softmax_slopes(y, n, mean, T(1), to);
                });
  if (done) return out;
  return by_tiles(grad, out,
                  [&](auto tile) { return composed_softmax_grad(tile(grad), tile(output), tile(slope), dtype); });
}

at::Tensor& log_softmax_grad_of_out(const at::Tensor& grad, const at::Tensor& output, const at::Tensor& total,
                                    at::ScalarType dtype, at::Tensor& out) {
  const bool done = by_pieces({grad, output, total, total}, out,
                              []<class T>(const rows::RowLoops<T>& loops, const T* g, const T* y, T sum, T, int64_t n,
                                          T* to) { loops.log_softmax_slopes(g, y, n, sum, to); });
  if (done) return out;
  return by_tiles(grad, out,
                  [&](auto tile) { return composed_log_softmax_grad(tile(grad), tile(output), tile(total), dtype); });
}

// --- new results -----------------------------------------------------------------------------------------------------

/// A sum of elements of `x` along `dim`, which remains with one element.
at::Tensor new_sum(const at::Tensor& x, int64_t dim) {
  std::vector<int64_t> extents = x.sizes().vec();
  if (!extents.empty()) extents[static_cast<size_t>(at::maybe_wrap_dim(dim, x.dim()))] = 1;
  return at::empty(extents, x.options().dtype(at::toOpMathType(x.scalar_type())));
}

at::Tensor softmax_total(const at::Tensor& input, const at::Tensor& most, int64_t dim) {
  at::Tensor out = new_sum(input, dim);
  return softmax_total_out(input, most, dim, out);
}

at::Tensor softmax_slope(const at::Tensor& grad, const at::Tensor& output, int64_t dim) {
  at::Tensor out = new_sum(grad, dim);
  return softmax_slope_out(grad, output, dim, out);
}

/// An operator of each element of its first argument.
template <auto into>
at::Tensor of_elements(const at::Tensor& x, const at::Tensor& second, const at::Tensor& third, at::ScalarType dtype) {
  at::Tensor out = at::empty(x.sizes(), x.options().dtype(dtype));
  return into(x, second, third, dtype, out);
}

TORCH_LIBRARY_FRAGMENT(joinsum, library) {
  library.def("softmax_total(Tensor input, Tensor most, SymInt dim) -> Tensor");
  library.def("softmax_total.out(Tensor input, Tensor most, SymInt dim, *, Tensor(a!) total_out) -> Tensor(a!)");
  library.def("softmax_of(Tensor input, Tensor most, Tensor total, ScalarType dtype) -> Tensor");
  library.def(
      "softmax_of.out(Tensor input, Tensor most, Tensor total, ScalarType dtype, *, Tensor(a!) input_out) "
      "-> Tensor(a!)");
  library.def("log_softmax_of(Tensor input, Tensor most, Tensor total, ScalarType dtype) -> Tensor");
  library.def(
      "log_softmax_of.out(Tensor input, Tensor most, Tensor total, ScalarType dtype, *, Tensor(a!) input_out) "
      "-> Tensor(a!)");
  library.def("softmax_slope(Tensor grad, Tensor output, SymInt dim) -> Tensor");
  library.def("softmax_slope.out(Tensor grad, Tensor output, SymInt dim, *, Tensor(a!) slope_out) -> Tensor(a!)");
  library.def("softmax_grad_of(Tensor grad, Tensor output, Tensor slope, ScalarType dtype) -> Tensor");
  library.def(
      "softmax_grad_of.out(Tensor grad, Tensor output, Tensor slope, ScalarType dtype, *, Tensor(a!) grad_out) "
      "-> Tensor(a!)");
  library.def("log_softmax_grad_of(Tensor grad, Tensor output, Tensor total, ScalarType dtype) -> Tensor");
  library.def(
      "log_softmax_grad_of.out(Tensor grad, Tensor output, Tensor total, ScalarType dtype, *, Tensor(a!) grad_out) "
      "-> Tensor(a!)");
}

TORCH_LIBRARY_IMPL(joinsum, CompositeExplicitAutograd, library) {
  library.impl("softmax_total", &composed_total);
  library.impl("softmax_of", &composed_softmax);
  library.impl("log_softmax_of", &composed_log_softmax);
  library.impl("softmax_slope", &composed_slope);
  library.impl("softmax_grad_of", &composed_softmax_grad);
  library.impl("log_softmax_grad_of", &composed_log_softmax_grad);
}

TORCH_LIBRARY_IMPL(joinsum, CPU, library) {
  library.impl("softmax_total", &softmax_total);
  library.impl("softmax_total.out", &softmax_total_out);
  library.impl("softmax_of", &of_elements<&softmax_of_out>);
  library.impl("softmax_of.out", &softmax_of_out);
  library.impl("log_softmax_of", &of_elements<&log_softmax_of_out>);
  library.impl("log_softmax_of.out", &log_softmax_of_out);
  library.impl("softmax_slope", &softmax_slope);
  library.impl("softmax_slope.out", &softmax_slope_out);
  library.impl("softmax_grad_of", &of_elements<&softmax_grad_of_out>);
  library.impl("softmax_grad_of.out", &softmax_grad_of_out);
  library.impl("log_softmax_grad_of", &of_elements<&log_softmax_grad_of_out>);
  library.impl("log_softmax_grad_of.out", &log_softmax_grad_of_out);
}

}  // namespace
}  // namespace joinsum::kernels::torch_call
