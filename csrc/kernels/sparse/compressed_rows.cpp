#include "kernels/sparse/compressed_rows.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <numeric>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>
#include <ATen/TensorSubclassLikeUtils.h>

#include "base/check.h"
#include "base/reused_memory.h"
#include "kernels/dense/dense.h"
#include "kernels/processor/instructions.h"
#include "kernels/rows/entries.h"
#include "kernels/sparse/arrays.h"
#include "kernels/threads/parallel.h"

namespace joinsum::kernels::sparse {

using joinsum::sparse::tensor::Level;
using joinsum::sparse::tensor::LevelFormat;
using joinsum::sparse::tensor::Tensor;

namespace {

constexpr int64_t kShortRow = 64;          // rows of fewer entries, on average, are taken by their lengths
constexpr int64_t kManyRows = 8192;        // their lengths are more than a processor foretells from the last product
constexpr int64_t kWorkOfThread = 12'288;  // entries that are worth a thread
constexpr int64_t kWorkOfWriter = 65'536;  // of results whose pieces are put together
constexpr int64_t kRangesOfThread = 8;
constexpr int64_t kManyOfColumns = 8;  // a row of more products than this part of the columns is nearly dense
constexpr int64_t kEntriesOfPiece = int64_t{1} << 16;  // that a thread writes into one piece of memory

/// The loops for this processor.
template <class T, class Column>
const rows::EntryLoops<T, Column>& loops() {
  static const rows::EntryLoops<T, Column> chosen = processor::widest(
      rows::avx512_entry_loops<T, Column>, rows::avx2_entry_loops<T, Column>, rows::portable_entry_loops<T, Column>,
      [](const rows::EntryLoops<T, Column>& loops) { return loops.sums != nullptr; });
  return chosen;
}

template <class T>
rows::CompressedMatrix<T, int64_t> pointers(const Tensor& matrix) {
  const Level& list = matrix.levels[1];
  return {list.offsets.data(), list.coordinates.data(), matrix.values.as<T>()};
}

/// Calls `run` with the matrix, whose columns have 32 bits where `narrow` has them.
template <class T, class Run>
void with_columns(const Tensor& matrix, const std::vector<int32_t>& narrow, const Run& run) {
  const auto wide = pointers<T>(matrix);
  if (narrow.empty()) return run(wide);
  run(rows::CompressedMatrix<T, int32_t>{wide.offsets, narrow.data(), wide.values});
}

template <class T, class Column>
const rows::EntryLoops<T, Column>& loops_for(const rows::CompressedMatrix<T, Column>& /*matrix*/) {
  return loops<T, Column>();
}

/// Ends of `count` ranges of rows of about equal work, multiples of `together` where that moves less than half of a
/// range's work; `before[r]` is the work of the rows before r.
std::vector<int64_t> ends_of(const int64_t* before, int64_t rows, int64_t count, int64_t together = 1) {
  std::vector<int64_t> ends{0};
  for (int64_t range = 1; range < count; ++range) {
    const auto share = static_cast<int64_t>(static_cast<double>(before[rows]) * static_cast<double>(range) /
                                            static_cast<double>(count));
    const int64_t* end = std::upper_bound(before, before + rows + 1, share);
    const int64_t exact = end - before - 1;
    const int64_t rounded = exact / together * together;
    const bool moves_little = 2 * count * (before[exact] - before[rounded]) < before[rows];
    ends.push_back(std::clamp<int64_t>(moves_little ? rounded : exact, ends.back(), rows));
  }
  ends.push_back(rows);
  return ends;
}

/// As many threads as torch's, if each has enough to do.
int64_t threads_for(int64_t work, int64_t of_thread = kWorkOfThread) {
  return std::clamp<int64_t>(work / of_thread, 1, at::get_num_threads());
}

/// Calls `run(begin, end)` for ranges of rows, whose ends are multiples of `together` if they can be, on threads where
/// it pays.
template <class Run>
void for_ranges(const int64_t* before, int64_t rows, int64_t work_of_entry, const Run& run, int64_t together = 1) {
  const int64_t threads = threads_for(before[rows] * work_of_entry);
  if (threads == 1) return run(0, rows);
  const std::vector<int64_t> ends = ends_of(before, rows, threads * kRangesOfThread, together);
  threads::for_each_range(threads * kRangesOfThread, 1, [&](int64_t begin, int64_t end) {
    for (int64_t range = begin; range < end; ++range) run(ends[range], ends[range + 1]);
  });
}

/// The rows of each whole window by their lengths; equal ones stay in order.
std::vector<uint8_t> rows_by_length(const int64_t* offsets, int64_t rows) {
  std::vector<uint8_t> out(rows / rows::kWindow * rows::kWindow);
  std::array<int64_t, kShortRow + 1> places;  // of rows by their lengths; longer ones are last, in order
  for (int64_t window = 0; window < std::ssize(out); window += rows::kWindow) {
    const auto place_of = [&](int64_t row) {
      return std::min<int64_t>(offsets[window + row + 1] - offsets[window + row], kShortRow - 1) + 1;
    };
    places.fill(0);
    for (int64_t row = 0; row < rows::kWindow; ++row) ++places[place_of(row)];
    std::partial_sum(places.begin(), places.end(), places.begin());
    for (int64_t row = 0; row < rows::kWindow; ++row) {
      out[window + places[place_of(row) - 1]++] = static_cast<uint8_t>(row);
    }
  }
  return out;
}

/// The columns of one row, and what is added up for each.
template <class T>
class Row {
 public:
  explicit Row(int64_t columns)
      : sums_(columns), marks_((columns + 63) / 64), used_((marks_.size() + 63) / 64), bytes_((columns + 7) / 8) {}

