#include "optimizer/placement/move_prices.h"

#include "ia/exchange.h"
#include "optimizer/cost/move_seconds.h"
#include "optimizer/placement/candidates.h"

namespace joinsum::optimizer {
namespace {

constexpr double kUnknown = -1;

/// Sites up to which the messages of a move are listed to price its seconds.
constexpr int64_t kMostSitesListed = 6;

double paper_price(const ia::PhysicalType& from, const ia::PhysicalType& to) {
  const auto floats = static_cast<double>(from.relation.elements_over(Box::below(from.relation.frontier)));
  const auto axes = broadcast_axes(from.placement, to.placement);
  const Dims counted = axes ? *axes : to.placement.axes_in<ia::Replicated>();
  return floats * static_cast<double>(checked_product("optimize", project(from.grid.axes, counted)));
}

}  // namespace

double MovePrices::computed(const ia::PhysicalType& from, const ia::PhysicalType& to) const {
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

double MovePrices::operator()(const Place& from, const Place& to) {
  JOINSUM_CHECK(from.relation == to.relation, "optimize: a move between values of two relation types");
  if (from.placement == to.placement) return 0;
  if (prices_.size() <= from.relation) prices_.resize(from.relation + 1);
  auto& relation = prices_[from.relation];
  if (relation.size() <= from.number) relation.resize(from.number + 1);
  auto& prices = relation[from.number];
  if (prices.size() <= to.number) prices.resize(to.number + 1, kUnknown);
  double& price = prices[to.number];
  if (price == kUnknown) price = computed(from.type, to.type);
  return price;
}

}  // namespace joinsum::optimizer
