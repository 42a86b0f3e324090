#include <algorithm>
#include <limits>
#include <numeric>

#include "sparse/tensor/distinct.h"
#include "sparse/tensor/elements.h"
#include "sparse/tensor/levels.h"
#include "sparse/tensor/tensor.h"

namespace joinsum::sparse::tensor {
namespace {

/// Builds levels from the first to the last. Element e lies in fiber `fiber_[e]` of the next level.
class LevelBuilder {
 public:
  LevelBuilder(const DistinctElements& elements, int64_t value_bytes, int64_t largest)
      : elements_(elements), value_bytes_(value_bytes), largest_(largest), fiber_(elements.count, 0) {}

  Level next(LevelFormat format, bool below_lists) {
    const bool last = level_ + 1 == elements_.columns.levels();
    Level level = lists_coordinates(format) ? listed(last) : full(format, last, below_lists);
    if (format == LevelFormat::kHash) level = with_hash_table(level);
    in_order_ = lists_coordinates(format);
    ++level_;
    return level;
  }

  /// One value for each entry of the last level, `fill` where no element is.
  Values values(DType dtype, double fill) const {
    if (in_order_) return elements_.values;
    return with_element_type("sparse tensor", dtype, [&](auto zero) {
      using T = decltype(zero);
      const T* from = elements_.values.as<T>();
      ValueBuffer<T> out(fibers_, T(fill));
      for (int64_t e = 0; e < elements_.count; ++e) out.data()[fiber_[e]] = from[e];
      return out.take(dtype);
    });
  }

 private:
  Level full(LevelFormat format, bool last, bool below_lists) {
    const int64_t size = elements_.columns.sizes[level_];
    const bool marked = format == LevelFormat::kBytemap;
    const int64_t below = last ? value_bytes_ : below_lists ? int64_t{sizeof(int64_t)} : 0;
    const int64_t entries = checked_entries(level_, format, fibers_, size, below + int64_t{marked}, largest_);
    const int64_t* column = elements_.columns.data[level_].data();
    for (int64_t e = 0; e < elements_.count; ++e) fiber_[e] = fiber_[e] * size + column[elements_.place(e)];
    Level level{.format = format, .size = size};
    if (marked) {
      std::vector<uint8_t> stored(entries, 0);
      for (const int64_t entry : fiber_) stored[entry] = 1;
      level.stored = std::move(stored);
    }
    fibers_ = entries;
    return level;
  }

  /// A sorted list. Elements are distinct, so that each has its own entry in the last level.
  Level listed(bool last) {
    std::vector<int64_t> offsets(fibers_ + 1, 0);
    std::vector<int64_t> coordinates;
    if (last) coordinates.reserve(elements_.count);
    const int64_t* column = elements_.columns.data[level_].data();
    int64_t fiber = -1;
    int64_t filled = 0;  // fibers that have an entry
    int64_t coordinate = -1;
    for (int64_t e = 0; e < elements_.count; ++e) {
      const int64_t here = column[elements_.place(e)];
      if (fiber_[e] != fiber || here != coordinate) {
        filled += int64_t{fiber_[e] != fiber};
        fiber = fiber_[e];
        coordinate = here;
        coordinates.push_back(here);
        ++offsets[fiber + 1];
      }
      if (!last) fiber_[e] = static_cast<int64_t>(coordinates.size()) - 1;
    }
    std::inclusive_scan(offsets.begin(), offsets.end(), offsets.begin());
    const bool single = filled == fibers_ && std::ssize(coordinates) == fibers_;
    fibers_ = std::ssize(coordinates);
    return {.format = LevelFormat::kSortedList,
            .size = elements_.columns.sizes[level_],
            .offsets = std::move(offsets),
            .coordinates = std::move(coordinates),
            .single = single};
  }

  const DistinctElements& elements_;
  int64_t value_bytes_;
  int64_t largest_;
  std::vector<int64_t> fiber_;
  int64_t fibers_ = 1;
  int64_t level_ = 0;
  bool in_order_ = false;
};

void check_lengths(const Coordinates& coordinates) {
  const auto rank = static_cast<int64_t>(coordinates.shape.size());
  JOINSUM_USER_CHECK(static_cast<int64_t>(coordinates.axes.size()) == rank,
                     "sparse tensor: each axis needs its coordinates: axes=", coordinates.axes.size(),
                     ", shape=", coordinates.shape);
  const int64_t width = byte_size(coordinates.values.dtype);
  JOINSUM_USER_CHECK(coordinates.values.bytes.size() % width == 0,
                     "sparse tensor: the values' bytes are no multiple of an element's: bytes=",
                     coordinates.values.bytes.size(), ", dtype=", name_of(coordinates.values.dtype));
  for (int64_t a = 0; a < rank; ++a) {
    JOINSUM_USER_CHECK(coordinates.axes[a].size() == coordinates.values.count(),
                       "sparse tensor: coordinates and values differ in number: axis=", a,
                       ", coordinates=", coordinates.axes[a].size(), ", values=", coordinates.values.count());
  }
}

void check_range(const Coordinates& coordinates) {
  for (size_t a = 0; a < coordinates.axes.size(); ++a) {
    const auto size = static_cast<uint64_t>(coordinates.shape[a]);
    const Array<int64_t>& axis = coordinates.axes[a];
    const auto* wrong =
        std::find_if(axis.begin(), axis.end(), [=](int64_t c) { return static_cast<uint64_t>(c) >= size; });
    JOINSUM_USER_CHECK(wrong == axis.end(), "sparse tensor: coordinate out of range: axis=", a,
                       ", place=", wrong - axis.begin(), ", coordinate=", *wrong, ", size=", size);
  }
}

Tensor scalar(const Coordinates& coordinates, const DistinctElements& elements, double fill) {
  Tensor out{.fill = fill, .scalar_stored = elements.count > 0};
  out.values = elements.values;
  if (out.scalar_stored) return out;
  out.values = with_element_type("sparse tensor", coordinates.values.dtype, [&](auto zero) {
    return ValueBuffer<decltype(zero)>(1, decltype(zero)(fill)).take(coordinates.values.dtype);
  });
  return out;
}

}  // namespace

Tensor from_coordinates(const Coordinates& coordinates, const std::vector<int64_t>& axes,
                        const std::vector<LevelFormat>& formats, double fill, std::optional<Operator> fold,
                        int64_t largest) {
  check_order(coordinates.shape, axes, static_cast<int64_t>(formats.size()));
  fill = fill_of(coordinates.values.dtype, fill);
  check_lengths(coordinates);
  check_range(coordinates);
  check_truths(coordinates.values);
  JOINSUM_USER_CHECK(!fold || aggregates(*fold), "sparse tensor: repeated elements cannot be folded by an operator ",
                     "that does not aggregate: fold=", name_of(*fold), ", operators=[+, *, min, max, and, or]");
  const DistinctElements elements = distinct_elements(coordinates, axes, fold);
  if (axes.empty()) return scalar(coordinates, elements, fill);
  Tensor out{.shape = coordinates.shape, .axes = axes, .fill = fill};
  LevelBuilder builder(elements, byte_size(coordinates.values.dtype), largest);
  for (size_t l = 0; l < formats.size(); ++l) {
    out.levels.push_back(builder.next(formats[l], l + 1 < formats.size() && lists_coordinates(formats[l + 1])));
  }
  out.values = builder.values(coordinates.values.dtype, fill);
  return out;
}

}  // namespace joinsum::sparse::tensor
