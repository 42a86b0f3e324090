#pragma once

#include <algorithm>
#include <vector>

#include "sparse/kernels/nest/buffer.h"
#include "sparse/kernels/nest/ranges.h"
#include "sparse/tensor/levels.h"

namespace joinsum::sparse::kernels::nest {

using tensor::Level;
using tensor::LevelFormat;

/// A level of a result under construction.
struct LevelBuffers {
  Buffer<int64_t> offsets;
  Buffer<int64_t> coordinates;
  Buffer<uint8_t> stored;
};

/// Builds a tensor's levels from elements in ascending order of their coordinates, those of the first level all in
/// [first, past).
template <class T>
class Assembler {
 public:
  Assembler(const std::vector<LevelFormat>& formats, const Dims& extents, T fill, int64_t first, int64_t past)
      : formats_(formats),
        extents_(extents),
        fill_(fill),
        first_(first),
        levels_(formats.size()),
        positions_(formats.size()),
        prefix_(formats.size(), -1) {
    extents_[0] = past - first;
  }

  /// Room for so many elements.
  void reserve(int64_t elements) {
    if (lists(rank() - 1)) levels_.back().coordinates.reserve(elements);
    values_.reserve(elements);
  }

  /// The coordinates of the first `count` levels, of the elements that follow.
  void set_prefix(const int64_t* coordinates, int64_t count) {
    for (int64_t level = 0; level < count; ++level) {
      if (prefix_[level] == coordinates[level]) continue;
      opened_ = std::min(opened_, level);
      prefix_[level] = coordinates[level];
    }
  }

  /// The element at the prefix, which has all levels.
  void append(T value) {
    open(rank());
    put(value);
  }

  /// Room for elements of one fiber of the last level, the prefix having all others.
  struct Fiber {
    int64_t count = 0;
    int64_t* coordinates = nullptr;
    T* values = nullptr;
  };

  Fiber extend_fiber(int64_t count) {
    if (count > 0) open(rank() - 1);
    const bool in_place = count > 0 && lists(rank() - 1);
    if (in_place) start_fiber(rank() - 1);
    Buffer<int64_t>& coordinates = in_place ? levels_.back().coordinates : room_coordinates_;
    Buffer<T>& values = in_place ? values_ : room_values_;
    if (!in_place) coordinates.clear(), values.clear();
    coordinates.extend(coordinates.size() + count);
    values.extend(values.size() + count);
    return {count, coordinates.data() + coordinates.size() - count, values.data() + values.size() - count};
  }
  /// The elements have been written.
  void close_fiber(const Fiber& fiber) {
    if (fiber.count == 0 || lists(rank() - 1)) return;
    for (int64_t i = 0; i < fiber.count; ++i) {
      enter(rank() - 1, fiber.coordinates[i]);
      put(fiber.values[i]);
    }
  }

  void append_fiber(const int64_t* coordinates, const T* values, int64_t count) {
    const Fiber fiber = extend_fiber(count);
    std::copy_n(coordinates, count, fiber.coordinates);
    std::copy_n(values, count, fiber.values);
    close_fiber(fiber);
  }

  /// Completes the arrays for fibers and elements that were left out.
  void finish() {
    int64_t fibers = 1;
    for (int64_t level = 0; level < rank(); ++level) {
      LevelBuffers& each = levels_[level];
      if (lists(level)) {
        each.offsets.resize(fibers + 1, each.coordinates.size());
        fibers = each.coordinates.size();
        continue;
      }
      fibers = checked_product("kernel: entries of the result", {fibers, extents_[level]});
      if (formats_[level] == LevelFormat::kBytemap) each.stored.resize(fibers, 0);
    }
    values_.resize(fibers, fill_);
  }

  /// Finished pieces, whose first levels follow each other, as one.
  static Assembler joined(std::vector<Assembler>& pieces, int threads) {
    if (pieces.size() == 1) return std::move(pieces[0]);
    Assembler all = pieces[0].without_entries();
    std::vector<std::vector<Begin>> begins{all.ends()};
    for (const Assembler& piece : pieces) {
      begins.push_back(piece.ends_after(begins.back()));
      all.extents_[0] += piece.extents_[0];
    }
    all.extend_to(begins.back());
    run_tasks(threads, std::ssize(pieces), [&](int, int64_t p) { all.copy(pieces[p], begins[p]); });
    if (all.lists(0)) all.levels_[0].offsets[1] = all.levels_[0].coordinates.size();
    return all;
  }

