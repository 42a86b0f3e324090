#pragma once

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <unordered_map>
#include <vector>

namespace joinsum::optimizer::resharding {

/// Messages of reshardings, each computed once: identical layers of a model send equal messages, except for the first
/// and last few layers. The inputs of a message are identified by a hash of 128 bits.
class MessageCache {
 public:
  using Costs = std::vector<double>;

  /// The message to `member` that follows from the messages of all others on the routes at this address; `compute`
  /// reads `entries` table entries. The message to the producer, the first member, omits layouts that the producer
  /// excludes.
  const Costs& message(const void* routes, size_t member, const std::vector<Costs>& messages, double entries,
                       const auto& compute) {
    Key key{reinterpret_cast<std::uintptr_t>(routes), member};
    for (size_t other = 0; other < messages.size(); ++other) {
      if (other != member) key.add(messages[other]);
    }
    if (member == 0) key.add_excluded(messages[0]);
    const auto [at, fresh] = messages_.try_emplace(key);
    if (fresh) {
      at->second = compute();
      entries_ += entries;
    }
    return at->second;
  }
  /// The entries that all computed messages have read.
  double entries() const { return entries_; }
  void clear() { messages_.clear(); }
  /// Scratch memory of the computation of a message.
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
    void add_excluded(const Costs& costs) {
      for (size_t layout = 0; layout < costs.size(); ++layout) {
        if (std::isinf(costs[layout])) add(layout);
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

}  // namespace joinsum::optimizer::resharding
