#include <algorithm>

#include "optimizer/rules/families.h"

namespace joinsum::optimizer::rules {
namespace {

using ia::NodePtr;

constexpr const char* kPaper = "TRA paper, section 5.2.2";

/// An aggregation of a join, with the moves between and below them taken away: the matrix products of the paper, for
/// any join kernel and any aggregation that may be regrouped.
struct Product {
  const ia::LocalAggregate& aggregate;
  const ia::LocalJoin& join;
  NodePtr left;
  NodePtr right;

  explicit Product(const Match& m)
      : aggregate(aggregate_at(m[0])),
        join(join_at(m[2])),
        left(before_move(m[2]->input(0))),
        right(before_move(m[2]->input(1))) {}

  int64_t left_arity() const { return left->type().relation.arity(); }
  int64_t right_arity() const { return right->type().relation.arity(); }
  Dims left_free() const { return complement(join.left_keys, left_arity()); }
  Dims right_free() const { return complement(join.right_keys, right_arity()); }
  NodePtr joined(const NodePtr& a, const NodePtr& b) const { return ia::make(join, {a, b}); }
  NodePtr aggregated(const NodePtr& input) const { return ia::make(aggregate, {input}); }
};

bool is_product(const Match& m) {
  const Product product(m);
  return kernels::table::reduces_in_any_order(product.aggregate.kernel.first()) &&
         !placement_of(product.left).pending() && !placement_of(product.right).pending();
}

/// Matrices: one joined and one free key dimension each, the free ones kept in order.
bool is_matrix_product(const Match& m) {
  const Product product(m);
  if (product.left_arity() != 2 || product.right_arity() != 2 || product.join.left_keys.size() != 1) return false;
  return is_product(m) && product.aggregate.group_by == Dims{product.left_free()[0], 2};
}

/// Splits every grid axis by `dims` in turn.
NodePtr split_by(const NodePtr& input, const Dims& dims) { return ia::shuffle(input, dims); }

/// Adds a key dimension that counts `copies` equal tuples: after the key dimensions `before`, then those of `after`.
NodePtr duplicated(const NodePtr& input, const Dims& before, const Dims& after, int64_t copies) {
  std::vector<relation::KeyExpression> components;
  for (const int64_t dim : before) components.push_back(relation::KeyExpression::component(dim));
  components.push_back(relation::KeyExpression::output());
  for (const int64_t dim : after) components.push_back(relation::KeyExpression::component(dim));
  const ia::LocalMap map{copies, relation::KeyMap(std::move(components)), kernels::table::Kernel{"duplicate", {}}};
  const bool keeps_split =
      placement_of(input).axes_in<ia::Replicated>().empty() || placement_of(input).fully_replicated();
  return ia::make(map, {keeps_split ? input : ia::broadcast(input)});
}

}  // namespace

std::vector<Rule> matrix_product_rules() {
  return {
      {.name = "MM-1a",
       .law = "A[g](S(J(L, R))) = A[g](J(B L, S[free] R))",
       .when = "the aggregation may be regrouped; R has key dimensions that are not joined, and the aggregation keeps "
               "them (BMM)",
       .source = kPaper,
       .pattern = aggregate(shuffle(join())),
       .condition =
           [](const Match& m) {
             const Product product(m);
             return is_product(m) && !product.right_free().empty();
           },
       .rewrite =
           [](const Match& m) {
             const Product product(m);
             return product.aggregated(
                 product.joined(ia::broadcast(product.left), split_by(product.right, product.right_free())));
           },
       .phase = Phase::kProducts},
      {.name = "MM-1b",
       .law = "A[g](S(J(L, R))) = A[g](J(S[free] L, B R))",
       .when = "the aggregation may be regrouped; L has key dimensions that are not joined, and the aggregation keeps "
               "them (BMM)",
       .source = kPaper,
       .pattern = aggregate(shuffle(join())),
       .condition =
           [](const Match& m) {
             const Product product(m);
             return is_product(m) && !product.left_free().empty();
           },
       .rewrite =
           [](const Match& m) {
             const Product product(m);
             return product.aggregated(
                 product.joined(split_by(product.left, product.left_free()), ia::broadcast(product.right)));
           },
       .phase = Phase::kProducts},
      {.name = "MM-2",
       .law = "A[g](S[g](J(L, R))) = A[g](S[g](J(S[jl] L, S[jr] R)))",
       .when =
           "the aggregation may be regrouped and there are join keys: each site multiplies its part of the contracted "
           "dimension (CMM)",
       .source = kPaper,
       .pattern = aggregate(shuffle(join())),
       .condition = [](const Match& m) { return is_product(m) && !Product(m).join.left_keys.empty(); },
       .rewrite =
           [](const Match& m) {
             const Product product(m);
             const auto [left, right] =
                 shuffled_to_meet(product.left, product.right, product.join.left_keys, product.join.right_keys,
                                  all_dims(product.left->type().grid.rank()));
             return product.aggregated(moved_like(m[1], product.joined(left, right)));
           },
       .phase = Phase::kProducts},
      {.name = "MM-3",
       .law = "A[i, j](S(J[k; k](L, R))) = A[i, j](J[i, k, j; i, k, j](S[i, j] L', S[i, j] R')), L' and R' holding a "
              "copy for "
              "each j of R and each i of L",
       .when =
           "the aggregation may be regrouped; L and R are matrices of key dimensions (i, k) and (k, j) in either order "
           "(RMM, the 3-D product)",
       .source = kPaper,
       .pattern = aggregate(shuffle(join())),
       .condition = is_matrix_product,
       .rewrite = [](const Match& m) -> std::vector<NodePtr> {
         const Product product(m);
         const int64_t i = product.left_free()[0];
         const int64_t j = product.right_free()[0];
         const int64_t rows = product.left->type().relation.frontier[i];
         const int64_t columns = product.right->type().relation.frontier[j];
         if (rows == 0 || columns == 0) return {};
         // Keys <i, k, j> on both sides.
         const NodePtr left = duplicated(product.left, {i, product.join.left_keys[0]}, {}, columns);
         const NodePtr right = duplicated(product.right, {}, {product.join.right_keys[0], j}, rows);
         const ia::LocalJoin voxels{{0, 1, 2}, {0, 1, 2}, product.join.kernel};
         const NodePtr joined = ia::make(voxels, {split_by(left, {0, 2}), split_by(right, {0, 2})});
         return {ia::make(ia::LocalAggregate{{0, 2}, product.aggregate.kernel}, {joined})};
       },
       .phase = Phase::kProducts},
  };
}

}  // namespace joinsum::optimizer::rules
