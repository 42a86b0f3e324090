#pragma once

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <unordered_map>
#include <vector>

namespace joinsum::optimizer {

/// Messages of deliveries, each computed once: those in a model's layers are equal, but for the first and last few.
/// What a message follows from is known by 128 bits of hash.
class MessageMemory {
 public:
  using Costs = std::vector<double>;

  /// To `member`, from what all others ask for on the routes at this address; to `compute` it looks at `entries`. The
  /// message to the maker, the first, says nothing of places that the maker rules out.
  const Costs& message(const void* routes, size_t member, const std::vector<Costs>& asked, double entries,
                       const auto& compute) {
    Key key{reinterpret_cast<std::uintptr_t>(routes), member};
    for (size_t other = 0; other < asked.size(); ++other) {
      if (other != member) key.add(asked[other]);
    }
    if (member == 0) key.add_ruled_out(asked[0]);
    const auto [at, fresh] = messages_.try_emplace(key);
    if (fresh) {
      at->second = compute();
      entries_ += entries;
    }
    return at->second;
  }
  /// That all messages have looked at.
  double entries() const { return entries_; }
  void clear() { messages_.clear(); }
  /// Memory to work in, as many as a message takes; what it holds is not kept.
  Costs& row(size_t number) { return rows_[number]; }

 private:
  struct Key {
    uint64_t low;
    uint64_t high;
    void add(uint64_t word) {
      low = (low ^ word) * 0x9E3779B97F4A7C15ULL;
      low ^= low >> 32;
      high = (high + word) * 0xD1342543DE82EF95ULL;
      high ^= high >> 29;
    }
    void add(const Costs& costs) {
      for (const double cost : costs) add(std::bit_cast<uint64_t>(cost));
      low += costs.size();
    }
    void add_ruled_out(const Costs& costs) {
      for (size_t place = 0; place < costs.size(); ++place) {
        if (std::isinf(costs[place])) add(place);
      }
    }
    bool operator==(const Key&) const = default;
  };
  struct Hash {
    size_t operator()(const Key& key) const { return key.low; }
  };

  std::unordered_map<Key, Costs, Hash> messages_;
  std::array<Costs, 5> rows_;
  double entries_ = 0;
};

}  // namespace joinsum::optimizer
