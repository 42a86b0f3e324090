#include <algorithm>
#include <array>
#include <cstring>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/Version.h>

#include "kernels/dense_pair_tiles.h"
#include "kernels/dense_pairs.h"

namespace joinsum::kernels::dense_parts {
namespace {

using pairs::Fold;
using pairs::Join;
using pairs::Tiles;
using pairs::Type;

/// Indices of k in a panel: 256 of two vectors fill a first-level cache's greater part.
constexpr int64_t kInner = 256;
/// Bytes of the packed rows, and of the packed columns: both stay in a second-level cache.
constexpr int64_t kRowBytes = 1 << 17;
constexpr int64_t kColumnBytes = 1 << 20;
/// Combined pairs below which a thread more costs more than it brings.
constexpr int64_t kSerial = 1 << 16;

/// The widest tiles that torch uses this processor's instructions for (ATEN_CPU_CAPABILITY narrows them).
Tiles tiles_for(Join join, Fold fold, Type type) {
  static const std::string capability = at::get_cpu_capability();
  Tiles tiles;
  if (capability == "AVX512") tiles = pairs::avx512_tiles(join, fold, type);
  if (tiles.any == nullptr && capability.starts_with("AVX")) tiles = pairs::avx2_tiles(join, fold, type);
  return tiles.any != nullptr ? tiles : pairs::portable_tiles(join, fold, type);
}

/// What a packed operand holds besides finite numbers.
struct Contents {
  bool nan = false;
  bool positive = false;  ///< infinity
  bool negative = false;
};

template <class T>
Contents contents_of(const T* values, int64_t count) {
  Contents out;
  if constexpr (std::is_floating_point_v<T>) {
    constexpr T kInfinity = std::numeric_limits<T>::infinity();
    int nan = 0, positive = 0, negative = 0;
    for (int64_t i = 0; i < count; ++i) {
      nan |= values[i] != values[i];
      positive |= values[i] == kInfinity;
      negative |= values[i] == -kInfinity;
    }
    out = {nan != 0, positive != 0, negative != 0};
  }
  return out;
}

/// Whether elements of such operands may combine to what is not a number.
bool may_give_nan(Join join, const Contents& left, const Contents& right) {
  if (left.nan || right.nan) return true;
  switch (join) {
    case Join::kAdd:
      return (left.positive && right.negative) || (left.negative && right.positive);
    case Join::kMul:  // an infinity by zero
      return left.positive || left.negative || right.positive || right.negative;
    case Join::kDiv:
    case Join::kReversedDiv:  // zero by zero
      return true;
    case Join::kMax:
    case Join::kMin:
      return false;
    default:
      return (left.positive && right.positive) || (left.negative && right.negative);
  }
}

bool adjacent(const int64_t* offsets, int64_t count) {
  for (int64_t i = 1; i < count; ++i) {
    if (offsets[i] != offsets[i - 1] + 1) return false;
  }
  return true;
}

/// Writes panels of `width` rows (or columns) one after the other, index by index of k; zeros fill the last one.
template <class T>
void pack(const T* from, const Dims& across, const Dims& inner, int64_t width, T* to) {
  const auto total = static_cast<int64_t>(across.size()), depth = static_cast<int64_t>(inner.size());
  for (int64_t first = 0; first < total; first += width, to += width * depth) {
    const int64_t* offsets = across.data() + first;
    const int64_t present = std::min(width, total - first);
    if (present < width) std::memset(to, 0, static_cast<size_t>(width * depth) * sizeof(T));
    if (adjacent(offsets, present)) {
      for (int64_t k = 0; k < depth; ++k) {
        std::memcpy(to + k * width, from + offsets[0] + inner[k], static_cast<size_t>(present) * sizeof(T));
      }
    } else {
      for (int64_t i = 0; i < present; ++i) {
        for (int64_t k = 0; k < depth; ++k) to[k * width + i] = from[offsets[i] + inner[k]];
      }
    }
  }
}

/// The part of a problem that one thread computes: a rectangle of the result for one index of the batch.
struct Part {
  int64_t batch;
  int64_t first_row, rows;
  int64_t first_column, columns;
};

/// One thread's work, with its packed panels.
template <class T>
class Worker {
 public:
  explicit Worker(const PairProblem& problem)
      : problem_(problem), tiles_(tiles_for(problem.join, problem.fold, problem.type)) {
    const int64_t depth = std::min(kInner, problem.inner.count());
    const auto fit = [&](int64_t bytes, int64_t unit, int64_t wanted) {
      const int64_t most = bytes / (kInner * static_cast<int64_t>(sizeof(T))) / unit * unit;
      return std::min(most, ceil_div(wanted, unit) * unit);
    };
    height_ = problem.rows.count() == 1 ? 1 : tiles_.rows;
    row_block_ = fit(kRowBytes, height_, problem.rows.count());
    column_block_ = fit(kColumnBytes, tiles_.columns, problem.columns.count());
    const auto options = at::TensorOptions().dtype(at::CppTypeToScalarType<T>::value);
    left_ = at::empty({row_block_ * depth}, options);
    right_ = at::empty({column_block_ * depth}, options);
    edge_ = at::empty({height_ * tiles_.columns}, options);
  }

