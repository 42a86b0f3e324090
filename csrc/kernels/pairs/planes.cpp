#include <array>
#include <cmath>

#include <ATen/ATen.h>

#include "kernels/pairs/panels.h"

namespace joinsum::kernels::pairs {

using semiring::Tile;
using semiring::Tiles;
using semiring::Type;

namespace {

/// Bytes of the packed rows, and of the packed columns; the copy of the result between them has about as many.
constexpr int64_t kRowBytes = 1 << 17;
constexpr int64_t kColumnBytes = 1 << 18;

/// Reductions by logaddexp: the planes of an element are a maximum, and a sum of exponentials relative to it.
template <class T>
struct Logarithms {
  using Number = T;
  using Element = T;
  static constexpr int64_t kPlanes = 1;  ///< of the packed operands

  static std::array<T, 2> planes_of(T element) { return {element, T(1)}; }
  static T element(T maximum, T sum) { return std::isfinite(maximum) ? maximum + std::log(sum) : maximum; }
  static void pack_operand(const T* from, const Dims& across, const Dims& inner, int64_t width, T* to) {
    pack(from, across, inner, width, to);
  }
};

/// Reductions of complex numbers: the planes are the real and the imaginary parts.
template <class T>
struct ComplexNumbers {
  using Number = T;
  using Element = c10::complex<T>;
  static constexpr int64_t kPlanes = 2;

  static std::array<T, 2> planes_of(Element element) { return {element.real(), element.imag()}; }
  static Element element(T real, T imaginary) { return {real, imaginary}; }
  /// As `pack`; each index of k has `width` real parts, then the imaginary ones.
  static void pack_operand(const Element* from, const Dims& across, const Dims& inner, int64_t width, T* to) {
    const auto total = static_cast<int64_t>(across.size()), depth = static_cast<int64_t>(inner.size());
    for (int64_t first = 0; first < total; first += width, to += 2 * width * depth) {
      const int64_t present = std::min(width, total - first);
      if (present < width) std::fill_n(to, 2 * width * depth, T(0));
      for (int64_t k = 0; k < depth; ++k) {
        for (int64_t i = 0; i < present; ++i) {
          const Element value = from[across[first + i] + inner[k]];
          to[2 * k * width + i] = value.real();
          to[(2 * k + 1) * width + i] = value.imag();
        }
      }
    }
  }
};

/// One thread's work by tiles of two planes: a block of the result is copied, reduced into for all indices of k, and
/// written back.
template <class Kind>
class Worker {
 public:
  using Number = typename Kind::Number;
  using Element = typename Kind::Element;

  explicit Worker(const PairProblem& problem)
      : problem_(problem), tiles_(tiles_for(problem.join, problem.reduction, problem.type)) {
    const int64_t depth = Kind::kPlanes * std::min(kInner, problem.inner.count());
    const auto fit = [&](int64_t bytes, int64_t unit, int64_t wanted) {
      const int64_t most = bytes / (kInner * static_cast<int64_t>(sizeof(Element))) / unit * unit;
      return std::min(std::max(most, unit), ceil_div(wanted, unit) * unit);
    };
    height_ = problem.rows.count() == 1 ? 1 : tiles_.rows;
    row_block_ = fit(kRowBytes, height_, problem.rows.count());
    column_block_ = fit(kColumnBytes, tiles_.columns, problem.columns.count());
    const auto options = at::TensorOptions().dtype(at::CppTypeToScalarType<Number>::value);
    left_ = at::empty({row_block_ * depth}, options);
    right_ = at::empty({column_block_ * depth}, options);
    copy_ = at::zeros({2 * row_block_ * column_block_}, options);
  }

  void run(const Part& part) {
    const Merged &batch = problem_.batch, &rows = problem_.rows, &columns = problem_.columns;
    const auto* left = static_cast<const Element*>(problem_.left) + batch.offsets(batch.left, part.batch, 1)[0];
    const auto* right = static_cast<const Element*>(problem_.right) + batch.offsets(batch.right, part.batch, 1)[0];
    auto* out = static_cast<Element*>(problem_.out) + batch.offsets(batch.out, part.batch, 1)[0];
    for (int64_t c = 0; c < part.columns; c += column_block_) {
      const int64_t first = part.first_column + c, width = std::min(column_block_, part.columns - c);
      for (int64_t r = 0; r < part.rows; r += row_block_) {
        const int64_t top = part.first_row + r, count = std::min(row_block_, part.rows - r);
        const Dims down = rows.offsets(rows.out, top, count), across = columns.offsets(columns.out, first, width);
        load(out, down, across);
        reduce(left, rows.offsets(rows.left, top, count), right, columns.offsets(columns.right, first, width));
        store(out, down, across);
      }
    }
  }

