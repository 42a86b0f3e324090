#pragma once

#include <map>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "optimizer/placement/places.h"
#include "optimizer/score.h"
#include "tra/nodes.h"

namespace joinsum::optimizer {

/// What an operator makes of operands that lie in certain places.
struct Run {
  const Place* result = nullptr;  ///< null where the operator cannot run so
  bool undivided = false;         ///< of a join: some axis repeats work that it could divide
  std::optional<Dims> split;      ///< of a join: the dimension of its key that each grid axis divides
  double value = 0;               ///< of the local work, by the objective
  double flops = 0;
};

/// Runs of operators, each priced once.
class Runs {
 public:
  Runs(Places& places, Objective objective, const Cluster& cluster)
      : places_(places), objective_(objective), cluster_(cluster) {}

  /// Equal operators have equal numbers; a join may run below a sum.
  size_t number(const tra::Node& node, const tra::Node* join);
  const Run& of(size_t operation, const std::vector<const Place*>& operands);
  const Run& of(size_t operation, const Place& operand) { return of(operation, {&operand}); }
  const Run& of(size_t operation, const Place& left, const Place& right) { return of(operation, {&left, &right}); }

 private:
  struct Operator {
    ia::Operation operation;
    std::optional<ia::Operation> sum;
    bool operator==(const Operator&) const = default;
  };
  Run computed(const Operator& op, const std::vector<const Place*>& operands);
  void price(Run& run, const ia::NodePtr& node, Fusion fusion) const;

  Places& places_;
  Objective objective_;
  const Cluster& cluster_;
  std::vector<Operator> operators_;
  std::unordered_map<uint64_t, std::vector<size_t>> by_hash_;  ///< numbers of operators
  std::map<std::pair<size_t, std::vector<const Place*>>, Run> runs_;
};

}  // namespace joinsum::optimizer
