#include <algorithm>
#include <functional>
#include <limits>

#include "sparse/tensor/elements.h"
#include "sparse/tensor/levels.h"
#include "sparse/tensor/tensor.h"

namespace joinsum::sparse::tensor {
namespace {

/// Which entries of a level a bytemap above leaves out; empty where there are none.
using Marks = std::vector<uint8_t>;

void check_offsets(int64_t l, const Level& level, int64_t fibers) {
  const Array<int64_t>& offsets = level.offsets;
  JOINSUM_USER_CHECK(offsets.size() == fibers + 1, "sparse tensor: wrong number of offsets: level=", l,
                     ", offsets=", offsets.size(), ", fibers=", fibers);
  JOINSUM_USER_CHECK(offsets[0] == 0, "sparse tensor: offsets do not start with 0: level=", l, ", first=", offsets[0]);
  const auto* shrunk = std::adjacent_find(offsets.begin(), offsets.end(), std::greater<>());
  JOINSUM_USER_CHECK(shrunk == offsets.end(), "sparse tensor: offsets shrink: level=", l,
                     ", fiber=", shrunk - offsets.begin(), ", begin=", *shrunk, ", end=", *(shrunk + 1));
  JOINSUM_USER_CHECK(offsets[fibers] == level.coordinates.size(),
                     "sparse tensor: offsets do not end with the number of coordinates: level=", l,
                     ", end=", offsets[fibers], ", coordinates=", level.coordinates.size());
}

enum class Lists : uint8_t { kAscending, kAnyOrder };

void check_coordinates(int64_t l, const Level& level, int64_t fibers, Lists lists) {
  for (int64_t p = 0; p < fibers; ++p) {
    int64_t before = -1;
    for (int64_t e = level.offsets[p]; e < level.offsets[p + 1]; ++e) {
      const int64_t here = level.coordinates[e];
      JOINSUM_USER_CHECK(here >= 0 && here < level.size, "sparse tensor: coordinate out of range: level=", l,
                         ", fiber=", p, ", place=", e, ", coordinate=", here, ", size=", level.size);
      JOINSUM_USER_CHECK(here > before || lists == Lists::kAnyOrder,
                         "sparse tensor: coordinates do not ascend: level=", l, ", fiber=", p, ", place=", e,
                         ", coordinate=", here, ", before=", before);
      before = here;
    }
  }
}

/// Raises where a list has entries below an entry that a bytemap leaves out.
void check_empty(int64_t l, const Level& level, const Marks& marks) {
  for (size_t p = 0; p < marks.size(); ++p) {
    const auto fiber = static_cast<int64_t>(p);
    JOINSUM_USER_CHECK(marks[p] != 0 || level.offsets[fiber] == level.offsets[fiber + 1],
                       "sparse tensor: a fiber that a bytemap above leaves out has entries: level=", l, ", fiber=", p);
  }
}

/// The marks of a dense or bytemap level's entries.
Marks marks_below(int64_t l, const Level& level, int64_t fibers, const Marks& above) {
  const bool marked = level.format == LevelFormat::kBytemap;
  if (above.empty() && !marked) return {};
  Marks out(fibers * level.size);
  for (int64_t e = 0; e < static_cast<int64_t>(out.size()); ++e) {
    const int64_t p = e / level.size;
    const bool within = above.empty() || above[p] != 0;
    out[e] = marked ? level.stored[e] : uint8_t{within};
    JOINSUM_USER_CHECK(out[e] <= 1, "sparse tensor: a mark is neither 0 nor 1: level=", l, ", fiber=", p, ", place=", e,
                       ", mark=", int{out[e]});
    JOINSUM_USER_CHECK(within || out[e] == 0,
                       "sparse tensor: a fiber that a bytemap above leaves out has entries: level=", l, ", fiber=", p);
  }
  return out;
}

/// Checks one level; returns its entries and sets their marks.
int64_t check_level(int64_t l, const Level& level, int64_t fibers, Lists lists, Marks& marks) {
  if (lists_coordinates(level.format)) {
    check_offsets(l, level, fibers);
    check_coordinates(l, level, fibers, lists);
    JOINSUM_CHECK((level.format == LevelFormat::kHash) == (level.table != nullptr));
    check_empty(l, level, marks);
    marks.clear();
    return level.coordinates.size();
  }
  const int64_t entries = checked_entries(l, level.format, fibers, level.size, 1, std::numeric_limits<int64_t>::max());
  JOINSUM_USER_CHECK(level.format == LevelFormat::kDense || level.stored.size() == entries,
                     "sparse tensor: wrong number of marks: level=", l, ", marks=", level.stored.size(),
                     ", entries=", entries);
  marks = marks_below(l, level, fibers, marks);
  return entries;
}

void check_tensor(const Tensor& tensor, Lists lists) {
  check_order(tensor.shape, tensor.axes, static_cast<int64_t>(tensor.levels.size()));
  fill_of(tensor.dtype(), tensor.fill);
  int64_t entries = 1;
  Marks marks;
  for (int64_t l = 0; l < tensor.rank(); ++l) {
    const Level& level = tensor.levels[l];
    JOINSUM_USER_CHECK(level.size == tensor.shape[tensor.axes[l]],
                       "sparse tensor: a level differs in size from its axis: level=", l, ", size=", level.size,
                       ", axis=", tensor.axes[l], ", shape=", tensor.shape);
    entries = check_level(l, level, entries, lists, marks);
  }
  JOINSUM_USER_CHECK(
      tensor.values.count() == entries && tensor.values.bytes.size() == entries * byte_size(tensor.dtype()),
      "sparse tensor: each entry of the last level needs one value: values=", tensor.values.count(),
      ", entries=", entries);
  check_truths(tensor.values);
}

bool ascends(const Level& level) {
  for (int64_t p = 0; p + 1 < level.offsets.size(); ++p) {
    const int64_t* begin = level.coordinates.begin() + level.offsets[p];
    const int64_t* end = level.coordinates.begin() + level.offsets[p + 1];
    if (std::adjacent_find(begin, end, std::greater_equal<>()) != end) return false;
  }
  return true;
}

}  // namespace

void check(const Tensor& tensor) { check_tensor(tensor, Lists::kAscending); }

Tensor ascending(const Tensor& tensor, Operator fold) {
  std::vector<LevelFormat> formats;
  for (const Level& level : tensor.levels) formats.push_back(level.format);
  JOINSUM_USER_CHECK(!std::count(formats.begin(), formats.end(), LevelFormat::kHash),
                     "sparse tensor: a hash level's entries cannot be sorted");
  check_tensor(tensor, Lists::kAnyOrder);
  if (std::all_of(tensor.levels.begin(), tensor.levels.end(), ascends)) return tensor;
  return from_coordinates(to_coordinates(tensor), tensor.axes, formats, tensor.fill, fold);
}

}  // namespace joinsum::sparse::tensor