  /// Into a row of which many columns are expected.
  void add_to_many(int64_t column, T value) {
    sums_[column] += value;
    reinterpret_cast<uint8_t*>(bytes_.data())[column] = 1;
  }

  /// Into a row of which few columns are expected.
  void add_to_few(int64_t column, T value) {
    const auto word = static_cast<size_t>(column >> 6);
    const uint64_t bit = uint64_t{1} << (column & 63);
    sums_[column] += value;
    if ((marks_[word] & bit) != 0) return;
    marks_[word] |= bit;
    used_[word >> 6] |= uint64_t{1} << (word & 63);
  }

  /// Calls `take(column, sum)` in ascending order, and forgets all.
  template <class Take>
  void drain_many(const Take& take) {
    for (size_t word = 0; word < bytes_.size(); ++word) {
      if (bytes_[word] == 0) continue;
      const auto* marks = reinterpret_cast<const uint8_t*>(&bytes_[word]);
      for (int64_t i = 0; i < 8; ++i) {
        if (marks[i] == 0) continue;
        const int64_t column = static_cast<int64_t>(word) * 8 + i;
        take(column, std::exchange(sums_[column], T(0)));
      }
      bytes_[word] = 0;
    }
  }

  template <class Take>
  void drain_few(const Take& take) {
    for (size_t group = 0; group < used_.size(); ++group) {
      for (uint64_t words = std::exchange(used_[group], 0); words != 0; words &= words - 1) {
        const size_t word = group * 64 + static_cast<size_t>(std::countr_zero(words));
        for (uint64_t bits = std::exchange(marks_[word], 0); bits != 0; bits &= bits - 1) {
          const auto column = static_cast<int64_t>(word * 64 + static_cast<size_t>(std::countr_zero(bits)));
          take(column, std::exchange(sums_[column], T(0)));
        }
      }
    }
  }

 private:
  std::vector<T> sums_;
  std::vector<uint64_t> marks_;  ///< a bit for each column
  std::vector<uint64_t> used_;   ///< a bit for each word of marks
  std::vector<uint64_t> bytes_;  ///< a byte for each column
};

/// How many columns a row has, each of which is marked once or more.
class ColumnMarks {
 public:
  explicit ColumnMarks(int64_t columns) : marks_((columns + 63) / 64), used_((marks_.size() + 63) / 64) {}

  void mark(int64_t column) {
    const auto word = static_cast<size_t>(column >> 6);
    marks_[word] |= uint64_t{1} << (column & 63);
    used_[word >> 6] |= uint64_t{1} << (word & 63);
  }

  /// And forgets all.
  int64_t count() {
    int64_t found = 0;
    for (size_t group = 0; group < used_.size(); ++group) {
      for (uint64_t words = std::exchange(used_[group], 0); words != 0; words &= words - 1) {
        const size_t word = group * 64 + static_cast<size_t>(std::countr_zero(words));
        found += std::popcount(std::exchange(marks_[word], 0));
      }
    }
    return found;
  }

