#include "kernels/pairs/terms.h"

#include <array>

#include "kernels/pairs/exponential_products.h"
#include "kernels/pairs/panels.h"
#include "kernels/processor/instructions.h"

namespace joinsum::kernels::pairs {

using semiring::Term;
using semiring::TermPanels;
using semiring::TermTiles;
using semiring::Type;

namespace {

/// Bytes of the packed columns; those of the rows are fewer.
constexpr int64_t kColumnBytes = 1 << 20;
constexpr int64_t kRowBlock = 96;

/// Indices of k in a panel. Tiles read as well as they add, so that a second-level cache keeps up with them.
constexpr int64_t kDepth = 512;

/// Of narrower results vectors would be half empty.
constexpr int64_t kFewestColumns = 8;

TermTiles tiles_for(Term term, semiring::Join join, Type type) {
  return processor::widest([&] { return semiring::avx512_term_tiles(term, join, type); },
                           [&] { return semiring::avx2_term_tiles(term, join, type); },
                           [&] { return semiring::portable_term_tiles(term, join, type); },
                           [](const TermTiles& tiles) { return tiles.any != nullptr; });
}

/// Letters as one axis: their extents are in a Merged, strides in each array.
struct Strides {
  Dims own, left, weight, right, out;
};
struct Axis {
  Merged merged;
  Strides strides;
};

/// The axes of a problem, and its arrays.
struct Axes {
  Axis batch, rows, columns, inner;
};

bool has(const Lettered& array, char letter) { return array.letters.find(letter) != std::string::npos; }

int64_t stride(const Lettered& array, char letter) {
  const size_t axis = array.letters.find(letter);
  const bool moves = axis != std::string::npos && array.array.size(static_cast<int64_t>(axis)) > 1;
  return moves ? array.array.stride(static_cast<int64_t>(axis)) : 0;
}

Axis axis_of(const std::string& letters, const TermProblem& problem, const Lettered& out) {
  Axis axis;
  for (const char letter : letters) {
    axis.merged.extents.push_back(problem.extents.at(letter));
    axis.strides.own.push_back(stride(problem.own, letter));
    axis.strides.left.push_back(stride(problem.left, letter));
    axis.strides.weight.push_back(stride(problem.weight, letter));
    axis.strides.right.push_back(stride(problem.right, letter));
    axis.strides.out.push_back(stride(out, letter));
  }
  return axis;
}

Axes axes_of(const TermProblem& problem, const Lettered& out) {
  std::string batch, rows, columns;
  for (const char letter : out.letters) {
    const bool by_rows = has(problem.left, letter) || has(problem.weight, letter);
    (!has(problem.right, letter) ? rows : by_rows ? batch : columns) += letter;
  }
  const auto axis = [&](const std::string& letters) { return axis_of(letters, problem, out); };
  return {axis(batch), axis(rows), axis(columns), axis(problem.inner)};
}

/// Of zeros no quotient is a number.
bool divides(semiring::Join join) { return join == semiring::Join::kDiv || join == semiring::Join::kReversedDiv; }

template <class T>
bool tame(const T* values, int64_t count) {
  if constexpr (!std::is_floating_point_v<T>) return true;
  int wild = 0;
  for (int64_t i = 0; i < count; ++i) wild |= !(std::abs(values[i]) <= semiring::kTame<T>);
  return wild == 0;
}

/// One thread's work, with its packed panels.
template <class T>
class Worker {
 public:
  using Index = std::conditional_t<sizeof(T) == 8, int64_t, int32_t>;

  Worker(const TermProblem& problem, const Axes& axes, const TermTiles& tiles, const Lettered& out,
         const int64_t* positions)
      : problem_(problem), axes_(axes), tiles_(tiles), out_(out.array), positions_(positions) {
    const int64_t depth = std::min(kDepth, axes.inner.merged.count());
    const int64_t most = kColumnBytes / (kDepth * static_cast<int64_t>(sizeof(T))) / tiles.columns * tiles.columns;
    column_block_ = std::min(most, ceil_div(axes.columns.merged.count(), tiles.columns) * tiles.columns);
    row_block_ = std::min(kRowBlock, ceil_div(axes.rows.merged.count(), tiles.rows) * tiles.rows);
    const auto options = at::TensorOptions().dtype(at::CppTypeToScalarType<T>::value);
    left_ = at::empty({row_block_ * depth}, options);
    weight_ = at::empty({row_block_ * depth}, options);
    right_ = at::empty({column_block_ * depth}, options);
    own_ = at::zeros({tiles.rows * tiles.columns}, options);
    edge_ = at::zeros({tiles.rows * tiles.columns}, options);
  }