  void run(const Part& part) {
    const Merged& batch = problem_.batch;
    const T* left = static_cast<const T*>(problem_.left) + batch.offsets(batch.left, part.batch, 1)[0];
    const T* right = static_cast<const T*>(problem_.right) + batch.offsets(batch.right, part.batch, 1)[0];
    T* out = static_cast<T*>(problem_.out) + batch.offsets(batch.out, part.batch, 1)[0];
    const Merged &rows = problem_.rows, &columns = problem_.columns, &inner = problem_.inner;
    const int64_t depth = inner.count();
    for (int64_t c = 0; c < part.columns; c += column_block_) {
      const int64_t first = part.first_column + c, width = std::min(column_block_, part.columns - c);
      const Dims from = columns.offsets(columns.right, first, width);
      const Dims to = columns.offsets(columns.out, first, width);
      for (int64_t k = 0; k < depth; k += kInner) {
        const int64_t some = std::min(kInner, depth - k);
        const Contents contents = packed(right, from, inner.offsets(inner.right, k, some), tiles_.columns, right_);
        const Dims left_inner = inner.offsets(inner.left, k, some);
        for (int64_t r = 0; r < part.rows; r += row_block_) {
          const int64_t top = part.first_row + r, count = std::min(row_block_, part.rows - r);
          const Contents own = packed(left, rows.offsets(rows.left, top, count), left_inner, height_, left_);
          const bool ordered = !may_give_nan(problem_.join, own, contents);
          block(out, rows.offsets(rows.out, top, count), to, some, ordered);
        }
      }
    }
  }

 private:
  /// Packs, and looks at the values where that spares work.
  Contents packed(const T* from, const Dims& across, const Dims& inner, int64_t width, const at::Tensor& to) const {
    pack(from, across, inner, width, to.mutable_data_ptr<T>());
    if (tiles_.any == tiles_.ordered) return {};
    const int64_t count = ceil_div(static_cast<int64_t>(across.size()), width) * width;
    return contents_of(to.const_data_ptr<T>(), count * static_cast<int64_t>(inner.size()));
  }

  /// Folds the packed panels into the result.
  void block(T* out, const Dims& rows, const Dims& columns, int64_t depth, bool ordered) const {
    const auto high = static_cast<int64_t>(rows.size()), wide = static_cast<int64_t>(columns.size());
    const pairs::Tile tile =
        height_ == 1 ? (ordered ? tiles_.ordered_row : tiles_.row) : (ordered ? tiles_.ordered : tiles_.any);
    const T* left = left_.const_data_ptr<T>();
    const T* right = right_.const_data_ptr<T>();
    for (int64_t c = 0; c < wide; c += tiles_.columns) {
      const int64_t across = std::min(tiles_.columns, wide - c);
      const bool direct = across == tiles_.columns && adjacent(columns.data() + c, across);
      for (int64_t r = 0; r < high; r += height_) {
        const int64_t down = std::min(height_, high - r);
        const bool whole = direct && down == height_;
        place(whole, out, rows.data() + r, down, columns.data() + c, across,
              [&](void* const* to) { tile(depth, left + r * depth, right + c * depth, to); });
      }
    }
  }

