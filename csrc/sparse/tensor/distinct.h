#pragma once

#include <optional>
#include <vector>

#include "sparse/tensor/order.h"

namespace joinsum::sparse::tensor {

/// Elements of distinct coordinates in ascending order.
struct DistinctElements {
  Columns columns;              ///< ascending
  std::vector<int64_t> places;  ///< of each element in the columns; empty where these are distinct
  int64_t count = 0;
  Values values;  ///< of the elements

  int64_t place(int64_t element) const { return places.empty() ? element : places[element]; }
};

/// Sorts elements and folds the values of repeated ones by `fold` in the order given; without it they raise PlanError.
/// Column l is axis `axes[l]`.
DistinctElements distinct_elements(const Coordinates& coordinates, const std::vector<int64_t>& axes,
                                   std::optional<Operator> fold);

}  // namespace joinsum::sparse::tensor
