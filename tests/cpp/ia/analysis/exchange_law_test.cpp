#include <set>

#include <gtest/gtest.h>

#include "ia/analysis/exchange.h"
#include "ia/analysis/volume.h"
#include "ia/nodes.h"
#include "random_plans.h"

namespace joinsum::ia::analysis {
namespace {

using testing::RandomPlans;

// --- a naive machine -------------------------------------------------------------------------------------------------

/// One element of a relation: the key of its tuple and its place in the array.
using Slot = std::pair<Key, int64_t>;
using Array = std::vector<uint64_t>;
/// What a site holds: the arrays of each key.
using Tuples = std::map<Key, std::vector<Array>>;

/// Elements of a box as they are stored, row-major: leading axes count the keys of dimensions that no array axis is
/// linked to; then come the array axes, a linked one running through all its parts.
std::vector<Slot> slots_of(const RelationType& relation, const Box& box) {
  Dims batch;
  for (int64_t d = 0; d < relation.arity(); ++d) {
    if (relation.axes_of(d).empty()) batch.push_back(d);
  }
  Dims extents;
  for (const int64_t d : batch) extents.push_back(box.extent(d));
  for (const relation::Axis& axis : relation.axes) extents.push_back(axis.extent_over(box));
  std::vector<Slot> out;
  for (const Key& at : keys_of(Box::below(extents))) {
    Key key = box.lower;
    Dims inside;
    for (size_t i = 0; i < batch.size(); ++i) key[batch[i]] += at[i];
    for (size_t a = 0; a < relation.axes.size(); ++a) {
      const relation::Axis& axis = relation.axes[a];
      int64_t index = at[batch.size() + a];
      if (axis.linked()) {
        index += axis.cuts[box.lower[axis.key_dim]];
        int64_t part = box.lower[axis.key_dim];
        while (axis.cuts[part + 1] <= index) ++part;
        key[axis.key_dim] = part;
        index -= axis.cuts[part];
      }
      inside.push_back(index);
    }
    const Dims shape = relation.array_shape(key);
    int64_t place = 0;
    for (size_t a = 0; a < shape.size(); ++a) place = place * shape[a] + inside[a];
    out.emplace_back(std::move(key), place);
  }
  return out;
}

/// The coordinates of `site` along `axes`.
Dims along(const PhysicalType& type, int64_t site, const Dims& axes) {
  return project(type.grid.coordinates(site), axes);
}

/// A value for each element of each different tuple: replicas are equal, partials and scattered tuples are not.
std::vector<Tuples> fill_sites(const PhysicalType& type) {
  std::vector<Tuples> out(type.sites());
  for (int64_t site = 0; site < type.sites(); ++site) {
    uint64_t origin = 7;
    for (const int64_t c : along(type, site, type.placement.axes_in<Pending>())) origin = hash_mix(origin, c);
    if (type.placement.scattered() != nullptr) origin = hash_mix(origin, site);
    const auto keys = type.holding.keys(site);
    for (const Key& key : *keys) {
      std::vector<Array>& arrays = out[site][key];
      uint64_t seed = hash_mix(origin, arrays.size());
      for (const int64_t component : key) seed = hash_mix(seed, component);
      arrays.emplace_back();
      for (int64_t i = 0; i < type.relation.elements_at(key); ++i) arrays.back().push_back(hash_mix(seed, i));
    }
  }
  return out;
}

bool reduces(const PhysicalType& source, const PhysicalType& target) {
  return source.placement.axes_in<Pending>() != target.placement.axes_in<Pending>();
}

/// Whether two sites agree along the axes that `source` replicates and along those that stay pending.
bool same_class(const PhysicalType& source, const PhysicalType& target, int64_t a, int64_t b) {
  const Dims replicated = source.placement.axes_in<Replicated>();
  const Dims kept = target.placement.axes_in<Pending>();
  return along(source, a, replicated) == along(source, b, replicated) &&
         along(source, a, kept) == along(source, b, kept);
}

bool wanted(const PhysicalType& target, int64_t site, const Key& key) {
  return target.placement.box(target.grid, site, target.relation.frontier).contains(key);
}

/// What the move must leave on `site`: of each key that the target puts there, every tuple that the site's class holds,
/// partials summed.
Tuples expected_at(const PhysicalType& source, const PhysicalType& target, const std::vector<Tuples>& held,
                   int64_t site) {
  Tuples out;
  for (int64_t other = 0; other < source.sites(); ++other) {
    if (!same_class(source, target, site, other)) continue;
    for (const auto& [key, arrays] : held[other]) {
      if (!wanted(target, site, key)) continue;
      for (const Array& array : arrays) {
        std::vector<Array>& sum = out[key];
        if (sum.empty() || !reduces(source, target)) {
          sum.push_back(array);
          continue;
        }
        for (size_t i = 0; i < array.size(); ++i) sum[0][i] += array[i];
      }
    }
  }
  for (auto& [key, arrays] : out) std::sort(arrays.begin(), arrays.end());
  return out;
}

/// Carries out an exchange of a relation with distinct keys, element by element.
class Machine {
 public:
  Machine(const PhysicalType& source, const std::vector<Tuples>& held)
      : relation_(source.relation), values_(held.size()) {
    for (size_t site = 0; site < held.size(); ++site) {
      for (const auto& [key, arrays] : held[site]) {
        for (size_t i = 0; i < arrays.at(0).size(); ++i) values_[site][{key, i}] = arrays[0][i];
      }
    }
  }

