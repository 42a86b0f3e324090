#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <tuple>
#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/Dispatch.h>
#include <ATen/OpMathType.h>
#include <torch/library.h>

#include "base/check.h"
#include "kernels/threads/parallel.h"

/// Random operators on the processor. Their numbers depend on the seed and the global index of an element only: they
/// are equal for every plan and number of sites. Each element's counter goes through the finalizer of SplitMix64 twice,
/// with integers of 64 bits that wrap around. Each draw of a program has another `stream`; elements are numbered
/// row-major in the whole tensor; a part of it is given by `offsets`, `local` and `extents`, a number for each factor
/// of its axes. Source: Steele, Lea, Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014.
namespace joinsum::kernels::torch_call {
namespace {

constexpr uint64_t kGolden = 0x9E3779B97F4A7C15U;
constexpr uint64_t kFirst = 0xBF58476D1CE4E5B9U;
constexpr uint64_t kSecond = 0x94D049BB133111EBU;
constexpr int64_t kBuffer = 512;    ///< draws at a time
constexpr int64_t kGrain = 16'384;  ///< elements that are worth a thread
constexpr int kSingleBits = 24;     ///< of a number of single precision, and of a half
constexpr int kDoubleBits = 53;

uint64_t mixed(uint64_t value) {
  value = (value ^ (value >> 30)) * kFirst;
  value = (value ^ (value >> 27)) * kSecond;
  return value ^ (value >> 31);
}

/// A part of a tensor as rows of elements whose numbers follow each other.
class Part {
 public:
  Part(at::IntArrayRef offsets, at::IntArrayRef local, at::IntArrayRef extents) {
    JOINSUM_KERNEL_CHECK(offsets.size() == local.size() && local.size() == extents.size(),
                         "random: a part has an offset, a local and a whole extent for each axis: offsets=",
                         offsets.vec(), ", local=", local.vec(), ", extents=", extents.vec());
    int64_t step = 1;
    bool joins = true;
    for (size_t d = local.size(); d-- > 0;) {
      first_ += static_cast<uint64_t>(offsets[d] * step);
      if (joins) {
        row_ *= local[d];
      } else {
        outer_.push_back({local[d], step});
      }
      joins = joins && local[d] == extents[d];
      step *= extents[d];
      elements_ *= local[d];
    }
  }

  int64_t elements() const { return elements_; }

  /// Calls `each(at, number, count)` for runs of the elements from `begin` to `end`: the place of a run, the number of
  /// its first element, and how many they are.
  template <class Each>
  void runs(int64_t begin, int64_t end, const Each& each) const {
    while (begin < end) {
      const int64_t inside = begin % row_;
      const int64_t count = std::min(end - begin, row_ - inside);
      each(begin, number(begin / row_) + static_cast<uint64_t>(inside), count);
      begin += count;
    }
  }

 private:
  struct Outer {
    int64_t local;
    int64_t step;
  };

  uint64_t number(int64_t row) const {
    uint64_t out = first_;
    for (const Outer& axis : outer_) {
      out += static_cast<uint64_t>(row % axis.local * axis.step);
      row /= axis.local;
    }
    return out;
  }

  uint64_t first_ = 0;
  int64_t row_ = 1;
  int64_t elements_ = 1;
  std::vector<Outer> outer_;  ///< the last axis first
};

/// 64 random bits for each element of a part.
class Bits {
 public:
  Bits(const at::Tensor& seed, int64_t stream, Part part)
      : start_(mixed(mixed(static_cast<uint64_t>(seed.item<int64_t>()) + kGolden) + static_cast<uint64_t>(stream) * 2 +
                     1)),
        part_(std::move(part)) {}

  int64_t elements() const { return part_.elements(); }

  /// Calls `take(at, bits, count)` for short runs of elements, on several threads.
  template <class Take>
  void draw(const Take& take) const {
    threads::for_each_range(part_.elements(), kGrain, [&](int64_t begin, int64_t end) {
      std::array<uint64_t, kBuffer> buffer;
      part_.runs(begin, end, [&](int64_t at, uint64_t number, int64_t count) {
        for (int64_t done = 0; done < count; done += kBuffer) {
          const int64_t now = std::min(kBuffer, count - done);
          fill(buffer.data(), number + static_cast<uint64_t>(done), now);
          take(at + done, buffer.data(), now);
        }
      });
    });
  }

 private:
  void fill(uint64_t* bits, uint64_t number, int64_t count) const {
    const uint64_t start = start_;
    const uint64_t from = number * kGolden + start;
    for (int64_t i = 0; i < count; ++i) bits[i] = mixed(mixed(from + static_cast<uint64_t>(i) * kGolden) + start);
  }

