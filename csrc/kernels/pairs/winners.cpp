#include "kernels/pairs/winners.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <mutex>

#include "kernels/pairs/panels.h"
#include "kernels/processor/instructions.h"

namespace joinsum::kernels::pairs {

using semiring::ExtremeTiles;
using semiring::Join;
using semiring::kChunk;
using semiring::Type;

namespace {

/// Bytes of the packed columns, and indices of k in a panel.
constexpr int64_t kColumnBytes = 1 << 20;
constexpr int64_t kRowBlock = 96;
constexpr int64_t kDepth = 512;

/// Columns whose operand stays in a second-level cache while chunks are searched.
constexpr int64_t kSearchedColumns = 64;

/// Of fewer indices a chunk is too large a part; of fewer columns vectors would be half empty.
constexpr int64_t kFewestIndices = 4 * kChunk;
constexpr int64_t kFewestColumns = 8;

/// At most one extreme in so many may be tied, and as many indices as a part of the extremes may be listed for them.
constexpr int64_t kFewestSingle = 32;
constexpr int64_t kFewestListed = 4;

/// Rows of a result that are added up at a time.
constexpr int64_t kRowsAtATime = 8;

ExtremeTiles tiles_for(bool least, Join join, Type type) {
  return processor::widest([&] { return semiring::avx512_extreme_tiles(least, join, type); },
                           [&] { return semiring::avx2_extreme_tiles(least, join, type); },
                           [&] { return semiring::portable_extreme_tiles(least, join, type); },
                           [](const ExtremeTiles& tiles) { return tiles.tile != nullptr; });
}

bool has(const std::string& letters, char letter) { return letters.find(letter) != std::string::npos; }

/// An array with an axis for each of `letters`, which has those of the array at least; it repeats along others.
at::Tensor spread(const Lettered& from, const std::string& letters, const std::map<char, int64_t>& extents) {
  Dims shape, steps;
  for (const char letter : letters) {
    const size_t axis = from.letters.find(letter);
    const bool moves = axis != std::string::npos && from.array.size(static_cast<int64_t>(axis)) > 1;
    shape.push_back(extents.at(letter));
    steps.push_back(moves ? from.array.stride(static_cast<int64_t>(axis)) : 0);
  }
  return from.array.as_strided(shape, steps);
}

int64_t count_of(const std::string& letters, const std::map<char, int64_t>& extents) {
  int64_t count = 1;
  for (const char letter : letters) count *= extents.at(letter);
  return count;
}

/// Rows of contiguous arrays: left[batch, row, k] and right[batch, column, k], with the extreme of each row and column.
struct Arrays {
  std::string batch, rows, columns;
  at::Tensor left, right, extreme, places;
};

template <class T>
class Searcher {
 public:
  using Index = std::conditional_t<sizeof(T) == 8, int64_t, int32_t>;

  Searcher(const WinnerProblem& problem, const ExtremeTiles& tiles, const Arrays& arrays)
      : least_(problem.least),
        tiles_(tiles),
        rows_(arrays.left.size(1)),
        columns_(arrays.right.size(1)),
        depth_(arrays.left.size(2)),
        most_listed_(arrays.places.numel() / kFewestListed),
        most_tied_(arrays.places.numel() / kFewestSingle),
        writes_(!problem.extreme.array.defined()),
        left_(arrays.left.const_data_ptr<T>()),
        right_(arrays.right.const_data_ptr<T>()),
        extreme_(arrays.extreme.mutable_data_ptr<T>()),
        places_(arrays.places.mutable_data_ptr<int32_t>()) {}

  bool gives_up() const { return listed_ > most_listed_; }
  const std::shared_ptr<Winners::Ties>& ties() const { return ties_; }

  void run(const Part& part) {
    const int64_t most = kColumnBytes / (kDepth * static_cast<int64_t>(sizeof(T))) / tiles_.columns * tiles_.columns;
    for (int64_t c = 0; c < part.columns && !gives_up(); c += most) {
      block({part.batch, part.first_row, part.rows, part.first_column + c, std::min(most, part.columns - c)});
    }
  }

 private:
  const T* left(int64_t batch, int64_t row) const { return left_ + (batch * rows_ + row) * depth_; }
  const T* right(int64_t batch, int64_t column) const { return right_ + (batch * columns_ + column) * depth_; }

