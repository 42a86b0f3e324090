#pragma once

#include <memory>
#include <vector>

#include "optimizer/min_sum/min_sum.h"
#include "optimizer/model/vertices.h"

namespace joinsum::optimizer::model {

/// The layouts from which a value may be read: produced and staged, equal if it is not staged.
struct Sources {
  const layouts::Layout* produced = nullptr;  ///< null: it is read from its staging layout
  const layouts::Layout* staged = nullptr;
};

/// The costs of moves between the values of two variables.
struct VariablePair {
  int64_t first;
  int64_t second;
  min_sum::Problem::Entries costs;
};

/// The min-sum problem of a placement: one variable per vertex for its strategy, one for the layouts from which its
/// value is read, and tables of the costs of moves between these.
class MinSumTables {
 public:
  /// Lists the layouts from which values may be read, and prices the moves between them.
  explicit MinSumTables(const PlacementModel& model);

  /// `costs` by vertex and strategy.
  min_sum::Problem problem(std::vector<std::vector<double>> costs) const;
  /// The strategies that values of the problem's variables stand for.
  std::vector<size_t> strategies(const std::vector<int64_t>& values) const;
  Choice choice(const std::vector<int64_t>& values) const;

 private:
  const std::vector<Vertex>& vertices_;
  std::vector<std::vector<Sources>> sources_;
  std::vector<std::vector<double>> source_costs_;
  std::vector<VariablePair> tables_;
};

/// Whether the tables of a model let each value be read from all layouts that there are.
bool lists_all_sources(const PlacementModel& model);

}  // namespace joinsum::optimizer::model