 private:
  std::vector<uint64_t> marks_;  ///< a bit for each column
  std::vector<uint64_t> used_;   ///< a bit for each word of marks
};

/// Of an entry that meets a row of `width` elements, in entries that meet one.
int64_t work_of(int64_t width) { return 1 + width / 8; }

/// A byte of 0 or 1: products are true where both are, sums where one is.
struct Truth {
  uint8_t byte = 0;
  Truth& operator+=(Truth other) {
    byte |= other.byte;
    return *this;
  }
  friend Truth operator*(Truth a, Truth b) { return {static_cast<uint8_t>(a.byte & b.byte)}; }
};

/// Calls `run` with a zero of the type in which elements are added up: integers wrap around.
template <class Run>
void with_elements(at::ScalarType dtype, const Run& run) {
  switch (dtype) {
    case at::kFloat:
      return run(float{});
    case at::kDouble:
      return run(double{});
    case at::kInt:
      return run(uint32_t{});
    case at::kLong:
      return run(uint64_t{});
    case at::kBool:
      return run(Truth{});
    default:
      JOINSUM_CHECK(false, "a dtype that compressed rows do not have");
  }
}

/// Rows `begin` to `end` of A X for elements that have no loops of their own.
template <class T, class Column>
void plain_times(const rows::CompressedMatrix<T, Column>& a, int64_t begin, int64_t end, const T* x, int64_t width,
                 T* y) {
  for (int64_t r = begin; r < end; ++r) {
    T* row = y + r * width;
    if (width == 1) {
      T sum{};
      for (int64_t e = a.offsets[r]; e < a.offsets[r + 1]; ++e) sum += a.values[e] * x[a.columns[e]];
      *row = sum;
      continue;
    }
    std::fill_n(row, width, T{});
    for (int64_t e = a.offsets[r]; e < a.offsets[r + 1]; ++e) {
      const T* from = x + int64_t{a.columns[e]} * width;
      for (int64_t c = 0; c < width; ++c) row[c] += a.values[e] * from[c];
    }
  }
}

bool is_plain(const at::Tensor& x, at::ScalarType dtype) {
  return x.device().is_cpu() && x.layout() == at::kStrided && x.scalar_type() == dtype && !x.is_conj() && !x.is_neg() &&
         !(x.requires_grad() && at::GradMode::is_enabled()) && !at::isTensorSubclassLike(x);
}

/// Of A B the products of the rows before each row, and of all.
std::vector<int64_t> products_before(const Tensor& a, const Tensor& b) {
  const Level& left = a.levels[1];
  const Level& right = b.levels[1];
  std::vector<int64_t> before{0};
  before.reserve(left.offsets.size());
  for (int64_t row = 0; row + 1 < left.offsets.size(); ++row) {
    int64_t products = 0;
    for (int64_t e = left.offsets[row]; e < left.offsets[row + 1]; ++e) {
      const int64_t k = left.coordinates[e];
      products += right.offsets[k + 1] - right.offsets[k];
    }
    before.push_back(before.back() + products);
  }
  return before;
}

/// About how many elements the rows of a product have, as if each product stood in any column.
double expected_of(const std::vector<int64_t>& products_before_rows, int64_t columns) {
  const auto width = static_cast<double>(columns);
  double entries = 0;
  for (size_t row = 0; row + 1 < products_before_rows.size() && columns > 0; ++row) {
    const auto products = static_cast<double>(products_before_rows[row + 1] - products_before_rows[row]);
    entries += width * -std::expm1(-products / width);
  }
  return entries;
}

/// An uninitialized array.
at::Tensor reused_array(int64_t count, at::ScalarType dtype) {
  void* const memory = allocate_reused(static_cast<size_t>(count) * c10::elementSize(dtype));
  if (memory == nullptr) return at::empty({count}, dtype);
  return at::from_blob(memory, {count}, free_reused, at::TensorOptions().dtype(dtype));
}

/// A matrix in compressed rows.
Tensor matrix_of(int64_t width, std::vector<int64_t> offsets, const at::Tensor& columns, const at::Tensor& values) {
  const auto rows = std::ssize(offsets) - 1;
  Tensor out{.shape = {rows, width}, .axes = {0, 1}};
  out.levels.push_back({.format = LevelFormat::kDense, .size = rows});
  out.levels.push_back({.format = LevelFormat::kSortedList,
                        .size = width,
                        .offsets = std::move(offsets),
                        .coordinates = array_of<int64_t>(columns)});
  out.values = values_of(values);
  return out;
}

template <class Run>
void on_threads(int64_t threads, int64_t ranges, const Run& run) {
  if (threads == 1) return run(0, ranges);
  threads::for_each_range(ranges, (ranges + threads - 1) / threads, run);
}

/// Entries of whole rows, in order.
struct Piece {
  at::Tensor columns;
  at::Tensor values;
  int64_t count = 0;
};

/// A matrix made row by row, where it pays on threads. `before[r]` is the work of the rows before r. Each thread has a
/// writer of its own: `write(r, columns, values)` writes row r, and returns how many elements it has, of which there
/// are at most `most(r)`. One thread writes them in place, as pages that are not written take no memory.
template <class T, class Most, class MakeWriter>
Tensor assembled(int64_t rows, int64_t width, const std::vector<int64_t>& before, const Most& most,
                 const MakeWriter& make_writer) {
  constexpr at::ScalarType kValues = c10::CppTypeToScalarType<T>::value;
  const int64_t threads = threads_for(before.back(), kWorkOfWriter);
  const int64_t ranges = threads == 1 ? 1 : threads * kRangesOfThread;
  const std::vector<int64_t> ends = ends_of(before.data(), rows, ranges);
  std::vector<std::vector<Piece>> parts(ranges);
  std::vector<int64_t> offsets(rows + 1);
  int64_t of_all = 0;
  for (int64_t r = 0; r < rows; ++r) of_all += most(r);
  const bool in_place = ranges == 1 && of_all * static_cast<int64_t>(sizeof(int64_t) + sizeof(T)) <= kReusedBytes;
  const int64_t least_room = in_place ? of_all : kEntriesOfPiece;
  on_threads(threads, ranges, [&](int64_t begin, int64_t end) {
    auto write = make_writer();
    for (int64_t range = begin; range < end; ++range) {
      std::vector<Piece>& pieces = parts[range];
      int64_t room = 0;
      for (int64_t r = ends[range]; r < ends[range + 1]; ++r) {
        const int64_t needed = most(r);
        if (pieces.empty() || pieces.back().count + needed > room) {
          room = std::max(needed, least_room);
          pieces.push_back({reused_array(room, at::kLong), reused_array(room, kValues)});
        }
        Piece& piece = pieces.back();
        auto* columns = piece.columns.template mutable_data_ptr<int64_t>() + piece.count;
        offsets[r + 1] = write(r, columns, static_cast<T*>(piece.values.mutable_data_ptr()) + piece.count);
        piece.count += offsets[r + 1];
      }
    }
  });
  std::inclusive_scan(offsets.begin(), offsets.end(), offsets.begin());
  if (in_place && parts[0].size() == 1) {
    const Piece& all = parts[0].front();
    return matrix_of(width, std::move(offsets), all.columns.narrow(0, 0, all.count),
                     all.values.narrow(0, 0, all.count));
  }
  const at::Tensor columns = reused_array(offsets.back(), at::kLong);
  const at::Tensor values = reused_array(offsets.back(), kValues);
  on_threads(threads, ranges, [&](int64_t begin, int64_t end) {
    for (int64_t range = begin; range < end; ++range) {
      int64_t first = offsets[ends[range]];
      for (const Piece& piece : parts[range]) {
        std::copy_n(piece.columns.template const_data_ptr<int64_t>(), piece.count,
                    columns.mutable_data_ptr<int64_t>() + first);
        std::copy_n(static_cast<const T*>(piece.values.const_data_ptr()), piece.count,
                    static_cast<T*>(values.mutable_data_ptr()) + first);
        first += piece.count;
      }
      parts[range].clear();
    }
  });
  return matrix_of(width, std::move(offsets), columns, values);
}

/// The same, written in place: `make_counter()` gives for each thread what counts a row's elements before.
template <class T, class MakeCounter, class MakeWriter>
Tensor assembled_in_place(int64_t rows, int64_t width, const std::vector<int64_t>& before,
                          const MakeCounter& make_counter, const MakeWriter& make_writer) {
  const int64_t threads = threads_for(before.back());
  const int64_t ranges = threads * kRangesOfThread;
  const std::vector<int64_t> ends = ends_of(before.data(), rows, ranges);
  std::vector<int64_t> offsets(rows + 1);
  on_threads(threads, ranges, [&](int64_t begin, int64_t end) {
    auto count = make_counter();
    for (int64_t r = ends[begin]; r < ends[end]; ++r) offsets[r + 1] = count(r);
  });
  std::inclusive_scan(offsets.begin(), offsets.end(), offsets.begin());
  const at::Tensor columns = reused_array(offsets.back(), at::kLong);
  const at::Tensor values = reused_array(offsets.back(), c10::CppTypeToScalarType<T>::value);
  auto* first_column = columns.mutable_data_ptr<int64_t>();
  auto* first_value = static_cast<T*>(values.mutable_data_ptr());
  on_threads(threads, ranges, [&](int64_t begin, int64_t end) {
    auto write = make_writer();
    for (int64_t r = ends[begin]; r < ends[end]; ++r) write(r, first_column + offsets[r], first_value + offsets[r]);
  });
  return matrix_of(width, std::move(offsets), columns, values);
}

/// NaN where one is, as torch's.
template <class T>
T larger(T a, T b) {
  return a > b || a != a ? a : b;
}
template <class T>
T smaller(T a, T b) {
  return a < b || a != a ? a : b;
}

/// The largest or smallest of `first` and these values; NaN where one is.
template <bool kLargest, class T>
T extreme(const T* values, int64_t count, T first) {
  constexpr int64_t kChains = 4;  // of comparisons that do not wait for each other
  std::array<T, kChains> found;
  found.fill(first);
  bool is_number = true;
  const auto meet = [&](T value, T& best) {
    best = (kLargest ? value > best : value < best) ? value : best;
    is_number &= value == value;
  };
  int64_t i = 0;
  for (; i + kChains <= count; i += kChains) {
    for (int64_t chain = 0; chain < kChains; ++chain) meet(values[i + chain], found[chain]);
  }
  for (; i < count; ++i) meet(values[i], found[0]);
  for (int64_t chain = 1; chain < kChains; ++chain) meet(found[chain], found[0]);
  return is_number ? found[0] : std::numeric_limits<T>::quiet_NaN();
}

/// The elements of two matrices joined where either has one, 0 standing for one that is not there.
template <class T, class Join>
Tensor united(const rows::CompressedMatrix<T, int64_t>& a, const rows::CompressedMatrix<T, int64_t>& b, int64_t rows,
              int64_t width, const Join& join) {
  std::vector<int64_t> before(rows + 1);
  for (int64_t r = 0; r <= rows; ++r) before[r] = a.offsets[r] + b.offsets[r];
  const auto most = [&](int64_t r) { return before[r + 1] - before[r]; };
  return assembled<T>(rows, width, before, most, [&] {
    return [&](int64_t r, int64_t* columns, T* values) {
      int64_t i = a.offsets[r], j = b.offsets[r], count = 0;
      const int64_t last = a.offsets[r + 1], other_last = b.offsets[r + 1];
      // Without branches on which of them is first, which cannot be predicted.
      while (i < last && j < other_last) {
        const int64_t column = a.columns[i], other = b.columns[j];
        const bool has = column <= other, other_has = other <= column;
        columns[count] = has ? column : other;
        values[count++] = join(has ? a.values[i] : T(0), other_has ? b.values[j] : T(0));
        i += int64_t{has};
        j += int64_t{other_has};
      }
      for (; i < last; ++i, ++count) {
        columns[count] = a.columns[i];
        values[count] = join(a.values[i], T(0));
      }
      for (; j < other_last; ++j, ++count) {
        columns[count] = b.columns[j];
        values[count] = join(T(0), b.values[j]);
      }
      return count;
    };
  });
}

}  // namespace

/// Products of two sparse matrices, row by row.
template <class T>
class RowProducts {
 public:
  RowProducts(const CompressedRows& a, const CompressedRows& b)
      : left_(pointers<T>(*a.matrix_)),
        right_(pointers<T>(*b.matrix_)),
        rows_(a.rows_),
        columns_(b.columns_),
        before_(products_before(*a.matrix_, *b.matrix_)) {}

