#include "ia/interpret.h"

#include <algorithm>
#include <set>
#include <tuple>

#include "kernels/reference/reference.h"
#include "relation/typing.h"

namespace joinsum::ia {
namespace {

using kernels::reference::Array;
using kernels::table::Scalars;

bool before(const Tuple& a, const Tuple& b) {
  return std::tie(a.site, a.key, a.array.shape, a.array.values) <
         std::tie(b.site, b.key, b.array.shape, b.array.values);
}

std::vector<Tuple> on_site(const Relation& relation, int64_t site) {
  std::vector<Tuple> out;
  std::copy_if(relation.begin(), relation.end(), std::back_inserter(out),
               [&](const Tuple& t) { return t.site == site; });
  return out;
}

/// Reduces the partial values of each key, in site order.
std::vector<Tuple> reduce_partials(const std::vector<Tuple>& partials, const std::string& reduction) {
  std::map<Key, Tuple> reduced;
  for (const Tuple& partial : partials) {
    const auto [at, first] = reduced.try_emplace(partial.key, partial);
    if (first) continue;
    JOINSUM_CHECK(at->second.site < partial.site, "two partials of one key on one site: key=", key_text(partial.key));
    at->second.array = kernels::reference::run({reduction, {}}, {at->second.array, partial.array});
    at->second.site = partial.site;
  }
  std::vector<Tuple> out;
  for (auto& [key, tuple] : reduced) out.push_back(std::move(tuple));
  return out;
}

/// What the sites hold that differ from `site` only along `axes`: each logical tuple once, whatever its replicas, and
/// partial values reduced that differ along pending ones among `axes`.
std::vector<Tuple> gather(const Relation& relation, const PhysicalType& type, int64_t site, const Dims& axes) {
  const Dims replicated = type.placement.axes_in<Replicated>();
  const Dims here = type.grid.coordinates(site);
  std::vector<bool> is_source(type.grid.sites());
  for (int64_t other = 0; other < type.grid.sites(); ++other) {
    const Dims there = type.grid.coordinates(other);
    is_source[other] = true;
    for (int64_t a = 0; a < type.grid.rank(); ++a) {
      if (there[a] != here[a] && (!position_of(axes, a) || position_of(replicated, a))) is_source[other] = false;
    }
  }
  std::vector<Tuple> out;
  for (const Tuple& tuple : relation) {
    if (is_source[tuple.site]) out.push_back(tuple);
  }
  std::stable_sort(out.begin(), out.end(), [](const Tuple& a, const Tuple& b) { return a.site < b.site; });
  const Dims pending = type.placement.axes_in<Pending>();
  const bool reduces =
      std::any_of(pending.begin(), pending.end(), [&](int64_t a) { return position_of(axes, a).has_value(); });
  return reduces ? reduce_partials(out, *type.placement.pending_kernel()) : out;
}

struct Operand {
  const Relation& relation;
  const PhysicalType& type;
};

struct Interpret {
  const std::vector<Operand>& inputs;
  const PhysicalType& result;
  const Scalars& scalars;

  const Relation& input() const { return inputs[0].relation; }

  Relation operator()(const Input&) const { return input(); }

  Relation operator()(const Broadcast& op) const {
    Relation out;
    for (int64_t site = 0; site < result.sites(); ++site) {
      for (Tuple& tuple : gather(input(), inputs[0].type, site, op.axes)) {
        out.push_back({std::move(tuple.key), std::move(tuple.array), site});
      }
    }
    return out;
  }

  Relation operator()(const Shuffle& op) const {
    const Placement target(op.target);
    const Dims reduced = complement(target.axes_in<Pending>(), result.grid.rank());
    Relation out;
    for (int64_t site = 0; site < result.sites(); ++site) {
      const Box owned = target.box(result.grid, site, result.relation.frontier);
      for (Tuple& tuple : gather(input(), inputs[0].type, site, reduced)) {
        if (owned.contains(tuple.key)) out.push_back({std::move(tuple.key), std::move(tuple.array), site});
      }
    }
    return out;
  }

