#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace joinsum {

/// Sets of the numbers 0, 1, ... that are united where two of their members turn out to be equal.
class DisjointSets {
 public:
  explicit DisjointSets(int64_t members = 0) {
    while (size() < members) add();
  }

  /// Adds a member in a set of its own.
  int64_t add() {
    parent_.push_back(size());
    return parent_.back();
  }
  int64_t size() const { return static_cast<int64_t>(parent_.size()); }
  /// The least member of the set, which stands for it.
  int64_t find(int64_t member) const {
    while (parent_[member] != member) member = parent_[member] = parent_[parent_[member]];
    return member;
  }
  void unite(int64_t a, int64_t b) {
    a = find(a);
    b = find(b);
    parent_[std::max(a, b)] = std::min(a, b);
  }

 private:
  mutable std::vector<int64_t> parent_;  ///< paths are shortened as they are followed
};

}  // namespace joinsum