  Tensor run() const {
    const auto most = [&](int64_t r) { return std::min(before_[r + 1] - before_[r], columns_); };
    const auto make_writer = [&] {
      return [this, row = Row<T>(columns_)](int64_t r, int64_t* columns, T* values) mutable {
        int64_t count = 0;
        const auto take = [&](int64_t column, T sum) {
          columns[count] = column;
          values[count++] = sum;
        };
        if ((before_[r + 1] - before_[r]) * kManyOfColumns >= columns_) {
          each_product(r, [&](int64_t column, T a, T b) { row.add_to_many(column, a * b); });
          row.drain_many(take);
        } else {
          each_product(r, [&](int64_t column, T a, T b) { row.add_to_few(column, a * b); });
          row.drain_few(take);
        }
        return count;
      };
    };
    // Elements that are written twice would take more memory than stays with the process: they are counted before.
    const double bytes = 2 * (sizeof(int64_t) + sizeof(T)) * expected_of(before_, columns_);
    if (bytes <= static_cast<double>(kReusedBytes)) return assembled<T>(rows_, columns_, before_, most, make_writer);
    const auto make_counter = [&] {
      return [this, marks = ColumnMarks(columns_)](int64_t r) mutable {
        each_product(r, [&](int64_t column, T, T) { marks.mark(column); });
        return marks.count();
      };
    };
    return assembled_in_place<T>(rows_, columns_, before_, make_counter, make_writer);
  }

