#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/rows/rows.h"

namespace joinsum::kernels::rows {
namespace {

/// The loops that run on this processor.
template <class T>
std::vector<RowLoops<T>> loops() {
  std::vector<RowLoops<T>> out{portable_row_loops<T>()};
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) out.push_back(avx2_row_loops<T>());
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq")) out.push_back(avx512_row_loops<T>());
#endif
  std::erase_if(out, [](const RowLoops<T>& each) { return each.sum == nullptr; });
  return out;
}

template <class T>
std::vector<T> samples(int64_t count, int seed) {
  std::vector<T> out;
  for (int64_t i = 0; i < count; ++i) out.push_back(static_cast<T>(std::sin(seed + 1.7 * static_cast<double>(i)) * 4));
  return out;
}

template <class T>
constexpr double kTolerance = sizeof(T) == 4 ? 2e-5 : 1e-12;

constexpr int64_t kCounts[] = {1, 3, 8, 17, 64, 133};

template <class T>
class RowLoopsOf : public testing::Test {};
using Types = testing::Types<float, double>;
TYPED_TEST_SUITE(RowLoopsOf, Types);

TYPED_TEST(RowLoopsOf, SoftmaxesAreThoseOfPlainLoops) {
  using T = TypeParam;
  for (const RowLoops<T>& each : loops<T>()) {
    for (const int64_t count : kCounts) {
      std::vector<T> x = samples<T>(count, 1);
      if (count > 3) x[2] = -std::numeric_limits<T>::infinity();
      const T most = *std::max_element(x.begin(), x.end());
      EXPECT_EQ(each.maximum(x.data(), count), most);
      double total = 0;
      for (const T y : x) total += std::exp(static_cast<double>(y) - most);
      EXPECT_NEAR(each.sum_of_exponentials(x.data(), count, most), total, kTolerance<T> * total);
      const double lse = most + std::log(total);
      const auto high = static_cast<T>(lse);
      std::vector<T> over = x;
      each.scaled_exponentials(over.data(), count, high, static_cast<T>(lse - high), T(-3), over.data());
      for (int64_t i = 0; i < count; ++i) EXPECT_NEAR(over[i], -3 * std::exp(x[i] - lse), kTolerance<T>);
    }
  }
}

TYPED_TEST(RowLoopsOf, LogSoftmaxesAndTheirGradientsAreThoseOfPlainLoops) {
  using T = TypeParam;
  for (const RowLoops<T>& each : loops<T>()) {
    for (const int64_t count : kCounts) {
      const std::vector<T> x = samples<T>(count, 1);
      const std::vector<T> grad = samples<T>(count, 2);
      std::vector<T> scores = x;
      each.lowered(scores.data(), count, T(4), T(0.5), scores.data());
      for (int64_t i = 0; i < count; ++i) EXPECT_EQ(scores[i], (x[i] - T(4)) - T(0.5));
      std::vector<T> slopes = grad;
      each.log_softmax_slopes(slopes.data(), scores.data(), count, T(-3), slopes.data());
      for (int64_t i = 0; i < count; ++i)
        EXPECT_NEAR(slopes[i], grad[i] + 3 * std::exp(static_cast<double>(scores[i])), kTolerance<T>);
    }
  }
}

TYPED_TEST(RowLoopsOf, SoftmaxesOfScaledRowsAndTheirGradientsAreThoseOfPlainLoops) {
  using T = TypeParam;
  for (const RowLoops<T>& each : loops<T>()) {
    for (const int64_t count : kCounts) {
      const std::vector<T> x = samples<T>(count, 1);
      const std::vector<T> grad = samples<T>(count, 2);
      const auto most = static_cast<T>(0.5 * *std::max_element(x.begin(), x.end()));
      std::vector<T> weights = x;
      const T sum = each.exponentials(weights.data(), count, T(0.5), most);
      double total = 0;
      double product = 0;
      for (int64_t i = 0; i < count; ++i) {
        const double weight = std::exp(0.5 * x[i] - most);
        EXPECT_NEAR(weights[i], weight, kTolerance<T>);
        total += weight;
        product += static_cast<double>(x[i]) * grad[i];
      }
      EXPECT_NEAR(sum, total, kTolerance<T> * total);
      EXPECT_NEAR(each.sum_of_products(x.data(), grad.data(), count), product, kTolerance<T> * 16 * count);
      std::vector<T> slopes = grad;
      each.softmax_slopes(weights.data(), count, T(0.25), T(3), slopes.data());
      std::vector<T> scaled = x;
      each.scaled(scaled.data(), count, T(-2), scaled.data());
      for (int64_t i = 0; i < count; ++i) {
        EXPECT_NEAR(slopes[i], 3.0 * weights[i] * (grad[i] - 0.25), kTolerance<T> * 16);
        EXPECT_EQ(scaled[i], T(-2) * x[i]);
      }
    }
  }
}

TYPED_TEST(RowLoopsOf, NothingAndNotANumberStayWhatTheyAre) {
  using T = TypeParam;
  const T infinity = std::numeric_limits<T>::infinity();
  const std::vector<T> none(19, -infinity);
  std::vector<T> x(19, T(1));
  x[18] = std::numeric_limits<T>::quiet_NaN();
  for (const RowLoops<T>& each : loops<T>()) {
    EXPECT_EQ(each.maximum(none.data(), 19), -infinity);
    EXPECT_EQ(each.sum_of_exponentials(none.data(), 19, T(0)), T(0));
    EXPECT_TRUE(std::isnan(each.sum_of_exponentials(x.data(), 19, T(1))));
  }
}

/// A norm's row and its gradient by plain loops: result, gradient of the input.
struct Plain {
  double mean = 0;
  double rstd = 0;
  std::vector<double> normed;
  std::vector<double> gradient;