  void run(const Part& part) {
    const int64_t depth = axes_.inner.merged.count();
    for (int64_t c = 0; c < part.columns; c += column_block_) {
      const int64_t first = part.first_column + c, width = std::min(column_block_, part.columns - c);
      for (int64_t k = 0; k < depth; k += kDepth) {
        first_ = k;
        depth_ = std::min(kDepth, depth - k);
        const bool right = packed(problem_.right, &Strides::right, part.batch, axes_.columns, {first, width}, right_);
        for (int64_t r = 0; r < part.rows; r += row_block_) {
          const Range rows{part.first_row + r, std::min(row_block_, part.rows - r)};
          const bool weight = packed(problem_.weight, &Strides::weight, part.batch, axes_.rows, rows, weight_);
          const bool left = packed(problem_.left, &Strides::left, part.batch, axes_.rows, rows, left_);
          const bool fits = left || problem_.weight.array.defined();
          block(part.batch, rows, {first, width}, right && weight && fits && !divides(problem_.join));
        }
      }
    }
  }

 private:
  struct Range {
    int64_t begin, count;
  };

  /// Where in an array the indices of the batch and of an axis lie.
  Dims offsets(Dims Strides::* of, int64_t batch, const Axis& axis, const Range& range) const {
    const int64_t base = axes_.batch.merged.offsets(axes_.batch.strides.*of, batch, 1)[0];
    Dims out = axis.merged.offsets(axis.strides.*of, range.begin, range.count);
    for (int64_t& each : out) each += base;
    return out;
  }

  /// Packs a part of an operand, if there is one, and says whether its elements are tame.
  bool packed(const Lettered& from, Dims Strides::* of, int64_t batch, const Axis& axis, const Range& range,
              const at::Tensor& to) const {
    if (!from.array.defined()) return true;
    const int64_t width = &axis == &axes_.rows ? tiles_.rows : tiles_.columns;
    T* panels = to.mutable_data_ptr<T>();
    pack(from.array.const_data_ptr<T>(), offsets(of, batch, axis, range),
         axes_.inner.merged.offsets(axes_.inner.strides.*of, first_, depth_), width, panels);
    return tame(panels, ceil_div(range.count, width) * width * depth_);
  }

  void block(int64_t batch, const Range& rows, const Range& columns, bool all_tame) const {
    const Dims own_rows = offsets(&Strides::own, batch, axes_.rows, rows);
    const Dims own_columns = axes_.columns.merged.offsets(axes_.columns.strides.own, columns.begin, columns.count);
    const Dims out_rows = offsets(&Strides::out, batch, axes_.rows, rows);
    const Dims out_columns = axes_.columns.merged.offsets(axes_.columns.strides.out, columns.begin, columns.count);
    for (int64_t c = 0; c < columns.count; c += tiles_.columns) {
      const int64_t across = std::min(tiles_.columns, columns.count - c);
      for (int64_t r = 0; r < rows.count; r += tiles_.rows) {
        const int64_t down = std::min(tiles_.rows, rows.count - r);
        load(own_rows.data() + r, down, own_columns.data() + c, across);
        const bool own_tame = !problem_.weight.array.defined() || tame(own_.const_data_ptr<T>(), own_.numel());
        run_tile(all_tame && own_tame ? tiles_.tame : tiles_.any, r, c);
        if (problem_.term == Term::kPosition) {
          store_positions(out_rows.data() + r, down, out_columns.data() + c, across);
        } else {
          store(out_rows.data() + r, down, out_columns.data() + c, across);
        }
      }
    }
  }

  void run_tile(semiring::TermTile tile, int64_t row, int64_t column) const {
    std::memset(edge_.mutable_data_ptr(), 0, edge_.nbytes());
    tile({depth_, left_.const_data_ptr<T>() + row * depth_, weight_.const_data_ptr<T>() + row * depth_,
          right_.const_data_ptr<T>() + column * depth_, own_.const_data_ptr(), edge_.mutable_data_ptr()});
  }

  void load(const int64_t* rows, int64_t down, const int64_t* columns, int64_t across) const {
    const T* from = problem_.own.array.const_data_ptr<T>();
    const bool direct = adjacent(columns, across);
    for (int64_t r = 0; r < down; ++r) {
      T* row = own_.mutable_data_ptr<T>() + r * tiles_.columns;
      if (direct) {
        std::memcpy(row, from + rows[r] + columns[0], static_cast<size_t>(across) * sizeof(T));
      } else {
        for (int64_t c = 0; c < across; ++c) row[c] = from[rows[r] + columns[c]];
      }
    }
  }

  void store(const int64_t* rows, int64_t down, const int64_t* columns, int64_t across) const {
    T* out = out_.mutable_data_ptr<T>();
    const bool direct = adjacent(columns, across);
    for (int64_t r = 0; r < down; ++r) {
      const T* row = edge_.const_data_ptr<T>() + r * tiles_.columns;
      if (direct) {
        T* to = out + rows[r] + columns[0];
        for (int64_t c = 0; c < across; ++c) to[c] += row[c];
      } else {
        for (int64_t c = 0; c < across; ++c) out[rows[r] + columns[c]] += row[c];
      }
    }
  }

