#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/rows/entries.h"

namespace joinsum::kernels::rows {
namespace {

/// The loops that run here.
template <class T, class Column>
std::vector<EntryLoops<T, Column>> all_loops() {
  std::vector<EntryLoops<T, Column>> out{portable_entry_loops<T, Column>()};
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) out.push_back(avx2_entry_loops<T, Column>());
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq")) {
    out.push_back(avx512_entry_loops<T, Column>());
  }
#endif
  std::erase_if(out, [](const auto& loops) { return loops.sums == nullptr; });
  return out;
}

/// A matrix whose row r has about r entries, and whole numbers, of which sums are exact.
template <class T, class Column>
struct Drawn {
  std::vector<int64_t> offsets{0};
  std::vector<Column> columns;
  std::vector<T> values;
  int64_t rows, count;

  Drawn(int64_t height, int64_t width) : rows(height), count(width) {
    std::mt19937 random(3);
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t c = 0; c < width; ++c) {
        if (static_cast<int64_t>(random() % static_cast<unsigned>(rows)) >= r) continue;
        columns.push_back(static_cast<Column>(c));
        values.push_back(static_cast<T>(1 + random() % 7));
      }
      offsets.push_back(static_cast<int64_t>(columns.size()));
    }
  }
  CompressedMatrix<T, Column> matrix() const { return {offsets.data(), columns.data(), values.data()}; }
};

template <class T>
std::vector<T> numbers(int64_t count) {
  std::vector<T> out;
  for (int64_t i = 0; i < count; ++i) out.push_back(static_cast<T>(i % 11 - 5));
  return out;
}

template <class T, class Column>
void check_all() {
  const Drawn<T, Column> drawn(23, 40);
  const auto a = drawn.matrix();
  for (const auto& loops : all_loops<T, Column>()) {
    for (const int64_t width : {1, 3, 8, 17, 64, 100, 200}) {
      const auto x = numbers<T>(drawn.count * width), of_rows = numbers<T>(drawn.rows * width);
      std::vector<T> product(drawn.rows * width, -1), sampled(drawn.values.size()), sums(drawn.rows),
          vector(drawn.rows);
      for (const auto& [begin, end] : {std::pair<int64_t, int64_t>{0, 9}, {9, 9}, {9, drawn.rows}}) {
        loops.times_matrix(a, begin, end, x.data(), width, product.data());
        loops.sampled(a, begin, end, of_rows.data(), x.data(), width, sampled.data());
        loops.sums(a, begin, end, sums.data());
        loops.times_vector(a, begin, end, x.data(), vector.data());
      }
      for (int64_t r = 0; r < drawn.rows; ++r) {
        T sum = 0, by_vector = 0;
        std::vector<T> row(width);
        for (int64_t e = a.offsets[r]; e < a.offsets[r + 1]; ++e) {
          T inner = 0;
          for (int64_t k = 0; k < width; ++k) {
            row[k] += a.values[e] * x[a.columns[e] * width + k];
            inner += of_rows[r * width + k] * x[a.columns[e] * width + k];
          }
          EXPECT_EQ(sampled[e], a.values[e] * inner);
          sum += a.values[e];
          by_vector += a.values[e] * x[a.columns[e]];
        }
        EXPECT_EQ(sums[r], sum);
        EXPECT_EQ(vector[r], by_vector);
        for (int64_t k = 0; k < width; ++k) EXPECT_EQ(product[r * width + k], row[k]) << r << " " << k << " " << width;
      }
    }
  }
}

/// Rows that are taken by their lengths give what they give in order, to the bit.
template <class T, class Column>
void check_windows() {
  const Drawn<T, Column> drawn(3 * kWindow + 44, 90);
  std::vector<uint8_t> by_length(3 * kWindow);
  for (int64_t window = 0; window < 3 * kWindow; window += kWindow) {
    const auto rows = by_length.begin() + window;
    std::iota(rows, rows + kWindow, uint8_t{0});
    const auto length = [&](uint8_t row) { return drawn.offsets[window + row + 1] - drawn.offsets[window + row]; };
    std::stable_sort(rows, rows + kWindow, [&](uint8_t r, uint8_t s) { return length(r) < length(s); });
  }
  std::vector<T> x;
  for (int64_t i = 0; i < drawn.count; ++i) x.push_back(std::sin(static_cast<T>(i)));
  for (const auto& loops : all_loops<T, Column>()) {
    auto a = drawn.matrix();
    std::vector<T> by_lengths(drawn.rows), expected(drawn.rows);
    loops.times_vector(a, 0, drawn.rows, x.data(), expected.data());
    a.by_length = by_length.data();
    const std::pair<int64_t, int64_t> ranges[] = {{0, kWindow}, {kWindow, kWindow + 7}, {kWindow + 7, drawn.rows}};
    for (const auto& [begin, end] : ranges) loops.times_vector(a, begin, end, x.data(), by_lengths.data());
    EXPECT_EQ(by_lengths, expected);
  }
}

TEST(EntryLoops, TakeRowsByTheirLengths) {
  check_windows<float, int32_t>();
  check_windows<double, int64_t>();
}

TEST(EntryLoops, AreThoseOfTheDefinitions) {
  check_all<float, int32_t>();
  check_all<float, int64_t>();
  check_all<double, int32_t>();
  check_all<double, int64_t>();
}

}  // namespace
}  // namespace joinsum::kernels::rows
