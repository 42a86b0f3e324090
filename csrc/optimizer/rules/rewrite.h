#pragma once

#include <optional>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "optimizer/rules/rule.h"

namespace joinsum::optimizer::rules {

/// Holds one node for each operation over the same inputs: equal sub-plans are one node, which runs once, and equal
/// plans have equal outputs, pointer by pointer.
class Interner {
 public:
  ia::NodePtr intern(const ia::NodePtr& node);
  ia::Plan intern(const ia::Plan& plan);
  /// The node of `operation` over interned inputs; raises what `ia::make` raises.
  ia::NodePtr make(const ia::Operation& operation, const std::vector<ia::NodePtr>& inputs);

 private:
  using Done = std::unordered_map<const ia::Node*, ia::NodePtr>;  ///< nodes of one plan that are interned
  ia::NodePtr intern(const ia::NodePtr& node, Done& done);
  ia::NodePtr find(uint64_t hash, const ia::Operation& operation, const std::vector<ia::NodePtr>& inputs,
                   const ia::PhysicalType* input_type) const;
  void hold(uint64_t hash, const ia::NodePtr& node);

  std::unordered_map<uint64_t, std::vector<ia::NodePtr>> by_hash_;
  std::unordered_set<const ia::Node*> held_;
};

/// `plan` with `fresh` in place of `node` for all users of it. Nothing where a user no longer type-checks, or where an
/// output would be pending or of another relation type.
std::optional<ia::Plan> replaced(const ia::Plan& plan, const ia::NodePtr& node, const ia::NodePtr& fresh,
                                 Interner& interner);

/// A plan one rule away.
struct Rewrite {
  const Rule* rule = nullptr;
  ia::NodePtr node;  ///< what was rewritten
  ia::Plan plan;
};

/// Plans one rule away from `plan`, by rewriting `node` of it, in the order of `rules`; without `plan` itself.
std::vector<Rewrite> rewrites_at(const ia::Plan& plan, const ia::NodePtr& node, const std::vector<const Rule*>& rules,
                                 Interner& interner);

/// All plans one rule away from `plan`, in the order of its nodes and of `rules`; without `plan` itself.
std::vector<Rewrite> rewrites(const ia::Plan& plan, const std::vector<const Rule*>& rules, Interner& interner);

}  // namespace joinsum::optimizer::rules