  void block(const Part& part) {
    const int64_t high = ceil_div(part.rows, tiles_.rows), wide = ceil_div(part.columns, tiles_.columns);
    const int64_t tile = tiles_.rows * tiles_.columns;
    const T none =
        least_ ? semiring::nothing<semiring::Reduction::kMin, T>() : semiring::nothing<semiring::Reduction::kMax, T>();
    std::vector<T> extremes(static_cast<size_t>(high * wide * tile), none);
    // Where no chunk is larger than nothing at all, any may hold it.
    std::vector<Index> chunks(extremes.size(), semiring::kSeveral);
    std::vector<T> a(static_cast<size_t>(kRowBlock * kDepth)), b(static_cast<size_t>(wide * tiles_.columns * kDepth));
    for (int64_t k = 0; k < depth_; k += kDepth) {
      const int64_t some = std::min(kDepth, depth_ - k);
      pack_rows(right(part.batch, part.first_column) + k, part.columns, some, tiles_.columns, b.data());
      for (int64_t r = 0; r < part.rows; r += kRowBlock) {
        pack_rows(left(part.batch, part.first_row + r) + k, std::min(kRowBlock, part.rows - r), some, tiles_.rows,
                  a.data());
        for (int64_t column = 0; column < wide; ++column) {
          for (int64_t row = r / tiles_.rows; row < std::min(high, (r + kRowBlock) / tiles_.rows); ++row) {
            const int64_t at = (row * wide + column) * tile;
            tiles_.tile({some, static_cast<int32_t>(k / kChunk), a.data() + (row * tiles_.rows - r) * some,
                         b.data() + column * tiles_.columns * some, extremes.data() + at, chunks.data() + at});
          }
        }
      }
    }
    for (int64_t c = 0; c < part.columns; c += kSearchedColumns) {
      for (int64_t r = 0; r < part.rows && !gives_up(); ++r) {
        for (int64_t column = c; column < std::min(part.columns, c + kSearchedColumns); ++column) {
          const int64_t at = (r / tiles_.rows * wide + column / tiles_.columns) * tile +
                             r % tiles_.rows * tiles_.columns + column % tiles_.columns;
          place(part, r, column, extremes[static_cast<size_t>(at)], chunks[static_cast<size_t>(at)]);
        }
      }
    }
  }

  /// As `pack`, of rows that lie one after the other.
  void pack_rows(const T* from, int64_t count, int64_t some, int64_t width, T* to) const {
    Dims across, inner;
    for (int64_t i = 0; i < count; ++i) across.push_back(i * depth_);
    for (int64_t k = 0; k < some; ++k) inner.push_back(k);
    pack(from, across, inner, width, to);
  }

  void place(const Part& part, int64_t row, int64_t column, T extreme, Index chunk) {
    const int64_t r = part.first_row + row, c = part.first_column + column;
    const int64_t at = (part.batch * rows_ + r) * columns_ + c;
    if (writes_) extreme_[at] = extreme;
    const T wanted = extreme_[at];
    int32_t& out = places_[at];
    out = Winners::kNowhere;
    if (extreme != wanted) {
      const bool inside = least_ ? wanted < extreme : wanted > extreme;
      if (!inside) listed_ = most_listed_ + 1;
      return;
    }
    const T *a = left(part.batch, r), *b = right(part.batch, c);
    const int64_t first = (chunk & ~Index{semiring::kSeveral}) * kChunk;
    const uint32_t bits = tiles_.search(std::min(kChunk, depth_ - first), a + first, b + first, &wanted);
    const bool single = bits != 0 && (bits & (bits - 1)) == 0;
    if (single && (chunk & Index{semiring::kSeveral}) == 0) {
      out = static_cast<int32_t>(first + std::countr_zero(bits));
    } else {
      out = place_of(all(a, b, wanted));
    }
  }

  std::vector<int32_t> all(const T* a, const T* b, T wanted) const {
    std::vector<int32_t> indices;
    for (int64_t k = 0; k < depth_; k += kChunk) {
      uint32_t bits = tiles_.search(std::min(kChunk, depth_ - k), a + k, b + k, &wanted);
      for (; bits != 0; bits &= bits - 1) indices.push_back(static_cast<int32_t>(k + std::countr_zero(bits)));
    }
    return indices;
  }

  int32_t place_of(std::vector<int32_t> indices) {
    if (indices.size() == 1) return indices[0];
    listed_ += static_cast<int64_t>(indices.size());
    const std::lock_guard lock(mutex_);
    ties_->push_back(std::move(indices));
    const auto count = static_cast<int64_t>(ties_->size());
    if (count > most_tied_) listed_ = most_listed_ + 1;
    return static_cast<int32_t>(Winners::kNowhere - count);
  }

