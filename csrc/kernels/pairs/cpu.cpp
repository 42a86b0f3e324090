#include <array>

#include <ATen/ATen.h>

#include "kernels/pairs/panels.h"

namespace joinsum::kernels::pairs {

using semiring::Tiles;
using semiring::Type;

namespace {

/// Bytes of the packed rows, and of the packed columns: both stay in a second-level cache.
constexpr int64_t kRowBytes = 1 << 17;
constexpr int64_t kColumnBytes = 1 << 20;

/// One thread's work, with its packed panels.
template <class T>
class Worker {
 public:
  explicit Worker(const PairProblem& problem)
      : problem_(problem), tiles_(tiles_for(problem.join, problem.reduction, problem.type)) {
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

  /// Reduces the packed panels into the result.
  void block(T* out, const Dims& rows, const Dims& columns, int64_t depth, bool ordered) const {
    const auto high = static_cast<int64_t>(rows.size()), wide = static_cast<int64_t>(columns.size());
    const semiring::Tile tile =
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

  /// Gives `reduce` the rows of a tile: those of the result, or where it has not the whole tile in one piece, a copy.
  template <class ReduceInto>
  void place(bool direct, T* out, const int64_t* rows, int64_t down, const int64_t* columns, int64_t across,
             ReduceInto reduce) const {
    std::array<void*, kMostRows> to;
    if (direct) {
      for (int64_t r = 0; r < down; ++r) to[r] = out + rows[r] + columns[0];
      return reduce(to.data());
    }
    T* edge = edge_.mutable_data_ptr<T>();
    for (int64_t r = 0; r < height_; ++r) {
      T* row = edge + r * tiles_.columns;
      to[r] = row;
      for (int64_t c = 0; c < tiles_.columns; ++c) row[c] = r < down && c < across ? out[rows[r] + columns[c]] : T(0);
    }
    reduce(to.data());
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

/// Pairs that tiles combine for a result of that height and width, their edges included.
double tiled(const Tiles& tiles, int64_t rows, int64_t columns) {
  const int64_t high = rows == 1 ? 1 : ceil_div(rows, tiles.rows) * tiles.rows;
  return static_cast<double>(high) * static_cast<double>(ceil_div(columns, tiles.columns) * tiles.columns);
}

/// Whether the columns, along which vectors run, had better be the rows: vectors that are half empty cost more than
/// a result that does not lie along them.
bool swaps(const PairProblem& problem) {
  const Tiles tiles = tiles_for(problem.join, problem.reduction, problem.type);
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
  if (tiles_for(problem.join, problem.reduction, problem.type).planes == 2) return run_planes(problem);
  switch (problem.type) {
    case Type::kFloat:
      return run_by<Worker<float>>(problem);
    case Type::kDouble:
      return run_by<Worker<double>>(problem);
    case Type::kInt64:
      return run_by<Worker<int64_t>>(problem);
    case Type::kInt32:
      return run_by<Worker<int32_t>>(problem);
    case Type::kInt16:
      return run_by<Worker<int16_t>>(problem);
    case Type::kInt8:
      return run_by<Worker<int8_t>>(problem);
    case Type::kUInt8:
      return run_by<Worker<uint8_t>>(problem);
    case Type::kComplexFloat:
    case Type::kComplexDouble:
      break;
  }
  JOINSUM_CHECK(false, "type=", static_cast<int>(problem.type));
}

}  // namespace joinsum::kernels::pairs
