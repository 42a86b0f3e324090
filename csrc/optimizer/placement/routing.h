#pragma once

#include <map>
#include <memory>
#include <vector>

#include "optimizer/placement/delivery_problem.h"
#include "optimizer/placement/lowering.h"

namespace joinsum::optimizer {

/// The deliveries of a placement problem's values, with routes that equal values share.
class Routing {
 public:
  /// `costs` by vertex and mode; `ends` counts outputs that each value is and that end where they like.
  Routing(const std::vector<Vertex>& vertices, std::vector<std::vector<double>> costs, const std::vector<int64_t>& ends,
          PlacementMemory& memory);
  Routing(const Routing&) = delete;
  Routing& operator=(const Routing&) = delete;

  const DeliveryProblem& problem() const { return problem_; }
  /// Modes of the problem, in which results of one call are one vertex, from those of the placement's vertices.
  std::vector<size_t> of_problem(const std::vector<size_t>& modes) const;
  /// Of modes of the problem, with values put where that costs least.
  Choice choice(const std::vector<size_t>& modes) const;

 private:
  using Key = std::vector<const Place*>;

  void add(size_t v, const std::vector<std::pair<size_t, size_t>>& readers, int64_t ends);
  std::shared_ptr<const Routes> known(Routes routes, bool settles);
  void add_prices(Routes& routes, bool settles);

  const std::vector<Vertex>& vertices_;
  PlacementMemory& memory_;
  std::vector<size_t> vertex_;  ///< of the problem, by vertex
  DeliveryProblem problem_;
  std::vector<size_t> makers_;  ///< vertices, by value of the problem
  std::map<Key, std::shared_ptr<const Routes>> known_;
};

}  // namespace joinsum::optimizer