  /// Each share takes one message from every other holder; reduced shares travel once to each site that gathers them.
  void reduce(const Exchange& exchange) {
    std::multiset<std::vector<int64_t>> messages;
    for (const Transfer& t : exchange.reduce) messages.insert(header(t.from, t.to, t.box, t.begin, t.end));
    std::vector<std::map<Slot, uint64_t>> reduced(values_.size());
    for (const Share& share : exchange.shares) {
      EXPECT_TRUE(std::is_sorted(share.holders.begin(), share.holders.end()));
      for (const int64_t holder : share.holders) {
        if (holder == share.site || share.begin == share.end) continue;
        const auto found = messages.find(header(holder, share.site, share.box, share.begin, share.end));
        ASSERT_NE(found, messages.end()) << "a partial is not sent";
        messages.erase(found);
      }
      for (const Slot& slot : range(share.box, share.begin, share.end)) {
        uint64_t sum = 0;
        for (const int64_t holder : share.holders) sum += values_[holder].at(slot);
        ASSERT_TRUE(reduced[share.site].emplace(slot, sum).second) << "a site reduces an element twice";
      }
    }
    EXPECT_TRUE(messages.empty()) << "a partial is sent that nobody reduces";
    values_ = reduced;
    for (const Transfer& t : exchange.gather) deliver(reduced, t);
  }

  void copy(const Exchange& exchange) {
    const auto before = values_;
    for (const Transfer& t : exchange.copy) deliver(before, t);
  }

  /// The arrays of `keys` on a site; raises where an element is missing.
  Tuples at(int64_t site, const std::set<Key>& keys) const {
    Tuples out;
    for (const Key& key : keys) {
      Array array;
      for (int64_t i = 0; i < relation_.elements_at(key); ++i) array.push_back(values_[site].at({key, i}));
      out[key].push_back(std::move(array));
    }
    return out;
  }

 private:
  static std::vector<int64_t> header(int64_t from, int64_t to, const Box& box, int64_t begin, int64_t end) {
    std::vector<int64_t> out{from, to, begin, end};
    out.insert(out.end(), box.lower.begin(), box.lower.end());
    out.insert(out.end(), box.upper.begin(), box.upper.end());
    return out;
  }

  std::vector<Slot> range(const Box& box, int64_t begin, int64_t end) const {
    const auto slots = slots_of(relation_, box);
    return {slots.begin() + begin, slots.begin() + end};
  }

  void deliver(const std::vector<std::map<Slot, uint64_t>>& from, const Transfer& t) {
    EXPECT_NE(t.from, t.to);
    EXPECT_LT(t.begin, t.end);
    for (const Slot& slot : range(t.box, t.begin, t.end)) {
      ASSERT_TRUE(values_[t.to].emplace(slot, from[t.from].at(slot)).second) << "a site is sent what it has";
    }
  }

