#include "ia/infer.h"

#include <algorithm>
#include <map>
#include <set>

#include "relation/typing.h"

namespace joinsum::ia {
namespace {

using relation::JoinKeys;

PhysicalType moved(const std::string& who, const PhysicalType& source, const GridPlacement& target) {
  const Placement placement(target);
  JOINSUM_USER_CHECK(target.states.size() == source.grid.axes.size(), who,
                     ": a target has one state per grid axis: target=", placement.text(source.relation.frontier),
                     ", grid=", source.grid.text());
  GridPlacement reduced = target;
  for (const int64_t a : placement.axes_in<Pending>()) {
    const auto* from = source.placement.grid();
    JOINSUM_USER_CHECK(
        from != nullptr && from->states[a] == target.states[a], who, ": a move cannot make an axis pending: axis=", a,
        ", from=", source.placement.text(source.relation.frontier), ", to=", placement.text(source.relation.frontier));
    reduced.states[a] = Replicated{};
  }
  PhysicalType out = PhysicalType::placed(who, source.relation, source.grid, reduced);
  if (!placement.pending()) return out;
  out.holding = reduced_holding(source, placement);
  out.placement = placement;
  return out;
}

PhysicalType infer_broadcast(const Broadcast& op, const PhysicalType& input) {
  const std::set<int64_t> axes(op.axes.begin(), op.axes.end());
  const bool known = axes.empty() || (*axes.begin() >= 0 && *axes.rbegin() < input.grid.rank());
  JOINSUM_USER_CHECK(known && axes.size() == op.axes.size(),
                     "broadcast: grid axes are not there, or named twice: axes=", op.axes,
                     ", grid=", input.grid.text());
  const auto* from = input.placement.grid();
  JOINSUM_USER_CHECK(from != nullptr || op.axes.size() == input.grid.axes.size(),
                     "broadcast: a scattered relation is broadcast along ", "all axes: axes=", op.axes,
                     ", grid=", input.grid.text());
  for (const int64_t a : input.placement.axes_in<Split>()) {
    const Dims together = input.placement.axes_splitting(std::get<Split>(from->states[a]).dim);
    const bool slower = position_of(op.axes, a) && std::any_of(together.begin(), together.end(), [&](int64_t b) {
                          return b > a && !position_of(op.axes, b);
                        });
    JOINSUM_USER_CHECK(
        !slower,
        "broadcast: of the axes that split one key dimension the faster ones go first, else a site's keys are ",
        "no share of the others; shuffle instead: axes=", op.axes,
        ", placement=", input.placement.text(input.relation.frontier));
  }
  GridPlacement target = from != nullptr ? *from : *Placement::replicated(input.grid).grid();
  for (const int64_t a : op.axes) target.states[a] = Replicated{};
  return moved("broadcast", input, target);
}

std::string both(const PhysicalType& left, const PhysicalType& right) {
  return concatenate("left=", left.placement.text(left.relation.frontier),
                     ", right=", right.placement.text(right.relation.frontier));
}

/// State of one grid axis of a join, or an error that says why the operands do not meet.
AxisState joined_state(const AxisState& left, const AxisState& right, const relation::JoinKeys& on,
                       const Dims& right_position, const PhysicalType& left_type, const PhysicalType& right_type,
                       const Kernel& kernel) {
  const auto* left_split = std::get_if<Split>(&left);
  const auto* right_split = std::get_if<Split>(&right);
  const bool left_whole = std::holds_alternative<Replicated>(left);
  const bool right_whole = std::holds_alternative<Replicated>(right);
  const auto* left_pending = std::get_if<Pending>(&left);
  const auto* right_pending = std::get_if<Pending>(&right);
  const auto* pending = left_pending != nullptr ? left_pending : right_pending;
  if (left_pending != nullptr && right_pending != nullptr) {
    JOINSUM_USER_CHECK(*left_pending == *right_pending && kernels::table::joins_partials(kernel, pending->kernel),
                       "local_join: partial values of both operands give none of the result; reduce one first: kernel=",
                       kernel.text(), ", ", both(left_type, right_type));
    return *pending;
  }
  if (pending != nullptr) {
    JOINSUM_USER_CHECK(
        left_whole || right_whole,
        "local_join: a pending operand meets replicated ones only; reduce it first: ", both(left_type, right_type));
    JOINSUM_USER_CHECK(kernels::table::distributes(kernel, pending->kernel, left_pending != nullptr ? 0 : 1),
                       "local_join: kernel does not distribute over ",
                       "the pending reduction; reduce the operand first: kernel=", kernel.text(),
                       ", reduction=", pending->kernel);
    return *pending;
  }
  if (left_whole && right_whole) return Replicated{};
  if (right_whole) return *left_split;
  const Split carried{right_position[right_split->dim], right_split->domain};
  if (left_whole) return carried;
  const bool joined = position_of(on.right, right_split->dim).has_value();
  JOINSUM_USER_CHECK(joined && carried == *left_split,
                     "local_join: operands do not meet on one site; shuffle both by the join keys, ",
                     "or broadcast one: ", both(left_type, right_type), ", keys=", on.left, " and ", on.right);
  return carried;
}

Placement joined_placement(const PhysicalType& left, const PhysicalType& right, const relation::JoinKeys& on,
                           const Kernel& kernel) {
  const Dims right_position = on.right_position(left.relation.arity(), right.relation.arity());
  const auto* left_scattered = left.placement.scattered();
  const auto* right_scattered = right.placement.scattered();
  if (left_scattered != nullptr || right_scattered != nullptr) {
    const auto& other = left_scattered != nullptr ? right.placement : left.placement;
    JOINSUM_USER_CHECK(
        other.fully_replicated(),
        "local_join: a scattered operand meets fully replicated ones only; shuffle it first: ", both(left, right));
    if (left_scattered != nullptr) return *left_scattered;
    Scattered out = *right_scattered;
    if (out.together) {
      for (int64_t& dim : *out.together) dim = right_position[dim];
    }
    return out;
  }
  for (size_t i = 0; i < on.left.size(); ++i) {
    const Dims a = left.placement.axes_splitting(on.left[i]);
    const Dims b = right.placement.axes_splitting(on.right[i]);
    JOINSUM_USER_CHECK(std::equal(a.begin(), a.begin() + static_cast<int64_t>(std::min(a.size(), b.size())), b.begin()),
                       "local_join: operands do not meet on one site; the axes that split a join key must agree: ",
                       both(left, right), ", keys=", on.left, " and ", on.right);
  }
  GridPlacement out;
  for (size_t a = 0; a < left.grid.axes.size(); ++a) {
    out.states.push_back(joined_state(left.placement.grid()->states[a], right.placement.grid()->states[a], on,
                                      right_position, left, right, kernel));
  }
  std::set<std::string> reductions;
  for (const AxisState& state : out.states) {
    if (const auto* pending = std::get_if<Pending>(&state)) reductions.insert(pending->kernel);
  }
  JOINSUM_USER_CHECK(
      reductions.size() < 2,
      "local_join: operands are pending under different reductions; reduce one first: ", both(left, right));
  return out;
}

Holding::KeyList joined_keys(const std::vector<Key>& left, const std::vector<Key>& right,
                             const relation::JoinKeys& on) {
  std::map<Key, std::vector<Key>> matches;
  for (const Key& key : right) matches[project(key, on.right)].push_back(key);
  auto keys = std::make_shared<std::vector<Key>>();
  for (const Key& key : left) {
    for (const Key& other : matches[project(key, on.left)]) keys->push_back(on.joined(key, other));
  }
  std::sort(keys->begin(), keys->end());
  return keys;
}

/// What each site holds after joining what it holds of both.
Holding joined_holding(const PhysicalType& left, const PhysicalType& right, const relation::JoinKeys& on) {
  std::vector<std::optional<Box>> boxes;
  std::vector<Holding::KeyList> lists;
  const bool regular = left.holding.regular() && right.holding.regular();
  for (int64_t site = 0; site < left.sites(); ++site) {
    if (!regular) {
      lists.push_back(joined_keys(*left.holding.keys(site), *right.holding.keys(site), on));
      continue;
    }
    const auto& a = left.holding.box(site);
    const auto& b = right.holding.box(site);
    boxes.push_back(a && b ? std::optional(on.joined(*a, *b)) : std::nullopt);
  }
  return regular ? Holding::of_boxes(std::move(boxes)) : Holding::of_keys(std::move(lists));
}

/// A reduced grid placement says itself what sites hold; other placements need `derive`.
template <class Derive>
PhysicalType assemble(RelationType relation, const Grid& grid, Placement placement, const Derive& derive) {
  const bool plain = placement.grid() != nullptr && !placement.pending();
  Holding holding = plain ? Holding::placed(relation, grid, placement) : derive();
  return {std::move(relation), grid, std::move(placement), std::move(holding)};
}

/// Where both operands are pending, each partial value of one meets one of the other.
void check_partials_meet(const PhysicalType& left, const PhysicalType& right, const relation::JoinKeys& on,
                         const PhysicalType& joined) {
  const Dims pending = right.placement.axes_in<Pending>();
  const Dims left_pending = left.placement.axes_in<Pending>();
  const bool both_pending =
      std::any_of(pending.begin(), pending.end(), [&](int64_t a) { return position_of(left_pending, a).has_value(); });
  if (!both_pending) return;
  const auto joins_all = [&](const Dims& keys, const PhysicalType& type) {
    return std::set<int64_t>(keys.begin(), keys.end()).size() == static_cast<size_t>(type.relation.arity());
  };
  bool meet = joins_all(on.left, left) && joins_all(on.right, right);
  for (int64_t site = 0; meet && site < joined.sites(); ++site) {
    const int64_t tuples = joined.holding.tuples(site);
    meet = tuples == left.holding.tuples(site) && tuples == right.holding.tuples(site);
  }
  JOINSUM_USER_CHECK(meet,
                     "local_join: of operands that are both pending each site needs partial values of equal keys; ",
                     "reduce one first: ", both(left, right));
}

PhysicalType infer_join(const LocalJoin& op, const PhysicalType& left, const PhysicalType& right) {
  JOINSUM_USER_CHECK(left.grid == right.grid, "local_join: operands lie on different grids: left=", left.grid.text(),
                     ", right=", right.grid.text());
  const relation::JoinKeys on{op.left_keys, op.right_keys};
  RelationType relation = relation::join_type("local_join", left.relation, right.relation, on, op.kernel);
  Placement placement = joined_placement(left, right, on, op.kernel);
  const auto duplicate = placement.pending() ? relation.first_duplicate() : std::nullopt;
  JOINSUM_USER_CHECK(
      !duplicate,
      "local_join: a key would occur twice in a pending result, and partials are identified by key; reduce the ",
      "operand first: key=", key_text(duplicate.value_or(Key{})));
  PhysicalType out =
      assemble(std::move(relation), left.grid, std::move(placement), [&] { return joined_holding(left, right, on); });
  check_partials_meet(left, right, on, out);
  return out;
}

Placement aggregated_placement(const LocalAggregate& op, const PhysicalType& input) {
  const Dims& group = op.group_by;
  if (const auto* scattered = input.placement.scattered()) {
    JOINSUM_USER_CHECK(input.placement.keeps_together(group),
                       "local_aggregate: groups of a scattered relation lie on several sites; shuffle ",
                       "it first: keep=", group, ", placement=", input.placement.text(input.relation.frontier));
    Scattered out{Dims{}};
    for (const int64_t dim : *scattered->together) out.together->push_back(*position_of(group, dim));
    return out;
  }
  JOINSUM_USER_CHECK(kernels::table::reduces_in_any_order(op.kernel) || input.placement.keeps_together(group),
                     "local_aggregate: kernel is not associative and ",
                     "commutative, and groups lie on several sites; shuffle to the groups first: kernel=",
                     op.kernel.text(), ", keep=", group, ", placement=", input.placement.text(input.relation.frontier));
  GridPlacement out = *input.placement.grid();
  for (AxisState& state : out.states) {
    if (auto* split = std::get_if<Split>(&state)) {
      if (const auto kept = position_of(group, split->dim)) {
        split->dim = *kept;
      } else {
        JOINSUM_USER_CHECK(
            op.kernel.parameters.empty(),
            "local_aggregate: a kernel with parameters leaves no pending partials; shuffle to the groups ",
            "first: kernel=", op.kernel.text(), ", keep=", group);
        state = Pending{op.kernel.name};
      }
    }
    const auto* pending = std::get_if<Pending>(&state);
    JOINSUM_USER_CHECK(pending == nullptr || pending->kernel == op.kernel.name,
                       "local_aggregate: input is pending under another reduction; ",
                       "reduce it first: reduction=", pending == nullptr ? "" : pending->kernel,
                       ", kernel=", op.kernel.text());
  }
  return out;
}

Holding projected_holding(const PhysicalType& input, const Dims& group) {
  std::vector<std::optional<Box>> boxes;
  std::vector<Holding::KeyList> lists;
  for (int64_t site = 0; site < input.sites(); ++site) {
    if (input.holding.regular()) {
      const auto& box = input.holding.box(site);
      boxes.push_back(box ? std::optional(Box{project(box->lower, group), project(box->upper, group)}) : std::nullopt);
      continue;
    }
    std::set<Key> keys;
    const auto held = input.holding.keys(site);
    for (const Key& key : *held) keys.insert(project(key, group));
    lists.push_back(std::make_shared<const std::vector<Key>>(keys.begin(), keys.end()));
  }
  return input.holding.regular() ? Holding::of_boxes(std::move(boxes)) : Holding::of_keys(std::move(lists));
}

PhysicalType infer_aggregate(const LocalAggregate& op, const PhysicalType& input) {
  RelationType relation = relation::aggregate_type("local_aggregate", input.relation, op.group_by, op.kernel);
  Placement placement = aggregated_placement(op, input);
  return assemble(std::move(relation), input.grid, std::move(placement),
                  [&] { return projected_holding(input, op.group_by); });
}

PhysicalType infer_filter(const LocalFilter& op, const PhysicalType& input) {
  RelationType relation = relation::filter_type("local_filter", input.relation, op.predicate);
  return assemble(std::move(relation), input.grid, input.placement, [&] {
    std::vector<Holding::KeyList> lists;
    for (int64_t site = 0; site < input.sites(); ++site) {
      auto keys = std::make_shared<std::vector<Key>>();
      const auto held = input.holding.keys(site);
      std::copy_if(held->begin(), held->end(), std::back_inserter(*keys),
                   [&](const Key& key) { return op.predicate.evaluate(key) != 0; });
      lists.push_back(std::move(keys));
    }
    return Holding::of_keys(std::move(lists));
  });
}

Holding mapped_holding(const LocalMap& op, const PhysicalType& input) {
  std::vector<Holding::KeyList> lists;
  for (int64_t site = 0; site < input.sites(); ++site) {
    auto keys = std::make_shared<std::vector<Key>>();
    const auto held = input.holding.keys(site);
    for (const Key& key : *held) {
      for (int64_t m = 0; m < op.outputs; ++m) keys->push_back(op.key_map.evaluate(key, m));
    }
    std::sort(keys->begin(), keys->end());
    lists.push_back(std::move(keys));
  }
  return Holding::of_keys(std::move(lists));
}

bool on_one_site(const Holding& holding, const Dims& dims) {
  std::map<Key, int64_t> owner;
  for (int64_t site = 0; site < holding.sites(); ++site) {
    const auto keys = holding.keys(site);
    for (const Key& key : *keys) {
      if (owner.emplace(project(key, dims), site).first->second != site) return false;
    }
  }
  return true;
}

/// The strongest promise that holds: dimensions are dropped from the right while their tuples still meet.
Scattered scattered_by(const Holding& holding, int64_t arity) {
  Dims together = all_dims(arity);
  if (!on_one_site(holding, together)) return {};
  for (int64_t d = arity - 1; d >= 0; --d) {
    Dims fewer = together;
    std::erase(fewer, d);
    if (on_one_site(holding, fewer)) together = fewer;
  }
  return {together};
}

/// Placement of a map that keeps every split dimension, if it does.
std::optional<Placement> carried_placement(const LocalMap& op, const Placement& placement) {
  if (placement.grid() == nullptr) return std::nullopt;
  GridPlacement out = *placement.grid();
  const Dims copied = op.key_map.copied_dims();
  for (AxisState& state : out.states) {
    if (auto* split = std::get_if<Split>(&state)) {
      const auto carried = position_of(copied, split->dim);
      if (!carried) return std::nullopt;
      split->dim = *carried;
    }
  }
  return out;
}

PhysicalType infer_map(const LocalMap& op, const PhysicalType& input) {
  RelationType relation = relation::map_type("local_map", input.relation, op.outputs, op.key_map, op.array_map);
  const bool identity = op.outputs == 1 && op.key_map.is_identity(input.relation.arity());
  if (const auto reduction = input.placement.pending_kernel()) {
    JOINSUM_USER_CHECK(identity,
                       "local_map: a key map over a pending relation; reduce it first: key map=", op.key_map.text());
    JOINSUM_USER_CHECK(kernels::table::distributes(op.array_map, *reduction, 0),
                       "local_map: kernel does not distribute over the pending reduction; reduce ",
                       "the input first: kernel=", op.array_map.text(), ", reduction=", *reduction);
  }
  if (identity) return {std::move(relation), input.grid, input.placement, input.holding};
  if (auto placement = carried_placement(op, input.placement)) {
    return assemble(std::move(relation), input.grid, std::move(*placement), [&] { return mapped_holding(op, input); });
  }
  JOINSUM_USER_CHECK(input.placement.axes_in<Replicated>().empty(),
                     "local_map: a key map loses the split of a relation that is replicated on ",
                     "some axes; split or broadcast all axes first: key map=", op.key_map.text(),
                     ", placement=", input.placement.text(input.relation.frontier));
  Holding holding = mapped_holding(op, input);
  Placement placement = scattered_by(holding, relation.arity());
  return {std::move(relation), input.grid, std::move(placement), std::move(holding)};
}

/// What sites hold of `base`, without the keys that `updates` has on any site, and of `updates`.
Holding upserted_holding(const PhysicalType& base, const PhysicalType& updates) {
  const std::vector<Key> written = updates.relation.all_keys();
  std::vector<Holding::KeyList> lists;
  for (int64_t site = 0; site < base.sites(); ++site) {
    auto keys = std::make_shared<std::vector<Key>>(*updates.holding.keys(site));
    const auto held = base.holding.keys(site);
    std::copy_if(held->begin(), held->end(), std::back_inserter(*keys),
                 [&](const Key& key) { return !std::binary_search(written.begin(), written.end(), key); });
    std::sort(keys->begin(), keys->end());
    lists.push_back(std::move(keys));
  }
  return Holding::of_keys(std::move(lists));
}

PhysicalType infer_upsert(const PhysicalType& base, const PhysicalType& updates) {
  JOINSUM_USER_CHECK(base.grid == updates.grid,
                     "local_upsert: operands lie on different grids: base=", base.grid.text(),
                     ", updates=", updates.grid.text());
  const std::string places = concatenate("base=", base.placement.text(base.relation.frontier),
                                         ", updates=", updates.placement.text(updates.relation.frontier));
  JOINSUM_USER_CHECK(!base.placement.pending() && !updates.placement.pending(),
                     "local_upsert: an operand is pending; reduce it first: ", places);
  RelationType relation = relation::upsert_type("local_upsert", base.relation, updates.relation);
  const auto* target = base.placement.grid();
  const bool owned = target != nullptr && base.placement == updates.placement &&
                     std::all_of(target->states.begin(), target->states.end(), [&](const AxisState& state) {
                       const auto* split = std::get_if<Split>(&state);
                       return split == nullptr || split->domain >= relation.frontier[split->dim];
                     });
  if (owned) {
    return assemble(std::move(relation), base.grid, base.placement, [&] { return upserted_holding(base, updates); });
  }
  JOINSUM_USER_CHECK(
      base.placement.axes_in<Replicated>().empty() && updates.placement.axes_in<Replicated>().empty(),
      "local_upsert: operands that are placed differently hold each tuple on one site only; move both to one ",
      "placement: ", places);
  Holding holding = upserted_holding(base, updates);
  Placement placement = scattered_by(holding, relation.arity());
  return {std::move(relation), base.grid, std::move(placement), std::move(holding)};
}

struct Infer {
  const std::vector<const PhysicalType*>& inputs;

