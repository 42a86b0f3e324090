#pragma once

#include <string>
#include <unordered_map>
#include <vector>

#include "tra/nodes.h"

namespace joinsum::optimizer::division {

/// The labels of a logical plan, as the letters of an einsum: key dimensions that a join equates, or that an operator
/// passes on to its result, have one label.
class LabelClasses {
 public:
  explicit LabelClasses(const tra::Plan& plan);

  int64_t count() const { return static_cast<int64_t>(names_.size()); }
  /// The first key dimension with this label: `X[0]`, or `t2[1]` of an operator.
  const std::string& name(int64_t label) const { return names_[label]; }
  /// Label of each key dimension of a node.
  const std::vector<int64_t>& of(const tra::Node& node) const { return labels_.at(&node); }

 private:
  std::unordered_map<const tra::Node*, std::vector<int64_t>> labels_;
  std::vector<std::string> names_;
};

}  // namespace joinsum::optimizer::division