 private:
  /// Where the two numbers of an element of the block stand in the copy, which has a tile after the other.
  std::array<Number*, 2> place(int64_t row, int64_t column) const {
    const int64_t plane = height_ * tiles_.columns;
    const int64_t tile = row / height_ * (column_block_ / tiles_.columns) + column / tiles_.columns;
    Number* at =
        copy_.mutable_data_ptr<Number>() + 2 * plane * tile + row % height_ * tiles_.columns + column % tiles_.columns;
    return {at, at + plane};
  }

  void load(const Element* out, const Dims& rows, const Dims& columns) const {
    for (size_t r = 0; r < rows.size(); ++r) {
      for (size_t c = 0; c < columns.size(); ++c) {
        const auto to = place(static_cast<int64_t>(r), static_cast<int64_t>(c));
        const auto planes = Kind::planes_of(out[rows[r] + columns[c]]);
        *to[0] = planes[0];
        *to[1] = planes[1];
      }
    }
  }

  void store(Element* out, const Dims& rows, const Dims& columns) const {
    for (size_t r = 0; r < rows.size(); ++r) {
      for (size_t c = 0; c < columns.size(); ++c) {
        const auto from = place(static_cast<int64_t>(r), static_cast<int64_t>(c));
        out[rows[r] + columns[c]] = Kind::element(*from[0], *from[1]);
      }
    }
  }

  void reduce(const Element* left, const Dims& rows, const Element* right, const Dims& columns) const {
    const Merged& inner = problem_.inner;
    for (int64_t k = 0; k < inner.count(); k += kInner) {
      const int64_t depth = std::min(kInner, inner.count() - k);
      const Contents a = packed(left, rows, inner.offsets(inner.left, k, depth), height_, left_);
      const Contents b = packed(right, columns, inner.offsets(inner.right, k, depth), tiles_.columns, right_);
      const bool ordered = !may_give_nan(problem_.join, a, b);
      const Tile tile =
          height_ == 1 ? (ordered ? tiles_.ordered_row : tiles_.row) : (ordered ? tiles_.ordered : tiles_.any);
      const auto high = static_cast<int64_t>(rows.size()), wide = static_cast<int64_t>(columns.size());
      for (int64_t c = 0; c < wide; c += tiles_.columns) {
        for (int64_t r = 0; r < high; r += height_) {
          run_tile(tile, depth, r, c);
        }
      }
    }
  }

  void run_tile(Tile tile, int64_t depth, int64_t row, int64_t column) const {
    std::array<void*, 2 * kMostRows> to;
    for (int64_t r = 0; r < height_; ++r) {
      const auto at = place(row + r, column);
      to[r] = at[0];
      to[height_ + r] = at[1];
    }
    tile(depth, left_.const_data_ptr<Number>() + Kind::kPlanes * row * depth,
         right_.const_data_ptr<Number>() + Kind::kPlanes * column * depth, to.data());
  }

  Contents packed(const Element* from, const Dims& across, const Dims& inner, int64_t width,
                  const at::Tensor& to) const {
    Kind::pack_operand(from, across, inner, width, to.mutable_data_ptr<Number>());
    if (tiles_.any == tiles_.ordered) return {};
    const int64_t count = ceil_div(static_cast<int64_t>(across.size()), width) * width;
    return contents_of(to.const_data_ptr<Number>(), count * static_cast<int64_t>(inner.size()));
  }

  static constexpr int64_t kMostRows = 8;

  const PairProblem& problem_;
  Tiles tiles_;
  int64_t height_, row_block_, column_block_;
  at::Tensor left_, right_, copy_;
};

}  // namespace

void run_planes(const PairProblem& problem) {
  switch (problem.type) {
    case Type::kFloat:
      return run_by<Worker<Logarithms<float>>>(problem);
    case Type::kDouble:
      return run_by<Worker<Logarithms<double>>>(problem);
    case Type::kComplexFloat:
      return run_by<Worker<ComplexNumbers<float>>>(problem);
    case Type::kComplexDouble:
      return run_by<Worker<ComplexNumbers<double>>>(problem);
    default:
      JOINSUM_CHECK(false, "type=", static_cast<int>(problem.type));
  }
}

}  // namespace joinsum::kernels::pairs