  template <class T>
  Plain(const std::vector<T>& x, const std::vector<T>& weight, const std::vector<T>& grad) {
    const auto count = static_cast<double>(x.size());
    for (const T y : x) mean += y / count;
    double variance = 0;
    for (const T y : x) variance += (y - mean) * (y - mean) / count;
    rstd = 1 / std::sqrt(variance + 1e-5);
    double first = 0;
    double second = 0;
    for (size_t i = 0; i < x.size(); ++i) {
      normed.push_back((x[i] - mean) * rstd);
      first += grad[i] * weight[i] / count;
      second += grad[i] * weight[i] * normed[i] / count;
    }
    for (size_t i = 0; i < x.size(); ++i) gradient.push_back(rstd * (grad[i] * weight[i] - first - normed[i] * second));
  }
};

TYPED_TEST(RowLoopsOf, NormsAndTheirGradientsAreThoseOfPlainLoops) {
  using T = TypeParam;
  for (const RowLoops<T>& each : loops<T>()) {
    for (const int64_t count : kCounts) {
      const std::vector<T> x = samples<T>(count, 1);
      const std::vector<T> weight = samples<T>(count, 2);
      std::vector<T> grad = samples<T>(count, 3);
      const Plain plain(x, weight, grad);
      const T mean = each.sum(x.data(), count) / static_cast<T>(count);
      EXPECT_NEAR(mean, plain.mean, kTolerance<T>);
      const double squares = each.sum_of_squares(x.data(), count, mean);
      EXPECT_NEAR(1 / std::sqrt(squares / static_cast<double>(count) + 1e-5), plain.rstd, kTolerance<T> * plain.rstd);
      if (count == 1) continue;  // its deviation is that of rounding
      const Normed<T> row{x.data(), mean, static_cast<T>(plain.rstd), weight.data()};
      std::vector<T> out(count);
      each.normed(row, count, grad.data(), out.data());
      for (int64_t i = 0; i < count; ++i)
        EXPECT_NEAR(out[i], plain.normed[i] * weight[i] + grad[i], kTolerance<T> * 10);
      T first;
      T second;
      each.slopes(row, count, grad.data(), &first, &second);
      each.normed_gradient(row, count, grad.data(), first / static_cast<T>(count), second / static_cast<T>(count),
                           grad.data());
      for (int64_t i = 0; i < count; ++i) EXPECT_NEAR(grad[i], plain.gradient[i], kTolerance<T> * 10);
    }
  }
}

TYPED_TEST(RowLoopsOf, GradientsOfWeightsAddUpOverRows) {
  using T = TypeParam;
  constexpr int64_t kRows = 19;
  constexpr int64_t kStride = 40;
  const std::vector<T> x = samples<T>(kRows * kStride, 1);
  const std::vector<T> grad = samples<T>(kRows * kStride, 2);
  const std::vector<T> mean = samples<T>(kRows, 3);
  const std::vector<T> rstd = samples<T>(kRows, 4);
  for (const RowLoops<T>& each : loops<T>()) {
    for (const int64_t count : {int64_t{5}, int64_t{16}, int64_t{37}}) {
      std::vector<T> weight(count, T(1));
      std::vector<T> bias(count, T(2));
      each.add_affine(x.data(), grad.data(), kRows, kStride, count, mean.data(), rstd.data(), weight.data(),
                      bias.data());
      for (int64_t i = 0; i < count; ++i) {
        double for_weight = 1;
        double for_bias = 2;
        for (int64_t row = 0; row < kRows; ++row) {
          const double g = grad[row * kStride + i];
          for_weight += g * (static_cast<double>(x[row * kStride + i]) - mean[row]) * rstd[row];
          for_bias += g;
        }
        EXPECT_NEAR(weight[i], for_weight, kTolerance<T> * 100);
        EXPECT_NEAR(bias[i], for_bias, kTolerance<T> * 10);
      }
    }
  }
}

TEST(RowLoops, GelusAreThoseOfTheErrorFunction) {
  const double root = std::sqrt(2.0);
  std::vector<float> x;
  for (int i = -6001; i <= 6001; ++i) x.push_back(static_cast<float>(i) * 0.002F);
  x.insert(x.end(), {-0.0F, 1e-30F, -1e-30F, 50.0F, -50.0F, 3e38F, -3e38F});
  const auto count = static_cast<int64_t>(x.size());
  const std::vector<float> grad = samples<float>(count, 3);
  for (const RowLoops<float>& each : loops<float>()) {
    std::vector<float> out(x.size());
    std::vector<float> slopes = grad;
    each.gelu(x.data(), count, out.data());
    each.gelu_slopes(slopes.data(), x.data(), count, slopes.data());
    for (size_t i = 0; i < x.size(); ++i) {
      const double y = x[i];
      const double below = 0.5 * std::erfc(-y / root);
      const double density = std::exp(-y * y / 2) / std::sqrt(2 * std::acos(-1.0));
      EXPECT_NEAR(out[i], y * below, 5e-7 * std::abs(y)) << y;
      EXPECT_NEAR(slopes[i], grad[i] * (below + y * density), 1e-6 * std::abs(grad[i])) << y;
    }
  }
}

TEST(RowLoops, GelusOfInfinitiesAndOfWhatIsNoNumberAreTorchs) {
  const float infinity = std::numeric_limits<float>::infinity();
  const std::vector<float> x{infinity, -infinity, std::numeric_limits<float>::quiet_NaN()};
  const std::vector<float> grad{1, 1, 1};
  for (const RowLoops<float>& each : loops<float>()) {
    std::vector<float> out(3);
    each.gelu(x.data(), 3, out.data());
    EXPECT_EQ(out[0], infinity);
    EXPECT_TRUE(std::isnan(out[1]) && std::isnan(out[2]));
    each.gelu_slopes(grad.data(), x.data(), 3, out.data());
    EXPECT_TRUE(std::isnan(out[0]) && std::isnan(out[1]) && std::isnan(out[2]));
  }
}

}  // namespace
}  // namespace joinsum::kernels::rows
