#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "ia/nodes.h"

namespace joinsum::optimizer {

/// What a pattern asks of a node.
enum class Shape { kAny, kBroadcast, kShuffle, kMove, kJoin, kAggregate, kFilter, kMap };

/// A small tree of operators. A pattern without inputs leaves the node's operands open.
struct Pattern {
  Shape shape = Shape::kAny;
  std::vector<Pattern> inputs = {};
};

/// Nodes that a pattern met, in its preorder: the root first, then what its first input met, and so on.
using Match = std::vector<ia::NodePtr>;

/// A row of the rule table. Conditions ask kernel facts and inferred placements, never a kernel's name.
struct Rule {
  std::string name;
  std::string law;     ///< `F[a](F[b] R) = F[a and b] R`
  std::string when;    ///< condition, in words
  std::string source;  ///< paper and place, or what joinsum needs it for
  Pattern pattern;
  std::function<bool(const Match&)> condition;
  /// Nodes that may stand for the match's root, with equal contents. One that does not type-check raises PlanError or
  /// KernelError and is no candidate.
  std::function<std::vector<ia::NodePtr>(const Match&)> rewrite;
};

/// All rules, in the order of the paper: R1-*, R2-*, matrix products (MM-*), then joinsum's own (P-*).
const std::vector<Rule>& rules();

/// The rule of that name; PlanError naming near ones.
const Rule& rule_named(const std::string& name);

/// What `pattern` meets at `node`; nothing if it does not fit.
std::optional<Match> match(const Pattern& pattern, const ia::NodePtr& node);

/// What `rule` makes of `node`; empty where it does not fire.
std::vector<ia::NodePtr> apply(const Rule& rule, const ia::NodePtr& node);

}  // namespace joinsum::optimizer
