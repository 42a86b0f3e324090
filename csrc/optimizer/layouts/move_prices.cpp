#include "optimizer/layouts/move_prices.h"

namespace joinsum::optimizer::layouts {
namespace {

constexpr double kUnknown = -1;

}  // namespace

double MovePrices::computed(const ia::PhysicalType& from, const ia::PhysicalType& to) const {
  if (to.placement.grid() == nullptr || to.placement.pending()) return min_sum::kForbidden;
  return cost::row_of(objective_).move_price(from, to, cluster_);
}

double MovePrices::operator()(const Layout& from, const Layout& to) {
  JOINSUM_CHECK(from.relation == to.relation || from.type.relation == to.type.relation,
                "optimize: a move between values of two relation types");
  if (from.placement == to.placement) return 0;
  // Of one value, whose entries were estimated in two ways.
  if (from.relation != to.relation) return computed(from.type, to.type);
  if (prices_.size() <= from.relation) prices_.resize(from.relation + 1);
  auto& relation = prices_[from.relation];
  if (relation.size() <= from.number) relation.resize(from.number + 1);
  auto& prices = relation[from.number];
  if (prices.size() <= to.number) prices.resize(to.number + 1, kUnknown);
  double& price = prices[to.number];
  if (price == kUnknown) price = computed(from.type, to.type);
  return price;
}

}  // namespace joinsum::optimizer::layouts
