#include "optimizer/placement/ways.h"

#include <algorithm>

#include "ia/fusion.h"
#include "kernels/table.h"
#include "kernels/typing.h"
#include "tra/lower.h"

namespace joinsum::optimizer {
namespace {

/// Adds a type once, by its placement.
void add_place(std::vector<ia::PhysicalType>& places, const ia::PhysicalType& type) {
  const bool known = std::any_of(places.begin(), places.end(),
                                 [&](const ia::PhysicalType& other) { return other.placement == type.placement; });
  if (!known) places.push_back(type);
}

ia::NodePtr stand_in(const char* name, const ia::PhysicalType& type) { return ia::make_input(name, type); }

/// Where the other operand of a join meets one that is placed so: split by the same keys.
ia::Placement met_by(const ia::Placement& placement, const Dims& keys, const Dims& other_keys) {
  ia::GridPlacement out = *placement.grid();
  for (ia::AxisState& state : out.states) {
    const auto* split = std::get_if<ia::Split>(&state);
    const auto key = split != nullptr ? position_of(keys, split->dim) : std::nullopt;
    state = key ? ia::AxisState(ia::Split{other_keys[*key], split->domain}) : ia::Replicated{};
  }
  return out;
}

}  // namespace

const tra::Node* Vertex::joined() const {
  if (join != nullptr) return join;
  return !output && node->as<tra::Join>() != nullptr ? node : nullptr;
}

size_t Vertex::place_in(const ia::Placement& placement) const {
  const auto at = std::find_if(places.begin(), places.end(),
                               [&](const ia::PhysicalType& type) { return type.placement == placement; });
  return static_cast<size_t>(at - places.begin());
}

Ways::Ways(const tra::Plan& plan, const ia::Grid& grid, const PlacementDemands& demands, Objective objective,
           const Cluster& cluster, const Labels& labels)
    : plan_(plan), grid_(grid), demands_(demands), objective_(objective), cluster_(cluster), labels_(labels) {}

std::vector<Vertex> Ways::run() {
  find_vertices();
  add_ends();
  for (Vertex& vertex : vertices_) {
    if (const auto* join = vertex.joined()) take_join_modes(vertex, *join);
  }
  for (size_t v = 0; v < vertices_.size(); ++v) add_places_wanted(static_cast<int64_t>(v));
  for (size_t v = 0; v < vertices_.size(); ++v) complete(static_cast<int64_t>(v));
  return std::move(vertices_);
}

// --- vertices --------------------------------------------------------------------------------------------------------

/// Joins whose only reader is a sum that can leave partials, but for pinned ones.
std::set<const tra::Node*> Ways::joins_below_sums() const {
  std::unordered_map<const tra::Node*, int64_t> uses;
  for (const auto& node : plan_.order()) {
    for (const auto& input : node->inputs()) ++uses[input.get()];
  }
  for (const auto& output : plan_.outputs()) ++uses[output.node.get()];
  std::set<const tra::Node*> out;
  for (const auto& node : plan_.order()) {
    const auto* sum = node->as<tra::Aggregate>();
    if (sum == nullptr || node->input(0)->as<tra::Join>() == nullptr) continue;
    const tra::Node* join = node->input(0).get();
    if (uses.at(join) == 1 && kernels::foldable(sum->kernel.first()) && !demands_.pins.contains(join)) out.insert(join);
  }
  return out;
}

void Ways::find_vertices() {
  const auto inner = joins_below_sums();
  for (const auto& node : plan_.order()) {
    if (inner.contains(node.get())) continue;
    Vertex vertex;
    vertex.node = node.get();
    const bool sums = !node->inputs().empty() && inner.contains(node->input(0).get());
    if (sums) vertex.join = node->input(0).get();
    const tra::Node& reads = sums ? *vertex.join : *node;
    const auto number = static_cast<int64_t>(vertices_.size());
    for (const auto& input : reads.inputs()) {
      vertex.operands.push_back(number_.at(input.get()));
      readers_[vertex.operands.back()].push_back(number);
      const auto& labels = labels_.of(*input);
      vertex.labels.insert(labels.begin(), labels.end());
    }
    number_[node.get()] = number;
    vertices_.push_back(std::move(vertex));
    readers_.emplace_back();
  }
}

/// Outputs that must end in a certain way read their values.
void Ways::add_ends() {
  for (size_t i = 0; i < plan_.outputs().size(); ++i) {
    const auto& output = plan_.outputs()[i];
    if (!demands_.ends.contains(output.name)) continue;
    Vertex vertex;
    vertex.node = output.node.get();
    vertex.output = i;
    vertex.operands = {number_.at(output.node.get())};
    vertices_.push_back(std::move(vertex));
    readers_.emplace_back();
  }
}

// --- ways to run -----------------------------------------------------------------------------------------------------

ia::PhysicalType Ways::placed(const RelationType& relation, const ia::Placement& placement) const {
  return ia::PhysicalType::placed("optimize", relation, grid_, placement);
}

void Ways::price(Mode& mode, const ia::NodePtr& node, Fusion fusion) const {
  const NodeCost cost = node_cost(*node, fusion, cluster_);
  mode.value += value_of(cost, objective_);
  mode.flops += static_cast<double>(cost.flops);
}

/// Whether a join has to divide its work over every axis that its extents allow.
bool Ways::divides_all(const Vertex& vertex, const tra::Node& join) const {
  if (objective_ == Objective::kSeconds) return false;
  return vertex.join != nullptr || kernels::contracts(join.as<tra::Join>()->kernel);
}

/// Whether tuples that lie so divide the work of `work` otherwise than is asked of it.
bool Ways::refused(const tra::Node& work, const ia::PhysicalType& type) const {
  const Cut* cut = demands_.work_of(&work);
  if (cut == nullptr) return false;
  const auto split = split_of(type.placement);
  return !split || !cut->met_by(grid_, type.relation.frontier, *split);
}

/// What is asked for need not divide all work.
std::vector<Dims> Ways::divisions_of(const Vertex& vertex, const tra::Node& join) const {
  const Cut* cut = demands_.work_of(&join);
  if (cut != nullptr && cut->axes) return {*cut->axes};
  const Dims& frontier = join.type().frontier;
  std::vector<Divisible> dims;
  for (int64_t d = 0; d < join.type().arity(); ++d) dims.push_back({frontier[d], labels_.of(join)[d]});
  std::vector<Dims> out;
  for (const bool all : {divides_all(vertex, join), false}) {
    out = divisions(grid_, dims, all);
    if (cut != nullptr) std::erase_if(out, [&](const Dims& split) { return !cut->met_by(grid_, frontier, split); });
    if (!out.empty() || cut == nullptr) break;
  }
  return out;
}

/// Equal joins of relations of equal types, with labels in one order, have equal ways.
void Ways::take_join_modes(Vertex& vertex, const tra::Node& join) {
  const auto& labels = labels_.of(join);
  std::set<int64_t> order(labels.begin(), labels.end());
  std::vector<int64_t> ranks;
  for (const int64_t label : labels) ranks.push_back(std::distance(order.begin(), order.find(label)));
  const bool told = demands_.work_of(&join) != nullptr;
  const auto same = [&](const Known& known) {
    return known.ranks == ranks && known.join->operation() == join.operation() &&
           (known.sum == nullptr) == (vertex.join == nullptr) &&
           (known.sum == nullptr || known.sum->operation() == vertex.node->operation()) &&
           known.join->input(0)->type() == join.input(0)->type() &&
           known.join->input(1)->type() == join.input(1)->type();
  };
  const auto found = told ? known_.end() : std::find_if(known_.begin(), known_.end(), same);
  if (found == known_.end()) {
    add_join_modes(vertex, join);
    if (!told) known_.push_back({ranks, &join, vertex.join == nullptr ? nullptr : vertex.node, vertex.modes, labels});
    return;
  }
  vertex.modes = found->modes;
  for (Mode& mode : vertex.modes) {
    std::set<int64_t> divided;
    for (size_t d = 0; d < labels.size(); ++d) {
      if (mode.divided.contains(found->labels[d])) divided.insert(labels[d]);
    }
    mode.divided = std::move(divided);
  }
}

void Ways::add_join_modes(Vertex& vertex, const tra::Node& join) const {
  const auto& op = *join.as<tra::Join>();
  const RelationType& left = join.input(0)->type();
  const RelationType& right = join.input(1)->type();
  const kernels::JoinKeys on{op.left_keys, op.right_keys};
  const Dims right_position = on.right_position(left.arity(), right.arity());
  Dims left_domains = left.frontier;
  Dims right_domains = right.frontier;
  for (size_t i = 0; i < op.left_keys.size(); ++i) {
    int64_t& a = left_domains[op.left_keys[i]];
    int64_t& b = right_domains[op.right_keys[i]];
    a = b = std::max(a, b);
  }
  for (const Dims& division : divisions_of(vertex, join)) {
    Dims left_split;
    Dims right_split;
    Mode mode;
    for (const int64_t dim : division) {
      left_split.push_back(dim >= 0 && dim < left.arity() ? dim : -1);
      right_split.push_back(dim >= 0 ? position_of(right_position, dim).value_or(-1) : -1);
      if (dim >= 0) mode.divided.insert(labels_.of(join)[dim]);
    }
    mode.needs = {placement_of(left_split, left_domains), placement_of(right_split, right_domains)};
    try {
      run_join(vertex, op, placed(left, mode.needs[0]), placed(right, mode.needs[1]), mode);
      vertex.modes.push_back(std::move(mode));
    } catch (const PlanError&) {
    } catch (const KernelError&) {
    }
  }
}

/// Gives a mode its result and its price; returns the type of the join itself.
ia::PhysicalType Ways::run_join(const Vertex& vertex, const tra::Join& op, const ia::PhysicalType& left,
                                const ia::PhysicalType& right, Mode& mode) const {
  ia::NodePtr node =
      ia::make(ia::LocalJoin{op.left_keys, op.right_keys, op.kernel}, {stand_in("L", left), stand_in("R", right)});
  const ia::PhysicalType joined = node->type();
  if (vertex.join == nullptr) {
    price(mode, node, Fusion::kNone);
  } else {
    const ia::NodePtr join_node = node;
    node = ia::make(tra::local_operation(*vertex.node), {join_node});
    const auto fused = ia::fused_joins(ia::Plan::make({{"Z", node, std::nullopt}}));
    price(mode, join_node, fusion_of(*join_node, fused));
    price(mode, node, fusion_of(*node, fused));
  }
  mode.result = node->type();
  return joined;
}

/// Ways to run a join where an operand lies in a manner of its own (partials that nothing has settled, owners
/// computed on another domain, scattered): the other one comes to meet it there.
void Ways::add_modes_where_operands_lie(Vertex& vertex, const tra::Node& join) {
  for (const size_t side : {0, 1}) {
    const std::vector<ia::PhysicalType> places = vertices_[vertex.operands[side]].places;
    for (const ia::PhysicalType& place : places) {
      for (const ia::Placement& other : ways_to_meet(vertex, join, side, place.placement)) {
        add_mode_where_lies(vertex, join, side, place, other);
      }
    }
  }
}

void Ways::add_mode_where_lies(Vertex& vertex, const tra::Node& join, size_t side, const ia::PhysicalType& place,
                               const ia::Placement& meets) {
  Vertex& other = vertices_[vertex.operands[1 - side]];
  Mode mode{{place.placement, place.placement}, std::nullopt, 0, 0, divided_labels(place, *join.input(side))};
  mode.needs[1 - side] = meets;
  try {
    const ia::PhysicalType type = placed(other.node->type(), meets);
    const auto joined =
        run_join(vertex, *join.as<tra::Join>(), side == 0 ? place : type, side == 0 ? type : place, mode);
    if (refused(join, joined) || (divides_all(vertex, join) && leaves_undivided(joined))) return;
    add_place(other.places, type);
    vertex.modes.push_back(std::move(mode));
  } catch (const PlanError&) {
  } catch (const KernelError&) {
  }
}

/// Where the other operand meets one that is placed so, in ways that `vertex` has not: split by the same join keys,
/// else whole. To drop replicas costs nothing but under `paper_floats`, which so has whole operands as well.
std::vector<ia::Placement> Ways::ways_to_meet(const Vertex& vertex, const tra::Node& join, size_t side,
                                              const ia::Placement& placement) const {
  const auto& op = *join.as<tra::Join>();
  std::vector<ia::Placement> out{ia::Placement::replicated(grid_)};
  const bool paper = objective_ == Objective::kPaperFloats;
  if (placement.grid() != nullptr) {
    const auto met =
        met_by(placement, side == 0 ? op.left_keys : op.right_keys, side == 0 ? op.right_keys : op.left_keys);
    if (!paper) out.clear();
    if (!paper || !(met == out[0])) out.push_back(met);
  }
  std::erase_if(out, [&](const ia::Placement& other) {
    return std::any_of(vertex.modes.begin(), vertex.modes.end(), [&](const Mode& mode) {
      return mode.needs[side] == placement && (!paper || mode.needs[1 - side] == other);
    });
  });
  return out;
}

/// Ways to run an operator of one operand: wherever that may lie, if the operator can run there.
void Ways::add_unary_modes(Vertex& vertex) const {
  const ia::Operation operation = tra::local_operation(*vertex.node);
  for (const ia::PhysicalType& operand : vertices_[vertex.operands[0]].places) {
    if (refused(*vertex.node, operand)) continue;
    try {
      const ia::NodePtr node = ia::make(operation, {stand_in("R", operand)});
      Mode mode{{operand.placement}, node->type(), 0, 0, divided_labels(operand, *vertex.node->input(0))};
      price(mode, node, Fusion::kNone);
      vertex.modes.push_back(std::move(mode));
    } catch (const PlanError&) {
    } catch (const KernelError&) {
    }
  }
}

std::set<int64_t> Ways::divided_labels(const ia::PhysicalType& type, const tra::Node& node) const {
  std::set<int64_t> out;
  for (const int64_t axis : type.placement.axes_in<ia::Split>()) {
    out.insert(labels_.of(node)[std::get<ia::Split>(type.placement.grid()->states[axis]).dim]);
  }
  return out;
}

/// Whether nothing is better than an input that starts whole on every site: from there no move costs anything.
bool Ways::may_start_whole(const std::string& name) const {
  if (objective_ == Objective::kPaperFloats || cluster_.memory_bytes) return false;
  if (objective_ == Objective::kSeconds && cluster_.profile != nullptr) return false;
  return std::none_of(plan_.outputs().begin(), plan_.outputs().end(),
                      [&](const auto& output) { return output.tied_input == name; });
}

void Ways::add_starts(Vertex& vertex) const {
  const std::string& name = vertex.input()->name;
  const auto named = demands_.inputs.find(name);
  if (named != demands_.inputs.end()) {
    vertex.modes.push_back({{}, placed(vertex.node->type(), named->second), 0, 0, {}});
    return;
  }
  const auto asked = demands_.starts.find(name);
  if (asked == demands_.starts.end() && may_start_whole(name)) {
    vertex.modes.push_back({{}, placed(vertex.node->type(), ia::Placement::replicated(grid_)), 0, 0, {}});
    return;
  }
  for (const ia::PhysicalType& place : vertex.places) {
    const auto split = split_of(place.placement);
    const bool met =
        asked == demands_.starts.end() || (split && asked->second.met_by(grid_, place.relation.frontier, *split));
    if (met) vertex.modes.push_back({{}, place, 0, 0, {}});
  }
}

// --- places of values ------------------------------------------------------------------------------------------------

/// Settled placements of a value, and those that joins want it in.
void Ways::add_places_wanted(int64_t v) {
  Vertex& vertex = vertices_[v];
  if (vertex.output) return;
  const RelationType& relation = vertex.node->type();
  if (!readers_are_told(v)) add_settled_places(vertex);
  for (const int64_t r : readers_[v]) {
    const Vertex& reader = vertices_[r];
    for (size_t i = 0; i < reader.operands.size(); ++i) {
      if (reader.operands[i] != v || reader.joined() == nullptr) continue;
      for (const Mode& mode : reader.modes) add_place(vertex.places, placed(relation, mode.needs[i]));
    }
    const Cut* cut = demands_.work_of(reader.node);
    if (reader.joined() == nullptr && cut != nullptr && cut->axes)
      add_place(vertex.places, placed(relation, placement_of(*cut->axes, relation.frontier)));
  }
  const auto pin = demands_.pins.find(vertex.node);
  if (pin != demands_.pins.end()) add_place(vertex.places, placed(relation, pin->second));
  if (const auto* start = start_of_tied(*vertex.node)) add_place(vertex.places, placed(relation, *start));
  if (vertex.input() == nullptr) return;
  const auto start = demands_.inputs.find(vertex.input()->name);
  if (start != demands_.inputs.end()) add_place(vertex.places, placed(relation, start->second));
  const auto asked = demands_.starts.find(vertex.input()->name);
  if (asked != demands_.starts.end() && asked->second.axes)
    add_place(vertex.places, placed(relation, placement_of(*asked->second.axes, relation.frontier)));
}

/// Whether it is said of all readers of a value, which are joins, how they run: then it lies where they need it.
bool Ways::readers_are_told(int64_t v) const {
  const Vertex& vertex = vertices_[v];
  if (vertex.input() != nullptr && !demands_.inputs.contains(vertex.input()->name)) return false;
  const bool ends = std::any_of(plan_.outputs().begin(), plan_.outputs().end(),
                                [&](const auto& output) { return output.node.get() == vertex.node; });
  return !ends && std::all_of(readers_[v].begin(), readers_[v].end(), [&](int64_t r) {
    return vertices_[r].joined() != nullptr && demands_.work_of(vertices_[r].joined()) != nullptr;
  });
}

void Ways::add_settled_places(Vertex& vertex) const {
  const RelationType& relation = vertex.node->type();
  std::vector<Divisible> dims;
  for (int64_t d = 0; d < relation.arity(); ++d) dims.push_back({relation.frontier[d], labels_.of(*vertex.node)[d]});
  for (const Dims& division : divisions(grid_, dims, false)) {
    add_place(vertex.places, placed(relation, placement_of(division, relation.frontier)));
  }
}

/// Where an output must lie that is tied to an input with a given start.
const ia::Placement* Ways::start_of_tied(const tra::Node& node) const {
  for (const auto& output : plan_.outputs()) {
    if (output.node.get() != &node || !output.tied_input) continue;
    const auto start = demands_.inputs.find(*output.tied_input);
    if (start != demands_.inputs.end()) return &start->second;
  }
  return nullptr;
}

/// Ways that depend on where operands may lie; results that no move has settled are places too.
void Ways::complete(int64_t v) {
  Vertex& vertex = vertices_[v];
  if (vertex.output) {
    complete_end(vertex);
    return;
  }
  if (vertex.input() != nullptr) {
    add_starts(vertex);
  } else if (const tra::Node* join = vertex.joined()) {
    add_modes_where_operands_lie(vertex, *join);
  } else {
    add_unary_modes(vertex);
  }
  for (const Mode& mode : vertex.modes) add_place(vertex.places, *mode.result);
}

/// An end takes its value in each way that is allowed.
void Ways::complete_end(Vertex& vertex) {
  Vertex& source = vertices_[vertex.operands[0]];
  const Cut& asked = demands_.ends.at(plan_.outputs()[*vertex.output].name);
  const RelationType& relation = vertex.node->type();
  if (asked.axes) add_place(source.places, placed(relation, placement_of(*asked.axes, relation.frontier)));
  for (const ia::PhysicalType& place : source.places) {
    const auto split = split_of(place.placement);
    if (split && asked.met_by(grid_, relation.frontier, *split))
      vertex.modes.push_back({{place.placement}, place, 0, 0, {}});
  }
}

}  // namespace joinsum::optimizer
