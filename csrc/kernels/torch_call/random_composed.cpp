// Random operators by torch's operators, for devices that random.cpp has no loops for: the same numbers.

#include <algorithm>
#include <tuple>

#include <ATen/ATen.h>
#include <torch/library.h>

#include "kernels/torch_call/normed_rows.h"

namespace joinsum::kernels::torch_call {
namespace {

constexpr auto kGolden = static_cast<int64_t>(0x9E3779B97F4A7C15U);
constexpr auto kFirst = static_cast<int64_t>(0xBF58476D1CE4E5B9U);
constexpr auto kSecond = static_cast<int64_t>(0x94D049BB133111EBU);
constexpr int64_t kSingleBits = 24;  ///< of a number of single precision, and of a half
constexpr int64_t kDoubleBits = 53;

/// A logical shift to the right of 64 bits.
at::Tensor shifted(const at::Tensor& value, int64_t count) {
  const auto mask = static_cast<int64_t>((uint64_t{1} << (64 - count)) - 1);
  return at::bitwise_and(at::bitwise_right_shift(value, count), mask);
}

at::Tensor mixed(const at::Tensor& value) {
  at::Tensor out = at::bitwise_xor(value, shifted(value, 30)).mul_(kFirst);
  out = at::bitwise_xor(out, shifted(out, 27)).mul_(kSecond);
  return at::bitwise_xor(out, shifted(out, 31));
}

/// Which numbers are drawn: of a stream, and of a shard of a tensor.
struct Draw {
  const at::Tensor& seed;
  int64_t stream;
  at::IntArrayRef offsets;
  at::IntArrayRef local;
  at::IntArrayRef extents;
};

/// 64 random bits for each element of a shard, as integers of the shape `local`, which wrap around.
at::Tensor bits(const Draw& draw) {
  at::Tensor counter = at::zeros({}, draw.seed.options().dtype(at::kLong));
  int64_t step = 1;
  for (size_t d = draw.local.size(); d-- > 0;) {
    std::vector<int64_t> along(draw.local.size(), 1);
    along[d] = -1;
    const at::Tensor places = at::arange(draw.local[d], counter.options()).add_(draw.offsets[d]).mul_(step);
    counter = counter + places.view(along);
    step *= draw.extents[d];
  }
  const at::Tensor start = mixed(mixed(draw.seed + kGolden) + (draw.stream * 2 + 1));
  return mixed(mixed(counter * kGolden + start) + start);
}

/// Numbers in [0, 1), in steps that their dtype has exactly: double precision, or single.
at::Tensor fractions(const Draw& draw, bool wide) {
  const int64_t count = wide ? kDoubleBits : kSingleBits;
  return shifted(bits(draw), 64 - count).to(wide ? at::kDouble : at::kFloat).mul_(wide ? 0x1p-53 : 0x1p-24);
}

at::Tensor uniform(const at::Tensor& seed, int64_t stream, at::IntArrayRef size, at::IntArrayRef offsets,
                   at::IntArrayRef local, at::IntArrayRef extents, at::ScalarType dtype) {
  const at::Tensor drawn = fractions({seed, stream, offsets, local, extents}, dtype == at::kDouble);
  if (drawn.scalar_type() == dtype) return drawn.reshape(size);
  // A half's rounding must not give 1.
  return drawn.clamp_max(1 - (dtype == at::kHalf ? 0x1p-11 : 0x1p-8)).to(dtype).reshape(size);
}

/// By Box and Muller.
at::Tensor normal(const at::Tensor& seed, int64_t stream, at::IntArrayRef size, at::IntArrayRef offsets,
                  at::IntArrayRef local, at::IntArrayRef extents, at::ScalarType dtype) {
  const bool wide = dtype == at::kDouble;
  const at::Tensor first = fractions({seed, 2 * stream, offsets, local, extents}, wide);
  const at::Tensor second = fractions({seed, 2 * stream + 1, offsets, local, extents}, wide);
  constexpr double kTurn = 6.283185307179586;
  return first.neg().log1p_().mul_(-2).sqrt_().mul_(second.mul(kTurn).cos_()).to(dtype).reshape(size);
}

at::Tensor integers(const at::Tensor& seed, int64_t stream, int64_t low, int64_t high, at::IntArrayRef size,
                    at::IntArrayRef offsets, at::IntArrayRef local, at::IntArrayRef extents, at::ScalarType dtype) {
  const at::Tensor drawn = shifted(bits({seed, stream, offsets, local, extents}), 1);
  return drawn.remainder(high - low).add_(low).to(dtype).reshape(size);
}

/// The input over 1 - p where the mask is true, zeros elsewhere; and the mask, true with probability 1 - p.
std::tuple<at::Tensor, at::Tensor> dropout(const at::Tensor& input, const at::Tensor& seed, double p, int64_t stream,
                                           at::IntArrayRef offsets, at::IntArrayRef local, at::IntArrayRef extents) {
  const at::Tensor mask = fractions({seed, stream, offsets, local, extents}, false).ge(p).reshape(input.sizes());
  const at::Tensor scaled = wide(input).mul(mask).mul_(p == 1 ? 0.0 : 1 / (1 - p));
  return {scaled.to(input.scalar_type()), mask};
}

TORCH_LIBRARY_IMPL(joinsum, CompositeExplicitAutograd, library) {
  library.impl("uniform", &uniform);
  library.impl("normal", &normal);
  library.impl("integers", &integers);
  library.impl("dropout", &dropout);
}

}  // namespace
}  // namespace joinsum::kernels::torch_call
