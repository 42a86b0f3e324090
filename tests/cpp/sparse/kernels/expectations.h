#pragma once

#include <cmath>

#include <gtest/gtest.h>

#include "sparse/kernels/brute_force.h"
#include "sparse/kernels/random_kernels.h"

namespace joinsum::sparse::kernels {

using namespace operators;  // NOLINT: the tests' own words
using namespace tensor;     // NOLINT

/// Sums in another order, and exponentials of f32, may differ in their last bits; a double has not all of i64.
template <class T>
bool close(double a, double b) {
  if (a == b || (a != a && b != b)) return true;
  if (!std::is_floating_point_v<T> && !std::is_same_v<T, int64_t>) return false;
  const double tolerance = std::is_same_v<T, float> ? 2e-5 : 1e-12;
  return std::abs(a - b) <= tolerance * std::max({1.0, std::abs(a), std::abs(b)});
}

template <class T>
inline void expect_brute_force(const Case& drawn, const Tensor& result) {
  const KernelArguments arguments = drawn.arguments();
  const BruteForce<T> expected(drawn.kernel, arguments);
  ASSERT_EQ(result.dtype(), drawn.dtype);
  Dims shape;
  for (const int64_t loop : drawn.kernel.output) shape.push_back(drawn.extents[loop]);
  ASSERT_EQ(result.shape, shape);
  check(result);
  EXPECT_PRED2(close<T>, result.fill, nest::fill_from(expected.fill()));
  for (const Key& key : keys_of(Box::below(shape))) {
    const double value = element_at(result, key).value_or(result.fill);
    EXPECT_PRED2(close<T>, value, nest::fill_from(expected.element(key))) << key_text(key);
  }
}

inline void expect_brute_force(const Case& drawn, const Tensor& result) {
  switch (drawn.dtype) {
    case DType::kFloat32:
      return expect_brute_force<float>(drawn, result);
    case DType::kFloat64:
      return expect_brute_force<double>(drawn, result);
    case DType::kInt32:
      return expect_brute_force<int32_t>(drawn, result);
    case DType::kInt64:
      return expect_brute_force<int64_t>(drawn, result);
    case DType::kUInt8:
      return expect_brute_force<uint8_t>(drawn, result);
    default:
      return expect_brute_force<bool>(drawn, result);
  }
}

/// Two results that have the same elements stored, up to the order of sums.
inline void expect_same(const Tensor& a, const Tensor& b) {
  ASSERT_EQ(a.shape, b.shape);
  ASSERT_EQ(a.dtype(), b.dtype());
  EXPECT_PRED2(close<double>, a.fill, b.fill);
  EXPECT_EQ(a.stored(), b.stored());
  for (const Key& key : keys_of(Box::below(a.shape))) {
    const std::optional<double> left = element_at(a, key);
    const std::optional<double> right = element_at(b, key);
    ASSERT_EQ(left.has_value(), right.has_value()) << key_text(key);
    if (!left) continue;
    const bool single = a.dtype() == DType::kFloat32;
    EXPECT_PRED2(single ? close<float> : close<double>, *left, *right) << key_text(key);
  }
}

}  // namespace joinsum::sparse::kernels