  Relation operator()(const LocalJoin& op) const {
    const relation::JoinKeys on{op.left_keys, op.right_keys};
    Relation out;
    for (const Tuple& left : inputs[0].relation) {
      for (const Tuple& right : inputs[1].relation) {
        if (left.site != right.site) continue;
        if (project(left.key, op.left_keys) != project(right.key, op.right_keys)) continue;
        out.push_back({on.joined(left.key, right.key),
                       kernels::reference::run(op.kernel, {left.array, right.array}, scalars), left.site});
      }
    }
    return out;
  }

  Relation operator()(const LocalAggregate& op) const {
    std::map<std::pair<int64_t, Key>, std::vector<const Tuple*>> groups;
    for (const Tuple& tuple : input()) groups[{tuple.site, project(tuple.key, op.group_by)}].push_back(&tuple);
    Relation out;
    for (auto& [group, members] : groups) {
      std::stable_sort(members.begin(), members.end(), [](const Tuple* a, const Tuple* b) { return a->key < b->key; });
      Array aggregated = members[0]->array;
      const Kernel kernel = op.kernel.first();
      for (size_t i = 1; i < members.size(); ++i)
        aggregated = kernels::reference::run(kernel, {aggregated, members[i]->array}, scalars);
      for (const Kernel& next : op.kernel.epilogue) aggregated = kernels::reference::run(next, {aggregated}, scalars);
      out.push_back({group.second, std::move(aggregated), group.first});
    }
    return out;
  }

  Relation operator()(const LocalFilter& op) const {
    Relation out;
    std::copy_if(input().begin(), input().end(), std::back_inserter(out),
                 [&](const Tuple& tuple) { return op.predicate.evaluate(tuple.key) != 0; });
    return out;
  }

  Relation operator()(const LocalMap& op) const {
    Relation out;
    for (const Tuple& tuple : input()) {
      for (int64_t m = 0; m < op.outputs; ++m) {
        out.push_back({op.key_map.evaluate(tuple.key, m),
                       kernels::reference::run(op.array_map, {tuple.array}, scalars, m), tuple.site});
      }
    }
    return out;
  }

  Relation operator()(const LocalUpsert&) const {
    std::set<Key> written;
    Relation out = inputs[1].relation;
    for (const Tuple& tuple : out) written.insert(tuple.key);
    std::copy_if(input().begin(), input().end(), std::back_inserter(out),
                 [&](const Tuple& tuple) { return !written.contains(tuple.key); });
    return out;
  }