  void store_positions(const int64_t* rows, int64_t down, const int64_t* columns, int64_t across) const {
    int64_t* out = out_.mutable_data_ptr<int64_t>();
    for (int64_t r = 0; r < down; ++r) {
      const auto* row = reinterpret_cast<const Index*>(edge_.const_data_ptr<T>()) + r * tiles_.columns;
      for (int64_t c = 0; c < across; ++c) {
        int64_t& position = out[rows[r] + columns[c]];
        if (row[c] >= 0) position = std::min(position, positions_[first_ + row[c]]);
      }
    }
  }

  const TermProblem& problem_;
  const Axes& axes_;
  const TermTiles& tiles_;
  const at::Tensor& out_;
  const int64_t* positions_;
  int64_t row_block_, column_block_, first_ = 0, depth_ = 0;
  at::Tensor left_, weight_, right_, own_, edge_;
};

template <class T>
void run(const TermProblem& problem, const Axes& axes, const TermTiles& tiles, const Lettered& out,
         const int64_t* positions) {
  const PairProblem pairs{
      problem.join, {},      {},     axes.batch.merged, axes.rows.merged, axes.columns.merged, axes.inner.merged,
      nullptr,      nullptr, nullptr};
  const Cut cut = cut_of(pairs);
  threads::for_each_range(cut.pieces, [&](int64_t begin, int64_t end) {
    const at::AutoDispatchBelowADInplaceOrView without_autograd;
    Worker<T> worker(problem, axes, tiles, out, positions);
    for (int64_t index = begin; index < end; ++index) worker.run(part_of(pairs, cut, index));
  });
}

bool fits(const TermProblem& problem, const Lettered& out, Type type) {
  const auto dtype = problem.own.array.scalar_type();
  for (const Lettered* operand : {&problem.own, &problem.left, &problem.weight, &problem.right}) {
    if (operand->array.defined() && (!operand->array.is_cpu() || operand->array.scalar_type() != dtype)) return false;
  }
  const bool integers = type == Type::kInt32 || type == Type::kInt64;
  const bool searches = problem.term == Term::kPosition;
  return out.array.scalar_type() == (searches ? at::kLong : dtype) && (searches || !integers);
}

/// A view of an array with an axis for each letter of the groups.
at::Tensor by_letters(const at::Tensor& array, const std::array<const Axis*, 3>& groups, Dims Strides::* of) {
  Dims extents, steps;
  for (const Axis* group : groups) {
    const Dims& own = group->strides.*of;
    extents.insert(extents.end(), group->merged.extents.begin(), group->merged.extents.end());
    steps.insert(steps.end(), own.begin(), own.end());
  }
  return array.as_strided(extents, steps);
}

/// The same with one axis for each group; a copy where a group does not lie as one.
at::Tensor grouped(const Lettered& from, const std::array<const Axis*, 3>& groups, Dims Strides::* of) {
  Dims shape;
  for (const Axis* group : groups) shape.push_back(group->merged.count());
  return by_letters(from.array, groups, of).reshape(shape);
}

bool adds_shares(const TermProblem& problem, const Axes& axes, const Lettered& out) {
  const Axis *batch = &axes.batch, *rows = &axes.rows, *columns = &axes.columns, *inner = &axes.inner;
  const auto sums = sums_of_shares(problem.join, {grouped(problem.own, {batch, rows, columns}, &Strides::own),
                                                  grouped(problem.left, {batch, rows, inner}, &Strides::left),
                                                  grouped(problem.weight, {batch, rows, inner}, &Strides::weight),
                                                  grouped(problem.right, {batch, inner, columns}, &Strides::right)});
  if (!sums) return false;
  at::Tensor target = by_letters(out.array, {batch, rows, columns}, &Strides::out);
  target.add_(sums->view(target.sizes()));
  return true;
}

}  // namespace

bool adds_terms(const TermProblem& problem, const Lettered& out, const int64_t* positions) {
  const auto type = type_of(problem.own.array.scalar_type());
  if (!type || !fits(problem, out, *type)) return false;
  const TermTiles tiles = tiles_for(problem.term, problem.join, *type);
  const Axes axes = axes_of(problem, out);
  if (tiles.any == nullptr || axes.columns.merged.count() < kFewestColumns) return false;
  if (out.array.numel() == 0 || axes.inner.merged.count() == 0) return true;
  if (problem.term == Term::kShare && adds_shares(problem, axes, out)) return true;
  switch (*type) {
    case Type::kFloat:
      run<float>(problem, axes, tiles, out, positions);
      return true;
    case Type::kDouble:
      run<double>(problem, axes, tiles, out, positions);
      return true;
    case Type::kInt64:
      run<int64_t>(problem, axes, tiles, out, positions);
      return true;
    case Type::kInt32:
      run<int32_t>(problem, axes, tiles, out, positions);
      return true;
    default:
      return false;
  }
}

}  // namespace joinsum::kernels::pairs
