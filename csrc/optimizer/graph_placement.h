#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "einsum/lower.h"
#include "einsum/transforms/binary.h"
#include "optimizer/placement_problem.h"

namespace joinsum::optimizer {

/// A constraint on how a vertex divides its work, an input starts or an output ends: part counts by label, or the label
/// that each grid axis divides (empty: none). An input's labels are the numbers of its axes.
struct GraphPin {
  std::string name;
  std::map<std::string, int64_t> parts;
  std::optional<einsum::Labels> axes = {};
  bool output = false;  ///< names an output, also where a vertex has its name
};

/// A vertex of a graph of einsums, or an input, on its sites.
struct VertexPlacement {
  std::string name;
  std::string vertex;  ///< of the graph: what a step is a step of, `Z` of `Z.1`; otherwise the name itself
  bool input = false;
  std::map<std::string, int64_t> parts;  ///< by label
  einsum::Labels axes;                   ///< the label that each grid axis divides, or none
  int64_t wire_bytes = 0;                ///< of moves of its value
  double seconds = 0;                    ///< of its work and of moves of its value
};

struct GraphPlacement {
  std::vector<VertexPlacement> vertices;  ///< inputs, then vertices in the order of the graph
  ia::Plan plan;
  double cost = 0;         ///< by the objective
  double lower_bound = 0;  ///< no plan costs less
  bool exact = false;
  int64_t wire_bytes = 0;
  double seconds = 0;
  int64_t peak_bytes = 0;  ///< of the site that needs most
  std::string peak_value;  ///< the largest tensor in that site's memory then
  int64_t peak_value_bytes = 0;
};

/// A graph of einsums whose vertices are to be placed on the sites of a grid: rewritten in binary einsums, cut and
/// lowered once.
class GraphPlacer {
 public:
  using Names = std::vector<std::pair<std::string, einsum::NodePtr>>;

  /// `vertices` names nodes of `plan`; steps of a vertex of more than two operands are named after it, `Z.1`, `Z.2`.
  GraphPlacer(const einsum::Plan& plan, const std::map<std::string, einsum::transforms::Path>& paths,
              const Names& vertices, ia::Grid grid, cost::Objective objective, cost::Cluster cluster);

  /// Whether a pin can name it: an input or a vertex that some output needs, or an output.
  bool has(const std::string& name) const;

  /// The best placement that meets `pins`, where each byte of a value on the site that holds most of it adds
  /// `byte_price` to the cost. With a byte price or without `bounded`, `lower_bound` is meaningless; on a grid other
  /// than the prime factors of its sites it is 0. Raises PlanError for a pin that names nothing, and where pins
  /// contradict each other, with the smallest set that does.
  GraphPlacement place(const std::vector<GraphPin>& pins, std::optional<double> seconds, double byte_price = 0,
                       bool bounded = true) const;

  /// The best placement that meets `pins`, takes at most `limit` bytes on each site and costs less than `most`, of
  /// graphs that are small enough for an exhaustive search. `may_repeat`: also placements that repeat work that they
  /// could divide.
  solvers::Searched<GraphPlacement> within(const std::vector<GraphPin>& pins, int64_t limit, double most,
                                           bool may_repeat) const;

  /// Seconds below which no placement is, whatever grid the sites form: those of the work alone. Vertices named in
  /// `in_any_order` are steps that other plans may take in another order; they count nothing.
  double least_seconds(const std::vector<std::string>& in_any_order) const;

  const ia::Grid& grid() const { return grid_; }

 private:
  struct Vertex {
    std::string name;
    std::string vertex;  ///< as VertexPlacement has it
    bool input = false;
    einsum::Labels labels;  ///< all that it has
    tra::NodePtr work;
    einsum::Labels keys;                      ///< labels of the key dimensions of `work`
    std::vector<const tra::Node*> operators;  ///< that it has become
  };
  /// What a pin constrains: the work of a vertex, the start of an input, or the end of an output.
  struct Target {
    enum class Kind { kWork, kStart, kEnd } kind;
    const tra::Node* node;
    Dims extents;           ///< of the key dimensions that are divided
    einsum::Labels keys;    ///< their labels
    einsum::Labels labels;  ///< all that a pin may name
  };

  Target target_of(const GraphPin& pin) const;
  static std::optional<int64_t> dim_of(const GraphPin& pin, const Target& target, const std::string& label);
  division::DivisionConstraint constraint_of(const GraphPin& pin, const Target& target) const;
  void check_possible(const GraphPin& pin, const Target& target, const division::DivisionConstraint& cut) const;
  model::PlacementConstraints constraints_of(const std::vector<GraphPin>& pins) const;
  GraphPlacement described(const PlacementSolution& placed) const;
  void set_bound(GraphPlacement& out, double bound) const;
  VertexPlacement divided(const Vertex& vertex, const PlacementSolution& placed) const;

  tra::Plan logical_;
  ia::Grid grid_;
  cost::Objective objective_;
  cost::Cluster cluster_;
  std::shared_ptr<layouts::PlacementCache> memory_;  ///< of all placements
  std::vector<Vertex> vertices_;
  std::map<std::string, einsum::Labels> output_labels_;
};

}  // namespace joinsum::optimizer
