#pragma once

#include <optional>
#include <unordered_map>
#include <unordered_set>

#include "einsum/labelled.h"
#include "einsum/simple.h"

namespace joinsum::einsum {

/// How what arrives at a maximum or minimum is shared by the elements that it was chosen from.
///
/// A way is one element of each operand, with which labels agree; it is tied if what its elements are joined to is the
/// extreme. All tied ways to an element of the result get an equal share, as torch's amax of the joined tensor gives
/// them. Of several operands the tensor is not formed: each step counts the ways to its elements, those through the
/// elements of its operands that tie. A gradient inside a vertex is that of one way.
class TiedWays {
 public:
  explicit TiedWays(const WholeFolds& folds) : folds_(folds) {}

  /// Counts the ways of a vertex from its `operands` to `end`, in nodes of a simple plan with one name for a label.
  void count(const NodePtr& end, const std::unordered_set<const Node*>& operands);

  /// What each way to the elements of `node` gets of `d`, which arrives there: at the end of a vertex a share.
  Labelled shared(const Node& node, const Labelled& d) const;

  /// `d`, for each way, times the ways through the operand of a join that is not operand `i`.
  Labelled passed(const Node& node, size_t i, const Labelled& d) const;

  /// 1 for elements of a fold's operand that equal the extreme, else 0.
  const Labelled& ties(const Node& fold) const { return ties_.at(&fold); }

 private:
  using Ways = std::optional<Labelled>;  ///< to each element; nothing where there is one

  Ways step(const NodePtr& node, const std::vector<Ways>& operands);

  const WholeFolds& folds_;
  std::unordered_map<const Node*, Ways> ends_;
  std::unordered_map<const Node*, Labelled> ties_;
  std::unordered_map<const Node*, std::vector<Ways>> operands_;
};

}  // namespace joinsum::einsum
