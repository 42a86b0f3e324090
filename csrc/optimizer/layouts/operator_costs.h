#pragma once

#include <map>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "optimizer/cost/objective.h"
#include "optimizer/layouts/layouts.h"
#include "tra/nodes.h"

namespace joinsum::optimizer::layouts {

/// The result and the cost of an operator on operands of certain layouts.
struct OperatorCost {
  const Layout* result = nullptr;  ///< null where the operator cannot run so
  bool undivided = false;          ///< of a join: some axis repeats work that it could divide
  std::optional<Dims> split;       ///< of a join: the dimension of its key that each grid axis divides
  double value = 0;                ///< of the local work, by the objective
  double flops = 0;
};

/// The costs of operators, each computed once.
class OperatorCosts {
 public:
  OperatorCosts(Layouts& layouts, cost::Objective objective, const cost::Cluster& cluster)
      : layouts_(layouts), objective_(objective), cluster_(cluster) {}

  /// Equal operators have equal numbers; a join may run below a sum.
  size_t number(const tra::Node& node, const tra::Node* join);
  const OperatorCost& of(size_t operation, const std::vector<const Layout*>& operands);

 private:
  struct Operator {
    ia::Operation operation;
    std::optional<ia::Operation> sum;
    bool operator==(const Operator&) const = default;
  };
  OperatorCost computed(const Operator& op, const std::vector<const Layout*>& operands);

  Layouts& layouts_;
  cost::Objective objective_;
  const cost::Cluster& cluster_;
  std::vector<Operator> operators_;
  std::unordered_map<uint64_t, std::vector<size_t>> by_hash_;  ///< numbers of operators
  std::map<std::pair<size_t, std::vector<const Layout*>>, OperatorCost> operator_costs_;
};

}  // namespace joinsum::optimizer::layouts
