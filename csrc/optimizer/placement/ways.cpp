#include "optimizer/placement/ways.h"

#include <algorithm>

#include "kernels/table.h"
#include "kernels/typing.h"

namespace joinsum::optimizer {
namespace {

/// Operators beyond which the ways to give each of many axes a dimension are too many.
constexpr size_t kManyOperators = 100;

/// Adds a place unless another one has its placement. Null is none.
void add_place(std::vector<const Place*>& places, const Place* place) {
  const bool known = place == nullptr || std::any_of(places.begin(), places.end(), [&](const Place* other) {
                       return other->placement == place->placement;
                     });
  if (!known) places.push_back(place);
}

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

const Place* Vertex::lying(const Place* place) const {
  const auto at = std::find_if(places.begin(), places.end(),
                               [&](const Place* other) { return other->placement == place->placement; });
  JOINSUM_CHECK(at != places.end(), "optimize: a value lies where it has no place: placement=",
                place->type.placement.text(place->type.relation.frontier));
  return *at;
}

bool in_bundles(const tra::Plan& plan, const PlacementDemands& demands, const ia::Grid& grid) {
  return !demands.thorough && plan.order().size() > kManyOperators && bundles_of(grid) != all_dims(grid.rank());
}

std::vector<int64_t> ranks_of(const std::vector<int64_t>& labels) {
  const std::set<int64_t> order(labels.begin(), labels.end());
  std::vector<int64_t> out;
  for (const int64_t label : labels) out.push_back(std::distance(order.begin(), order.find(label)));
  return out;
}

Ways::Ways(const tra::Plan& plan, const PlacementDemands& demands, PlacementMemory& memory, const Labels& labels)
    : plan_(plan),
      demands_(demands),
      memory_(memory),
      grid_(memory.places.grid()),
      objective_(memory.objective),
      coarse_(in_bundles(plan, demands, grid_)),
      labels_(labels) {
  for (const auto& output : plan_.outputs()) {
    if (output.tied_input) tied_[output.node.get()].push_back(&*output.tied_input);
  }
}

std::vector<Vertex> Ways::run() {
  find_vertices();
  add_ends();
  for (Vertex& vertex : vertices_) {
    if (const auto* join = vertex.joined()) take_join_modes(vertex, *join);
    if (vertex.call() != nullptr) take_call_modes(vertex);
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
    vertex.relation = memory_.places.number(node->type());
    if (vertex.input() == nullptr) vertex.operation = memory_.runs.number(*node, vertex.join);
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
    vertex.relation = memory_.places.number(output.node->type());
    vertices_.push_back(std::move(vertex));
    readers_.emplace_back();
  }
}

// --- ways to run -----------------------------------------------------------------------------------------------------

const Place* Ways::placed(const Vertex& vertex, const Dims& split) {
  return memory_.places.placed(vertex.relation, placement_of(split, vertex.node->type().frontier));
}

/// Whether a join has to divide its work over every axis that its extents allow.
bool Ways::divides_all(const Vertex& vertex, const tra::Node& join) const {
  if (objective_ == Objective::kSeconds || demands_.may_repeat) return false;
  return vertex.join != nullptr || kernels::contracts(join.as<tra::Join>()->kernel);
}

/// Whether tuples that are divided so divide the work of `work` otherwise than is asked of it.
bool Ways::refused(const tra::Node& work, const std::optional<Dims>& split) const {
  const Cut* cut = demands_.work_of(&work);
  if (cut == nullptr) return false;
  const Dims& frontier = work.as<tra::Join>() != nullptr ? work.type().frontier : work.input(0)->type().frontier;
  return !split || !cut->met_by(grid_, frontier, *split);
}

std::vector<Dims> Ways::ways_to_divide(const std::vector<Divisible>& dims, bool divide_all) const {
  return coarse_ ? divisions_in_bundles(grid_, dims, divide_all) : divisions(grid_, dims, divide_all);
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
    out = ways_to_divide(dims, all);
    if (cut != nullptr) std::erase_if(out, [&](const Dims& split) { return !cut->met_by(grid_, frontier, split); });
    if (!out.empty() || cut == nullptr) break;
  }
  return out;
}

/// Equal joins of relations of equal types, with labels in one order, have equal ways.
void Ways::take_join_modes(Vertex& vertex, const tra::Node& join) {
  if (demands_.work_of(&join) != nullptr) return add_join_modes(vertex, join);
  Known as{ranks_of(labels_.of(join)), vertex.operation, {}};
  for (const int64_t operand : vertex.operands) as.relations.push_back(vertices_[operand].relation);
  const auto [at, fresh] = known_.try_emplace(std::move(as));
  if (fresh) {
    add_join_modes(vertex, join);
    at->second = vertex.modes;
  } else {
    vertex.modes = at->second;
  }
}

void Ways::add_join_modes(Vertex& vertex, const tra::Node& join) {
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
    for (const int64_t dim : division) {
      left_split.push_back(dim >= 0 && dim < left.arity() ? dim : -1);
      right_split.push_back(dim >= 0 ? position_of(right_position, dim).value_or(-1) : -1);
    }
    const auto of = [&](size_t side) { return vertices_[vertex.operands[side]].relation; };
    const Place* l = memory_.places.find(of(0), placement_of(left_split, left_domains));
    const Place* r = memory_.places.find(of(1), placement_of(right_split, right_domains));
    if (l == nullptr || r == nullptr) continue;
    const Run& run = memory_.runs.of(vertex.operation, *l, *r);
    if (run.result != nullptr) vertex.modes.push_back({{l, r}, run.result, run.value, run.flops});
  }
}