  Tensor run_at(const CompressedRows& mask) const {
    const rows::CompressedMatrix<T, int64_t> wanted = pointers<T>(*mask.matrix_);
    const int64_t entries = wanted.offsets[rows_];
    std::vector<T> found(entries);
    std::vector<uint8_t> met(entries);
    for_ranges(before_.data(), rows_, 1, [&](int64_t begin, int64_t end) {
      std::vector<int64_t> place(columns_, -1);  // of the mask's entry in this row
      for (int64_t r = begin; r < end; ++r) {
        const int64_t first = wanted.offsets[r], last = wanted.offsets[r + 1];
        if (first == last) continue;
        for (int64_t e = first; e < last; ++e) place[wanted.columns[e]] = e;
        each_product(r, [&](int64_t column, T a, T b) {
          const int64_t e = place[column];
          if (e < 0) return;
          found[e] += a * b;
          met[e] = 1;
        });
        for (int64_t e = first; e < last; ++e) {
          found[e] *= wanted.values[e];
          place[wanted.columns[e]] = -1;
        }
      }
    });
    std::vector<int64_t> offsets(rows_ + 1);
    for (int64_t r = 0; r < rows_; ++r) {
      const auto first = met.begin() + wanted.offsets[r];
      offsets[r + 1] = offsets[r] + std::count(first, met.begin() + wanted.offsets[r + 1], uint8_t{1});
    }
    const at::Tensor columns = at::empty({offsets.back()}, at::kLong);
    const at::Tensor values = at::empty({offsets.back()}, c10::CppTypeToScalarType<T>::value);
    auto* out_columns = columns.mutable_data_ptr<int64_t>();
    auto* out_values = values.mutable_data_ptr<T>();
    for (int64_t e = 0, at = 0; e < entries; ++e) {
      if (met[e] == 0) continue;
      out_columns[at] = wanted.columns[e];
      out_values[at++] = found[e];
    }
    return matrix_of(columns_, std::move(offsets), columns, values);
  }

