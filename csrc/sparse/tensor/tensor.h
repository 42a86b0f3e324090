#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/dims.h"
#include "base/dtype.h"
#include "sparse/operators/operators.h"

namespace joinsum::sparse::tensor {

using operators::Operator;

/// How a level stores the coordinates of one axis below each fiber, a fiber being one entry of the level above.
enum class LevelFormat : uint8_t {
  kDense,       ///< all coordinates, entry p·size + c
  kBytemap,     ///< one byte a coordinate says whether it is stored; entry p·size + c
  kSortedList,  ///< the stored coordinates in ascending order, as in CSR
  kHash         ///< a sorted list with a hash table from (fiber, coordinate) to the entry
};

/// `dense`, `bytemap`, `sorted_list`, `hash`.
const std::string& name_of(LevelFormat format);
/// Raises PlanError naming the formats for another name.
LevelFormat level_format_named(const std::string& name);

/// An immutable array, owned or a view of memory that `owner` keeps.
template <class T>
class Array {
 public:
  Array() = default;
  Array(std::vector<T> values) {  // NOLINT: a vector is an array
    auto owned = std::make_shared<std::vector<T>>(std::move(values));
    data_ = owned->data();
    size_ = static_cast<int64_t>(owned->size());
    owner_ = std::move(owned);
  }
  Array(std::initializer_list<T> values) : Array(std::vector<T>(values)) {}
  Array(std::shared_ptr<const void> owner, const T* data, int64_t size)
      : owner_(std::move(owner)), data_(data), size_(size) {}

  const T* data() const { return data_; }
  int64_t size() const { return size_; }
  const T& operator[](int64_t i) const { return data_[i]; }
  const T* begin() const { return data_; }
  const T* end() const { return data_ + size_; }

 private:
  std::shared_ptr<const void> owner_;
  const T* data_ = nullptr;
  int64_t size_ = 0;
};

/// The first slot of a coordinate of a fiber in a hash level's table, before its upper bits are cut.
inline uint64_t hash_of_coordinate(int64_t fiber, int64_t coordinate) {
  uint64_t h = static_cast<uint64_t>(fiber) * 0x9E3779B97F4A7C15ull + static_cast<uint64_t>(coordinate);
  h ^= h >> 32;
  h *= 0xD6E8FEB86659FD93ull;
  return h ^ (h >> 32);
}

/// Finds entries of a list by fiber and coordinate. It is built when it is first read, as the results of most kernels
/// are never looked up; threads may read it at once.
class HashTable {
 public:
  HashTable(Array<int64_t> offsets, Array<int64_t> coordinates);

  /// 2^k places, each of an entry or -1: those of (p, c) begin at hash_of_coordinate(p, c) less its upper bits, the
  /// first place following the last.
  const std::vector<int64_t>& slots() const { return built().slots; }
  /// The fiber of each entry.
  const std::vector<int64_t>& parents() const { return built().parents; }
  /// Bytes of both, built or not.
  int64_t bytes() const;

 private:
  struct Arrays {
    std::vector<int64_t> slots;
    std::vector<int64_t> parents;
  };
  const Arrays& built() const;

  Array<int64_t> offsets_;
  Array<int64_t> coordinates_;
  mutable std::once_flag once_;
  mutable Arrays arrays_;
};

/// One level of a tensor. Entries of a level are numbered; the entry of coordinate c in fiber p is the fiber number of
/// the level below, or the position of the value after the last level.
struct Level {
  LevelFormat format = LevelFormat::kSortedList;
  int64_t size = 0;                        ///< extent of the axis
  Array<int64_t> offsets;                  ///< sorted list and hash: where each fiber's entries begin, and the end
  Array<int64_t> coordinates;              ///< sorted list and hash: ascending in each fiber
  Array<uint8_t> stored;                   ///< bytemap: fibers × size
  std::shared_ptr<const HashTable> table;  ///< hash
  bool single = false;                     ///< known to have one entry in each fiber, so that offsets are 0, 1, 2, ...

  /// Entries of the level for this number of fibers.
  int64_t entries(int64_t fibers) const;
};

/// Values of any dtype that kernels take: f32, f64, i32, i64, u8, bool (a byte of 0 or 1).
struct Values {
  DType dtype = DType::kFloat64;
  Array<std::byte> bytes;

  template <class T>
  const T* as() const {
    return reinterpret_cast<const T*>(bytes.data());
  }
  int64_t count() const { return bytes.size() / byte_size(dtype); }
};

/// A tensor of which only some elements are stored, all others being `fill`. Level l stores axis `axes[l]`, so that
/// COO, CSR, CSC, DCSR, CSF and block-sparse are spellings of (axes, formats). A dense or bytemap level stores elements
/// that may equal the fill.
struct Tensor {
  Dims shape;
  std::vector<int64_t> axes;  ///< of each level, a permutation
  std::vector<Level> levels;
  Values values;  ///< one for each entry of the last level; one for a scalar
  double fill = 0;
  bool scalar_stored = true;  ///< rank 0: whether the value is stored

  int64_t rank() const { return static_cast<int64_t>(shape.size()); }
  DType dtype() const { return values.dtype; }
  /// Elements that are stored: those of sorted lists and hash tables, of a dense or bytemap last level those marked.
  int64_t stored() const;
  /// Bytes of all arrays.
  int64_t bytes() const;
};

/// Coordinates of stored elements: `axes[a][e]` is the coordinate of element e along axis a.
struct Coordinates {
  Dims shape;
  std::vector<Array<int64_t>> axes;
  Values values;

  int64_t count() const { return axes.empty() ? values.count() : static_cast<int64_t>(axes.front().size()); }
};

/// Builds a tensor from coordinates in any order. Repeated ones are folded by `fold` in the order given; without it
/// they raise PlanError naming the coordinate. Raises PlanError for a coordinate out of range, with its place, for
/// sizes that do not fit, and for a dense or bytemap level that would hold more than `largest` bytes.
Tensor from_coordinates(const Coordinates& coordinates, const std::vector<int64_t>& axes,
                        const std::vector<LevelFormat>& formats, double fill, std::optional<Operator> fold = {},
                        int64_t largest = int64_t{1} << 40);

/// The stored elements in the order of the axes' numbers (row-major), those that equal the fill left out on demand.
Coordinates to_coordinates(const Tensor& tensor, bool without_fill = false);

/// Whether the formats differ at most in whether a list has a hash table, so that all entries stay where they are.
bool same_entries(const Tensor& tensor, const std::vector<int64_t>& axes, const std::vector<LevelFormat>& formats);

/// The tensor in other levels; the same object's arrays where nothing changes. Elements of a dense last level that
/// equal the fill are left out, those of other levels stay. Raises as `from_coordinates` for sizes that do not fit.
Tensor reformatted(const Tensor& tensor, const std::vector<int64_t>& axes, const std::vector<LevelFormat>& formats,
                   int64_t largest = int64_t{1} << 40);

/// Raises PlanError unless the arrays of a tensor are what its levels promise: offsets that start with 0 and do not
/// shrink, coordinates in range and strictly ascending, as many values as entries. Names level, fiber and place.
void check(const Tensor& tensor);

/// The tensor with its lists in strictly ascending order, repeated coordinates folded by `fold` in the order given; the
/// same object's arrays where they ascend. Raises as `check` for anything else that is wrong. Takes no hash levels.
Tensor ascending(const Tensor& tensor, Operator fold);

}  // namespace joinsum::sparse::tensor
