#include "sparse/tensor/order.h"

#include <algorithm>
#include <bit>
#include <numeric>

#include "sparse/tensor/elements.h"

namespace joinsum::sparse::tensor {
namespace {

constexpr int kMostDigitBits = 11;
constexpr int64_t kFewElements = 4096;

/// Bits of a column: those from `shift` on.
struct Field {
  int64_t level;
  int shift;
  int bits;
};

/// Fields that are sorted at once. A key holds them, the last one uppermost, above the element's position.
using Run = std::vector<Field>;

uint64_t mask_of(int bits) { return bits == 0 ? 0 : ~uint64_t{0} >> (64 - bits); }

int bits_of(int64_t count) {
  return count <= 1 ? 0 : static_cast<int>(std::bit_width(static_cast<uint64_t>(count - 1)));
}

/// Whether the elements ascend, or stay, by the columns from `first` on.
bool ascends(const Columns& columns, int64_t first) {
  for (int64_t e = 1; e < columns.count; ++e) {
    for (int64_t l = first; l < columns.levels(); ++l) {
      const int64_t before = columns.data[l][e - 1];
      const int64_t here = columns.data[l][e];
      if (before > here) return false;
      if (before < here) break;
    }
  }
  return true;
}

/// Cuts the columns of the first `levels` levels into runs of at most `capacity` bits, the least ones first.
std::vector<Run> runs_of(const Columns& columns, int64_t levels, int capacity) {
  std::vector<Run> runs;
  int room = 0;
  for (int64_t l = levels - 1; l >= 0; --l) {
    const int width = bits_of(columns.sizes[l]);
    for (int shift = 0; shift < width;) {
      if (room == 0) {
        runs.emplace_back();
        room = capacity;
      }
      const int bits = std::min(room, width - shift);
      runs.back().push_back({l, shift, bits});
      shift += bits;
      room -= bits;
    }
  }
  return runs;
}

/// Sorts stably by the digits of `digit_bits` bits from `first_bit` on; leaves out those in which all keys agree.
void sort_by_digits(std::vector<uint64_t>& keys, int first_bit, int digits, int digit_bits) {
  const size_t values = size_t{1} << digit_bits;
  std::vector<int64_t> counts(values * digits, 0);
  const auto digit_of = [=](uint64_t key, int digit) { return (key >> (first_bit + digit * digit_bits)) % values; };
  for (const uint64_t key : keys) {
    for (int d = 0; d < digits; ++d) ++counts[values * d + digit_of(key, d)];
  }
  std::vector<uint64_t> scratch(keys.size());
  for (int d = 0; d < digits; ++d) {
    int64_t* begins = counts.data() + values * d;
    if (begins[digit_of(keys.front(), d)] == static_cast<int64_t>(keys.size())) continue;
    std::exclusive_scan(begins, begins + values, begins, int64_t{0});
    for (const uint64_t key : keys) scratch[begins[digit_of(key, d)]++] = key;
    keys.swap(scratch);
  }
}

/// Sorts columns by one run after another.
class Sorter {
 public:
  explicit Sorter(const Columns& columns) : columns_(columns), position_bits_(bits_of(columns.count)) {}

  int capacity() const { return 64 - position_bits_; }

  void sort_by(const Run& run) {
    keys_ = keys_of(run);
    int end = position_bits_;
    for (const Field& field : run) end += field.bits;
    sort_keys(end);
    const uint64_t mask = mask_of(position_bits_);
    std::vector<int64_t> places(columns_.count);
    for (int64_t e = 0; e < columns_.count; ++e) {
      const auto position = static_cast<int64_t>(keys_[e] & mask);
      places[e] = places_.empty() ? position : places_[position];
    }
    places_.swap(places);
    last_ = run;
  }

  Ascending take() {
    Columns out{
        .data = std::vector<Array<int64_t>>(columns_.levels()), .sizes = columns_.sizes, .count = columns_.count};
    int at = position_bits_;
    for (const Field& field : last_) {
      if (field.bits == bits_of(columns_.sizes[field.level])) out.data[field.level] = column_in_keys(at, field.bits);
      at += field.bits;
    }
    for (int64_t l = 0; l < columns_.levels(); ++l) {
      if (out.data[l].size() != columns_.count) out.data[l] = gathered(columns_.data[l], places_);
    }
    return {std::move(out), std::move(places_)};
  }

 private:
  std::vector<uint64_t> keys_of(const Run& run) const {
    std::vector<uint64_t> keys(columns_.count);
    std::iota(keys.begin(), keys.end(), uint64_t{0});
    int at = position_bits_;
    for (const Field& field : run) {
      const Array<int64_t>& column = columns_.data[field.level];
      const uint64_t mask = mask_of(field.bits);
      for (int64_t e = 0; e < columns_.count; ++e) {
        const auto coordinate = static_cast<uint64_t>(column[places_.empty() ? e : places_[e]]);
        keys[e] |= ((coordinate >> field.shift) & mask) << at;
      }
      at += field.bits;
    }
    return keys;
  }

  void sort_keys(int end_bit) {
    // Positions are part of the keys, so that any sort is stable.
    if (columns_.count < kFewElements) return std::sort(keys_.begin(), keys_.end());
    const int bits = end_bit - position_bits_;
    const int digits = (bits + kMostDigitBits - 1) / kMostDigitBits;
    sort_by_digits(keys_, position_bits_, digits, (bits + digits - 1) / digits);
  }

  /// A column of which the keys of the last run hold all bits.
  std::vector<int64_t> column_in_keys(int shift, int bits) const {
    std::vector<int64_t> out(columns_.count);
    const uint64_t mask = mask_of(bits);
    std::transform(keys_.begin(), keys_.end(), out.begin(),
                   [=](uint64_t key) { return static_cast<int64_t>((key >> shift) & mask); });
    return out;
  }

  const Columns& columns_;
  int position_bits_;
  std::vector<int64_t> places_;
  std::vector<uint64_t> keys_;
  Run last_;
};

}  // namespace

bool Columns::same(int64_t a, int64_t b) const {
  return std::all_of(data.begin(), data.end(), [=](const Array<int64_t>& column) { return column[a] == column[b]; });
}

Ascending sorted(const Columns& columns) {
  int64_t unsorted = 0;
  while (unsorted < columns.levels() && !ascends(columns, unsorted)) ++unsorted;
  if (unsorted == 0) return {columns, {}};
  Sorter sorter(columns);
  for (const Run& run : runs_of(columns, unsorted, sorter.capacity())) sorter.sort_by(run);
  return sorter.take();
}

std::vector<int64_t> gathered(const Array<int64_t>& from, const std::vector<int64_t>& places) {
  std::vector<int64_t> out(places.size());
  gather(from.data(), places, out.data());
  return out;
}

Values gathered(const Values& from, const std::vector<int64_t>& places) {
  return with_element_type("sparse tensor", from.dtype, [&](auto zero) {
    using T = decltype(zero);
    ValueBuffer<T> out(static_cast<int64_t>(places.size()));
    gather(from.as<T>(), places, out.data());
    return out.take(from.dtype);
  });
}

}  // namespace joinsum::sparse::tensor