 private:
  template <class Visit>
  void each_product(int64_t r, const Visit& visit) const {
    for (int64_t e = left_.offsets[r]; e < left_.offsets[r + 1]; ++e) {
      const int64_t k = left_.columns[e];
      const T value = left_.values[e];
      for (int64_t f = right_.offsets[k]; f < right_.offsets[k + 1]; ++f) {
        visit(right_.columns[f], value, right_.values[f]);
      }
    }
  }

  rows::CompressedMatrix<T, int64_t> left_, right_;
  int64_t rows_;
  int64_t columns_;
  std::vector<int64_t> before_;  ///< products of the rows before each
};

namespace {

/// Whether a matrix has a dense level and a sorted list, of any order of the axes.
bool is_compressed(const Tensor& tensor) {
  return tensor.rank() == 2 && tensor.levels[0].format == LevelFormat::kDense &&
         tensor.levels[1].format == LevelFormat::kSortedList && tensor.fill == 0 && tensor.dtype() != DType::kUInt8;
}

const std::vector<int64_t> kByRows = {0, 1};
const std::vector<int64_t> kByColumns = {1, 0};

Tensor compressed(const Tensor& matrix, const std::vector<int64_t>& axes) {
  return joinsum::sparse::tensor::reformatted(matrix, axes, {LevelFormat::kDense, LevelFormat::kSortedList});
}

}  // namespace

std::optional<CompressedRows> CompressedRows::of(const Matrix& matrix) {
  if (!is_compressed(*matrix)) return std::nullopt;
  if (matrix->axes == kByRows) return CompressedRows(matrix);
  return CompressedRows(std::make_shared<const Tensor>(compressed(*matrix, kByRows)));
}

std::optional<CompressedRows> CompressedRows::of_transposed(const Matrix& matrix) {
  if (!is_compressed(*matrix)) return std::nullopt;
  Tensor by_columns = matrix->axes == kByRows ? compressed(*matrix, kByColumns) : *matrix;
  std::swap(by_columns.shape[0], by_columns.shape[1]);
  by_columns.axes = kByRows;
  return CompressedRows(std::make_shared<const Tensor>(std::move(by_columns)));
}

CompressedRows::CompressedRows(Matrix matrix) : matrix_(std::move(matrix)) {
  JOINSUM_USER_CHECK(is_compressed(*matrix_) && matrix_->axes == kByRows,
                     "einsum: no matrix in compressed rows with fill 0: shape=", matrix_->shape,
                     ", dtype=", name_of(matrix_->dtype()));
  rows_ = matrix_->shape[0];
  columns_ = matrix_->shape[1];
  dtype_ = dense::scalar_type(matrix_->dtype());
  const auto& columns = matrix_->levels[1].coordinates;
  if (columns_ <= std::numeric_limits<int32_t>::max()) narrow_.assign(columns.begin(), columns.end());
  if (at::isFloatingType(dtype_) && rows_ >= kManyRows && columns.size() < kShortRow * rows_)
    by_length_ = rows_by_length(matrix_->levels[1].offsets.data(), rows_);
}

at::Tensor CompressedRows::times(const at::Tensor& dense) const {
  if (!is_plain(dense, dtype_) || dense.dim() < 1 || dense.dim() > 2 || dense.size(0) != columns_) return {};
  const at::Tensor x = dense.contiguous();
  const int64_t width = dense.dim() == 2 ? dense.size(1) : 1;
  const at::Tensor out =
      at::empty(dense.dim() == 2 ? std::vector<int64_t>{rows_, width} : std::vector<int64_t>{rows_}, dense.options());
  with_elements(dtype_, [&](auto zero) {
    using T = decltype(zero);
    const auto* from = static_cast<const T*>(x.const_data_ptr());
    auto* to = static_cast<T*>(out.mutable_data_ptr());
    with_columns<T>(*matrix_, narrow_, [&](auto a) {
      const bool by_length = width == 1 && !by_length_.empty();
      if (by_length) a.by_length = by_length_.data();
      for_ranges(
          a.offsets, rows_, work_of(width),
          [&](int64_t begin, int64_t end) {
            if constexpr (std::is_floating_point_v<T>) {
              if (width == 1) return loops_for(a).times_vector(a, begin, end, from, to);
              loops_for(a).times_matrix(a, begin, end, from, width, to);
            } else {
              plain_times(a, begin, end, from, width, to);
            }
          },
          by_length ? rows::kWindow : 1);
    });
  });
  return out;
}

at::Tensor CompressedRows::transposed_times(const at::Tensor& dense) const {
  if (!is_plain(dense, dtype_) || dense.dim() < 1 || dense.dim() > 2 || dense.size(0) != rows_) return {};
  const at::Tensor x = dense.contiguous();
  const int64_t width = dense.dim() == 2 ? dense.size(1) : 1;
  const at::Tensor out = at::zeros(
      dense.dim() == 2 ? std::vector<int64_t>{columns_, width} : std::vector<int64_t>{columns_}, dense.options());
  with_elements(dtype_, [&](auto zero) {
    using T = decltype(zero);
    const auto a = pointers<T>(*matrix_);
    const auto* from = static_cast<const T*>(x.const_data_ptr());
    auto* to = static_cast<T*>(out.mutable_data_ptr());
    // Threads have columns of X each, so that no two write one element.
    const int64_t grain = std::max<int64_t>(8, ceil_div(width, threads_for(a.offsets[rows_] * work_of(width))));
    threads::for_each_range(width, grain, [&](int64_t first, int64_t last) {
      for (int64_t r = 0; r < rows_; ++r) {
        const T* __restrict row = from + r * width;
        if (width == 1) {
          const T factor = *row;
          if constexpr (std::is_same_v<T, Truth>) {
            if (factor.byte == 0) continue;
          }
          for (int64_t e = a.offsets[r]; e < a.offsets[r + 1]; ++e) to[a.columns[e]] += a.values[e] * factor;
          continue;
        }
        for (int64_t e = a.offsets[r]; e < a.offsets[r + 1]; ++e) {
          T* __restrict sum = to + a.columns[e] * width;
          for (int64_t c = first; c < last; ++c) sum[c] += a.values[e] * row[c];
        }
      }
    });
  });
  return out;
}

at::Tensor CompressedRows::sums() const {
  const at::Tensor out = at::empty({rows_}, dtype_);
  AT_DISPATCH_FLOATING_TYPES(dtype_, "sums", [&] {
    auto a = pointers<scalar_t>(*matrix_);
    if (!by_length_.empty()) a.by_length = by_length_.data();
    auto* to = out.mutable_data_ptr<scalar_t>();
    const auto sum = [&](int64_t begin, int64_t end) { loops_for(a).sums(a, begin, end, to); };
    for_ranges(a.offsets, rows_, 1, sum, a.by_length == nullptr ? 1 : rows::kWindow);
  });
  return out;
}

at::Tensor CompressedRows::extremes(bool largest) const {
  const at::Tensor out = at::empty({rows_}, dtype_);
  AT_DISPATCH_FLOATING_TYPES(dtype_, "extremes", [&] {
    const auto a = pointers<scalar_t>(*matrix_);
    auto* to = out.mutable_data_ptr<scalar_t>();
    for_ranges(a.offsets, rows_, 1, [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) {
        const scalar_t* values = a.values + a.offsets[r];
        const int64_t count = a.offsets[r + 1] - a.offsets[r];
        const scalar_t first = count < columns_ ? scalar_t(0) : *values;
        to[r] = largest ? extreme<true>(values, count, first) : extreme<false>(values, count, first);
      }
    });
  });
  return out;
}

