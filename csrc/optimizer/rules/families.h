#pragma once

#include "kernels/table/table.h"
#include "optimizer/rules/rule.h"

namespace joinsum::optimizer::rules {

/// The families of the rule table, each in its own file.
std::vector<Rule> composition_rules();
std::vector<Rule> repartition_rules();
std::vector<Rule> matrix_product_rules();
std::vector<Rule> physical_rules();

/// Sources of rules.
inline constexpr const char* kTable2 = "TRA paper, Table 2";
inline constexpr const char* kTable2Corrected = "TRA paper, Table 2, corrected (docs/deviations.md)";

/// Patterns: `filter(filter())` is a filter over a filter.
inline Pattern any() { return {}; }
inline Pattern filter(Pattern input = {}) { return {Shape::kFilter, {std::move(input)}}; }
inline Pattern map(Pattern input = {}) { return {Shape::kMap, {std::move(input)}}; }
inline Pattern aggregate(Pattern input = {}) { return {Shape::kAggregate, {std::move(input)}}; }
inline Pattern join(Pattern left = {}, Pattern right = {}) {
  return {Shape::kJoin, {std::move(left), std::move(right)}};
}
inline Pattern move(Pattern input = {}) { return {Shape::kMove, {std::move(input)}}; }
inline Pattern shuffle(Pattern input = {}) { return {Shape::kShuffle, {std::move(input)}}; }
inline Pattern broadcast(Pattern input = {}) { return {Shape::kBroadcast, {std::move(input)}}; }

/// Operators of matched nodes.
inline const ia::LocalFilter& filter_at(const ia::NodePtr& node) { return *node->as<ia::LocalFilter>(); }
inline const ia::LocalMap& map_at(const ia::NodePtr& node) { return *node->as<ia::LocalMap>(); }
inline const ia::LocalAggregate& aggregate_at(const ia::NodePtr& node) { return *node->as<ia::LocalAggregate>(); }
inline const ia::LocalJoin& join_at(const ia::NodePtr& node) { return *node->as<ia::LocalJoin>(); }
inline const ia::GridPlacement& target_at(const ia::NodePtr& node) { return node->as<ia::Shuffle>()->target; }
inline const ia::Placement& placement_of(const ia::NodePtr& node) { return node->type().placement; }

/// Whether a map keeps every key and gives one tuple for each.
bool keeps_keys(const ia::NodePtr& map);
/// Key dimensions that a target placement splits, ascending.
Dims split_dims(const ia::GridPlacement& target);
/// The input of the chain of moves that ends at `node`, up to a pending one; `node` itself if it is no move. Rules move
/// that input, so that moves do not pile up and the rules reach finitely many plans.
ia::NodePtr below_moves(const ia::NodePtr& node);
/// `node` broadcast along `axes`, in one move.
ia::NodePtr broadcasted(const ia::NodePtr& node, Dims axes);
/// The same move over another input, in one move.
ia::NodePtr moved_like(const ia::NodePtr& move, const ia::NodePtr& input);
/// The input of a move; `node` itself if it is no move.
ia::NodePtr before_move(const ia::NodePtr& node);
/// Both sides of a join shuffled along the grid axes `axes` by its join keys in turn; other axes stay as they are.
std::pair<ia::NodePtr, ia::NodePtr> shuffled_to_meet(const ia::NodePtr& left, const ia::NodePtr& right,
                                                     const Dims& left_keys, const Dims& right_keys, const Dims& axes);

}  // namespace joinsum::optimizer::rules