void Ways::take_call_modes(Vertex& vertex) {
  std::vector<int64_t> labels;
  Known as{{}, vertex.operation, {}};
  for (const int64_t operand : vertex.operands) {
    const auto& own = labels_.of(*vertices_[operand].node);
    labels.insert(labels.end(), own.begin(), own.end());
    as.relations.push_back(vertices_[operand].relation);
  }
  as.ranks = ranks_of(labels);
  const auto [at, fresh] = known_.try_emplace(std::move(as));
  if (fresh) {
    add_call_modes(vertex);
    at->second = vertex.modes;
  } else {
    vertex.modes = at->second;
  }
}

/// A call divides its work by letters of its operands that are cut, but for those that it needs whole.
void Ways::add_call_modes(Vertex& vertex) {
  const tra::Call& call = *vertex.call();
  std::string letters;
  std::vector<Divisible> dims;
  for (size_t i = 0; i < call.operands.size(); ++i) {
    const tra::Node& operand = *vertices_[vertex.operands[i]].node;
    for (const char letter : call.operands[i]) {
      const auto dim = kernels::key_of(call.operands[i], operand.type(), letter);
      const bool known = letters.find(letter) != std::string::npos;
      if (!dim || known || call.whole.find(letter) != std::string::npos) continue;
      letters += letter;
      dims.push_back({operand.type().frontier[*dim], labels_.of(operand)[*dim]});
    }
  }
  for (const Dims& division : ways_to_divide(dims, false)) {
    std::vector<const Place*> needs;
    for (size_t i = 0; i < call.operands.size(); ++i) {
      const Vertex& operand = vertices_[vertex.operands[i]];
      Dims split;
      for (const int64_t dim : division) {
        const auto key = dim < 0 ? std::nullopt : kernels::key_of(call.operands[i], operand.node->type(), letters[dim]);
        split.push_back(key.value_or(-1));
      }
      needs.push_back(memory_.places.find(operand.relation, placement_of(split, operand.node->type().frontier)));
    }
    if (std::find(needs.begin(), needs.end(), nullptr) != needs.end()) continue;
    const Run& run = memory_.runs.of(vertex.operation, needs);
    if (run.result != nullptr) vertex.modes.push_back({std::move(needs), run.result, run.value, run.flops});
  }
}

/// Ways to run a join where an operand lies in a manner of its own (partials that nothing has settled, owners
/// computed on another domain, scattered): the other one comes to meet it there.
void Ways::add_modes_where_operands_lie(Vertex& vertex, const tra::Node& join) {
  for (const size_t side : {0, 1}) {
    const std::vector<const Place*> places = vertices_[vertex.operands[side]].places;
    for (const Place* place : places) {
      for (const Place* other : ways_to_meet(vertex, join, side, place)) {
        add_mode_where_lies(vertex, join, side, place, other);
      }
    }
  }
}

