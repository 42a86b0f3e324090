#pragma once

#include "optimizer/rules/rewrite.h"
#include "tra/nodes.h"

namespace joinsum::optimizer::verification {

/// Rewrites plans to a normal form by laws that preserve their contents, so that plans that differ only by rules have
/// the same form: moves and repeated aggregations are removed, functions of arrays and filters stand as near to the
/// inputs and functions of keys as near to the outputs as the laws allow, copies of a join's operands are joined
/// without copying, and contractions use canonical letters. Equal forms mean equal contents; different forms mean
/// nothing.
class NormalForm {
 public:
  /// Nodes of the outputs, in order; of a physical plan as it would be on one site. Equal contents often are the same
  /// node of one object.
  std::vector<ia::NodePtr> of(const ia::Plan& plan);
  std::vector<ia::NodePtr> of(const tra::Plan& program);

 private:
  ia::NodePtr normal(const ia::NodePtr& node);
  /// The normal form of `operation` over inputs in normal form.
  ia::NodePtr make(ia::Operation operation, std::vector<ia::NodePtr> inputs);

  rules::Interner interner_;
  std::unordered_map<const ia::Node*, ia::NodePtr> done_;
  std::vector<ia::NodePtr> alive_;  ///< the nodes that `done_` refers to
};

}  // namespace joinsum::optimizer::verification
