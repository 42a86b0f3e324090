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
  /// `costs` by vertex and mode.
  Routing(const tra::Plan& plan, const PlacementDemands& demands, const std::vector<Vertex>& vertices,
          std::vector<std::vector<double>> costs, PlacementMemory& memory);
  Routing(const Routing&) = delete;
  Routing& operator=(const Routing&) = delete;

  const DeliveryProblem& problem() const { return problem_; }
  /// Modes of the problem, in which results of one call are one vertex, from those of the placement's vertices.
  std::vector<size_t> of_problem(const std::vector<size_t>& modes) const;
  /// The other way round.
  std::vector<size_t> of_vertices(const std::vector<size_t>& modes) const;
  /// Of modes of the problem, with values put where that costs least.
  Choice choice(const std::vector<size_t>& modes) const;
  /// The same with values of the problem put where `put` says, as positions in their routes.
  Choice choice(const std::vector<size_t>& modes, const std::vector<size_t>& put) const;

 private:
  using Key = std::vector<const Place*>;

  /// What takes a value.
  struct Takers {
    std::vector<std::pair<size_t, size_t>> operands;  ///< vertices that read it, and as which operand
    std::vector<size_t> starts;                       ///< inputs that start where it ends
    bool ends = false;                                ///< an output of the plan that ends where it likes
  };
  /// What a value's way to its readers is like.
  enum class Route {
    kFree,
    kSettles,  ///< it does not stay pending
    kPinned,   ///< all take it from where it is put
  };

  std::vector<Takers> takers(const tra::Plan& plan, const PlacementDemands& demands) const;
  void add(size_t v, const Takers& takers, const ia::Placement* pin);
  std::shared_ptr<const Routes> known(Routes routes, Route route);
  void add_prices(Routes& routes, Route route);

  const std::vector<Vertex>& vertices_;
  PlacementMemory& memory_;
  std::vector<size_t> vertex_;  ///< of the problem, by vertex
  DeliveryProblem problem_;
  std::vector<size_t> makers_;  ///< vertices, by value of the problem
  std::map<Key, std::shared_ptr<const Routes>> known_;
};

}  // namespace joinsum::optimizer
