#include "optimizer/search/min_sum/rows.h"

#include <algorithm>
#include <array>
#include <limits>

namespace joinsum::optimizer::min_sum {
namespace {

/// Minima that are taken beside each other, as one instruction does.
constexpr int64_t kLanes = 16;

}  // namespace

#if defined(__x86_64__) && defined(__linux__) && defined(__GNUC__) && !defined(__clang__) && \
    !defined(__SANITIZE_ADDRESS__)
#define JOINSUM_WIDEST __attribute__((target_clones("default", "avx2", "avx512f")))
#else
#define JOINSUM_WIDEST
#endif

JOINSUM_WIDEST void add_row(double* __restrict sum, const double* __restrict row, int64_t count) {
  for (int64_t i = 0; i < count; ++i) sum[i] += row[i];
}

JOINSUM_WIDEST void add_limited_row(double* __restrict sum, const double* __restrict limited, double most,
                                    int64_t count) {
  for (int64_t i = 0; i < count; ++i) sum[i] += limited[i] < most ? limited[i] : most;
}

JOINSUM_WIDEST void lower_row(double* __restrict least, const double* __restrict row, double constant, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    const double sum = constant + row[i];
    least[i] = sum < least[i] ? sum : least[i];
  }
}

JOINSUM_WIDEST void lower_rows(double* __restrict least, const double* __restrict left, const double* __restrict right,
                               double constant, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    const double sum = constant + (left[i] + right[i]);
    least[i] = sum < least[i] ? sum : least[i];
  }
}

JOINSUM_WIDEST void lower_limited_rows(double* __restrict least, const double* __restrict row,
                                       const double* __restrict limited, double most, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    const double sum = row[i] + (limited[i] < most ? limited[i] : most);
    least[i] = sum < least[i] ? sum : least[i];
  }
}

JOINSUM_WIDEST double least_of_row(const double* row, int64_t count) {
  std::array<double, kLanes> least;
  least.fill(std::numeric_limits<double>::infinity());
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (int64_t lane = 0; lane < kLanes; ++lane)
      least[lane] = row[i + lane] < least[lane] ? row[i + lane] : least[lane];
  }
  for (; i < count; ++i) least[0] = std::min(least[0], row[i]);
  return *std::min_element(least.begin(), least.end());
}

JOINSUM_WIDEST double least_of_rows(const double* left, const double* right, int64_t count) {
  std::array<double, kLanes> least;
  least.fill(std::numeric_limits<double>::infinity());
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (int64_t lane = 0; lane < kLanes; ++lane) {
      const double sum = left[i + lane] + right[i + lane];
      least[lane] = sum < least[lane] ? sum : least[lane];
    }
  }
  for (; i < count; ++i) least[0] = std::min(least[0], left[i] + right[i]);
  return *std::min_element(least.begin(), least.end());
}

JOINSUM_WIDEST double least_of_limited_rows(const double* row, const double* limited, double most, int64_t count) {
  std::array<double, kLanes> least;
  least.fill(std::numeric_limits<double>::infinity());
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (int64_t lane = 0; lane < kLanes; ++lane) {
      const double sum = row[i + lane] + (limited[i + lane] < most ? limited[i + lane] : most);
      least[lane] = sum < least[lane] ? sum : least[lane];
    }
  }
  for (; i < count; ++i) least[0] = std::min(least[0], row[i] + std::min(limited[i], most));
  return *std::min_element(least.begin(), least.end());
}

}  // namespace joinsum::optimizer::min_sum
