#include "ia/type.h"

#include <algorithm>
#include <map>
#include <set>

namespace joinsum::ia {

Holding Holding::of_boxes(std::vector<std::optional<Box>> boxes) {
  Holding holding;
  holding.boxes_ = std::move(boxes);
  for (auto& box : holding.boxes_) {
    if (box && box->empty()) box.reset();
  }
  return holding;
}

Holding Holding::of_keys(std::vector<KeyList> keys) {
  Holding holding;
  holding.keys_ = std::move(keys);
  return holding;
}

Holding Holding::placed(const RelationType& relation, const Grid& grid, const Placement& placement) {
  const int64_t sites = grid.sites();
  if (relation.regular()) {
    std::vector<std::optional<Box>> boxes;
    for (int64_t site = 0; site < sites; ++site) boxes.push_back(placement.box(grid, site, relation.frontier));
    return of_boxes(std::move(boxes));
  }
  std::map<Box, KeyList> by_box;
  std::vector<KeyList> lists;
  for (int64_t site = 0; site < sites; ++site) {
    const Box box = placement.box(grid, site, relation.frontier);
    KeyList& list = by_box[box];
    if (list == nullptr) {
      auto keys = std::make_shared<std::vector<Key>>();
      std::copy_if(relation.keys->begin(), relation.keys->end(), std::back_inserter(*keys),
                   [&](const Key& key) { return box.contains(key); });
      list = std::move(keys);
    }
    lists.push_back(list);
  }
  return of_keys(std::move(lists));
}

Holding::KeyList Holding::keys(int64_t site) const {
  if (!regular()) return keys_[site];
  return std::make_shared<const std::vector<Key>>(boxes_[site] ? keys_of(*boxes_[site]) : std::vector<Key>{});
}

int64_t Holding::tuples(int64_t site) const {
  if (!regular()) return static_cast<int64_t>(keys_[site]->size());
  return boxes_[site] ? boxes_[site]->count() : 0;
}

int64_t Holding::elements(const RelationType& relation, int64_t site) const {
  if (regular()) return boxes_[site] ? relation.elements_over(*boxes_[site]) : 0;
  int64_t elements = 0;
  for (const Key& key : *keys_[site]) elements += relation.elements_at(key);
  return elements;
}

std::vector<int64_t> Holding::sites_of(const Key& key) const {
  std::vector<int64_t> found;
  for (int64_t site = 0; site < sites(); ++site) {
    const bool held = regular() ? boxes_[site] && boxes_[site]->contains(key)
                                : std::binary_search(keys_[site]->begin(), keys_[site]->end(), key);
    if (held) found.push_back(site);
  }
  return found;
}

PhysicalType PhysicalType::placed(const std::string& who, RelationType relation, Grid grid, Placement placement) {
  const auto* states = placement.grid();
  JOINSUM_USER_CHECK(
      states != nullptr && !placement.pending(), who,
      ": a relation is placed by replicated and split axes only: placement=", placement.text(relation.frontier));
  JOINSUM_USER_CHECK(states->states.size() == grid.axes.size(), who,
                     ": a placement has one state per grid axis: placement=", placement.text(relation.frontier),
                     ", grid=", grid.text());
  std::map<int64_t, int64_t> domains;
  for (const AxisState& state : states->states) {
    const auto* split = std::get_if<Split>(&state);
    if (split == nullptr) continue;
    JOINSUM_USER_CHECK(split->dim >= 0 && split->dim < relation.arity(), who,
                       ": split by a key dimension that is not there: dimension=", split->dim,
                       ", key arity=", relation.arity());
    JOINSUM_USER_CHECK(split->domain >= relation.frontier[split->dim], who,
                       ": split domain below the frontier: domain=", split->domain,
                       ", frontier=", key_text(relation.frontier));
    const auto [at, fresh] = domains.emplace(split->dim, split->domain);
    JOINSUM_USER_CHECK(fresh || at->second == split->domain, who,
                       ": one key dimension split on two domains: dimension=", split->dim, ", domains=", at->second,
                       " and ", split->domain);
  }
  Holding holding = Holding::placed(relation, grid, placement);
  return {std::move(relation), std::move(grid), std::move(placement), std::move(holding)};
}

Dims PhysicalType::parts() const {
  Dims out(relation.arity(), 1);
  for (int64_t dim = 0; dim < relation.arity(); ++dim) {
    for (const int64_t axis : placement.axes_splitting(dim)) out[dim] *= grid.axes[axis];
  }
  return out;
}

int64_t PhysicalType::most_bytes() const {
  int64_t most = 0;
  for (int64_t site = 0; site < sites(); ++site) most = std::max(most, bytes(site));
  return most;
}

std::vector<Box> PhysicalType::stored(int64_t site) const {
  std::vector<Box> boxes;
  if (!holding.regular()) {
    for (const Key& key : *holding.keys(site)) boxes.push_back(Box::single(key));
    return boxes;
  }
  if (!holding.box(site)) return boxes;
  boxes.push_back(*holding.box(site));
  for (int64_t d = 0; d < relation.arity(); ++d) {
    if (relation.axes_of(d).size() < 2) continue;
    std::vector<Box> cut;
    for (const Box& box : boxes) {
      for (int64_t k = box.lower[d]; k < box.upper[d]; ++k) {
        cut.push_back(box);
        cut.back().lower[d] = k;
        cut.back().upper[d] = k + 1;
      }
    }
    boxes = std::move(cut);
  }
  return boxes;
}

std::string PhysicalType::text(bool full) const {
  return relation.text(full) + " on " + grid.text() + " " + placement.text(relation.frontier);
}

bool PhysicalType::operator==(const PhysicalType& other) const {
  if (this == &other) return true;
  return relation == other.relation && grid == other.grid && placement == other.placement;
}

Holding reduced_holding(const PhysicalType& source, const Placement& placement) {
  const Grid& grid = source.grid;
  const Dims kept = placement.axes_in<Pending>();
  if (kept.empty()) return Holding::placed(source.relation, grid, placement);
  std::map<Dims, std::set<Key>> held;
  std::map<Dims, bool> any;
  for (int64_t site = 0; site < grid.sites(); ++site) {
    const Dims at = project(grid.coordinates(site), kept);
    any[at] = any[at] || !source.holding.empty(site);
    if (source.holding.regular()) continue;
    const auto keys = source.holding.keys(site);
    held[at].insert(keys->begin(), keys->end());
  }
  std::vector<std::optional<Box>> boxes;
  std::vector<Holding::KeyList> lists;
  for (int64_t site = 0; site < grid.sites(); ++site) {
    const Dims at = project(grid.coordinates(site), kept);
    const Box box = placement.box(grid, site, source.relation.frontier);
    boxes.push_back(any[at] ? std::optional(box) : std::nullopt);
    auto keys = std::make_shared<std::vector<Key>>();
    for (const Key& key : held[at]) {
      if (box.contains(key)) keys->push_back(key);
    }
    lists.push_back(std::move(keys));
  }
  return source.holding.regular() ? Holding::of_boxes(std::move(boxes)) : Holding::of_keys(std::move(lists));
}

}  // namespace joinsum::ia
