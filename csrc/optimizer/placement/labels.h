#pragma once

#include <string>
#include <unordered_map>
#include <vector>

#include "tra/nodes.h"

namespace joinsum::optimizer {

/// The labels of a logical plan: key dimensions that must be equal for tuples to meet, or that one operator hands on to
/// the next, are one label. The einsum letters of the plan, so to say.
class Labels {
 public:
  explicit Labels(const tra::Plan& plan);

  int64_t count() const { return static_cast<int64_t>(names_.size()); }
  /// Where the label is met first: `X[0]`, or `t2[1]` of an operator.
  const std::string& name(int64_t label) const { return names_[label]; }
  /// Label of each key dimension of a node.
  const std::vector<int64_t>& of(const tra::Node& node) const { return labels_.at(&node); }

 private:
  std::unordered_map<const tra::Node*, std::vector<int64_t>> labels_;
  std::vector<std::string> names_;
};

}  // namespace joinsum::optimizer
