#pragma once

#include <vector>

#include "einsum/transforms/binary.h"
#include "optimizer/cost/objective.h"

namespace joinsum::optimizer {

/// Einsums of at most so many operands are ordered exactly.
constexpr size_t kOrderedExactly = 10;

/// Which orders were compared.
enum class Compared {
  kAll,        ///< all: no order is cheaper
  kConnected,  ///< the proposed ones, and all that join sets without a common label only when no others are left
  kProposed    ///< the proposed ones
};

/// Its name: `all`, `connected` or `proposed`.
std::string name_of(Compared compared);

/// An order of joins, and its cost if each join has its best placement: by the objective, and in flops of the busiest
/// site.
struct PricedPath {
  einsum::transforms::Path path;
  double cost = 0;
  double flops = 0;
  Compared compared = Compared::kProposed;
};

/// The purpose for which an einsum of several operands is ordered.
struct OrderFor {
  ia::Grid grid;
  cost::Objective objective = cost::Objective::kSeconds;
  cost::Cluster cluster = {};
  bool everywhere = false;    ///< whether every site needs the result; otherwise it may have any layout
  int64_t tries = 3'000'000;  ///< most joins and moves that are priced before the best proposal is taken
};

/// Chooses the order in which the operands of `op` are joined together with the placement of every join, moves priced
/// in. Operands may start anywhere at no cost; labels are cut as `einsum::even_cuts` cuts them.
///
/// Up to `kOrderedExactly` operands: the best of all orders, by dynamic programming over the subsets of operands and
/// the layouts in which their join may be wanted. Subsets without a common label are joined only when no others are
/// left; if the tries suffice, also earlier, as long as the cost stays below that of the best order so far. With more
/// operands, and where that takes too many tries: the best of `proposals`. No proposal is cheaper than the path
/// returned. Raises PlanError for a join that is not associative and commutative or does not distribute over the
/// aggregation, so that there is no order to choose, and where a proposal is needed but not given. Source: EinDecomp,
/// section 8, extended by the order; the subsets are those of opt_einsum's "optimal".
PricedPath contraction_order(const einsum::Einsum& op, const std::vector<einsum::TensorType>& operands,
                             const OrderFor& wanted, const std::vector<einsum::transforms::Path>& proposals = {});

}  // namespace joinsum::optimizer
