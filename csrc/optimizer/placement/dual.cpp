#include "optimizer/placement/dual.h"

#include <algorithm>

namespace joinsum::optimizer {
namespace {

double least_of(const std::vector<double>& costs) { return *std::min_element(costs.begin(), costs.end()); }

/// The same routes at a part of the prices.
std::shared_ptr<const Routes> in_part(const std::shared_ptr<const Routes>& routes, double part) {
  if (part == 1) return routes;
  auto out = std::make_shared<Routes>(*routes);
  for (auto* prices : {&out->putting, &out->taking, &out->taking_from}) {
    for (double& price : *prices) price *= part;
  }
  return out;
}

}  // namespace

Dual::Dual(const DeliveryProblem& problem) : problem_(problem), links_(problem.costs.size()) {
  for (const auto& value : problem.values) add(value);
}

/// To deliver to some of a value's readers costs no more than to all of them.
void Dual::add(const DeliveryProblem::Value& value) {
  const size_t readers = value.members.size() - 1;
  const size_t parts = std::max<size_t>(1, (readers + Delivery::kMostReaders - 1) / Delivery::kMostReaders);
  const auto routes = in_part(value.routes, 1.0 / static_cast<double>(parts));
  for (size_t part = 0; part < parts; ++part) {
    std::vector<const DeliveryProblem::Member*> members{&value.members[0]};
    for (size_t i = part * readers / parts; i < (part + 1) * readers / parts; ++i) {
      members.push_back(&value.members[i + 1]);
    }
    parts_.push_back({Delivery(routes, members.size() - 1), std::move(members)});
    link(parts_.size() - 1);
  }
}

void Dual::link(size_t part) {
  const auto& members = parts_[part].members;
  auto& paid = paid_.emplace_back();
  asked_.emplace_back(members.size());
  for (size_t m = 0; m < members.size(); ++m) {
    const size_t at = members[m]->vertex;
    const auto another = [&](auto&& is) {
      return std::any_of(members.begin(), members.end(), [&](const auto* other) { return is(other->vertex); });
    };
    const Link link{part, m, another([&](size_t other) { return other < at; }),
                    another([&](size_t other) { return other > at; })};
    links_[at].push_back(link);
    paid.emplace_back(problem_.costs[at].size(), 0.0);
    ask(asked_, link, paid.back());
  }
}

void Dual::ascend() {
  for (size_t x = 0; x < links_.size(); ++x) update(x, true);
  for (size_t x = links_.size(); x > 0; --x) update(x - 1, false);
}

double Dual::bound() const {
  double out = 0;
  for (size_t x = 0; x < links_.size(); ++x) {
    std::vector<double> rest = problem_.costs[x];
    for (size_t mode = 0; mode < rest.size(); ++mode) {
      if (rest[mode] == kForbidden) continue;
      for (const Link& link : links_[x]) {
        const double paid = paid_[link.part][link.member][mode];
        rest[mode] = paid == kForbidden ? kForbidden : rest[mode] - paid;
        if (paid == kForbidden) break;
      }
    }
    out += least_of(rest);
  }
  for (size_t p = 0; p < parts_.size(); ++p) out += parts_[p].delivery.least(asked_[p]);
  return out;
}

std::vector<size_t> Dual::choose() const {
  Asked asked = asked_;
  std::vector<size_t> modes;
  for (size_t x = 0; x < links_.size(); ++x) {
    const std::vector<double> costs = costs_beside(x, asked);
    modes.push_back(std::min_element(costs.begin(), costs.end()) - costs.begin());
    fix(asked, x, modes.back());
  }
  return modes;
}

/// What each mode of `vertex` costs, with its deliveries.
std::vector<double> Dual::costs_beside(size_t vertex, const Asked& asked) const {
  std::vector<double> out = problem_.costs[vertex];
  for (const Link& link : links_[vertex]) {
    const auto message = parts_[link.part].delivery.message_to(link.member, asked[link.part]);
    const auto& places = parts_[link.part].members[link.member]->places;
    for (size_t mode = 0; mode < out.size(); ++mode) out[mode] += message[places[mode]];
  }
  return out;
}

/// Divides all that a vertex costs equally between deliveries that lead on; a mode that is forbidden stays so.
void Dual::update(size_t vertex, bool forward) {
  const auto& links = links_[vertex];
  if (links.empty()) return;
  std::vector<double> costs = problem_.costs[vertex];
  std::vector<std::vector<double>> messages;
  for (const Link& link : links) {
    messages.push_back(parts_[link.part].delivery.message_to(link.member, asked_[link.part]));
    const auto& places = parts_[link.part].members[link.member]->places;
    for (size_t mode = 0; mode < costs.size(); ++mode) costs[mode] += messages.back()[places[mode]];
  }
  const double least = least_of(costs);
  const auto before = std::count_if(links.begin(), links.end(), [](const Link& link) { return link.earlier; });
  const auto after = std::count_if(links.begin(), links.end(), [](const Link& link) { return link.later; });
  const double share = 1.0 / static_cast<double>(std::max<int64_t>({before, after, 1}));
  for (size_t i = 0; i < links.size(); ++i) {
    auto& paid = paid_[links[i].part][links[i].member];
    const auto& places = parts_[links[i].part].members[links[i].member]->places;
    const double part = (forward ? links[i].later : links[i].earlier) ? share : 0;
    for (size_t mode = 0; mode < costs.size(); ++mode) {
      paid[mode] =
          costs[mode] == kForbidden ? kForbidden : part * (costs[mode] - least) - messages[i][places[mode]];
    }
    ask(asked_, links[i], paid);
  }
}

/// The least that a member pays in modes of each place.
void Dual::ask(Asked& asked, const Link& link, const std::vector<double>& paid) const {
  const Part& part = parts_[link.part];
  auto& least = asked[link.part][link.member];
  least.assign(part.delivery.places(link.member), kForbidden);
  const auto& places = part.members[link.member]->places;
  for (size_t mode = 0; mode < paid.size(); ++mode) least[places[mode]] = std::min(least[places[mode]], paid[mode]);
}

/// Asks for the places of one mode only.
void Dual::fix(Asked& asked, size_t vertex, size_t mode) const {
  for (const Link& link : links_[vertex]) {
    auto& fixed = asked[link.part][link.member];
    fixed.assign(fixed.size(), kForbidden);
    fixed[parts_[link.part].members[link.member]->places[mode]] = 0;
  }
}

}  // namespace joinsum::optimizer