  bool least_;
  const ExtremeTiles& tiles_;
  int64_t rows_, columns_, depth_, most_listed_, most_tied_;
  bool writes_;  ///< the extremes; else they are compared with
  const T *left_, *right_;
  T* extreme_;
  int32_t* places_;
  std::shared_ptr<Winners::Ties> ties_ = std::make_shared<Winners::Ties>();
  std::mutex mutex_;                 ///< of the ties
  std::atomic<int64_t> listed_ = 0;  ///< indices of ties; more than are allowed where the search is given up
};

/// The letters of the extreme as batch, rows and columns; nothing for operands that do not fit.
std::optional<Arrays> arrays_of(const WinnerProblem& problem) {
  Arrays out;
  for (const char letter : problem.extreme.letters) {
    const bool by_left = has(problem.left.letters, letter), by_right = has(problem.right.letters, letter);
    (by_left && by_right ? out.batch : by_left ? out.rows : out.columns) += letter;
  }
  const auto type = problem.left.array.scalar_type();
  for (const Lettered* each : {&problem.left, &problem.right, &problem.extreme}) {
    if (each == &problem.extreme && !each->array.defined()) continue;
    if (!each->array.is_cpu() || each->array.scalar_type() != type) return std::nullopt;
  }
  const auto& extents = problem.extents;
  const int64_t batch = count_of(out.batch, extents), rows = count_of(out.rows, extents);
  const int64_t columns = count_of(out.columns, extents), inner = count_of(problem.inner, extents);
  if (inner < kFewestIndices || inner > semiring::kSeveral || columns < kFewestColumns) return std::nullopt;
  const auto array = [&](const Lettered& from, const std::string& letters, const Dims& shape) {
    return spread(from, letters, extents).contiguous().view(shape);
  };
  out.left = array(problem.left, out.batch + out.rows + problem.inner, {batch, rows, inner});
  out.right = array(problem.right, out.batch + out.columns + problem.inner, {batch, columns, inner});
  out.extreme = problem.extreme.array.defined()
                    ? array(problem.extreme, out.batch + out.rows + out.columns, {batch, rows, columns})
                    : at::empty({batch, rows, columns}, out.left.options());
  out.places = at::empty({batch, rows, columns}, at::kInt);
  return out;
}

template <class T>
std::optional<Winners> search(const WinnerProblem& problem, const Arrays& arrays, const ExtremeTiles& tiles) {
  const auto contents = [](const at::Tensor& x) { return contents_of(x.const_data_ptr<T>(), x.numel()); };
  if (may_give_nan(problem.join, contents(arrays.left), contents(arrays.right))) return std::nullopt;
  const auto axis = [](int64_t extent) { return Merged{{extent}, {0}, {0}, {0}}; };
  const PairProblem pairs{problem.join,
                          {},
                          {},
                          axis(arrays.left.size(0)),
                          axis(arrays.left.size(1)),
                          axis(arrays.right.size(1)),
                          axis(arrays.left.size(2)),
                          nullptr,
                          nullptr,
                          nullptr};
  Searcher<T> work(problem, tiles, arrays);
  const Cut cut = cut_of(pairs);
  threads::for_each_range(cut.pieces, [&](int64_t begin, int64_t end) {
    for (int64_t index = begin; index < end; ++index) work.run(part_of(pairs, cut, index));
  });
  if (work.gives_up()) return std::nullopt;
  const std::string letters = arrays.batch + arrays.rows + arrays.columns;
  Dims shape;
  for (const char letter : letters) shape.push_back(problem.extents.at(letter));
  return Winners{{arrays.places.view(shape), letters}, problem.inner, work.ties()};
}

/// Calls `use(place, element)` for each place and the element of an array that belongs to it, on torch's threads.
template <class T, class Use>
void with_places(const Winners& found, const Lettered& out, Use use) {
  const std::string& letters = found.places.letters;
  std::map<char, int64_t> extents;
  for (size_t i = 0; i < letters.size(); ++i) extents[letters[i]] = found.places.array.size(static_cast<int64_t>(i));
  const at::Tensor view = spread(out, letters, extents);
  const int64_t columns = letters.empty() ? 1 : view.size(-1), step = letters.empty() ? 1 : view.stride(-1);
  Merged rows;
  for (int64_t axis = 0; axis + 1 < view.dim(); ++axis) {
    rows.extents.push_back(view.size(axis));
    rows.out.push_back(view.stride(axis));
  }
  const auto* places = found.places.array.const_data_ptr<int32_t>();
  T* elements = view.mutable_data_ptr<T>();
  threads::for_each_range(rows.count(), [&](int64_t begin, int64_t end) {
    const Dims offsets = rows.offsets(rows.out, begin, end - begin);
    for (int64_t r = begin; r < end; ++r) {
      T* row = elements + offsets[static_cast<size_t>(r - begin)];
      for (int64_t c = 0; c < columns; ++c) use(places[r * columns + c], row[c * step]);
    }
  });
}

template <Join join, class T>
T slope(T own, T other) {
  if constexpr (join == Join::kMul) return other;
  if constexpr (join == Join::kSquaredDifference) return own - other;
  if constexpr (join == Join::kAbsDifference) return own > other ? T(1) : (own < other ? T(-1) : T(0));
  if constexpr (join == Join::kMax) return own < other ? T(0) : (own == other ? T(0.5) : T(1));
  if constexpr (join == Join::kMin) return other < own ? T(0) : (own == other ? T(0.5) : T(1));
  return T(1);
}

/// Adds the terms of kTied by the places of winners: each goes to the column that its winner is.
template <class T>
class Scatter {
 public:
  Scatter(const TermProblem& problem, const Winners& found, const Lettered& out)
      : problem_(problem), found_(found), out_(out) {
    std::string rows;
    for (const char letter : out.letters) {
      if (!has(found.inner, letter)) rows += letter;
    }
    rows_ = rows_of(rows);
    inner_ = rows_of(problem.inner);
    columns_ = rows_of(found.inner);
    inner_places_ = inner_.offsets(inner_.place);
    inner_weights_ = inner_.offsets(inner_.weight);
    inner_right_ = inner_.offsets(inner_.right);
    column_own_ = columns_.offsets(columns_.own);
    column_right_ = columns_.offsets(columns_.right);
    column_out_ = columns_.offsets(columns_.out);
  }