  const RelationType& relation_;
  std::vector<std::map<Slot, uint64_t>> values_;
};

/// Carries out an exchange of a relation with equal keys, tuple by tuple.
std::vector<Tuples> move_tuples(const Exchange& exchange, const RelationType& relation, std::vector<Tuples> held) {
  const auto before = held;
  for (const Transfer& t : exchange.copy) {
    const auto& arrays = before[t.from].at(t.box.lower);
    EXPECT_EQ(t.box.count(), 1);
    EXPECT_EQ(t.elements(), relation.elements_at(t.box.lower) * static_cast<int64_t>(arrays.size()));
    auto& there = held[t.to][t.box.lower];
    there.insert(there.end(), arrays.begin(), arrays.end());
  }
  return held;
}

/// Elements that a move has to send. Settled: what a site needs and lacks, once. Pending, with h partials of a key and
/// n sites of one class that need it: h - 1 to reduce and n - 1 to spread; one more where none of the n holds a
/// partial.
class Formula {
 public:
  Formula(const PhysicalType& source, const PhysicalType& target, const std::vector<Tuples>& held)
      : source_(source), target_(target), held_(held) {}

  int64_t elements() const {
    int64_t elements = 0;
    for (int64_t site = 0; site < source_.sites(); ++site) {
      for (const auto& [key, arrays] : expected_at(source_, target_, held_, site)) {
        const auto own = held_[site].find(key);
        const size_t here = own == held_[site].end() ? 0 : own->second.size();
        const auto tuples =
            reduces(source_, target_) ? tuples_reduced(site, key) : static_cast<int64_t>(arrays.size() - here);
        elements += tuples * source_.relation.elements_at(key);
      }
    }
    return elements;
  }

 private:
  /// The first needer of a class pays for the reduction, each other one for its copy.
  int64_t tuples_reduced(int64_t site, const Key& key) const {
    int64_t holders = 0;
    bool first = true;
    bool met = false;
    for (int64_t other = 0; other < source_.sites(); ++other) {
      if (!same_class(source_, target_, site, other)) continue;
      const bool holds = held_[other].contains(key);
      const bool needs = wanted(target_, other, key);
      holders += holds ? 1 : 0;
      first = first && !(needs && other < site);
      met = met || (holds && needs);
    }
    return !first ? 1 : met ? holders - 1 : holders;
  }

  const PhysicalType& source_;
  const PhysicalType& target_;
  const std::vector<Tuples>& held_;
};

// --- random moves ----------------------------------------------------------------------------------------------------

NodePtr draw_input(RandomPlans& random, const Grid& grid, const std::string& name) {
  const RelationType relation = random.relation_type();
  return make_input(name, PhysicalType::placed("input", relation, grid, random.placement(relation, grid)));
}

NodePtr draw_operator(RandomPlans& random, const NodePtr& input) {
  static const std::vector<std::string> kPredicates{"k0 != 1", "k0 % 2 == 0", "k0 + k1 < 3", "k0 == k1", "k1 > 0"};
  static const std::vector<std::string> kMaps{"(k0 // 2)", "(k0 + k1)", "(k1, k0)", "(k0 % 2, k1)",
                                              "(k0, k0)",  "()",        "(k1 * 2)"};
  const int64_t arity = input->type().relation.arity();
  Dims keep;
  for (int64_t d = 0; d < arity; ++d) {
    if (random.chance(55)) keep.push_back(d);
  }
  switch (random.between(0, 4)) {
    case 0:
    case 1:
      return make(LocalAggregate{keep, {"add", {}}}, {input});
    case 2:
      return make(LocalFilter{KeyExpression::parse(random.one_of(kPredicates))}, {input});
    case 3:
      return make(LocalMap{1, KeyMap::parse(random.one_of(kMaps)), {"id", {}}}, {input});
    default: {
      const NodePtr other = draw_input(random, input->type().grid, "B");
      Dims right = all_dims(other->type().relation.arity());
      keep.resize(std::min(keep.size(), right.size()));
      right.resize(keep.size());
      return make(LocalJoin{keep, right, {"mul", {}}}, {input, other});
    }
  }
}

NodePtr draw_source(RandomPlans& random) {
  NodePtr node = draw_input(random, random.grid(12), "A");
  for (int64_t i = random.between(0, 3); i > 0; --i) {
    try {
      NodePtr next = draw_operator(random, node);
      if (next->type().relation.elements() <= 600) node = std::move(next);
    } catch (const PlanError&) {
    } catch (const KernelError&) {
    }
  }
  return node;
}

/// A move of `source`, if the drawn target is one; pending axes are sometimes kept.
NodePtr draw_move(RandomPlans& random, const NodePtr& source) {
  const PhysicalType& type = source->type();
  GridPlacement target = *random.placement(type.relation, type.grid).grid();
  for (const int64_t a : type.placement.axes_in<Pending>()) {
    if (random.chance(30)) target.states[a] = type.placement.grid()->states[a];
  }
  return make(Shuffle{target}, {source});
}

struct Seen {
  int64_t plain = 0, reduced = 0, partly = 0, kept = 0, scattered = 0, repeated = 0, irregular_pending = 0, absent = 0;