  /// Gives `fold` the rows of a tile: those of the result, or where it has not the whole tile in one piece, a copy.
  template <class FoldInto>
  void place(bool direct, T* out, const int64_t* rows, int64_t down, const int64_t* columns, int64_t across,
             FoldInto fold) const {
    std::array<void*, kMostRows> to;
    if (direct) {
      for (int64_t r = 0; r < down; ++r) to[r] = out + rows[r] + columns[0];
      return fold(to.data());
    }
    T* edge = edge_.mutable_data_ptr<T>();
    for (int64_t r = 0; r < height_; ++r) {
      T* row = edge + r * tiles_.columns;
      to[r] = row;
      for (int64_t c = 0; c < tiles_.columns; ++c) row[c] = r < down && c < across ? out[rows[r] + columns[c]] : T(0);
    }
    fold(to.data());
    for (int64_t r = 0; r < down; ++r) {
      const T* row = edge + r * tiles_.columns;
      for (int64_t c = 0; c < across; ++c) out[rows[r] + columns[c]] = row[c];
    }
  }

  static constexpr int64_t kMostRows = 8;

  const PairProblem& problem_;
  Tiles tiles_;
  int64_t height_, row_block_, column_block_;
  at::Tensor left_, right_, edge_;
};

/// The pieces that each index of the batch is cut into, and their number in all.
struct Cut {
  bool rows;
  int64_t each;
  int64_t pieces;
};

Cut cut_of(const PairProblem& problem) {
  const int64_t batch = problem.batch.count(), rows = problem.rows.count(), columns = problem.columns.count();
  const int64_t threads = at::get_num_threads();
  const double work = static_cast<double>(batch) * static_cast<double>(rows) * static_cast<double>(columns) *
                      static_cast<double>(problem.inner.count());
  const bool serial = work < static_cast<double>(kSerial) || batch >= 4 * threads;
  return {rows >= columns, serial ? 1 : threads, batch * (serial ? 1 : threads)};
}

Part part_of(const PairProblem& problem, const Cut& cut, int64_t index) {
  const int64_t rows = problem.rows.count(), columns = problem.columns.count();
  const int64_t piece = index % cut.each, extent = cut.rows ? rows : columns;
  const int64_t begin = extent * piece / cut.each, count = extent * (piece + 1) / cut.each - begin;
  return cut.rows ? Part{index / cut.each, begin, count, 0, columns} : Part{index / cut.each, 0, rows, begin, count};
}

template <class T>
void run_typed(const PairProblem& problem) {
  const Cut cut = cut_of(problem);
  for_each_range(cut.pieces, [&](int64_t begin, int64_t end) {
    const at::AutoDispatchBelowADInplaceOrView without_autograd;
    Worker<T> worker(problem);
    for (int64_t index = begin; index < end; ++index) worker.run(part_of(problem, cut, index));
  });
}

/// Pairs that tiles combine for a result of that height and width, their edges included.
double tiled(const Tiles& tiles, int64_t rows, int64_t columns) {
  const int64_t high = rows == 1 ? 1 : ceil_div(rows, tiles.rows) * tiles.rows;
  return static_cast<double>(high) * static_cast<double>(ceil_div(columns, tiles.columns) * tiles.columns);
}

/// Whether the columns, along which vectors run, had better be the rows: vectors that are half empty cost more than
/// a result that does not lie along them.
bool swaps(const PairProblem& problem) {
  const Tiles tiles = tiles_for(problem.join, problem.fold, problem.type);
  const int64_t rows = problem.rows.count(), columns = problem.columns.count();
  const bool along_rows = !problem.rows.out.empty() && problem.rows.out.back() == 1;
  const double now = tiled(tiles, rows, columns), then = tiled(tiles, columns, rows);
  return along_rows ? then < 1.5 * now : 1.5 * then < now;
}

}  // namespace

void run_pairs(const PairProblem& given) {
  const PairProblem problem = swaps(given) ? given.swapped() : given;
  for (const Merged* axis : {&problem.batch, &problem.rows, &problem.columns, &problem.inner}) {
    if (axis->count() == 0) return;
  }
  switch (problem.type) {
    case Type::kFloat:
      return run_typed<float>(problem);
    case Type::kDouble:
      return run_typed<double>(problem);
    case Type::kInt64:
      return run_typed<int64_t>(problem);
    case Type::kInt32:
      return run_typed<int32_t>(problem);
    case Type::kInt16:
      return run_typed<int16_t>(problem);
    case Type::kInt8:
      return run_typed<int8_t>(problem);
    case Type::kUInt8:
      return run_typed<uint8_t>(problem);
  }
}

}  // namespace joinsum::kernels::dense_parts
