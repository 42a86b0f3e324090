#pragma once

#include <algorithm>
#include <bit>
#include <vector>

#include "sparse/kernels/nest/arithmetic.h"
#include "sparse/kernels/nest/buffer.h"

namespace joinsum::sparse::kernels::nest {

using tensor::hash_of_coordinate;

/// Reduces values by position, in an array over all positions or in a hash table, and yields them in order.
template <class T>
class Workspace {
 public:
  /// `size` positions, elements starting from `identity`; `counted`: how many values an element has is asked.
  Workspace(int64_t size, T identity, bool is_array, bool counted)
      : size_(size), identity_(identity), is_array_(is_array), counted_(counted) {
    if (is_array_) {
      touched_.resize(ceil_div(size, kBits), 0);
      words_.resize(ceil_div(touched_.size(), kBits), 0);
      values_.extend(size);
      if (counted_) counts_.extend(size);
    } else {
      rehash(kFewestSlots);
    }
  }

  bool is_array() const { return is_array_; }
  /// How many positions have values.
  int64_t touched() const { return order_.size(); }

  template <class Reduce>
  void add(const Reduce& reduce, int64_t position, T value, int64_t count) {
    T& element = element_at(position, count);
    element = reduce.reduced(element, value);
  }

  /// The element of a position, which `count` more visits are reduced into; the identity where it has none yet. Stands
  /// until the next call.
  T& element_at(int64_t position, int64_t count) {
    bool is_new = false;
    const int64_t at = is_array_ ? touch(position, is_new) : insert(position, is_new);
    if (is_new) values_[at] = identity_;
    if (counted_) counts_[at] = is_new ? count : counts_[at] + count;
    return values_[at];
  }

  /// `add` of single values to an array that does not count.
  template <class Reduce>
  void add_to_array(int64_t position, T value) {
    bool is_new = false;
    touch(position, is_new);
    values_[position] = Reduce::reduced(is_new ? identity_ : values_[position], value);
  }

  /// The parts of an array, for loops that reduce into it themselves: they note the positions that they touch first.
  struct Parts {
    T* values = nullptr;
    int64_t* counts = nullptr;
    uint64_t* touched = nullptr;
    int64_t* order = nullptr;  ///< with room for all positions
  };
  Parts parts() {
    order_.extend(size_);
    order_.clear();
    return {values_.data(), counted_ ? counts_.data() : nullptr, touched_.data(), order_.data()};
  }
  /// How many positions the loops noted.
  void set_touched(int64_t count) { order_.extend(count); }

  /// Calls `visit(position, value, count)` for each element that has values, ascending, and forgets them.
  template <class Visit>
  void drain(Visit&& visit) {
    if (is_array_) {
      drain_array(visit);
    } else {
      drain_table(visit);
    }
  }

 private:
  static constexpr int64_t kFewestSlots = 64;
  static constexpr int64_t kFree = -1;
  static constexpr int64_t kBits = 64;

  int64_t touch(int64_t position, bool& is_new) {
    uint64_t& word = touched_[position / kBits];
    const uint64_t bit = uint64_t{1} << (position % kBits);
    is_new = (word & bit) == 0;
    if (is_new) {
      word |= bit;
      order_.push_back(position);
    }
    return position;
  }

  int64_t slot_of(int64_t position) const {
    const uint64_t mask = static_cast<uint64_t>(slots_.size()) - 1;
    uint64_t slot = hash_of_coordinate(0, position) & mask;
    while (slots_[slot] != kFree && order_[slots_[slot]] != position) slot = (slot + 1) & mask;
    return static_cast<int64_t>(slot);
  }

  int64_t insert(int64_t position, bool& is_new) {
    int64_t slot = slot_of(position);
    is_new = slots_[slot] == kFree;
    if (!is_new) return slots_[slot];
    if (2 * (order_.size() + 1) > slots_.size()) {
      rehash(2 * slots_.size());
      slot = slot_of(position);
    }
    slots_[slot] = order_.size();
    order_.push_back(position);
    values_.extend(order_.size());
    if (counted_) counts_.extend(order_.size());
    return order_.size() - 1;
  }

  void rehash(int64_t slots) {
    slots_.clear();
    slots_.resize(slots, kFree);
    for (int64_t i = 0; i < order_.size(); ++i) slots_[slot_of(order_[i])] = i;
  }

  int64_t count_at(int64_t at) const { return counted_ ? counts_[at] : 1; }

  template <class Visit>
  void drain_array(Visit& visit) {
    constexpr int64_t kSortedForWords = 4;  // reading so many words costs about as much as sorting one position
    const auto visit_word = [&](int64_t w) {
      for (uint64_t word = std::exchange(touched_[w], 0); word != 0; word &= word - 1) {
        const int64_t position = w * kBits + std::countr_zero(word);
        visit(position, values_[position], count_at(position));
      }
    };
    if (order_.size() * kSortedForWords >= touched_.size()) {
      for (int64_t w = 0; w < touched_.size(); ++w) visit_word(w);
    } else if (order_.size() * kSortedForWords >= words_.size()) {
      for (int64_t i = 0; i < order_.size(); ++i) {
        const int64_t w = order_[i] / kBits;
        words_[w / kBits] |= uint64_t{1} << (w % kBits);
      }
      for (int64_t i = 0; i < words_.size(); ++i) {
        for (uint64_t word = std::exchange(words_[i], 0); word != 0; word &= word - 1) {
          visit_word(i * kBits + std::countr_zero(word));
        }
      }
    } else {
      std::sort(order_.data(), order_.data() + order_.size());
      for (int64_t i = 0; i < order_.size(); ++i) {
        visit(order_[i], values_[order_[i]], count_at(order_[i]));
        touched_[order_[i] / kBits] = 0;
      }
    }
    order_.clear();
  }

  template <class Visit>
  void drain_table(Visit& visit) {
    std::vector<std::pair<int64_t, int64_t>> sorted;
    for (int64_t i = 0; i < order_.size(); ++i) sorted.emplace_back(order_[i], i);
    std::sort(sorted.begin(), sorted.end());
    for (const auto& [position, at] : sorted) visit(position, values_[at], count_at(at));
    values_.clear();
    counts_.clear();
    // A fiber with few elements may follow one with many.
    const int64_t enough = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(4 * order_.size())));
    order_.clear();
    rehash(std::max(kFewestSlots, std::min(enough, slots_.size())));
  }

  int64_t size_;
  T identity_;
  bool is_array_;
  bool counted_;
  Buffer<T> values_;          ///< at positions; of a table in the order of arrival
  Buffer<int64_t> counts_;    ///< parallel to values, where counted
  Buffer<uint64_t> touched_;  ///< array: a bit for each position, whether it has a value
  Buffer<uint64_t> words_;    ///< array: room for a bit for each of those words, all 0 between calls
  Buffer<int64_t> order_;     ///< positions in the order of arrival
  Buffer<int64_t> slots_;     ///< table: places in that order, or kFree
};

}  // namespace joinsum::sparse::kernels::nest
