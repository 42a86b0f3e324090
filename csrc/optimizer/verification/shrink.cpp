#include "optimizer/verification/shrink.h"

#include <functional>
#include <numeric>
#include <set>

namespace joinsum::optimizer::verification {
namespace {

/// Limits of one run, which then takes a fraction of a second.
constexpr int64_t kMostElements = 200'000;
constexpr int64_t kMostPairs = 20'000'000;
constexpr int64_t kMostProducts = 20'000'000;

/// Extent of a part for each extent there is.
using Extents = std::function<int64_t(int64_t)>;

// --- choices of extents ----------------------------------------------------------------------------------------------

/// Extents of all parts and whole axes of the inputs, and the sizes of tiles.
std::set<int64_t> extents_of(const tra::Plan& program) {
  std::set<int64_t> out;
  for (const tra::NodePtr& node : program.order()) {
    if (const auto* tile = node->as<tra::Tile>()) out.insert(tile->size);
    if (node->as<tra::Input>() == nullptr) continue;
    for (const relation::Axis& axis : node->type().axes) {
      if (!axis.linked()) out.insert(axis.extent);
      for (size_t i = 1; i < axis.cuts.size(); ++i) out.insert(axis.cuts[i] - axis.cuts[i - 1]);
    }
  }
  return out;
}

/// First the extents as they are, then choices that keep sums of extents, then one that keeps only their order.
std::vector<Extents> choices(const std::set<int64_t>& extents) {
  std::vector<Extents> out{[](int64_t extent) { return extent; }};
  int64_t divisor = 0;
  for (const int64_t extent : extents) divisor = std::gcd(divisor, extent);
  if (divisor > 2) {
    out.emplace_back([divisor](int64_t extent) { return extent / divisor * 2; });
    out.emplace_back([divisor](int64_t extent) { return extent / divisor; });
  }
  // Axes of one element are broadcast and axes of none are empty, so these two extents stay.
  out.emplace_back([extents](int64_t extent) {
    if (extent < 2) return extent;
    return 2 + static_cast<int64_t>(std::distance(extents.upper_bound(1), extents.find(extent)));
  });
  return out;
}

relation::Axis resized(const relation::Axis& axis, const Extents& extents) {
  if (!axis.linked()) return relation::Axis::whole(extents(axis.extent));
  CutPoints cuts{0};
  for (size_t i = 1; i < axis.cuts.size(); ++i) cuts.push_back(cuts.back() + extents(axis.cuts[i] - axis.cuts[i - 1]));
  return relation::Axis::cut(axis.key_dim, std::move(cuts));
}

relation::RelationType resized(const relation::RelationType& type, const Extents& extents) {
  std::vector<relation::Axis> axes;
  for (const relation::Axis& axis : type.axes) axes.push_back(resized(axis, extents));
  auto small = relation::RelationType::make("verify", type.dtype, type.frontier, std::move(axes), type.keys);
  if (type.sparse()) small.entries = type.stored_of(small.elements());
  return small;
}

// --- plans over other extents ----------------------------------------------------------------------------------------

void check_same_structure(const relation::RelationType& before, const relation::RelationType& after) {
  bool same = before.frontier == after.frontier && before.rank() == after.rank() &&
              before.regular() == after.regular() && (before.regular() || *before.keys == *after.keys);
  for (size_t a = 0; same && a < before.axes.size(); ++a) same = before.axes[a].key_dim == after.axes[a].key_dim;
  JOINSUM_USER_CHECK(same, "verify: other extents change a relation: before=", before.text(), ", after=", after.text());
}

tra::NodePtr rebuilt(const tra::Node& node, std::vector<tra::NodePtr> inputs, const Extents& extents) {
  if (const auto* input = node.as<tra::Input>()) return tra::make_input(input->name, resized(node.type(), extents));
  tra::Operation operation = node.operation();
  if (auto* tile = std::get_if<tra::Tile>(&operation)) tile->size = extents(tile->size);
  return tra::make(std::move(operation), std::move(inputs));
}

ia::NodePtr rebuilt(const ia::Node& node, std::vector<ia::NodePtr> inputs, const Extents& extents) {
  if (const auto* input = node.as<ia::Input>()) {
    const ia::PhysicalType& type = node.type();
    return ia::make_input(
        input->name, ia::PhysicalType::placed("verify", resized(type.relation, extents), type.grid, type.placement));
  }
  ia::Operation operation = node.operation();
  auto* map = std::get_if<ia::LocalMap>(&operation);
  if (map != nullptr && map->array_map.name == "tile") {
    map->array_map.parameters[1] = extents(map->array_map.integer(1));
  }
  return ia::make(std::move(operation), std::move(inputs));
}

const relation::RelationType& relation_of(const tra::Node& node) { return node.type(); }
const relation::RelationType& relation_of(const ia::Node& node) { return node.type().relation; }

template <class PlanT>
PlanT rebuilt(const PlanT& plan, const Extents& extents) {
  using Pointer = typename PlanT::Pointer;
  Counterparts<typename Pointer::element_type, PlanT> resized;
  return translated<PlanT>(plan, resized, [&](const Pointer& node, std::vector<Pointer> inputs) {
    Pointer out = rebuilt(*node, std::move(inputs), extents);
    check_same_structure(relation_of(*node), relation_of(*out));
    return out;
  });
}

// --- sizes of a run --------------------------------------------------------------------------------------------------

int64_t tuples(const ia::Node& node) {
  int64_t out = 0;
  for (int64_t site = 0; site < node.type().sites(); ++site) out += node.type().holding.tuples(site);
  return out;
}

int64_t tuples(const tra::Node& node) { return node.type().tuples(); }

int64_t elements(const ia::Node& node) {
  int64_t out = 0;
  for (int64_t site = 0; site < node.type().sites(); ++site) {
    out += node.type().holding.elements(node.type().relation, site);
  }
  return out;
}

int64_t elements(const tra::Node& node) { return node.type().elements(); }

/// The most products per result element: the elements of one array of the left operand.
template <class NodeT>
int64_t largest_array(const NodeT& node) {
  const relation::RelationType& type = relation_of(node);
  int64_t out = 1;
  for (const relation::Axis& axis : type.axes) {
    int64_t longest = axis.linked() ? 0 : axis.extent;
    for (size_t i = 1; i < axis.cuts.size(); ++i) longest = std::max(longest, axis.cuts[i] - axis.cuts[i - 1]);
    out *= std::max<int64_t>(1, longest);
  }
  return out;
}

template <class PlanT>
bool is_small(const PlanT& plan) {
  for (const auto& node : plan.order()) {
    const auto size = static_cast<double>(elements(*node));
    if (size > kMostElements || tuples(*node) > kMostElements) return false;
    if (node->inputs().size() != 2) continue;
    const double pairs = static_cast<double>(tuples(*node->input(0))) * static_cast<double>(tuples(*node->input(1)));
    if (pairs > kMostPairs || size * static_cast<double>(largest_array(*node->input(0))) > kMostProducts) return false;
  }
  return true;
}

}  // namespace

std::optional<Small> shrunk(const ia::Plan& plan, const tra::Plan& program) {
  for (const Extents& extents : choices(extents_of(program))) {
    try {
      Small out{rebuilt(plan, extents), rebuilt(program, extents)};
      if (is_small(out.plan) && is_small(out.program)) return out;
    } catch (const PlanError&) {
    } catch (const KernelError&) {
    }
  }
  return std::nullopt;
}

}  // namespace joinsum::optimizer::verification
