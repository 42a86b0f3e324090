#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "ia/nodes.h"

namespace joinsum::optimizer::rules {

/// The operators that a pattern accepts at a node.
enum class Shape { kAny, kBroadcast, kShuffle, kMove, kJoin, kAggregate, kFilter, kMap };

/// A small tree of operators. A pattern without inputs leaves the node's operands open.
struct Pattern {
  Shape shape = Shape::kAny;
  std::vector<Pattern> inputs = {};
};

/// The nodes that a pattern matched, in preorder: the root, then those below its first input, and so on.
using Match = std::vector<ia::NodePtr>;

/// The nodes that a rewrite gives: one, several or none.
struct Alternatives {
  Alternatives(ia::NodePtr one) : nodes{std::move(one)} {}                       // NOLINT: what rewrites return
  Alternatives(std::vector<ia::NodePtr> several) : nodes(std::move(several)) {}  // NOLINT
  std::vector<ia::NodePtr> nodes;
};

/// The phase of the optimizer that applies a rule.
enum class Phase {
  kRewrite,   ///< searched in the best plans
  kProducts,  ///< stands for a family of plans: applied wherever it matches the plan lowered operator by operator
  kNone       ///< never searched, since it only pays where links differ; its law holds, and tests and users apply it
};

/// How the verifier's normal form uses a rule.
enum class Normalization {
  kNone,
  kSimplifies,  ///< removes an operator: applied before the others
  kDirects      ///< moves an operator to the place that the normal form gives it
};

/// A row of the rule table. Conditions ask kernel facts and inferred placements, never a kernel's name.
struct Rule {
  std::string name;
  std::string law;     ///< `F[a](F[b] R) = F[a and b] R`
  std::string when;    ///< condition, in words
  std::string source;  ///< paper and place, or what joinsum needs it for
  Pattern pattern;
  std::function<bool(const Match&)> condition = nullptr;  ///< none: wherever the pattern matches
  /// Nodes that may stand for the match's root, with equal contents. One that does not type-check raises PlanError or
  /// KernelError and is no candidate.
  std::function<Alternatives(const Match&)> rewrite;
  Phase phase = Phase::kRewrite;
  Normalization normalization = Normalization::kNone;
};

/// All rules, in the order of the paper: R1-*, R2-*, matrix products (MM-*), then joinsum's own (P-*).
const std::vector<Rule>& all_rules();

/// The rule of that name; PlanError naming near ones.
const Rule& rule_named(const std::string& name);

/// The match of `pattern` at `node`, if there is one.
std::optional<Match> match(const Pattern& pattern, const ia::NodePtr& node);

/// The nodes that `rule` rewrites `node` to; empty where it does not fire.
std::vector<ia::NodePtr> apply(const Rule& rule, const ia::NodePtr& node);

}  // namespace joinsum::optimizer::rules
