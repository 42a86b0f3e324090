#pragma once

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "sparse/logical/term.h"

namespace joinsum::sparse::logical {

/// Seconds, or any unit, per entry of an aggregate's result and per entry of the expression that it reduces.
struct LogicalCost {
  double per_result = 1;
  double per_element = 1;
};

/// Whether a query has the factors that hold its index alone, or also those all of whose indices it has anyway: they
/// make its result sparser, and close cycles.
enum class Factors : uint8_t { kHolders, kAlsoCovered };

/// Whether a query reduces one index alone, or also every other one that occurs nowhere else.
enum class Absorption : uint8_t { kSingle, kAbsorb };

/// One aggregate over an expression without aggregates, or such an expression alone.
struct LogicalQuery {
  std::string name;
  std::optional<Operator> op = {};
  std::vector<int64_t> indices = {};  ///< that it reduces
  TermPtr body = {};
  std::vector<int64_t> output = {};
  double entries_of_result = 0;
  double entries_of_body = 0;
  double cost = 0;
};

/// A way to eliminate an index from a term: one path by which its aggregate can be pushed down. The product of the
/// factors that hold the index, its minimal sub-expression, becomes a query; the term reads its result instead.
/// Source: Galley, sections 5.3 and 5.4.
struct Elimination {
  int64_t index = 0;
  int64_t path = 0;        ///< one of several where the index meets its own operator: Σ (A + B)
  TermPtr aggregate = {};  ///< this path's, where it ends
  double cost = 0;         ///< of its query
  TermPtr binder = {};     ///< the aggregate of the term that binds the index
  TermPtr below = {};      ///< what is left below it, with the aggregate of each path where it ends
  std::shared_ptr<const std::vector<TermPtr>> ends = {};  ///< these aggregates, path by path
  TermPtr pushed = {};  ///< the term with that, if it was needed: most eliminations are not chosen

  /// Original leaves of each index that the query reduces.
  std::vector<std::pair<int64_t, uint64_t>> covered() const;
};

/// What pushing an aggregate down makes of a term: where it ends, and whether a factor came along that is covered only.
struct Pushed {
  TermPtr term;
  std::vector<TermPtr> ends;
  bool covered = false;
};

/// By term and index.
using KnownPushes = std::map<std::pair<TermPtr, int64_t>, Pushed>;

/// Finds and applies eliminations.
class Eliminator {
 public:
  Eliminator(Terms& terms, LogicalCost cost, Absorption absorption, Factors factors = Factors::kHolders)
      : terms_(terms), cost_(cost), absorption_(absorption), factors_(factors) {}

  /// The term without the aggregates of indices that no leaf below them has: g(value, extent) stands in their place.
  /// Adds these indices to `gone`.
  TermPtr without_idle(TermPtr term, std::vector<int64_t>& gone) const;

  /// All eliminations that are possible now, in the order of names, then of paths.
  std::vector<Elimination> candidates(const TermPtr& term) const;
  /// Those of one index.
  std::vector<Elimination> candidates(const TermPtr& term, int64_t index) const;

  /// Whether some candidate so far had a factor that is only covered: else queries are the same with such factors and
  /// without.
  bool covered() const { return covered_; }

  /// The query of an aggregate over an expression without one, with its cost; it has no name yet.
  LogicalQuery query_of(const TermPtr& aggregate) const;

  /// The term, of which the elimination is one, that reads the result of its query under this name.
  TermPtr apply(const TermPtr& term, const Elimination& elimination, const std::string& name) const;

 private:
  double cost_of(const TermPtr& aggregate) const;
  /// Of other bound indices of the query, those that occur nowhere else join the ones that it reduces.
  void absorb(Elimination& elimination, IndexSet others) const;

  Terms& terms_;
  LogicalCost cost_;
  Absorption absorption_;
  Factors factors_;
  mutable bool covered_ = false;
  mutable KnownPushes known_;
};

/// Indices that some aggregate of the term binds, by name.
std::vector<int64_t> bound_indices(const Terms& terms, const TermPtr& term);

/// The minimal sub-expressions of an index: what its aggregate ends at when it is pushed down.
std::vector<TermPtr> minimal_sub_expressions(Terms& terms, const TermPtr& term, int64_t index);

/// Pairs (x, y) of bound indices of which x must be eliminated first. Source: Galley, section 5.5.
std::vector<std::pair<int64_t, int64_t>> must_precede(Terms& terms, const TermPtr& term);

}  // namespace joinsum::sparse::logical
