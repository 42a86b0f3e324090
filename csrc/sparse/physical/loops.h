#pragma once

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "sparse/logical/elimination.h"

namespace joinsum::sparse::physical {

using logical::LogicalQuery;
using logical::TermPtr;
using logical::Terms;
using program::Expression;
using program::IndexSpace;
using statistics::contains;
using statistics::EstimatorPtr;
using statistics::extent_of;
using statistics::IndexSet;
using statistics::members_of;
using statistics::only;
using statistics::StatisticsPtr;

/// A leaf of a kernel's body.
struct Access {
  TermPtr term;
  std::vector<int64_t> indices;  ///< each once, in the order in which the tensor stores them
  bool is_result = false;        ///< of another query, which is stored in the order that this kernel wants
  double stored = 0;             ///< entries, which a transposition moves
  bool leads = false;            ///< whether the body is at its fill where this stores nothing, so that it can lead
};

/// Whether an earlier access reads the same elements, as in x·x.
bool reads_again(const std::vector<Access>& accesses, size_t access);

/// How a tensor is stored: its entries, and the axis of each level.
struct Stored {
  double entries = 0;
  std::vector<int64_t> axes = {};
};
using StoredTensors = std::map<std::string, Stored>;

/// How often the loops of a kernel run: the size of the join of the operands' projections on the loops so far, of the
/// union below maps that do not annihilate.
class Iterations {
 public:
  Iterations(const Terms& terms, TermPtr body) : terms_(terms), body_(std::move(body)) {}

  /// Of the innermost of these loops, in whatever order they are.
  double of(IndexSet loops);
  /// Entries of an operand's projection on the loops.
  double projected(const TermPtr& operand, IndexSet loops) const;
  /// Entries of an operand in each fiber along `loop` below the `outer` ones.
  double per_outer(const TermPtr& operand, IndexSet outer, int64_t loop) const;
  /// Which access leads `loop` below the `outer` ones: the one with the fewest entries there; -1 of none.
  int64_t leader(const std::vector<Access>& accesses, IndexSet outer, int64_t loop) const;

 private:
  StatisticsPtr restricted(const TermPtr& term, IndexSet loops) const;
  StatisticsPtr everything(IndexSet indices) const;

  const Terms& terms_;
  TermPtr body_;
  std::map<IndexSet, double> known_;
};

/// The order of a kernel's loops, outermost first, and what it costs.
struct LoopOrder {
  std::vector<int64_t> loops;
  std::vector<double> iterations;  ///< of each loop
  std::set<size_t> transposed;     ///< accesses whose order the loops do not follow
  double cost = 0;                 ///< iterations, and entries that are transposed
  bool optimal = true;             ///< of all orders
};

/// What loops cost.
struct LoopCost {
  /// The order of the result's levels, for about the time that loops take: each visits what its leader walks, and the
  /// innermost one is fast along dense operands and slow across the result's. Entries that all operands have are then
  /// taken to be between their bound and what they are where entries lie evenly. Without it, the bound of those, of
  /// each loop.
  std::optional<std::vector<int64_t>> written = {};
};

/// Counts an order; `iterations` are what each loop costs. Source: Galley, section 6.1.
LoopOrder count_order(const Terms& terms, const TermPtr& body, const std::vector<Access>& accesses,
                      const std::vector<int64_t>& loops, const LoopCost& by = {});

/// The cheapest order: a greedy one bounds a search through the sets of loops and of what is transposed. Above
/// `most_loops` loops the greedy one stands.
LoopOrder cheapest_order(const Terms& terms, const TermPtr& body, const std::vector<Access>& accesses, IndexSet loops,
                         int64_t most_loops = 10, const LoopCost& by = {});

}  // namespace joinsum::sparse::physical
