#pragma once

#include <map>
#include <memory>
#include <vector>

#include "optimizer/model/vertices.h"
#include "optimizer/resharding/resharding_problem.h"

namespace joinsum::optimizer::resharding {

/// A placement problem as a resharding problem. Values with equal layouts share their routes.
class ReshardingModel {
 public:
  explicit ReshardingModel(const model::PlacementModel& model);
  ReshardingModel(const ReshardingModel&) = delete;
  ReshardingModel& operator=(const ReshardingModel&) = delete;

  const ReshardingProblem& problem() const { return problem_; }
  /// Strategies of the problem, in which all results of one call are one vertex, from strategies of the vertices.
  std::vector<size_t> of_problem(const std::vector<size_t>& strategies) const;
  /// The inverse of `of_problem`.
  std::vector<size_t> of_vertices(const std::vector<size_t>& strategies) const;
  /// The placement of these strategies of the problem, each value staged where that is cheapest.
  model::Choice choice(const std::vector<size_t>& strategies) const;
  /// The same with values staged as `staged` says, in positions of their routes.
  model::Choice choice(const std::vector<size_t>& strategies, const std::vector<size_t>& staged) const;

 private:
  using Key = std::vector<const layouts::Layout*>;

  /// Which sources the readers of a value may use.
  enum class Route {
    kFree,
    kReduces,  ///< the value must not stay pending
    kPinned,   ///< all readers take it from its staging layout
  };

  void add(size_t v, const model::Consumers& consumers, const ia::Placement* pin);
  std::shared_ptr<const Routes> shared(Routes routes, Route route);
  void add_prices(Routes& routes, Route route);

  const std::vector<model::Vertex>& vertices_;
  layouts::PlacementCache& cache_;
  std::vector<size_t> vertex_;  ///< of the problem, by vertex
  ReshardingProblem problem_;
  std::vector<size_t> producers_;  ///< vertices, by value of the problem
  std::map<Key, std::shared_ptr<const Routes>> routes_;
};

}  // namespace joinsum::optimizer::resharding
