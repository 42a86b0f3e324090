#pragma once

#include <cstdint>
#include <vector>

#include "sparse/tensor/tensor.h"

/// The lexicographic order of coordinates.
namespace joinsum::sparse::tensor {

/// One column of coordinates for each level, and the extent of each.
struct Columns {
  std::vector<Array<int64_t>> data;
  Dims sizes;
  int64_t count = 0;

  int64_t levels() const { return static_cast<int64_t>(data.size()); }
  /// Whether elements a and b agree in every column.
  bool same(int64_t a, int64_t b) const;
};

/// Elements in ascending order of their coordinates, those of equal ones in the order given.
struct Ascending {
  Columns columns;
  std::vector<int64_t> places;  ///< where each was; empty where none has moved

  int64_t place(int64_t element) const { return places.empty() ? element : places[element]; }
};

/// Sorts by radix over the bits that the sizes need, without the trailing columns by which the elements are in order as
/// given; linear in elements × bits. Coordinates lie below the sizes.
Ascending sorted(const Columns& columns);

/// The elements of an array at these places.
template <class T>
void gather(const T* from, const std::vector<int64_t>& places, T* out) {
  for (const int64_t place : places) *out++ = from[place];
}
std::vector<int64_t> gathered(const Array<int64_t>& from, const std::vector<int64_t>& places);
Values gathered(const Values& from, const std::vector<int64_t>& places);

}  // namespace joinsum::sparse::tensor
