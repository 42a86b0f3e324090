#pragma once

#include "optimizer/rewrite.h"
#include "tra/nodes.h"

namespace joinsum::optimizer {

/// Brings plans to a normal form by laws that keep contents, so that plans that differ only by rules have one form:
/// what sites do is taken away (every move, and folds of what is folded already), functions of arrays sit as low and
/// functions of keys as high as the laws allow, filters as low, copies of a join's operands are joined without copying,
/// and contractions are written with one choice of letters. Equal forms mean equal contents; unequal ones mean nothing.
class NormalForm {
 public:
  /// Nodes of the outputs, in order; of a physical plan as it would be on one site. The same contents under one
  /// object's laws often are the same node.
  std::vector<ia::NodePtr> of(const ia::Plan& plan);
  std::vector<ia::NodePtr> of(const tra::Plan& program);

 private:
  ia::NodePtr normal(const ia::NodePtr& node);
  /// The normal form of `operation` over inputs in normal form.
  ia::NodePtr make(ia::Operation operation, std::vector<ia::NodePtr> inputs);

  Interner interner_;
  std::unordered_map<const ia::Node*, ia::NodePtr> done_;
  std::vector<ia::NodePtr> alive_;  ///< what `done_` names
};

}  // namespace joinsum::optimizer