void Ways::add_mode_where_lies(Vertex& vertex, const tra::Node& join, size_t side, const Place* place,
                               const Place* meets) {
  const Run& run =
      side == 0 ? memory_.runs.of(vertex.operation, *place, *meets) : memory_.runs.of(vertex.operation, *meets, *place);
  if (run.result == nullptr || refused(join, run.split) || (run.undivided && divides_all(vertex, join))) return;
  Mode mode{{place, place}, run.result, run.value, run.flops};
  mode.needs[1 - side] = meets;
  add_place(vertices_[vertex.operands[1 - side]].places, meets);
  vertex.modes.push_back(std::move(mode));
}

/// Where the other operand meets one that is placed so, in ways that `vertex` has not: split by the same join keys,
/// else whole. To drop replicas costs nothing but under `paper_floats`, which so has whole operands as well.
std::vector<const Place*> Ways::ways_to_meet(const Vertex& vertex, const tra::Node& join, size_t side,
                                             const Place* place) {
  const auto& op = *join.as<tra::Join>();
  const size_t other = vertices_[vertex.operands[1 - side]].relation;
  const ia::Placement& placement = place->type.placement;
  const bool paper = objective_ == Objective::kPaperFloats;
  std::vector<const Place*> out;
  if (paper || placement.grid() == nullptr) out.push_back(memory_.places.replicated(other));
  if (placement.grid() != nullptr) {
    const Place* met = memory_.places.find(
        other, met_by(placement, side == 0 ? op.left_keys : op.right_keys, side == 0 ? op.right_keys : op.left_keys));
    if (met != nullptr && (out.empty() || met != out[0])) out.push_back(met);
  }
  std::erase_if(out, [&](const Place* meets) {
    return std::any_of(vertex.modes.begin(), vertex.modes.end(), [&](const Mode& mode) {
      return mode.needs[side]->placement == place->placement &&
             (!paper || mode.needs[1 - side]->placement == meets->placement);
    });
  });
  return out;
}

/// Ways to run an operator of one operand: wherever that may lie, if the operator can run there.
void Ways::add_unary_modes(Vertex& vertex) {
  for (const Place* operand : vertices_[vertex.operands[0]].places) {
    if (refused(*vertex.node, split_of(operand->type.placement))) continue;
    const Run& run = memory_.runs.of(vertex.operation, *operand);
    if (run.result != nullptr) vertex.modes.push_back({{operand}, run.result, run.value, run.flops});
  }
}

/// Whether nothing is better than an input that starts whole on every site: from there no move costs anything.
bool Ways::may_start_whole(const std::string& name) const {
  if (objective_ == Objective::kPaperFloats || memory_.cluster.memory_bytes) return false;
  if (objective_ == Objective::kSeconds && memory_.cluster.profile != nullptr) return false;
  return std::none_of(plan_.outputs().begin(), plan_.outputs().end(),
                      [&](const auto& output) { return output.tied_input == name; });
}

void Ways::add_starts(Vertex& vertex) {
  const std::string& name = vertex.input()->name;
  const auto named = demands_.inputs.find(name);
  if (named != demands_.inputs.end()) {
    vertex.modes.push_back({{}, memory_.places.placed(vertex.relation, named->second)});
    return;
  }
  const auto asked = demands_.starts.find(name);
  if (asked == demands_.starts.end() && may_start_whole(name)) {
    std::vector<const Place*> starts{memory_.places.replicated(vertex.relation)};
    for (const PartialPlacement& given : demands_.given) {
      const auto start = given.inputs.find(name);
      if (start != given.inputs.end()) add_place(starts, memory_.places.placed(vertex.relation, start->second));
    }
    for (const Place* start : starts) vertex.modes.push_back({{}, start});
    return;
  }
  for (const Place* place : vertex.places) {
    const auto split = split_of(place->type.placement);
    const bool met =
        asked == demands_.starts.end() || (split && asked->second.met_by(grid_, place->type.relation.frontier, *split));
    if (met) vertex.modes.push_back({{}, place});
  }
}

