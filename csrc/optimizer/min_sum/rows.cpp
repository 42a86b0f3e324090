#include "optimizer/min_sum/rows.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>

namespace joinsum::optimizer::min_sum {
namespace {

/// Minima that are taken together, as by one instruction.
constexpr int64_t kLanes = 16;
constexpr double kInfinite = std::numeric_limits<double>::infinity();

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

namespace {

/// Doubles that one instruction lowers together; compilers translate it to the machine's vectors.
typedef double Lanes __attribute__((vector_size(64)));  // NOLINT(modernize-use-using): what GCC takes
constexpr int64_t kWide = sizeof(Lanes) / sizeof(double);

}  // namespace

/// The last lanes of a row overlap those before them, which changes no minimum.
JOINSUM_WIDEST void lower_product(double* __restrict least, const double* __restrict left,
                                  const double* __restrict right, int64_t rows, int64_t inner, int64_t columns) {
  for (int64_t row = 0; row < rows; ++row) {
    double* out = least + row * columns;
    const double* constants = left + row * inner;
    for (int64_t i = 0; columns >= kWide && i < columns; i += kWide) {
      const int64_t at = std::min(i, columns - kWide);
      Lanes lowest;
      std::memcpy(&lowest, out + at, sizeof(Lanes));
      for (int64_t k = 0; k < inner; ++k) {
        if (constants[k] == kInfinite) continue;
        Lanes sum;
        std::memcpy(&sum, right + k * columns + at, sizeof(Lanes));
        sum += constants[k];
        lowest = sum < lowest ? sum : lowest;
      }
      std::memcpy(out + at, &lowest, sizeof(Lanes));
    }
    for (int64_t k = 0; columns < kWide && k < inner; ++k) {
      for (int64_t j = 0; j < columns; ++j) out[j] = std::min(out[j], constants[k] + right[k * columns + j]);
    }
  }
}

JOINSUM_WIDEST void lower_groups(double* __restrict best, const double* __restrict limited,
                                 const double* __restrict most, int64_t sets, int64_t columns, int64_t stride) {
  for (int64_t i = 0; columns >= kWide && i < columns; i += kWide) {
    const int64_t at = std::min(i, columns - kWide);
    for (int64_t set = 1; set < sets; ++set) {
      const int64_t lowest = set & -set;
      const int64_t others = set ^ lowest;
      Lanes least = Lanes{} + kInfinite;
      for (int64_t more = others;; more = (more - 1) & others) {
        Lanes rest;
        Lanes group;
        std::memcpy(&rest, best + (others ^ more) * columns + at, sizeof(Lanes));
        std::memcpy(&group, limited + (lowest | more) * stride + at, sizeof(Lanes));
        const Lanes limit = Lanes{} + most[(lowest | more) * stride];
        const Lanes sum = rest + (group < limit ? group : limit);
        least = sum < least ? sum : least;
        if (more == 0) break;
      }
      std::memcpy(best + set * columns + at, &least, sizeof(Lanes));
    }
  }
  for (int64_t set = 1; columns < kWide && set < sets; ++set) {
    const int64_t lowest = set & -set;
    const int64_t others = set ^ lowest;
    double* out = best + set * columns;
    std::fill_n(out, columns, kInfinite);
    for (int64_t more = others;; more = (more - 1) & others) {
      const double* group = limited + (lowest | more) * stride;
      const double* rest = best + (others ^ more) * columns;
      for (int64_t j = 0; j < columns; ++j)
        out[j] = std::min(out[j], rest[j] + std::min(group[j], most[(lowest | more) * stride]));
      if (more == 0) break;
    }
  }
}

JOINSUM_WIDEST double least_of_rows(const double* left, const double* right, int64_t count) {
  std::array<double, kLanes> least;
  least.fill(kInfinite);
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
  least.fill(kInfinite);
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
