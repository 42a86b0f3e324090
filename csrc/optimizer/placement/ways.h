#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "optimizer/placement/candidates.h"
#include "optimizer/placement/labels.h"
#include "optimizer/placement/memory.h"

namespace joinsum::optimizer {

/// Where the inputs of a logical plan start; one that is not named may start anywhere at no cost.
using InputPlacements = std::map<std::string, ia::Placement>;

/// Where values of a logical plan must be put, for all that read them.
using Pins = std::unordered_map<const tra::Node*, ia::Placement>;

/// A part of a placement, which the search fills in.
struct PartialPlacement {
  InputPlacements inputs = {};
  Pins pins = {};           ///< of values that nothing else pins
  bool everywhere = false;  ///< every site does all the work
};

/// What a placement of a logical plan must be like.
struct PlacementDemands {
  InputPlacements inputs = {};
  Pins pins = {};
  std::unordered_map<const tra::Node*, Cut> work = {};  ///< how joins and maps divide their tuples
  std::map<std::string, Cut> starts = {};               ///< of inputs, by name
  std::map<std::string, Cut> ends = {};                 ///< of outputs, by name
  std::vector<PartialPlacement> given = {};             ///< parts of plans that are looked at too
  double byte_price = 0;  ///< what keeping a byte on the site that keeps most of a value counts, beside its cost
  /// Whether to take long where there are many operators: many axes of the grid divide one by one, not in bundles, and
  /// passes look at more.
  bool thorough = false;
  bool may_repeat = false;  ///< whether work may be repeated that could be divided, whatever the objective

  const Cut* work_of(const tra::Node* node) const {
    const auto found = work.find(node);
    return found == work.end() ? nullptr : &found->second;
  }
};

/// A way to run an operator: where each operand must lie, and what comes out.
struct Mode {
  std::vector<const Place*> needs;
  const Place* result = nullptr;
  double value = 0;  ///< of the local work, by the objective
  double flops = 0;
};

/// An operator with its ways, or an input with its possible starts; and where its value may lie.
struct Vertex {
  const tra::Node* node = nullptr;  ///< whose value it is
  const tra::Node* join = nullptr;  ///< below the sum `node`, when both run as one
  std::optional<size_t> output;     ///< of the plan, if it is that output's end, which reads `node`'s value
  std::vector<int64_t> operands;    ///< vertices
  std::set<int64_t> labels;         ///< of the dimensions that it may divide
  size_t relation = 0;              ///< of its value, as places number them
  size_t operation = 0;             ///< as runs number them; of none but operators
  std::vector<Mode> modes;
  std::vector<const Place*> places;  ///< one for each placement

  /// The join that it runs, by itself or below a sum.
  const tra::Node* joined() const;
  const tra::Input* input() const { return node->as<tra::Input>(); }
  const tra::Call* call() const { return output ? nullptr : node->as<tra::Call>(); }
  /// That of the value's places which has the placement of `place`.
  const Place* lying(const Place* place) const;
};

/// Lists the ways to run each operator of a logical plan, and the places of each value: what `PlacementProblem` chooses
/// from.
class Ways {
 public:
  Ways(const tra::Plan& plan, const PlacementDemands& demands, PlacementMemory& memory, const Labels& labels);
  std::vector<Vertex> run();

 private:
  void find_vertices();
  std::set<const tra::Node*> joins_below_sums() const;
  void add_ends();
  void take_join_modes(Vertex& vertex, const tra::Node& join);
  void add_join_modes(Vertex& vertex, const tra::Node& join);
  std::vector<Dims> ways_to_divide(const std::vector<Divisible>& dims, bool divide_all) const;
  std::vector<Dims> divisions_of(const Vertex& vertex, const tra::Node& join) const;
  void add_modes_where_operands_lie(Vertex& vertex, const tra::Node& join);
  void add_mode_where_lies(Vertex& vertex, const tra::Node& join, size_t side, const Place* place, const Place* meets);
  std::vector<const Place*> ways_to_meet(const Vertex& vertex, const tra::Node& join, size_t side, const Place* place);
  void take_call_modes(Vertex& vertex);
  void add_call_modes(Vertex& vertex);
  void add_unary_modes(Vertex& vertex);
  bool may_start_whole(const std::string& name) const;
  void add_starts(Vertex& vertex);
  void add_places_wanted(int64_t v);
  void add_settled_places(Vertex& vertex);
  void complete(int64_t v);
  void complete_end(Vertex& vertex);
  bool readers_are_told(int64_t v) const;
  bool divides_all(const Vertex& vertex, const tra::Node& join) const;
  bool refused(const tra::Node& work, const std::optional<Dims>& split) const;
  const Place* placed(const Vertex& vertex, const Dims& split);
  void add_given_places(Vertex& vertex);
  void add_start(Vertex& vertex, const InputPlacements& starts, const std::string& name);

  /// Ways of a join or call that are known.
  struct Known {
    std::vector<int64_t> ranks;  ///< of its labels
    size_t operation;
    std::vector<size_t> relations;  ///< of its operands
    bool operator==(const Known&) const = default;
    auto operator<=>(const Known&) const = default;
  };

  const tra::Plan& plan_;
  const PlacementDemands& demands_;
  PlacementMemory& memory_;
  const ia::Grid& grid_;
  Objective objective_;
  bool coarse_;
  const Labels& labels_;
  std::vector<Vertex> vertices_;
  std::map<Known, std::vector<Mode>> known_;
  std::map<std::pair<size_t, std::vector<int64_t>>, std::vector<const Place*>> settled_;  ///< by relation and ranks
  std::unordered_map<const tra::Node*, int64_t> number_;
  std::unordered_map<const tra::Node*, std::vector<const std::string*>> tied_;  ///< inputs that a value ends where
  std::vector<std::vector<int64_t>> readers_;
};

/// Whether axes of the grid divide in bundles: they may, and there are many operators and many axes.
bool in_bundles(const tra::Plan& plan, const PlacementDemands& demands, const ia::Grid& grid);

/// For each of `labels`, how many different ones are smaller.
std::vector<int64_t> ranks_of(const std::vector<int64_t>& labels);

}  // namespace joinsum::optimizer
