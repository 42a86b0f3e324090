#include "optimizer/layouts/layouts.h"

#include <algorithm>

namespace joinsum::optimizer::layouts {
namespace {

uint64_t hash_of(const ia::Placement& placement) {
  if (placement.grid() == nullptr) return 0;
  uint64_t out = 1;
  for (const ia::AxisState& state : placement.grid()->states) {
    out = hash_mix(out, state.index());
    const auto* split = std::get_if<ia::Split>(&state);
    if (split != nullptr) out = hash_mix(hash_mix(out, split->dim), split->domain);
  }
  return out;
}

/// Whether a placement says what each site holds.
bool determines_holdings(const ia::Placement& placement) { return placement.grid() != nullptr && !placement.pending(); }

}  // namespace

size_t Layouts::number(const relation::RelationType& relation) {
  auto& numbers = by_frontier_[relation.frontier];
  const auto known = std::find_if(numbers.begin(), numbers.end(), [&](size_t number) {
    const relation::RelationType& other = relations_[number].type;
    return other.entries == relation.entries && other == relation;
  });
  if (known != numbers.end()) return *known;
  numbers.push_back(relations_.size());
  relations_.push_back({relation, 0, {}, {}});
  return numbers.back();
}

size_t Layouts::number_of(const ia::Placement& placement) {
  auto& numbers = by_hash_[hash_of(placement)];
  const auto known =
      std::find_if(numbers.begin(), numbers.end(), [&](size_t number) { return placements_[number] == placement; });
  if (known != numbers.end()) return *known;
  numbers.push_back(placements_.size());
  placements_.push_back(placement);
  return numbers.back();
}

const Layout* Layouts::add(ia::PhysicalType type, size_t relation, size_t placement) {
  layouts_.push_back({std::move(type), relation, placement, relations_[relation].layouts++});
  return &layouts_.back();
}

const Layout* Layouts::find(size_t relation, const ia::Placement& placement) {
  const size_t number = number_of(placement);
  const auto [at, fresh] = relations_[relation].reduced.try_emplace(number, nullptr);
  if (!fresh) return at->second;
  try {
    auto type = ia::PhysicalType::placed("optimize", relations_[relation].type, grid_, placement);
    at->second = add(std::move(type), relation, number);
  } catch (const PlanError&) {
  }
  return at->second;
}

const Layout* Layouts::placed(size_t relation, const ia::Placement& placement) {
  const Layout* layout = find(relation, placement);
  if (layout == nullptr) ia::PhysicalType::placed("optimize", relations_[relation].type, grid_, placement);
  return layout;
}

const Layout* Layouts::of(const ia::PhysicalType& type) {
  const size_t relation = number(type.relation);
  const size_t placement = number_of(type.placement);
  if (determines_holdings(type.placement)) {
    const auto [at, fresh] = relations_[relation].reduced.try_emplace(placement, nullptr);
    if (at->second == nullptr) at->second = add(type, relation, placement);
    return at->second;
  }
  auto& others = relations_[relation].others[placement];
  const auto known = std::find_if(others.begin(), others.end(),
                                  [&](const Layout* other) { return other->type.holding == type.holding; });
  if (known != others.end()) return *known;
  others.push_back(add(type, relation, placement));
  return others.back();
}

}  // namespace joinsum::optimizer::layouts
