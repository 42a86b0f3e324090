#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "kernels/threads/parallel.h"
#include "sparse/tensor/order.h"

namespace joinsum::kernels::torch_call {

/// Entries by the row that they belong to.
class TouchedRows {
 public:
  /// `row_of` has the row of each entry, below `extent`.
  TouchedRows(std::vector<int64_t> row_of, int64_t extent) {
    const auto count = static_cast<int64_t>(row_of.size());
    sorted_ = joinsum::sparse::tensor::sorted({{std::move(row_of)}, {extent}, count});
    const joinsum::sparse::tensor::Array<int64_t>& all = sorted_.columns.data[0];
    for (int64_t e = 0; e < count; ++e) {
      if (e == 0 || all[e] != all[e - 1]) begins_.push_back(e);
    }
    begins_.push_back(count);
  }

  /// Rows, which ascend by their place.
  int64_t count() const { return static_cast<int64_t>(begins_.size()) - 1; }
  int64_t row(int64_t place) const { return sorted_.columns.data[0][begins_[place]]; }

  /// Calls `visit` with the entries of a row, in the order given.
  template <class Visit>
  void for_each_entry(int64_t place, const Visit& visit) const {
    for (int64_t e = begins_[place]; e < begins_[place + 1]; ++e) visit(sorted_.place(e));
  }

  /// Calls `visit` with the places of all rows, of `width` elements each, on torch's threads.
  template <class Visit>
  void for_each(int64_t width, const Visit& visit) const {
    constexpr int64_t kOfAThread = 8192;
    threads::for_each_range(count(), kOfAThread / std::max<int64_t>(width, 1) + 1, [&](int64_t begin, int64_t end) {
      for (int64_t place = begin; place < end; ++place) visit(place);
    });
  }

 private:
  joinsum::sparse::tensor::Ascending sorted_;
  std::vector<int64_t> begins_;  ///< where each row's entries begin
};

}  // namespace joinsum::kernels::torch_call
