#pragma once

#include <map>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/disjoint_sets.h"
#include "einsum/nodes.h"

namespace joinsum::einsum {

/// Classes of a plan's axes: those of tensors that one label of a vertex names are in one class, and are cut alike.
class AxisClasses {
 public:
  explicit AxisClasses(const Plan& plan);

  int64_t of(const Node& node, size_t axis) const { return find(axes_.at(&node)[axis]); }
  int64_t of_new_letter(const Node& call, char letter) const { return find(new_letters_.at(&call).at(letter)); }
  /// Whether a call has a letter of the class that no operand has: calls cut these evenly.
  bool has_new_letter(int64_t its_class) const;

  /// In how many parts the class of an axis is cut for so many sites, once `cut` has been called: as `even_cuts` says.
  int64_t parts(const Node& node, size_t axis) const { return parts_.at(of(node, axis)); }
  void cut(const Plan& plan, int64_t sites);

 private:
  int64_t add();
  int64_t find(int64_t member) const { return classes_.find(member); }
  void unite(int64_t a, int64_t b);
  int64_t keys(const std::set<int64_t>& classes) const;
  void identify(const Einsum& op, const Node& node);
  void identify(const Call& call, const Node& node);
  void tie(const Plan& plan, const Plan::Output& output);

  std::unordered_map<const Node*, std::vector<int64_t>> axes_;
  std::unordered_map<const Node*, std::map<char, int64_t>> new_letters_;  ///< of calls
  DisjointSets classes_;
  std::vector<bool> whole_;
  std::map<int64_t, int64_t> parts_;
};

}  // namespace joinsum::einsum
