#include "optimizer/placement/move_prices.h"

#include <algorithm>

#include "ia/exchange.h"
#include "optimizer/cost/move_seconds.h"
#include "optimizer/placement/candidates.h"

namespace joinsum::optimizer {
namespace {

constexpr double kUnknown = -1;

/// Sites up to which the messages of a move are listed to price its seconds.
constexpr int64_t kMostSitesListed = 4;

double paper_price(const ia::PhysicalType& from, const ia::PhysicalType& to) {
  const auto floats = static_cast<double>(from.relation.elements_over(Box::below(from.relation.frontier)));
  const auto axes = broadcast_axes(from.placement, to.placement);
  const Dims counted = axes ? *axes : to.placement.axes_in<ia::Replicated>();
  return floats * static_cast<double>(checked_product("optimize", project(from.grid.axes, counted)));
}

}  // namespace

bool lie_alike(const ia::PhysicalType& a, const ia::PhysicalType& b) {
  if (!(a.placement == b.placement)) return false;
  return (a.placement.grid() != nullptr && !a.placement.pending()) || a.holding == b.holding;
}

double MovePrices::operator()(const ia::PhysicalType& from, const ia::PhysicalType& to) const {
  if (from.placement == to.placement) return 0;
  if (to.placement.grid() == nullptr || to.placement.pending()) return kForbidden;
  if (objective_ == Objective::kPaperFloats) return paper_price(from, to);
  if (objective_ == Objective::kSeconds && from.sites() <= kMostSitesListed) {
    return node_cost(*move_to(ia::make_input("R", from), to.placement), Fusion::kNone, cluster_).seconds;
  }
  const ia::Volume volume = ia::volume(from, to);
  const int64_t width = byte_size(from.relation.dtype);
  if (objective_ == Objective::kWireBytes) return static_cast<double>(volume.elements() * width);
  return link_seconds(volume, from, to, cluster_);
}

MovePrices::Numbers MovePrices::number(const RelationType& relation, const std::vector<ia::PhysicalType>& places) {
  auto of =
      std::find_if(relations_.begin(), relations_.end(), [&](const Relation& known) { return known.type == relation; });
  if (of == relations_.end()) of = relations_.insert(of, {relation, {}, {}});
  Numbers out{static_cast<size_t>(of - relations_.begin()), {}};
  for (const ia::PhysicalType& place : places) {
    const auto at = std::find_if(of->places.begin(), of->places.end(),
                                 [&](const ia::PhysicalType& other) { return lie_alike(other, place); });
    out.places.push_back(static_cast<size_t>(at - of->places.begin()));
    if (at == of->places.end()) of->places.push_back(place);
  }
  return out;
}

double MovePrices::between(const Numbers& numbers, size_t from, size_t to) {
  Relation& relation = relations_[numbers.relation];
  relation.prices.resize(relation.places.size());
  auto& prices = relation.prices[numbers.places[from]];
  prices.resize(relation.places.size(), kUnknown);
  double& price = prices[numbers.places[to]];
  if (price == kUnknown) price = (*this)(relation.places[numbers.places[from]], relation.places[numbers.places[to]]);
  return price;
}

}  // namespace joinsum::optimizer