Tensor CompressedRows::joined(const CompressedRows& other, ElementJoin join) const {
  JOINSUM_CHECK(rows_ == other.rows_ && columns_ == other.columns_ && dtype_ == other.dtype_);
  Tensor out;
  AT_DISPATCH_FLOATING_TYPES(dtype_, "joined", [&] {
    const auto a = pointers<scalar_t>(*matrix_), b = pointers<scalar_t>(*other.matrix_);
    const auto run = [&](auto each) { out = united(a, b, rows_, columns_, each); };
    switch (join) {
      case ElementJoin::kAdd:
        return run([](scalar_t x, scalar_t y) { return x + y; });
      case ElementJoin::kSubtract:
        return run([](scalar_t x, scalar_t y) { return x - y; });
      case ElementJoin::kMax:
        return run([](scalar_t x, scalar_t y) { return larger(x, y); });
      case ElementJoin::kMin:
        return run([](scalar_t x, scalar_t y) { return smaller(x, y); });
    }
  });
  return out;
}

Tensor CompressedRows::times_elements(const at::Tensor& dense) const {
  JOINSUM_CHECK(dense.dim() == 2 && dense.size(0) == rows_ && dense.size(1) == columns_ &&
                dense.scalar_type() == dtype_);
  const at::Tensor read = dense.resolve_neg();
  const int64_t down = read.stride(0), along = read.stride(1);
  const at::Tensor out = at::empty({matrix_->values.count()}, dtype_);
  AT_DISPATCH_FLOATING_TYPES(dtype_, "times_elements", [&] {
    const auto a = pointers<scalar_t>(*matrix_);
    const auto* from = read.const_data_ptr<scalar_t>();
    auto* to = out.mutable_data_ptr<scalar_t>();
    for_ranges(a.offsets, rows_, 1, [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) {
        for (int64_t e = a.offsets[r]; e < a.offsets[r + 1]; ++e) {
          to[e] = a.values[e] * from[r * down + a.columns[e] * along];
        }
      }
    });
  });
  return with_values(out);
}