  template <Join join>
  void run() const {
    threads::for_each_range(ceil_div(rows_.extents_count(), kRowsAtATime), [&](int64_t begin, int64_t end) {
      std::vector<double> sums(static_cast<size_t>(kRowsAtATime * columns_.extents_count()));
      for (int64_t block = begin; block < end; ++block) {
        add<join>(block * kRowsAtATime, std::min(kRowsAtATime, rows_.extents_count() - block * kRowsAtATime), sums);
      }
    });
  }

 private:
  /// Letters as one axis, and how far apart their indices lie in each array.
  struct Letters {
    Dims extents;
    Dims place, weight, own, right, out;

    int64_t extents_count() const {
      int64_t count = 1;
      for (const int64_t extent : extents) count *= extent;
      return count;
    }
    Dims offsets(const Dims& steps, int64_t begin, int64_t count) const {
      return Merged{extents, {}, {}, {}}.offsets(steps, begin, count);
    }
    Dims offsets(const Dims& steps) const { return offsets(steps, 0, extents_count()); }
  };

  Letters rows_of(const std::string& letters) const {
    Letters out;
    for (const char letter : letters) out.extents.push_back(problem_.extents.at(letter));
    const auto steps = [&](const Lettered& of) { return spread(of, letters, problem_.extents).strides().vec(); };
    out.place = steps(found_.places);
    out.weight = steps(problem_.weight);
    out.own = steps(problem_.own);
    out.right = steps(problem_.right);
    out.out = steps(out_);
    return out;
  }

  template <Join join>
  void add(int64_t first, int64_t count, std::vector<double>& sums) const {
    constexpr bool kReads = join != Join::kAdd && join != Join::kSub && join != Join::kReversedSub;
    const auto* places = found_.places.array.const_data_ptr<int32_t>();
    const T *weights = problem_.weight.array.const_data_ptr<T>(), *own = problem_.own.array.const_data_ptr<T>();
    const T* right = problem_.right.array.const_data_ptr<T>();
    const Dims row_places = rows_.offsets(rows_.place, first, count);
    const Dims row_weights = rows_.offsets(rows_.weight, first, count);
    const Dims row_own = rows_.offsets(rows_.own, first, count), row_right = rows_.offsets(rows_.right, first, count);
    const auto columns = column_own_.size();
    std::fill(sums.begin(), sums.end(), 0.0);
    for (size_t k = 0; k < inner_places_.size(); ++k) {
      for (size_t r = 0; r < static_cast<size_t>(count); ++r) {
        const T weight = weights[row_weights[r] + inner_weights_[k]];
        found_.for_each(places[row_places[r] + inner_places_[k]], [&](int32_t index) {
          const auto c = static_cast<size_t>(index);
          T term = weight;
          if constexpr (kReads) {
            term *=
                slope<join>(own[row_own[r] + column_own_[c]], right[row_right[r] + inner_right_[k] + column_right_[c]]);
          }
          sums[r * columns + c] += static_cast<double>(term);
        });
      }
    }
    const Dims row_out = rows_.offsets(rows_.out, first, count);
    T* out = out_.array.mutable_data_ptr<T>();
    for (size_t c = 0; c < columns; ++c) {
      for (size_t r = 0; r < static_cast<size_t>(count); ++r) {
        T& element = out[row_out[r] + column_out_[c]];
        element = static_cast<T>(static_cast<double>(element) + sums[r * columns + c]);
      }
    }
  }