  uint64_t start_;
  Part part_;
};

Bits bits_of(const at::Tensor& seed, int64_t stream, at::IntArrayRef offsets, at::IntArrayRef local,
             at::IntArrayRef extents) {
  return {seed, stream, Part(offsets, local, extents)};
}

/// Numbers in [0, 1), in steps that their dtype has exactly: double precision, or single.
at::Tensor fractions(const Bits& bits, bool wide) {
  at::Tensor out = at::empty({bits.elements()}, wide ? at::kDouble : at::kFloat);
  if (wide) {
    auto* data = out.mutable_data_ptr<double>();
    bits.draw([&](int64_t at, const uint64_t* drawn, int64_t count) {
      for (int64_t i = 0; i < count; ++i)
        data[at + i] = static_cast<double>(static_cast<int64_t>(drawn[i] >> (64 - kDoubleBits))) * 0x1p-53;
    });
  } else {
    auto* data = out.mutable_data_ptr<float>();
    bits.draw([&](int64_t at, const uint64_t* drawn, int64_t count) {
      for (int64_t i = 0; i < count; ++i)
        data[at + i] = static_cast<float>(static_cast<int32_t>(drawn[i] >> (64 - kSingleBits))) * 0x1p-24F;
    });
  }
  return out;
}

at::Tensor uniform(const at::Tensor& seed, int64_t stream, at::IntArrayRef size, at::IntArrayRef offsets,
                   at::IntArrayRef local, at::IntArrayRef extents, at::ScalarType dtype) {
  const at::Tensor drawn = fractions(bits_of(seed, stream, offsets, local, extents), dtype == at::kDouble);
  if (drawn.scalar_type() == dtype) return drawn.reshape(size);
  // A half's rounding must not give 1.
  const double limit = 1 - (dtype == at::kHalf ? 0x1p-11 : 0x1p-8);
  return drawn.clamp_max(limit).to(dtype).reshape(size);
}

/// By Box and Muller.
at::Tensor normal(const at::Tensor& seed, int64_t stream, at::IntArrayRef size, at::IntArrayRef offsets,
                  at::IntArrayRef local, at::IntArrayRef extents, at::ScalarType dtype) {
  const bool wide = dtype == at::kDouble;
  const at::Tensor first = fractions(bits_of(seed, 2 * stream, offsets, local, extents), wide);
  const at::Tensor second = fractions(bits_of(seed, 2 * stream + 1, offsets, local, extents), wide);
  const at::Tensor radius = first.neg().log1p_().mul_(-2).sqrt_();
  constexpr double kTurn = 6.283185307179586;
  return radius.mul(second.mul(kTurn).cos_()).to(dtype).reshape(size);
}

at::Tensor integers(const at::Tensor& seed, int64_t stream, int64_t low, int64_t high, at::IntArrayRef size,
                    at::IntArrayRef offsets, at::IntArrayRef local, at::IntArrayRef extents, at::ScalarType dtype) {
  JOINSUM_KERNEL_CHECK(low < high, "random: integers lie between bounds: low=", low, ", high=", high);
  const Bits bits = bits_of(seed, stream, offsets, local, extents);
  at::Tensor out = at::empty({bits.elements()}, at::kLong);
  auto* data = out.mutable_data_ptr<int64_t>();
  const auto range = static_cast<uint64_t>(high - low);
  bits.draw([&](int64_t at, const uint64_t* drawn, int64_t count) {
    for (int64_t i = 0; i < count; ++i) data[at + i] = static_cast<int64_t>((drawn[i] >> 1) % range) + low;
  });
  return out.to(dtype).reshape(size);
}

/// `value`, which is contiguous, in the memory layout of `like`.
at::Tensor laid_out(at::Tensor value, const at::Tensor& like) {
  if (like.is_contiguous()) return value;
  return at::empty_like(like, value.options()).copy_(value);
}

std::tuple<at::Tensor, at::Tensor> dropout(const at::Tensor& input, const at::Tensor& seed, double p, int64_t stream,
                                           at::IntArrayRef offsets, at::IntArrayRef local, at::IntArrayRef extents) {
  const Bits bits = bits_of(seed, stream, offsets, local, extents);
  JOINSUM_KERNEL_CHECK(bits.elements() == input.numel(), "dropout: the input is another part: elements=", input.numel(),
                       ", local=", local.vec());
  const at::Tensor given = input.contiguous();
  at::Tensor out = at::empty_like(given);
  at::Tensor mask = at::empty_like(given, given.options().dtype(at::kBool));
  // In the precision of the draws, as an integer.
  const auto least = static_cast<int64_t>(std::ceil(static_cast<double>(static_cast<float>(p)) * 0x1p24));
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, input.scalar_type(), "joinsum::dropout", [&] {
    using Number = at::opmath_type<scalar_t>;
    const Number scale = p == 1 ? Number(0) : static_cast<Number>(1 / (1 - p));
    const auto* from = given.const_data_ptr<scalar_t>();
    auto* to = out.mutable_data_ptr<scalar_t>();
    auto* held = mask.mutable_data_ptr<bool>();
    bits.draw([&](int64_t at, const uint64_t* drawn, int64_t count) {
      for (int64_t i = 0; i < count; ++i) {
        const bool holds = static_cast<int64_t>(drawn[i] >> (64 - kSingleBits)) >= least;
        held[at + i] = holds;
        // Where it does not hold, what is not finite gives NaN.
        to[at + i] = static_cast<scalar_t>(static_cast<Number>(from[at + i]) * static_cast<Number>(holds) * scale);
      }
    });
  });
  return {laid_out(std::move(out), input), laid_out(std::move(mask), input)};
}

TORCH_LIBRARY_FRAGMENT(joinsum, library) {
  library.def(
      "uniform(Tensor seed, int stream, int[] size, int[] offsets, int[] local, int[] extents, ScalarType dtype) "
      "-> Tensor");
  library.def(
      "normal(Tensor seed, int stream, int[] size, int[] offsets, int[] local, int[] extents, ScalarType dtype) "
      "-> Tensor");
  library.def(
      "integers(Tensor seed, int stream, int low, int high, int[] size, int[] offsets, int[] local, int[] extents, "
      "ScalarType dtype) -> Tensor");
  library.def(
      "dropout(Tensor input, Tensor seed, float p, int stream, int[] offsets, int[] local, int[] extents) "
      "-> (Tensor, Tensor)");
}

TORCH_LIBRARY_IMPL(joinsum, CPU, library) {
  library.impl("uniform", &uniform);
  library.impl("normal", &normal);
  library.impl("integers", &integers);
  library.impl("dropout", &dropout);
}

}  // namespace
}  // namespace joinsum::kernels::torch_call