  Relation operator()(const LocalCall& op) const { kernels::call::fail_to_interpret(op.call); }
};

void check_shapes(const std::string& who, const Relation& relation, const PhysicalType& type) {
  for (const Tuple& tuple : relation) {
    const Dims shape = type.relation.array_shape(tuple.key);
    JOINSUM_CHECK(tuple.array.shape == shape, who, ": key=", key_text(tuple.key), ", shape=", tuple.array.shape,
                  ", in the type=", shape);
  }
}

/// Each site holds the keys that the type's holding lists.
void check_holding(const std::string& who, const Relation& relation, const PhysicalType& type) {
  for (int64_t site = 0; site < type.sites(); ++site) {
    std::vector<Key> keys;
    for (const Tuple& tuple : on_site(relation, site)) keys.push_back(tuple.key);
    std::sort(keys.begin(), keys.end());
    std::vector<Key> promised = *type.holding.keys(site);
    std::sort(promised.begin(), promised.end());
    JOINSUM_CHECK(keys == promised, who, ": site=", site, ", tuples=", keys.size(), ", in the type=", promised.size(),
                  ", placement=", type.placement.text(type.relation.frontier));
  }
}

/// Sites that differ only along replicated axes hold the same.
void check_replicas(const std::string& who, const Relation& relation, const PhysicalType& type) {
  for (int64_t site = 0; site < type.sites(); ++site) {
    Dims first = type.grid.coordinates(site);
    for (const int64_t a : type.placement.axes_in<Replicated>()) first[a] = 0;
    Relation here = on_site(relation, site);
    Relation there = on_site(relation, type.grid.site(first));
    for (Tuple& tuple : there) tuple.site = site;
    std::sort(here.begin(), here.end(), before);
    std::sort(there.begin(), there.end(), before);
    const auto differ = [](const Tuple& a, const Tuple& b) { return before(a, b) || before(b, a); };
    JOINSUM_CHECK(std::equal(here.begin(), here.end(), there.begin(), there.end(),
                             [&](const Tuple& a, const Tuple& b) { return !differ(a, b); }),
                  who, ": replicas differ: site=", site, ", placement=", type.placement.text(type.relation.frontier));
  }
}

/// Tuples are on sites that the placement names for them, and the sites together hold the relation's keys.
void check_placement(const std::string& who, const Relation& relation, const PhysicalType& type) {
  const auto* scattered = type.placement.scattered();
  std::map<Key, int64_t> meeting;
  for (const Tuple& tuple : relation) {
    if (scattered == nullptr) {
      JOINSUM_CHECK(type.placement.box(type.grid, tuple.site, type.relation.frontier).contains(tuple.key), who,
                    ": key=", key_text(tuple.key), ", site=", tuple.site);
    } else if (scattered->together) {
      const auto [at, first] = meeting.emplace(project(tuple.key, *scattered->together), tuple.site);
      JOINSUM_CHECK(at->second == tuple.site, who, ": keys lie apart: key=", key_text(tuple.key),
                    ", sites=", at->second, " and ", tuple.site);
    }
  }
  std::vector<Key> keys;
  for (const auto& [key, array] : contents(relation, type)) keys.push_back(key);
  JOINSUM_CHECK(keys == type.relation.all_keys(), who,
                ": the sites together lack keys or hold too many: tuples=", keys.size());
}

void check_promises(const std::string& who, const Relation& relation, const PhysicalType& type) {
  check_shapes(who, relation, type);
  check_holding(who, relation, type);
  check_replicas(who, relation, type);
  check_placement(who, relation, type);
}

}  // namespace

Relation place(const Contents& contents, const PhysicalType& type) {
  Relation out;
  for (int64_t site = 0; site < type.sites(); ++site) {
    const auto held = type.holding.keys(site);
    const std::set<Key> keys(held->begin(), held->end());
    for (const auto& [key, array] : contents) {
      if (keys.contains(key)) out.push_back({key, array, site});
    }
  }
  return out;
}

Contents contents(const Relation& relation, const PhysicalType& type) {
  Contents out;
  for (Tuple& tuple : gather(relation, type, 0, all_dims(type.grid.rank()))) {
    out.emplace_back(std::move(tuple.key), std::move(tuple.array));
  }
  relation::sort_bag(out);
  return out;
}

std::map<std::string, Relation> interpret(const Plan& plan, const std::map<std::string, Contents>& inputs,
                                          const Scalars& scalars) {
  const auto compute = [&](const Node& node, const std::vector<const Relation*>& values) {
    const PhysicalType& type = node.type();
    Relation result;
    if (const auto* input = node.as<Input>()) {
      result = place(relation::interpreted_input(input->name, inputs, type.relation), type);
    } else {
      std::vector<Operand> operands;
      for (size_t i = 0; i < values.size(); ++i) operands.push_back({*values[i], node.input(i)->type()});
      result = std::visit(Interpret{operands, type, scalars}, node.operation());
    }
    check_promises(operator_name(node.operation()), result, type);
    return result;
  };
  return evaluated<Relation>(plan, compute);
}

}  // namespace joinsum::ia