  /// The finished levels, and the values.
  std::vector<Level> take_levels() {
    std::vector<Level> out;
    for (int64_t level = 0; level < rank(); ++level) {
      LevelBuffers& each = levels_[level];
      out.push_back({.format = formats_[level], .size = extents_[level]});
      if (lists(level)) {
        out.back().offsets = each.offsets.take();
        out.back().coordinates = each.coordinates.take();
      }
      if (formats_[level] == LevelFormat::kBytemap) out.back().stored = each.stored.take();
      if (formats_[level] == LevelFormat::kHash) out.back() = with_hash_table(out.back());
    }
    return out;
  }
  Values take_values(DType dtype) { return values_.take_values(dtype); }

 private:
  /// Where a piece's part of a level begins; that of the values comes last, among coordinates.
  struct Begin {
    int64_t offsets = 0;
    int64_t coordinates = 0;
    int64_t stored = 0;
  };

  Assembler without_entries() const {
    Assembler out(formats_, extents_, fill_, first_, first_);
    for (int64_t level = 0; level < rank(); ++level) {
      if (lists(level)) out.levels_[level].offsets.resize(level == 0 ? 2 : 1, 0);
    }
    return out;
  }

  std::vector<Begin> ends() const {
    std::vector<Begin> out;
    for (const LevelBuffers& each : levels_) {
      out.push_back({each.offsets.size(), each.coordinates.size(), each.stored.size()});
    }
    out.push_back({.coordinates = values_.size()});
    return out;
  }

  /// Where this piece's parts end if they begin there.
  std::vector<Begin> ends_after(std::vector<Begin> begins) const {
    for (int64_t level = 0; level < rank(); ++level) {
      const LevelBuffers& each = levels_[level];
      // The only fiber of the first level goes on; those of others follow.
      if (lists(level) && level > 0) begins[level].offsets += each.offsets.size() - 1;
      begins[level].coordinates += each.coordinates.size();
      begins[level].stored += each.stored.size();
    }
    begins.back().coordinates += values_.size();
    return begins;
  }

  void extend_to(const std::vector<Begin>& ends) {
    for (int64_t level = 0; level < rank(); ++level) {
      levels_[level].offsets.extend(ends[level].offsets);
      levels_[level].coordinates.extend(ends[level].coordinates);
      levels_[level].stored.extend(ends[level].stored);
    }
    values_.extend(ends.back().coordinates);
  }

  void copy(const Assembler& piece, const std::vector<Begin>& begins) {
    for (int64_t level = 0; level < rank(); ++level) {
      const LevelBuffers& from = piece.levels_[level];
      const Begin& begin = begins[level];
      for (int64_t i = 1; level > 0 && i < from.offsets.size(); ++i) {
        levels_[level].offsets[begin.offsets + i - 1] = begin.coordinates + from.offsets[i];
      }
      from.coordinates.copy_to(levels_[level].coordinates.data() + begin.coordinates);
      from.stored.copy_to(levels_[level].stored.data() + begin.stored);
    }
    piece.values_.copy_to(values_.data() + begins.back().coordinates);
  }

  int64_t rank() const { return static_cast<int64_t>(formats_.size()); }
  bool lists(int64_t level) const { return lists_coordinates(formats_[level]); }
  int64_t fiber_of(int64_t level) const { return level == 0 ? 0 : positions_[level - 1]; }

  void start_fiber(int64_t level) {
    LevelBuffers& each = levels_[level];
    each.offsets.resize(fiber_of(level) + 1, each.coordinates.size());
  }

  void enter(int64_t level, int64_t coordinate) {
    LevelBuffers& each = levels_[level];
    if (lists(level)) {
      start_fiber(level);
      positions_[level] = each.coordinates.size();
      each.coordinates.push_back(coordinate);
      return;
    }
    const int64_t inside = level == 0 ? coordinate - first_ : coordinate;
    positions_[level] = fiber_of(level) * extents_[level] + inside;
    if (formats_[level] == LevelFormat::kBytemap) {
      each.stored.resize(positions_[level] + 1, 0);
      each.stored[positions_[level]] = 1;
    }
  }

  void open(int64_t count) {
    for (; opened_ < count; ++opened_) enter(opened_, prefix_[opened_]);
  }

  void put(T value) {
    values_.resize(positions_.back(), fill_);
    values_.push_back(value);
  }

  std::vector<LevelFormat> formats_;
  Dims extents_;
  T fill_;
  int64_t first_;
  std::vector<LevelBuffers> levels_;
  std::vector<int64_t> positions_;
  std::vector<int64_t> prefix_;
  int64_t opened_ = 0;  ///< leading levels whose entries of the prefix are there
  Buffer<T> values_;
  Buffer<int64_t> room_coordinates_;  ///< of a fiber whose level is no list
  Buffer<T> room_values_;
};

}  // namespace joinsum::sparse::kernels::nest