  void count(const PhysicalType& source, const PhysicalType& target) {
    const bool pending = source.placement.pending();
    if (source.placement.scattered() != nullptr) {
      ++(source.relation.unique() ? scattered : repeated);
    } else if (!pending) {
      ++plain;
    } else if (!target.placement.pending()) {
      ++reduced;
    } else {
      ++(reduces(source, target) ? partly : kept);
    }
    if (!pending) return;
    irregular_pending += source.holding.regular() ? 0 : 1;
    for (int64_t site = 0; site < source.sites(); ++site) {
      if (source.holding.empty(site) && source.relation.tuples() > 0) {
        ++absent;
        return;
      }
    }
  }
};

void check_move(const PhysicalType& source, const PhysicalType& target) {
  const auto held = fill_sites(source);
  const Exchange exchange = analysis::exchange(source, target);
  EXPECT_EQ(exchange.reduction.empty(), !reduces(source, target));
  const int64_t elements = Formula(source, target, held).elements();
  EXPECT_EQ(exchange.elements(), elements);
  EXPECT_EQ(wire_bytes(source, target), elements * byte_size(source.relation.dtype));
  EXPECT_EQ(volume(source, target).elements(), elements);
  const bool unique = source.relation.unique();
  Machine machine(source, unique ? held : std::vector<Tuples>(held.size()));
  if (unique && !exchange.reduction.empty()) machine.reduce(exchange);
  if (unique) machine.copy(exchange);
  auto moved = unique ? held : move_tuples(exchange, source.relation, held);
  for (int64_t site = 0; site < source.sites(); ++site) {
    Tuples expected = expected_at(source, target, held, site);
    std::vector<Key> keys;
    for (const auto& [key, arrays] : expected) keys.insert(keys.end(), arrays.size(), key);
    ASSERT_EQ(*target.holding.keys(site), keys) << "site " << site;
    const std::set<Key> needed(keys.begin(), keys.end());
    if (unique) {
      ASSERT_EQ(machine.at(site, needed), expected) << "site " << site;
      continue;
    }
    // Arrays without elements need no message.
    std::erase_if(moved[site],
                  [&](const auto& entry) { return !needed.contains(entry.first) || entry.second[0].empty(); });
    std::erase_if(expected, [](const auto& entry) { return entry.second[0].empty(); });
    for (auto& [key, arrays] : moved[site]) std::sort(arrays.begin(), arrays.end());
    ASSERT_EQ(moved[site], expected) << "site " << site;
  }
}

TEST(Exchange, LeavesOnEachSiteWhatTheTargetSaysAndSendsNothingTwice) {
  Seen seen;
  for (uint64_t seed = 0; seed < 5000; ++seed) {
    RandomPlans random(seed);
    const NodePtr source = draw_source(random);
    NodePtr target;
    try {
      target = draw_move(random, source);
    } catch (const PlanError&) {
      continue;
    }
    seen.count(source->type(), target->type());
    check_move(source->type(), target->type());
    if (::testing::Test::HasFailure()) {
      FAIL() << "seed " << seed << ": " << source->type().text(true) << " to " << target->type().text();
    }
  }
  for (const int64_t count : {seen.plain, seen.reduced, seen.partly, seen.kept, seen.scattered, seen.repeated,
                              seen.irregular_pending, seen.absent}) {
    EXPECT_GT(count, 30);
  }
}

}  // namespace
}  // namespace joinsum::ia::analysis
