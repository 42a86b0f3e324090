#include "optimizer/graph_placement.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "base/contradiction.h"
#include "optimizer/division/axis_labels.h"
#include "optimizer/layouts/least_work.h"

namespace joinsum::optimizer {
namespace {

/// Vertices beyond which eliminations are to be quick.
constexpr size_t kManyVertices = 500;

/// Labels of the key dimensions of a tensor's relation, whose axes have `labels`.
einsum::Labels keys_of(const relation::RelationType& relation, const einsum::Labels& labels) {
  einsum::Labels out(relation.arity());
  for (size_t axis = 0; axis < relation.axes.size(); ++axis) {
    if (relation.axes[axis].linked()) out[relation.axes[axis].key_dim] = labels[axis];
  }
  return out;
}

/// Operators of a logical plan from `value` down to those of other vertices.
std::vector<const tra::Node*> operators_below(const tra::NodePtr& value, std::set<const tra::Node*>& owned) {
  std::vector<const tra::Node*> out;
  std::vector<const tra::Node*> open{value.get()};
  while (!open.empty()) {
    const tra::Node* node = open.back();
    open.pop_back();
    if (!owned.insert(node).second) continue;
    out.push_back(node);
    for (const auto& input : node->inputs()) open.push_back(input.get());
  }
  return out;
}

/// A node of a plan of binary einsums: its name, and the vertex that it computes or is a step of.
struct Step {
  std::string name;
  std::string vertex;
};

/// The nodes of `vertices` have the vertex's name; steps are named after the vertex.
std::unordered_map<const einsum::Node*, Step> steps_of(const GraphPlacer::Names& vertices,
                                                       const Counterparts<einsum::Node, einsum::Plan>& rewritten) {
  std::unordered_map<const einsum::Node*, Step> steps;
  for (const auto& [name, node] : vertices) {
    const auto found = rewritten.find(node.get());
    if (found != rewritten.end()) steps.emplace(found->second.get(), Step{name, name});
  }
  for (const auto& [name, node] : vertices) {
    const auto found = rewritten.find(node.get());
    if (found == rewritten.end()) continue;
    int64_t step = 0;
    std::vector<const einsum::Node*> open{found->second.get()};
    while (!open.empty()) {
      const einsum::Node* now = open.back();
      open.pop_back();
      for (const auto& input : now->inputs()) {
        if (input->as<einsum::Einsum>() == nullptr || steps.contains(input.get())) continue;
        steps.emplace(input.get(), Step{name + "." + std::to_string(++step), name});
        open.push_back(input.get());
      }
    }
  }
  return steps;
}

}  // namespace

GraphPlacer::GraphPlacer(const einsum::Plan& plan, const std::map<std::string, einsum::transforms::Path>& paths,
                         const Names& vertices, ia::Grid grid, cost::Objective objective, cost::Cluster cluster)
    : grid_(std::move(grid)),
      objective_(objective),
      cluster_(std::move(cluster)),
      memory_(std::make_shared<layouts::PlacementCache>(grid_, objective_, cluster_)) {
  Counterparts<einsum::Node, einsum::Plan> rewritten;
  const einsum::Plan binary = einsum::transforms::binary(plan, paths, rewritten);
  const auto steps = steps_of(vertices, rewritten);
  einsum::LoweredVertices lowered;
  logical_ = einsum::lower(binary, einsum::even_cuts(binary, grid_.sites()), lowered);
  std::unordered_map<std::string, tra::NodePtr> inputs;
  for (const auto& input : logical_.inputs()) inputs[input->as<tra::Input>()->name] = input;
  std::set<const tra::Node*> owned;
  for (const auto& node : binary.inputs()) {
    const std::string& name = node->as<einsum::Input>()->name;
    if (!inputs.contains(name)) continue;
    const einsum::Labels labels = division::axis_labels(*node).back();
    const tra::NodePtr& value = inputs.at(name);
    vertices_.push_back({name, name, true, labels, value, keys_of(value->type(), labels), {value.get()}});
    owned.insert(value.get());
  }
  for (const auto& node : binary.order()) {
    if (node->as<einsum::Input>() != nullptr) continue;
    const einsum::LoweredVertex& vertex = lowered.at(node.get());
    const Step& step = steps.at(node.get());
    vertices_.push_back({step.name, step.vertex, false, einsum::labels_of(division::axis_labels(*node)), vertex.work,
                         vertex.keys, operators_below(vertex.value, owned)});
  }
  for (const auto& output : binary.outputs()) {
    output_labels_[output.name] = division::axis_labels(*output.node).back();
  }
}

// --- pins ------------------------------------------------------------------------------------------------------------

bool GraphPlacer::has(const std::string& name) const {
  return output_labels_.contains(name) ||
         std::any_of(vertices_.begin(), vertices_.end(), [&](const Vertex& vertex) { return vertex.name == name; });
}

GraphPlacer::Target GraphPlacer::target_of(const GraphPin& pin) const {
  for (const Vertex& vertex : vertices_) {
    if (vertex.name != pin.name || pin.output) continue;
    const auto kind = vertex.input ? Target::Kind::kStart : Target::Kind::kWork;
    return {kind, vertex.work.get(), vertex.work->type().frontier, vertex.keys, vertex.labels};
  }
  for (const auto& output : logical_.outputs()) {
    if (output.name != pin.name) continue;
    const einsum::Labels& labels = output_labels_.at(output.name);
    const relation::RelationType& relation = output.node->type();
    return {Target::Kind::kEnd, output.node.get(), relation.frontier, keys_of(relation, labels), labels};
  }
  throw PlanError(concatenate("place: a pin names no input, vertex or output: pin=", pin.name));
}

/// The dimension that a label cuts; nothing of a label that is left whole.
std::optional<int64_t> GraphPlacer::dim_of(const GraphPin& pin, const Target& target, const std::string& label) {
  JOINSUM_USER_CHECK(einsum::has(target.labels, label),
                     "place: a pin names a label that its value lacks: pin=", pin.name, ", label=", label,
                     ", labels=", target.labels);
  const auto at = std::find(target.keys.begin(), target.keys.end(), label);
  if (at == target.keys.end()) return std::nullopt;
  return at - target.keys.begin();
}

division::DivisionConstraint GraphPlacer::constraint_of(const GraphPin& pin, const Target& target) const {
  division::DivisionConstraint out;
  for (const auto& [label, parts] : pin.parts) {
    const auto dim = dim_of(pin, target, label);
    JOINSUM_USER_CHECK(dim || parts == 1, "place: a label that is left whole has one part: pin=", pin.name, ".", label,
                       "=", parts);
    if (dim) out.parts.emplace(*dim, parts);
  }
  if (!pin.axes) return out;
  JOINSUM_USER_CHECK(static_cast<int64_t>(pin.axes->size()) == grid_.rank(),
                     "place: a placement says of each axis of the grid which label it divides: pin=", pin.name,
                     ", axes=", pin.axes->size(), ", grid=", grid_.text());
  out.axes.emplace();
  for (const std::string& label : *pin.axes) {
    const auto dim = label.empty() ? std::optional(division::kNothing) : dim_of(pin, target, label);
    JOINSUM_USER_CHECK(dim, "place: no axis divides a label that is left whole: pin=", pin.name, ", label=", label);
    out.axes->push_back(*dim);
  }
  return out;
}

/// Raises where no division has these parts, with the smallest set of parts that none has.
void GraphPlacer::check_possible(const GraphPin& pin, const Target& target,
                                 const division::DivisionConstraint& cut) const {
  std::vector<division::Divisible> dims;
  for (size_t d = 0; d < target.extents.size(); ++d) dims.push_back({target.extents[d], static_cast<int64_t>(d)});
  const std::vector<Dims> divisions = division::divisions(grid_, dims, false);
  using Demand = std::pair<int64_t, int64_t>;
  const auto set = smallest_contradiction(
      std::vector<Demand>(cut.parts.begin(), cut.parts.end()), [&](const std::vector<Demand>& some) {
        const division::DivisionConstraint constraint{.parts = {some.begin(), some.end()}};
        return std::any_of(divisions.begin(), divisions.end(),
                           [&](const Dims& split) { return constraint.met_by(grid_, target.extents, split); });
      });
  std::vector<std::string> texts;
  for (const auto& [dim, parts] : set) texts.push_back(concatenate(pin.name, ".", target.keys[dim], "=", parts));
  JOINSUM_USER_CHECK(set.empty(),
                     "place: pins contradict each other or the divisions over the grid's axes, which each "
                     "divide one label or none; change or remove one of them: pins=",
                     texts, ", grid=", grid_.text(), ", keys=", target.extents);
}

model::PlacementConstraints GraphPlacer::constraints_of(const std::vector<GraphPin>& pins) const {
  model::PlacementConstraints out;
  for (const GraphPin& pin : pins) {
    const Target target = target_of(pin);
    division::DivisionConstraint cut = constraint_of(pin, target);
    check_possible(pin, target, cut);
    switch (target.kind) {
      case Target::Kind::kWork:
        out.work[target.node] = std::move(cut);
        break;
      case Target::Kind::kStart:
        out.starts[pin.name] = std::move(cut);
        break;
      case Target::Kind::kEnd:
        out.ends[pin.name] = std::move(cut);
        break;
    }
  }
  return out;
}

// --- placing ---------------------------------------------------------------------------------------------------------

GraphPlacement GraphPlacer::place(const std::vector<GraphPin>& pins, std::optional<double> seconds, double byte_price,
                                  bool bounded) const {
  model::PlacementConstraints constraints = constraints_of(pins);
  constraints.byte_price = byte_price;
  constraints.thorough = true;
  PlacementProblem problem(logical_, constraints, memory_);
  min_sum::Limits limits;
  if (bounded || vertices_.size() > kManyVertices) limits.table_entries = min_sum::kFewEntries;
  limits.deadline = min_sum::deadline_after(seconds);
  // Where values with several readers share moves to one more place, an elimination proves nothing.
  const bool complete = problem.complete();
  if (bounded && !complete) {
    if (const auto passed = problem.bounded(limits)) return described(*passed);
  }
  const std::optional<PlacementSolution> placed = problem.solve({}, limits);
  JOINSUM_USER_CHECK(placed, "place: no placement of the graph meets the pins: pins=", pins.size());
  GraphPlacement first = described(*placed);
  if (!complete) set_bound(first, 0);
  if (!bounded || !complete || first.exact) return first;
  const auto passed = problem.bounded(limits);
  if (!passed) return first;
  GraphPlacement second = described(*passed);
  if (second.cost <= first.cost) return second;
  set_bound(first, std::max(passed->lower_bound, first.lower_bound));
  return first;
}

solvers::Searched<GraphPlacement> GraphPlacer::within(const std::vector<GraphPin>& pins, int64_t limit, double most,
                                                      bool may_repeat) const {
  model::PlacementConstraints constraints = constraints_of(pins);
  constraints.thorough = true;
  constraints.may_repeat = may_repeat;
  const auto found = PlacementProblem(logical_, constraints, memory_).within(limit, most);
  if (!found.best) return {std::nullopt, found.complete};
  return {described(*found.best), found.complete};
}

double GraphPlacer::least_seconds(const std::vector<std::string>& in_any_order) const {
  std::unordered_set<const tra::Node*> steps;
  for (const Vertex& vertex : vertices_) {
    if (std::find(in_any_order.begin(), in_any_order.end(), vertex.name) != in_any_order.end())
      steps.insert(vertex.operators.begin(), vertex.operators.end());
  }
  return layouts::least_work_seconds(logical_, grid_.sites(), cluster_, steps);
}

GraphPlacement GraphPlacer::described(const PlacementSolution& placed) const {
  GraphPlacement out;
  out.plan = placed.plan;
  std::unordered_map<const tra::Node*, size_t> owner;
  for (const Vertex& vertex : vertices_) {
    for (const tra::Node* node : vertex.operators) owner[node] = out.vertices.size();
    out.vertices.push_back(divided(vertex, placed));
  }
  std::unordered_map<const ia::Node*, size_t> by;
  for (const auto& [node, lowered] : placed.nodes) by[lowered.get()] = owner.at(node);
  const cost::PlanCost cost = cost::estimated_cost(placed.plan, cluster_);
  for (size_t i = 0; i < cost.nodes.size(); ++i) {
    const ia::Node& node = *placed.plan.order()[i];
    if (!by.contains(&node)) by[&node] = by.at(node.input(0).get());
    VertexPlacement& vertex = out.vertices[by.at(&node)];
    vertex.wire_bytes += cost.nodes[i].wire_bytes;
    vertex.seconds += cost.nodes[i].seconds;
  }
  out.wire_bytes = cost.wire_bytes;
  out.seconds = cost.seconds;
  out.cost = cost::value_of(cost, objective_);
  set_bound(out, placed.lower_bound);
  out.peak_bytes = cost.peak.bytes;
  for (const auto& [node, bytes] : cost.peak.held) {
    if (bytes <= out.peak_value_bytes) continue;
    out.peak_value_bytes = bytes;
    out.peak_value = out.vertices[by.at(node)].name;
  }
  return out;
}

/// Costs and bounds of an exact choice are one number, but for rounding and for the weight that flops have in ties.
/// Where prime factors of the sites are merged into axes, plans that divide these differently are not considered:
/// nothing is known of them.
void GraphPlacer::set_bound(GraphPlacement& out, double bound) const {
  if (grid_ != ia::Grid::of_sites(grid_.sites())) bound = 0;
  out.exact = std::abs(out.cost - bound) <= cost::slack_of(out.cost, objective_);
  const double safe = cost::safe_bound(bound, out.cost, objective_);
  out.lower_bound = out.exact ? out.cost : std::clamp(safe, 0.0, out.cost);
}

VertexPlacement GraphPlacer::divided(const Vertex& vertex, const PlacementSolution& placed) const {
  VertexPlacement out{vertex.name, vertex.vertex, vertex.input};
  for (const std::string& label : vertex.labels) out.parts[label] = 1;
  const ia::PhysicalType& type = placed.nodes.at(vertex.work.get())->type();
  out.axes.resize(grid_.rank());
  for (const int64_t axis : type.placement.axes_in<ia::Split>()) {
    const int64_t dim = std::get<ia::Split>(type.placement.grid()->states[axis]).dim;
    out.axes[axis] = vertex.keys[dim];
    int64_t& parts = out.parts.at(vertex.keys[dim]);
    parts = std::min(parts * grid_.axes[axis], std::max<int64_t>(type.relation.frontier[dim], 1));
  }
  return out;
}

}  // namespace joinsum::optimizer