Tensor CompressedRows::with_values(const at::Tensor& values) const {
  Tensor out = *matrix_;
  out.values = values_of(values);
  return out;
}

Tensor CompressedRows::scaled(const at::Tensor& factors, bool by_rows) const {
  JOINSUM_CHECK(factors.dim() == 1 && factors.size(0) == (by_rows ? rows_ : columns_) &&
                factors.scalar_type() == dtype_);
  const at::Tensor by = factors.resolve_neg().contiguous();
  const at::Tensor out = at::empty({matrix_->values.count()}, dtype_);
  AT_DISPATCH_FLOATING_TYPES(dtype_, "scaled", [&] {
    const auto a = pointers<scalar_t>(*matrix_);
    const auto* factor = by.const_data_ptr<scalar_t>();
    auto* to = out.mutable_data_ptr<scalar_t>();
    for_ranges(a.offsets, rows_, 1, [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) {
        for (int64_t e = a.offsets[r]; e < a.offsets[r + 1]; ++e) {
          to[e] = factor[by_rows ? r : a.columns[e]] * a.values[e];
        }
      }
    });
  });
  return with_values(out);
}

Tensor CompressedRows::sampled(const at::Tensor& x, const at::Tensor& y) const {
  JOINSUM_CHECK(x.dim() == 2 && y.dim() == 2 && x.size(0) == rows_ && y.size(0) == columns_ && x.size(1) == y.size(1) &&
                x.scalar_type() == dtype_ && y.scalar_type() == dtype_);
  const at::Tensor left = x.resolve_neg().contiguous();
  const at::Tensor right = y.resolve_neg().contiguous();
  const at::Tensor out = at::empty({matrix_->values.count()}, dtype_);
  AT_DISPATCH_FLOATING_TYPES(dtype_, "sampled", [&] {
    const auto* of_rows = left.const_data_ptr<scalar_t>();
    const auto* of_columns = right.const_data_ptr<scalar_t>();
    auto* to = out.mutable_data_ptr<scalar_t>();
    with_columns<scalar_t>(*matrix_, narrow_, [&](const auto& a) {
      for_ranges(a.offsets, rows_, work_of(x.size(1)), [&](int64_t begin, int64_t end) {
        loops_for(a).sampled(a, begin, end, of_rows, of_columns, x.size(1), to);
      });
    });
  });
  return with_values(out);
}

Tensor CompressedRows::times(const CompressedRows& other) const {
  JOINSUM_CHECK(columns_ == other.rows_ && dtype_ == other.dtype_);
  if (dtype_ == at::kFloat) return RowProducts<float>(*this, other).run();
  return RowProducts<double>(*this, other).run();
}

double CompressedRows::expected_entries(const CompressedRows& other) const {
  JOINSUM_CHECK(columns_ == other.rows_);
  return expected_of(products_before(*matrix_, *other.matrix_), other.columns_);
}

Tensor CompressedRows::times_at(const CompressedRows& other, const CompressedRows& mask) const {
  JOINSUM_CHECK(columns_ == other.rows_ && dtype_ == other.dtype_ && dtype_ == mask.dtype_ && rows_ == mask.rows_ &&
                other.columns_ == mask.columns_);
  if (dtype_ == at::kFloat) return RowProducts<float>(*this, other).run_at(mask);
  return RowProducts<double>(*this, other).run_at(mask);
}

}  // namespace joinsum::kernels::sparse
