#pragma once

#include <cstdint>

namespace joinsum::kernels::rows {

/// Consecutive rows that are taken in the order of their lengths.
inline constexpr int64_t kWindow = 256;

/// A matrix in compressed rows: entry e of row r, offsets[r] <= e < offsets[r + 1], has a column and a value. Columns
/// of 32 bits take half the memory traffic. `by_length`, unless null, has the rows of each whole group of kWindow rows,
/// counted from the group's first one, in ascending order of their entries: loops of equal lengths in sequence are
/// predicted by the processor.
template <class T, class Column>
struct CompressedMatrix {
  const int64_t* offsets;
  const Column* columns;
  const T* values;
  const uint8_t* by_length = nullptr;
};

/// Loops over the entries of rows `begin` to `end` of a sparse matrix A. Dense matrices are row-major and contiguous.
/// Each result is summed in an order that depends on its row's entries alone.
template <class T, class Column>
struct EntryLoops {
  using Matrix = CompressedMatrix<T, Column>;
  /// y = A x.
  void (*times_vector)(const Matrix& a, int64_t begin, int64_t end, const T* x, T* y) = nullptr;
  /// Y = A X, of `width` columns.
  void (*times_matrix)(const Matrix& a, int64_t begin, int64_t end, const T* x, int64_t width, T* y) = nullptr;
  /// Of each entry its value times the product of row r of X and row c of Y, both of `width` columns.
  void (*sampled)(const Matrix& a, int64_t begin, int64_t end, const T* x, const T* y, int64_t width, T* out) = nullptr;
  /// The sum of each row.
  void (*sums)(const Matrix& a, int64_t begin, int64_t end, T* y) = nullptr;
};

/// Loops for a set of instructions, which run only where it exists. Null functions where they are not compiled.
template <class T, class Column>
EntryLoops<T, Column> portable_entry_loops();
template <class T, class Column>
EntryLoops<T, Column> avx2_entry_loops();
template <class T, class Column>
EntryLoops<T, Column> avx512_entry_loops();

}  // namespace joinsum::kernels::rows
