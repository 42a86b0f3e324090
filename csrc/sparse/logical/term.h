#pragma once

#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "sparse/statistics/statistics.h"

namespace joinsum::sparse::logical {

using operators::Operator;
using program::Expression;
using program::ExpressionPtr;
using program::IndexSpace;
using program::InputTensor;
using program::make_aggregate;
using program::make_input;
using program::make_literal;
using program::make_map;
using program::Query;
using statistics::chain_estimator;
using statistics::contains;
using statistics::deciding_children;
using statistics::Estimator;
using statistics::EstimatorPtr;
using statistics::extent_of;
using statistics::IndexSet;
using statistics::kMostIndices;
using statistics::members_of;
using statistics::only;
using statistics::StatisticsPtr;
using tensor::Coordinates;
using tensor::LevelFormat;
using tensor::Tensor;

class Term;
using TermPtr = std::shared_ptr<const Term>;

/// An expression while it is planned: indices are numbers of an IndexSpace, each bound by one aggregate at most, and
/// inputs know their statistics. Nested maps of one associative operator are one map.
class Term {
 public:
  Expression::Kind kind = Expression::Kind::kLiteral;
  Operator op = Operator::kAdd;
  std::string tensor = {};
  std::vector<int64_t> indices = {};  ///< input: of each axis; aggregate: those that it reduces
  std::vector<TermPtr> children = {};
  double fill = 0;          ///< the value where all inputs are at their fill; of a literal its value
  IndexSet free = 0;        ///< indices of the value
  bool aggregated = false;  ///< whether there is an aggregate in it
  uint64_t origins = 0;     ///< the source query's leaves that it stands for, by their numbers modulo 64

  const TermPtr& child() const { return children.front(); }
  bool is(Expression::Kind other) const { return kind == other; }
  bool is_map(Operator other) const { return kind == Expression::Kind::kMap && op == other; }

 private:
  friend class Terms;
  mutable StatisticsPtr statistics_;        ///< once asked for
  mutable std::optional<double> estimate_;  ///< likewise, of these
};

/// Makes the terms of one query. Maps and aggregates of the same children are the same terms, so that their statistics
/// are found once.
class Terms {
 public:
  /// Without an estimator, terms have no statistics.
  Terms(EstimatorPtr estimator, IndexSpace space);

  const IndexSpace& space() const { return space_; }
  IndexSpace& space() { return space_; }
  const Estimator& estimator() const { return *estimator_; }

  TermPtr input(std::string tensor, std::vector<int64_t> indices, double fill, StatisticsPtr statistics,
                uint64_t origins) const;
  TermPtr literal(double value) const;
  /// Nested maps of one associative operator become one; of one child alone `+ * min max` are that child.
  TermPtr map(Operator op, std::vector<TermPtr> children) const;
  TermPtr aggregate(Operator op, std::vector<int64_t> indices, TermPtr child) const;
  /// The term with other children.
  TermPtr with_children(const Term& term, std::vector<TermPtr> children) const;
  /// The term with index `to` for `from`.
  TermPtr renamed(const TermPtr& term, int64_t from, int64_t to) const;
  /// The term with `by` in the place of `what`, which is one of its nodes.
  TermPtr replaced(const TermPtr& term, const TermPtr& what, const TermPtr& by) const;

  /// The term whose inputs have numbers of their own, where some stand in several places.
  TermPtr renumbered(const TermPtr& term);

  StatisticsPtr statistics(const TermPtr& term) const;
  double estimate(const StatisticsPtr& statistics) const;
  /// Of the term's statistics.
  double estimate(const TermPtr& term) const;

  /// How the elements of an expression that is an input are found: its statistics over axis numbers, and its fill; of a
  /// tensor whose entries are known, these, so that a diagonal can be counted.
  struct Source {
    StatisticsPtr statistics = {};
    double fill = 0;
    const InputTensor* tensor = nullptr;
  };
  using Sources = std::map<std::string, Source>;
  /// The term of an expression whose indices are distinct.
  TermPtr from_expression(const ExpressionPtr& expression, const Sources& sources);
  /// The expression of a term, with the space's names or those that the user wrote.
  ExpressionPtr to_expression(const TermPtr& term, bool originals = false) const;

 private:
  /// The map or aggregate of these children that was made before, or null and the hash by which `interned` stores it.
  std::pair<TermPtr, size_t> known(Expression::Kind kind, Operator op, const std::vector<int64_t>& indices,
                                   const std::vector<TermPtr>& children) const;
  TermPtr interned(std::shared_ptr<Term> term, size_t hash) const;
  StatisticsPtr computed(const TermPtr& term) const;
  StatisticsPtr statistics_of(const Source& source, const std::vector<int64_t>& indices) const;

  EstimatorPtr estimator_;
  IndexSpace space_;
  uint64_t leaves_ = 0;
  mutable std::unordered_multimap<size_t, TermPtr> made_;  ///< maps and aggregates, by what `known` compares
};

/// Aggregates lifted above the maps that distribute over them, those of one operator merged: the normal form that is
/// planned. Products stay where an element may be infinite (`finite`): ∞ · Σ x is not Σ ∞ · x. Source: Galley, section
/// 5.1.
TermPtr lifted(const Terms& terms, const TermPtr& term, bool finite = true);

/// Members of a set of the terms' indices, by name.
std::vector<int64_t> by_name(const Terms& terms, IndexSet indices);

/// Whether a map distributes over an aggregate by `over` in this dtype. Sums and products of uint8 wrap around, so they
/// do not distribute over min and max; wider integers are assumed not to overflow.
bool distributes_in(DType dtype, Operator map, Operator over, bool factors_not_negative);

/// Whether no element of a term can be negative, as its operators and literals say.
bool never_negative(const TermPtr& term);

}  // namespace joinsum::sparse::logical
