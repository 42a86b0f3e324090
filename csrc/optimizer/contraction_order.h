#pragma once

#include <vector>

#include "einsum/binary.h"
#include "optimizer/score.h"

namespace joinsum::optimizer {

/// Einsums of at most so many operands are ordered exactly.
constexpr size_t kOrderedExactly = 10;

/// Which orders were compared.
enum class Compared {
  kAll,        ///< all: no order is cheaper
  kConnected,  ///< those proposed, and all that join only sets of operands with a common label, until no others are
               ///< left
  kProposed    ///< those proposed
};

/// Its name: `all`, `connected` or `proposed`.
std::string name_of(Compared compared);

/// An order of joins, and what it costs when each join is placed best: first by the objective, then in flops of the
/// busiest site.
struct PricedPath {
  einsum::Path path;
  double cost = 0;
  double flops = 0;
  Compared compared = Compared::kProposed;
};

/// What einsums of several operands are ordered for.
struct OrderFor {
  ia::Grid grid;
  Objective objective = Objective::kSeconds;
  Cluster cluster = {};
  bool everywhere = false;      ///< the result is wanted on every site; otherwise it may be left anywhere
  int64_t tries = 3'000'000;    ///< ways to run or to move that are priced at most, before the best proposal is taken
  int64_t all_tries = 300'000;  ///< the same for sets of operands without a common label
};

/// Chooses the order in which the operands of `op` are joined together with the placement of every join, moves priced
/// in. Operands may start anywhere at no cost; labels are cut as `einsum::even_cuts` cuts them.
///
/// Up to `kOrderedExactly` operands: the best of all orders, by dynamic programming over the subsets of operands and
/// the layouts in which their join may be wanted. Subsets that share no label with each other are joined where no other
/// subsets are left; and anywhere, if the tries last, in which only what costs no more than the best order so far is
/// looked at. Beyond, and where that takes too many tries: the best of `proposals`.
/// No proposal is cheaper than the path returned. Raises PlanError for a join that is not associative and commutative
/// or does not distribute over the aggregation, so that there is no order to choose, and where a proposal is needed but
/// not given. Source: EinDecomp, section 8, extended by the order; the subsets are those of opt_einsum's "optimal".
PricedPath contraction_order(const einsum::Einsum& op, const std::vector<einsum::TensorType>& operands,
                             const OrderFor& wanted, const std::vector<einsum::Path>& proposals = {});

}  // namespace joinsum::optimizer
