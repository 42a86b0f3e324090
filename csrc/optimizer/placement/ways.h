#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "optimizer/placement/candidates.h"
#include "optimizer/placement/labels.h"
#include "optimizer/placement/move_prices.h"

namespace joinsum::optimizer {

/// Where the inputs of a logical plan start; one that is not named may start anywhere at no cost.
using InputPlacements = std::map<std::string, ia::Placement>;

/// Where values of a logical plan must be put, for all that read them.
using Pins = std::unordered_map<const tra::Node*, ia::Placement>;

/// What a placement of a logical plan must be like.
struct PlacementDemands {
  InputPlacements inputs = {};
  Pins pins = {};
  std::unordered_map<const tra::Node*, Cut> work = {};  ///< how joins and maps divide their tuples
  std::map<std::string, Cut> starts = {};               ///< of inputs, by name
  std::map<std::string, Cut> ends = {};                 ///< of outputs, by name
  double byte_price = 0;  ///< what keeping a byte on the site that keeps most of a value counts, beside its cost

  const Cut* work_of(const tra::Node* node) const {
    const auto found = work.find(node);
    return found == work.end() ? nullptr : &found->second;
  }
};

/// A way to run an operator: where each operand must lie, and what comes out.
struct Mode {
  std::vector<ia::Placement> needs;
  std::optional<ia::PhysicalType> result;
  double value = 0;  ///< of the local work, by the objective
  double flops = 0;
  std::set<int64_t> divided;  ///< labels
};

/// An operator with its ways, or an input with its possible starts; and where its value may lie.
struct Vertex {
  const tra::Node* node = nullptr;  ///< whose value it is
  const tra::Node* join = nullptr;  ///< below the sum `node`, when both run as one
  std::optional<size_t> output;     ///< of the plan, if it is that output's end, which reads `node`'s value
  std::vector<int64_t> operands;    ///< vertices
  std::set<int64_t> labels;         ///< of the dimensions that it may divide
  std::vector<Mode> modes;
  std::vector<ia::PhysicalType> places;

  /// The join that it runs, by itself or below a sum.
  const tra::Node* joined() const;
  const tra::Input* input() const { return node->as<tra::Input>(); }
  size_t place_in(const ia::Placement& placement) const;
};

/// Lists the ways to run each operator of a logical plan, and the places of each value: what `PlacementProblem` chooses
/// from.
class Ways {
 public:
  Ways(const tra::Plan& plan, const ia::Grid& grid, const PlacementDemands& demands, Objective objective,
       const Cluster& cluster, const Labels& labels);
  std::vector<Vertex> run();

 private:
  void find_vertices();
  std::set<const tra::Node*> joins_below_sums() const;
  void add_ends();
  void take_join_modes(Vertex& vertex, const tra::Node& join);
  void add_join_modes(Vertex& vertex, const tra::Node& join) const;
  std::vector<Dims> divisions_of(const Vertex& vertex, const tra::Node& join) const;
  ia::PhysicalType run_join(const Vertex& vertex, const tra::Join& op, const ia::PhysicalType& left,
                            const ia::PhysicalType& right, Mode& mode) const;
  void add_modes_where_operands_lie(Vertex& vertex, const tra::Node& join);
  void add_mode_where_lies(Vertex& vertex, const tra::Node& join, size_t side, const ia::PhysicalType& place,
                           const ia::Placement& meets);
  std::vector<ia::Placement> ways_to_meet(const Vertex& vertex, const tra::Node& join, size_t side,
                                          const ia::Placement& placement) const;
  void add_unary_modes(Vertex& vertex) const;
  bool may_start_whole(const std::string& name) const;
  void add_starts(Vertex& vertex) const;
  void add_places_wanted(int64_t v);
  void add_settled_places(Vertex& vertex) const;
  void complete(int64_t v);
  void complete_end(Vertex& vertex);
  bool readers_are_told(int64_t v) const;
  bool divides_all(const Vertex& vertex, const tra::Node& join) const;
  bool refused(const tra::Node& work, const ia::PhysicalType& type) const;
  void price(Mode& mode, const ia::NodePtr& node, Fusion fusion) const;
  ia::PhysicalType placed(const RelationType& relation, const ia::Placement& placement) const;
  std::set<int64_t> divided_labels(const ia::PhysicalType& type, const tra::Node& node) const;
  const ia::Placement* start_of_tied(const tra::Node& node) const;

  /// Ways of a join that are known.
  struct Known {
    std::vector<int64_t> ranks;  ///< of its labels
    const tra::Node* join;
    const tra::Node* sum;  ///< that it runs below
    std::vector<Mode> modes;
    std::vector<int64_t> labels;
  };

  const tra::Plan& plan_;
  const ia::Grid& grid_;
  const PlacementDemands& demands_;
  Objective objective_;
  const Cluster& cluster_;
  const Labels& labels_;
  std::vector<Vertex> vertices_;
  std::vector<Known> known_;
  std::unordered_map<const tra::Node*, int64_t> number_;
  std::vector<std::vector<int64_t>> readers_;
};

}  // namespace joinsum::optimizer