// --- places of values ------------------------------------------------------------------------------------------------

/// Settled placements of a value, and those that joins want it in.
void Ways::add_places_wanted(int64_t v) {
  Vertex& vertex = vertices_[v];
  if (vertex.output) return;
  const auto add = [&](const ia::Placement& at) {
    add_place(vertex.places, memory_.places.placed(vertex.relation, at));
  };
  if (!readers_are_told(v)) add_settled_places(vertex);
  for (const int64_t r : readers_[v]) {
    const Vertex& reader = vertices_[r];
    for (size_t i = 0; i < reader.operands.size(); ++i) {
      if (reader.operands[i] != v || (reader.joined() == nullptr && reader.call() == nullptr)) continue;
      for (const Mode& mode : reader.modes) add_place(vertex.places, mode.needs[i]);
    }
    const Cut* cut = demands_.work_of(reader.node);
    if (reader.joined() == nullptr && reader.call() == nullptr && cut != nullptr && cut->axes)
      add_place(vertex.places, placed(vertex, *cut->axes));
  }
  const auto pin = demands_.pins.find(vertex.node);
  if (pin != demands_.pins.end()) add(pin->second);
  add_given_places(vertex);
  if (vertex.input() == nullptr) return;
  const auto asked = demands_.starts.find(vertex.input()->name);
  if (asked != demands_.starts.end() && asked->second.axes)
    add_place(vertex.places, placed(vertex, *asked->second.axes));
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

void Ways::add_settled_places(Vertex& vertex) {
  const RelationType& relation = vertex.node->type();
  const std::vector<int64_t> ranks = ranks_of(labels_.of(*vertex.node));
  const auto [at, fresh] = settled_.try_emplace({vertex.relation, ranks});
  if (fresh) {
    std::vector<Divisible> dims;
    for (int64_t d = 0; d < relation.arity(); ++d) dims.push_back({relation.frontier[d], ranks[d]});
    for (const Dims& division : ways_to_divide(dims, false)) add_place(at->second, placed(vertex, division));
  }
  for (const Place* place : at->second) add_place(vertex.places, place);
}

/// Where an input starts and outputs end that are tied to it, and where values of given parts of plans are put.
void Ways::add_given_places(Vertex& vertex) {
  std::vector<const std::string*> names;
  const auto tied = tied_.find(vertex.node);
  if (tied != tied_.end()) names = tied->second;
  if (vertex.input() != nullptr) names.push_back(&vertex.input()->name);
  for (const std::string* name : names) add_start(vertex, demands_.inputs, *name);
  for (const PartialPlacement& given : demands_.given) {
    const auto pin = given.pins.find(vertex.node);
    if (pin != given.pins.end()) add_place(vertex.places, memory_.places.placed(vertex.relation, pin->second));
    for (const std::string* name : names) add_start(vertex, given.inputs, *name);
  }
}

void Ways::add_start(Vertex& vertex, const InputPlacements& starts, const std::string& name) {
  const auto start = starts.find(name);
  if (start != starts.end()) add_place(vertex.places, memory_.places.placed(vertex.relation, start->second));
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
  } else if (vertex.call() == nullptr) {
    add_unary_modes(vertex);
  }
  for (const Mode& mode : vertex.modes) add_place(vertex.places, mode.result);
}

/// An end takes its value in each way that is allowed.
void Ways::complete_end(Vertex& vertex) {
  Vertex& source = vertices_[vertex.operands[0]];
  const Cut& asked = demands_.ends.at(plan_.outputs()[*vertex.output].name);
  const RelationType& relation = vertex.node->type();
  if (asked.axes) add_place(source.places, placed(vertex, *asked.axes));
  for (const Place* place : source.places) {
    const auto split = split_of(place->type.placement);
    if (split && asked.met_by(grid_, relation.frontier, *split)) vertex.modes.push_back({{place}, place});
  }
}

}  // namespace joinsum::optimizer
