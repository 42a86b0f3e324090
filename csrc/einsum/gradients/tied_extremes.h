#pragma once

#include <optional>
#include <unordered_map>
#include <unordered_set>

#include "einsum/gradients/labelled.h"
#include "einsum/gradients/simple.h"

namespace joinsum::einsum::gradients {

/// How the gradient of a maximum or minimum is shared by the elements that it was chosen from.
///
/// A term is one element of each operand, whose labels agree; it is tied if the join of its elements is the extreme.
/// All tied terms of an element of the result get an equal share of its gradient, as torch's amax of the joined tensor
/// gives them. The joined tensor is not materialized: each step counts the terms of its elements, those through
/// elements of its operands that tie. A gradient inside a vertex is that of one term.
class TiedTerms {
 public:
  explicit TiedTerms(const WholeAggregations& aggregations) : aggregations_(aggregations) {}

  /// Counts the terms of a vertex from its `operands` to `end`, in nodes of a simple plan with one name for a label.
  void count(const NodePtr& end, const std::unordered_set<const Node*>& operands);

  /// What each term of an element of `node` gets of `d`, the gradient of the node: at the end of a vertex a share, else
  /// all of it.
  Labelled shared(const Node& node, const Labelled& d) const;

  /// `d`, which is for each term, times the number of terms through the join's operand other than `i`.
  Labelled passed(const Node& node, size_t i, const Labelled& d) const;

  /// 1 for elements of an aggregation's operand that equal the extreme, else 0.
  const Labelled& ties(const Node& aggregation) const { return ties_.at(&aggregation); }

 private:
  using Terms = std::optional<Labelled>;  ///< to each element; nothing where there is one

  Terms step(const NodePtr& node, const std::vector<Terms>& operands);

  const WholeAggregations& aggregations_;
  std::unordered_map<const Node*, Terms> ends_;
  std::unordered_map<const Node*, Labelled> ties_;
  std::unordered_map<const Node*, std::vector<Terms>> operands_;
};

}  // namespace joinsum::einsum::gradients