  const TermProblem& problem_;
  const Winners& found_;
  const Lettered& out_;
  Letters rows_, inner_, columns_;
  Dims inner_places_, inner_weights_, inner_right_, column_own_, column_right_, column_out_;
};

bool is_finite(const at::Tensor& x) {
  if (x.numel() == 0) return true;
  const auto [least, most] = at::aminmax(x);
  return std::isfinite(least.item<double>()) && std::isfinite(most.item<double>());
}

/// The extremes, with the letters of the places, and the winners.
std::optional<std::pair<at::Tensor, Winners>> with_extremes(const WinnerProblem& problem) {
  const auto type = type_of(problem.left.array.scalar_type());
  const ExtremeTiles tiles = type ? tiles_for(problem.least, problem.join, *type) : ExtremeTiles{};
  const auto arrays = tiles.tile != nullptr ? arrays_of(problem) : std::nullopt;
  if (!arrays) return std::nullopt;
  const auto found = *type == Type::kFloat    ? search<float>(problem, *arrays, tiles)
                     : *type == Type::kDouble ? search<double>(problem, *arrays, tiles)
                     : *type == Type::kInt64  ? search<int64_t>(problem, *arrays, tiles)
                                              : search<int32_t>(problem, *arrays, tiles);
  if (!found) return std::nullopt;
  return std::pair(arrays->extreme.view(found->places.array.sizes()), *found);
}

/// Whether the letters are the same, in whatever order.
bool same_letters(std::string a, std::string b) {
  std::sort(a.begin(), a.end());
  std::sort(b.begin(), b.end());
  return a == b;
}

}  // namespace

std::optional<Winners> winners(const WinnerProblem& problem) {
  const auto both = with_extremes(problem);
  return both ? std::optional(both->second) : std::nullopt;
}

std::optional<std::pair<at::Tensor, Winners>> extremes(const WinnerProblem& problem) {
  auto both = with_extremes(problem);
  if (both) both->first = spread({both->first, both->second.places.letters}, problem.extreme.letters, problem.extents);
  return both;
}

void add_counts(const Winners& found, const Lettered& out) {
  const auto add = [&](int32_t place, auto& element) { found.for_each(place, [&](int32_t) { element += 1; }); };
  out.array.scalar_type() == at::kDouble ? with_places<double>(found, out, add) : with_places<float>(found, out, add);
}

void take_positions(const Winners& found, const int64_t* positions, const Lettered& out) {
  with_places<int64_t>(found, out, [&](int32_t place, int64_t& element) {
    found.for_each(place, [&](int32_t index) { element = std::min(element, positions[index]); });
  });
}

bool adds_tied(const TermProblem& problem, const Winners& found, const Lettered& out) {
  std::string summed_or_own = problem.inner;
  for (const char letter : found.inner) {
    if (!has(out.letters, letter) || has(problem.weight.letters, letter)) return false;
  }
  for (const char letter : out.letters) {
    if (!has(found.inner, letter)) summed_or_own += letter;
  }
  const auto type = problem.own.array.scalar_type();
  if (!same_letters(summed_or_own, found.places.letters) || !is_finite(problem.weight.array)) return false;
  for (const Lettered* each : {&problem.weight, &problem.right, &out}) {
    if (!each->array.is_cpu() || each->array.scalar_type() != type) return false;
  }
  const auto run = [&](const auto& scatter) {
    semiring::with_constant(problem.join, [&](auto join) {
      scatter.template run<join.value>();
      return 0;
    });
    return true;
  };
  if (type == at::kFloat) return run(Scatter<float>(problem, found, out));
  return type == at::kDouble && run(Scatter<double>(problem, found, out));
}

}  // namespace joinsum::kernels::pairs