  void take(const Operation& operation, size_t count) const {
    JOINSUM_USER_CHECK(inputs.size() == count, operator_name(operation),
                       ": wrong number of inputs: inputs=", inputs.size(), ", wanted=", count);
  }
  PhysicalType operator()(const Input& op) const {
    throw PlanError(concatenate("input: an input's type is given, not inferred: name=", op.name));
  }
  PhysicalType operator()(const Broadcast& op) const { return take(op, 1), infer_broadcast(op, *inputs[0]); }
  PhysicalType operator()(const Shuffle& op) const { return take(op, 1), moved("shuffle", *inputs[0], op.target); }
  PhysicalType operator()(const LocalJoin& op) const { return take(op, 2), infer_join(op, *inputs[0], *inputs[1]); }
  PhysicalType operator()(const LocalAggregate& op) const { return take(op, 1), infer_aggregate(op, *inputs[0]); }
  PhysicalType operator()(const LocalFilter& op) const { return take(op, 1), infer_filter(op, *inputs[0]); }
  PhysicalType operator()(const LocalMap& op) const { return take(op, 1), infer_map(op, *inputs[0]); }
  PhysicalType operator()(const LocalCall& op) const { return infer_call(op, inputs); }
  PhysicalType operator()(const LocalUpsert& op) const { return take(op, 2), infer_upsert(*inputs[0], *inputs[1]); }
};

}  // namespace

PhysicalType infer(const Operation& operation, const std::vector<const PhysicalType*>& inputs) {
  return std::visit(Infer{inputs}, operation);
}

}  // namespace joinsum::ia
