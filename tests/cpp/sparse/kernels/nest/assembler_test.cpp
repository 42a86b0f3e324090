#include "sparse/kernels/nest/assembler.h"

#include <algorithm>
#include <map>
#include <random>

#include <gtest/gtest.h>

#include "sparse/tensor/random_tensors.h"

namespace joinsum::sparse::kernels::nest {
namespace {

using tensor::elements_of;
using tensor::Tensor;

/// Appends those of the elements whose first coordinate is in [first, past), in order.
Assembler<double> piece_of(const std::vector<LevelFormat>& formats, const Dims& extents,
                           const std::map<Dims, double>& elements, int64_t first, int64_t past) {
  Assembler<double> out(formats, extents, 0, first, past);
  for (const auto& [at, value] : elements) {
    if (at[0] < first || at[0] >= past) continue;
    out.set_prefix(at.data(), std::ssize(at));
    out.append(value);
  }
  out.finish();
  return out;
}

Tensor tensor_of(Assembler<double>& levels, const Dims& extents) {
  Tensor out{.shape = extents, .axes = all_dims(std::ssize(extents)), .values = levels.take_values(DType::kFloat64)};
  out.levels = levels.take_levels();
  tensor::check(out);
  return out;
}

TEST(Assembler, PiecesJoinToWhatOneBuilds) {
  std::mt19937_64 random(0);
  const auto below = [&](int64_t size) { return std::uniform_int_distribution<int64_t>(0, size - 1)(random); };
  for (int round = 0; round < 300; ++round) {
    const int64_t rank = 1 + below(3);
    std::vector<LevelFormat> formats;
    Dims extents;
    for (int64_t level = 0; level < rank; ++level) {
      formats.push_back(static_cast<LevelFormat>(below(4)));
      extents.push_back(1 + below(9));
    }
    std::map<Dims, double> elements;
    for (int64_t i = below(30); i > 0; --i) {
      Dims at;
      for (const int64_t extent : extents) at.push_back(below(extent));
      elements[at] = static_cast<double>(1 + i);
    }
    Assembler<double> whole = piece_of(formats, extents, elements, 0, extents[0]);
    std::vector<Assembler<double>> pieces;
    for (int64_t first = 0; first < extents[0];) {
      const int64_t past = std::min(extents[0], first + 1 + below(4));
      pieces.push_back(piece_of(formats, extents, elements, first, past));
      first = past;
    }
    Assembler<double> joined = Assembler<double>::joined(pieces, 2);
    const Tensor one = tensor_of(whole, extents), other = tensor_of(joined, extents);
    EXPECT_EQ(elements_of(to_coordinates(other)), elements_of(to_coordinates(one)));
    for (int64_t level = 0; level < rank; ++level) {
      EXPECT_TRUE(std::ranges::equal(other.levels[level].offsets, one.levels[level].offsets));
      EXPECT_TRUE(std::ranges::equal(other.levels[level].coordinates, one.levels[level].coordinates));
      EXPECT_TRUE(std::ranges::equal(other.levels[level].stored, one.levels[level].stored));
    }
  }
}

}  // namespace
}  // namespace joinsum::sparse::kernels::nest
