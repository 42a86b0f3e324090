// Softmax operators of joinsum's, whose functional forms are in python/joinsum/capture/decompositions, computed into
// given memory: a tile of rows at a time, so that what is between two operations stays in the processor's cache.

#include <algorithm>

#include <ATen/ATen.h>
#include <torch/library.h>

namespace joinsum::kernels::torch_call {
namespace {

/// Elements of a tile: 128 KiB of single precision.
constexpr int64_t kTileElements = 32'768;

/// Indices [begin, begin + count) of the first axis, or all where that is broadcast.
struct Tile {
  int64_t begin = 0;
  int64_t count = 0;
  at::Tensor operator()(const at::Tensor& x) const {
    return x.dim() == 0 || x.size(0) == 1 ? x : x.narrow(0, begin, count);
  }
};

/// Calls `visit` with tiles of the first axis of `x`; with one tile of a tensor without axes.
template <class Visit>
void for_each_tile(const at::Tensor& x, Visit visit) {
  if (x.numel() == 0) return;
  const int64_t rows = x.dim() == 0 ? 1 : x.size(0);
  const int64_t step = std::max<int64_t>(1, kTileElements / (x.numel() / rows));
  for (int64_t begin = 0; begin < rows; begin += step) visit(Tile{begin, std::min(step, rows - begin)});
}

at::Tensor& softmax_total_out(const at::Tensor& input, const at::Tensor& most, int64_t dim, at::Tensor& out) {
  if (input.numel() == 0) return out.zero_();
  const auto add = [&](const at::Tensor& x, const at::Tensor& m, at::Tensor total) {
    const at::Tensor terms = at::sub(x.to(total.scalar_type()), m).exp_();
    at::sum_out(total, terms, at::IntArrayRef{dim}, true);
  };
  if (at::maybe_wrap_dim(dim, input.dim()) == 0) {
    add(input, most, out);
  } else {
    for_each_tile(input, [&](const Tile& tile) { add(tile(input), tile(most), tile(out)); });
  }
  return out;
}

at::Tensor& log_softmax_of_out(const at::Tensor& input, const at::Tensor& most, const at::Tensor& total,
                               at::ScalarType /*dtype*/, at::Tensor& out) {
  const at::Tensor log = total.log();
  const auto type = total.scalar_type();
  for_each_tile(input, [&](const Tile& tile) {
    at::Tensor into = tile(out);
    if (out.scalar_type() != type) {
      into.copy_(at::sub(tile(input).to(type), tile(most)).sub_(tile(log)));
    } else {
      at::sub_out(into, tile(input).to(type), tile(most)).sub_(tile(log));
    }
  });
  return out;
}

at::Tensor& log_softmax_grad_of_out(const at::Tensor& grad, const at::Tensor& output, const at::Tensor& total,
                                    at::ScalarType /*dtype*/, at::Tensor& out) {
  const auto type = total.scalar_type();
  for_each_tile(grad, [&](const Tile& tile) {
    const at::Tensor spread = tile(output).to(type).exp().mul_(tile(total));
    at::Tensor into = tile(out);
    at::sub_out(into, tile(grad).to(type), spread);
  });
  return out;
}

TORCH_LIBRARY_FRAGMENT(joinsum, library) {
  library.def("softmax_total.out(Tensor input, Tensor most, SymInt dim, *, Tensor(a!) total_out) -> Tensor(a!)");
  library.def(
      "log_softmax_of.out(Tensor input, Tensor most, Tensor total, ScalarType dtype, *, Tensor(a!) input_out) "
      "-> Tensor(a!)");
  library.def(
      "log_softmax_grad_of.out(Tensor grad, Tensor output, Tensor total, ScalarType dtype, *, Tensor(a!) grad_out) "
      "-> Tensor(a!)");
}

TORCH_LIBRARY_IMPL(joinsum, CPU, library) {
  library.impl("softmax_total.out", &softmax_total_out);
  library.impl("log_softmax_of.out", &log_softmax_of_out);
  library.impl("log_softmax_grad_of.out", &log_softmax_grad_of_out);
}

}  // namespace
}  // namespace joinsum::kernels::torch_call
