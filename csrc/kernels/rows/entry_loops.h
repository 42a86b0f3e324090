#pragma once

#include <array>
#include <utility>

#include "kernels/rows/entries.h"
#include "kernels/semiring/pair_tile_loops.h"

/// A function whose loops are not made loops over vectors.
#if defined(__GNUC__) && !defined(__clang__)
#define JOINSUM_SCALAR __attribute__((optimize("no-tree-slp-vectorize", "no-tree-vectorize")))
#else
#define JOINSUM_SCALAR
#endif

/// Included once by each source that compiles these loops for a set of instructions, as row_loops.h is.
namespace joinsum::kernels::rows {
namespace {

template <class T, class Column, int bytes>
struct LoopsOfEntries {
  using Matrix = CompressedMatrix<T, Column>;
  using V = semiring::Vectors<T, bytes>;
  using Vector = typename V::Aligned;
  static constexpr int64_t kLanes = V::kLanes;
  static constexpr int64_t kShort = 8;      ///< entries of a row that are worth several sums
  static constexpr int64_t kUnrolled = 24;  ///< rows with fewer entries have code for their length
  static constexpr int64_t kAhead = 4;      ///< entries whose operands are fetched before they are needed

  static JOINSUM_INLINE Vector load(const T* from) { return *reinterpret_cast<const typename V::Unaligned*>(from); }
  static JOINSUM_INLINE void store(T* to, Vector x) { *reinterpret_cast<typename V::Unaligned*>(to) = x; }

  /// The sum of a row of `length` entries, the first of which is e: of its products with a vector, or of its values.
  template <bool products>
  static JOINSUM_INLINE T sum_of_row(const Matrix& a, int64_t e, int64_t length, const T* __restrict x) {
    const T* values = a.values + e;
    const Column* columns = a.columns + e;
    const auto term = [=](int64_t i) {
      if constexpr (products) return values[i] * x[columns[i]];
      return values[i];
    };
    T first = 0;
    int64_t i = 0;
    if (length >= kShort) {
      // Four sums, so that no addition waits for the one before.
      T second = 0, third = 0, fourth = 0;
      for (; i + 4 <= length; i += 4) {
        first += term(i);
        second += term(i + 1);
        third += term(i + 2);
        fourth += term(i + 3);
      }
      first = (first + second) + (third + fourth);
    }
    for (; i < length; ++i) first += term(i);
    return first;
  }

  /// From the window's i-th shortest row on those of `length` entries; gives the place of the next row.
  template <bool products, int64_t length>
  JOINSUM_SCALAR static int64_t sum_rows_of(const Matrix a, int64_t window, int64_t i, const T* __restrict x,
                                            T* __restrict y) {
    const uint8_t* rows = a.by_length + window;
    do {
      const int64_t r = window + rows[i];
      y[r] = sum_of_row<products>(a, a.offsets[r], length, x);
      ++i;
    } while (i < kWindow && a.offsets[window + rows[i] + 1] - a.offsets[window + rows[i]] == length);
    return i;
  }

  template <bool products>
  JOINSUM_SCALAR static void sum_window(const Matrix& a, int64_t window, const T* x, T* y) {
    static constexpr auto kOfLength = []<int64_t... length>(std::integer_sequence<int64_t, length...>) {
      return std::array{&sum_rows_of<products, length>...};
    }(std::make_integer_sequence<int64_t, kUnrolled>());
    for (int64_t i = 0; i < kWindow;) {
      const int64_t r = window + a.by_length[window + i];
      const int64_t length = a.offsets[r + 1] - a.offsets[r];
      if (length < kUnrolled) {
        i = kOfLength[length](a, window, i, x, y);
      } else {
        y[r] = sum_of_row<products>(a, a.offsets[r], length, x);
        ++i;
      }
    }
  }

  /// Rows are short: to load vectors of their values takes longer than to add these one by one.
  template <bool products>
  JOINSUM_SCALAR static void sum_rows(const Matrix& a, int64_t begin, int64_t end, const T* x, T* y) {
    for (int64_t r = begin; r < end;) {
      if (a.by_length != nullptr && r % kWindow == 0 && r + kWindow <= end) {
        sum_window<products>(a, r, x, y);
        r += kWindow;
      } else {
        y[r] = sum_of_row<products>(a, a.offsets[r], a.offsets[r + 1] - a.offsets[r], x);
        ++r;
      }
    }
  }

  static void times_vector(const Matrix& a, int64_t begin, int64_t end, const T* x, T* y) {
    sum_rows<true>(a, begin, end, x, y);
  }

  static void sums(const Matrix& a, int64_t begin, int64_t end, T* y) { sum_rows<false>(a, begin, end, nullptr, y); }

  /// `count` vectors of the result's row, which stay in registers.
  template <int64_t count>
  static JOINSUM_INLINE void add_vectors(const Matrix& a, int64_t r, const T* x, int64_t width, T* y) {
    Vector sums[count] = {};
    const int64_t stop = a.offsets[r + 1];
    for (int64_t e = a.offsets[r]; e < stop; ++e) {
      const T* from = x + int64_t{a.columns[e]} * width;
      if (e + kAhead < stop) {
        const T* next = x + int64_t{a.columns[e + kAhead]} * width;
        for (int64_t v = 0; v < count; ++v) __builtin_prefetch(next + v * kLanes);
      }
      const Vector value = Vector{} + a.values[e];
      for (int64_t v = 0; v < count; ++v) sums[v] += value * load(from + v * kLanes);
    }
    for (int64_t v = 0; v < count; ++v) store(y + v * kLanes, sums[v]);
  }

  static void times_matrix(const Matrix& a, int64_t begin, int64_t end, const T* x, int64_t width, T* y) {
    for (int64_t r = begin; r < end; ++r) {
      T* row = y + r * width;
      int64_t at = 0;
      for (; at + 8 * kLanes <= width; at += 8 * kLanes) add_vectors<8>(a, r, x + at, width, row + at);
      for (; at + 4 * kLanes <= width; at += 4 * kLanes) add_vectors<4>(a, r, x + at, width, row + at);
      for (; at + kLanes <= width; at += kLanes) add_vectors<1>(a, r, x + at, width, row + at);
      if (at == width) continue;
      for (int64_t c = at; c < width; ++c) row[c] = 0;
      for (int64_t e = a.offsets[r]; e < a.offsets[r + 1]; ++e) {
        const T* from = x + int64_t{a.columns[e]} * width;
        for (int64_t c = at; c < width; ++c) row[c] += a.values[e] * from[c];
      }
    }
  }

  static JOINSUM_INLINE T product(const T* x, const T* y, int64_t width) {
    Vector sums[4] = {};
    int64_t at = 0;
    for (; at + 4 * kLanes <= width; at += 4 * kLanes) {
      for (int64_t v = 0; v < 4; ++v) sums[v] += load(x + at + v * kLanes) * load(y + at + v * kLanes);
    }
    for (; at + kLanes <= width; at += kLanes) sums[0] += load(x + at) * load(y + at);
    const Vector all = (sums[0] + sums[1]) + (sums[2] + sums[3]);
    T total = 0;
    for (int64_t i = 0; i < kLanes; ++i) total += all[i];
    for (; at < width; ++at) total += x[at] * y[at];
    return total;
  }

  static void sampled(const Matrix& a, int64_t begin, int64_t end, const T* x, const T* y, int64_t width, T* out) {
    for (int64_t r = begin; r < end; ++r) {
      const int64_t stop = a.offsets[r + 1];
      for (int64_t e = a.offsets[r]; e < stop; ++e) {
        if (e + kAhead < stop) {
          const T* next = y + int64_t{a.columns[e + kAhead]} * width;
          for (int64_t at = 0; at < width; at += kLanes) __builtin_prefetch(next + at);
        }
        out[e] = a.values[e] * product(x + r * width, y + int64_t{a.columns[e]} * width, width);
      }
    }
  }
};

template <class T, class Column, int bytes>
EntryLoops<T, Column> entry_loops() {
  using L = LoopsOfEntries<T, Column, bytes>;
  return {L::times_vector, L::times_matrix, L::sampled, L::sums};
}

}  // namespace
}  // namespace joinsum::kernels::rows
