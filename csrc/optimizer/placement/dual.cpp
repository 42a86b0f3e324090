#include "optimizer/placement/dual.h"

#include <algorithm>
#include <cmath>

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

/// Entries that a pass looks at, beyond which the problem is large.
constexpr double kManyEntries = 1.5e8;
/// Readers that are delivered to together where a pass would look at so many entries.
constexpr size_t kFewReaders = 4;
/// Binary digits to which payments are rounded there, of those of the least cost known.
constexpr int kDigits = 26;

size_t parts_of(size_t readers, size_t most) { return std::max<size_t>(1, (readers + most - 1) / most); }

/// That a pass looks at, about.
double entries_of(const DeliveryProblem& problem, size_t most_readers) {
  double out = 0;
  for (const auto& value : problem.values) {
    const size_t readers = value.members.size() - 1;
    const auto parts = static_cast<double>(parts_of(readers, most_readers));
    out += 2 * static_cast<double>(readers + 1) * parts *
           Delivery::entries(*value.routes, std::min(readers, most_readers));
  }
  return out;
}

/// A bound takes about a fourth of a pass.
constexpr int kPassesBetweenBounds = 3;

}  // namespace

Dual::Dual(const DeliveryProblem& problem, size_t most_readers, double together)
    : costs_(problem.costs), links_(problem.costs.size()) {
  const double entries = entries_of(problem, most_readers);
  large_ = entries > kManyEntries;
  if (entries > together) most_readers = std::min(most_readers, kFewReaders);
  for (const auto& value : problem.values) add(value, most_readers);
  bound_ = evaluated();
}

/// To deliver to some of a value's readers costs no more than to all of them.
void Dual::add(const DeliveryProblem::Value& value, size_t most_readers) {
  const size_t readers = value.members.size() - 1;
  const size_t parts = parts_of(readers, most_readers);
  auto& routes = in_parts_[{value.routes.get(), parts}];
  if (routes == nullptr) routes = in_part(value.routes, 1.0 / static_cast<double>(parts));
  for (size_t part = 0; part < parts; ++part) {
    std::vector<const DeliveryProblem::Member*> members{&value.members[0]};
    for (size_t i = part * readers / parts; i < (part + 1) * readers / parts; ++i) {
      members.push_back(&value.members[i + 1]);
    }
    const size_t all = members.size();
    parts_.push_back({Delivery(routes, all - 1, memory_.get()), std::move(members), 0, std::vector<int64_t>(all, 0)});
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
    paid.emplace_back(costs_[at].size(), 0.0);
    ask(asked_, link, paid.back());
  }
}

void Dual::ascend(double limit) {
  memory_->clear();
  for (size_t x = 0; x < links_.size(); ++x) update(x, true, limit);
  for (size_t x = links_.size(); x > 0; --x) update(x - 1, false, limit);
  if (++passes_ % kPassesBetweenBounds == 0) bound_ = std::max(bound_, evaluated());
}

/// The least of what a vertex costs beside what it pays for deliveries.
double Dual::least_rest(size_t vertex) const {
  std::vector<double> rest = costs_[vertex];
  for (size_t mode = 0; mode < rest.size(); ++mode) {
    if (rest[mode] == kForbidden) continue;
    for (const Link& link : links_[vertex]) {
      const double paid = paid_[link.part][link.member][mode];
      rest[mode] = paid == kForbidden ? kForbidden : rest[mode] - paid;
      if (paid == kForbidden) break;
    }
  }
  return least_of(rest);
}

double Dual::evaluated() const {
  double out = 0;
  for (size_t x = 0; x < links_.size(); ++x) out += least_rest(x);
  for (size_t p = 0; p < parts_.size(); ++p) out += parts_[p].delivery.least(asked_[p]);
  return out;
}

Dual::Partial Dual::nothing() const {
  Partial out;
  out.asked = asked_;
  for (size_t p = 0; p < parts_.size(); ++p) out.least.push_back(parts_[p].delivery.least(asked_[p]));
  for (size_t x = 0; x < links_.size(); ++x) out.costs.push_back(least_rest(x));
  return out;
}

Dual::Partial Dual::with(const Partial& partial, size_t vertex, size_t mode) const {
  Partial out = partial;
  out.costs[vertex] = costs_[vertex][mode];
  fix(out.asked, vertex, mode);
  for (const Link& link : links_[vertex]) out.least[link.part] = parts_[link.part].delivery.least(out.asked[link.part]);
  return out;
}

std::vector<double> Dual::bounds(const Partial& partial, size_t vertex) const {
  std::vector<bool> own(parts_.size(), false);
  bool twice = false;
  for (const Link& link : links_[vertex]) {
    twice = twice || own[link.part];
    own[link.part] = true;
  }
  double others = 0;
  for (size_t x = 0; x < links_.size(); ++x) others += x == vertex ? 0 : partial.costs[x];
  for (size_t p = 0; p < parts_.size(); ++p) others += own[p] ? 0 : partial.least[p];
  if (!twice) {
    std::vector<double> out = costs_beside(vertex, partial.asked);
    for (double& bound : out) bound += others;
    return out;
  }
  std::vector<double> out;
  for (size_t mode = 0; mode < costs_[vertex].size(); ++mode) {
    out.push_back(others + costs_[vertex][mode]);
    if (out.back() == kForbidden) continue;
    Asked asked = partial.asked;
    fix(asked, vertex, mode);
    for (size_t p = 0; p < parts_.size(); ++p) out.back() += own[p] ? parts_[p].delivery.least(asked[p]) : 0;
  }
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
  std::vector<double> out = costs_[vertex];
  for (const Link& link : links_[vertex]) {
    const auto message = parts_[link.part].delivery.message_to(link.member, asked[link.part]);
    const auto& places = parts_[link.part].members[link.member]->places;
    for (size_t mode = 0; mode < out.size(); ++mode) out[mode] += message[places[mode]];
  }
  return out;
}

/// Takes back what a vertex pays for its deliveries, and what they cost with each of its modes. One that reads a value
/// twice takes that in two steps.
std::vector<double> Dual::gathered(size_t vertex) {
  std::vector<double> out = costs_[vertex];
  for (Link& link : links_[vertex]) {
    const std::vector<double>& message = message_to(link);
    const auto& places = parts_[link.part].members[link.member]->places;
    auto& paid = paid_[link.part][link.member];
    for (size_t mode = 0; mode < out.size(); ++mode) {
      out[mode] += message[places[mode]];
      paid[mode] = out[mode] == kForbidden ? kForbidden : -message[places[mode]];
    }
    change(link);
  }
  return out;
}

/// The first member of a delivery is asked after each other pass, and so is the last: nothing has changed meanwhile.
const std::vector<double>& Dual::message_to(Link& link) const {
  const Part& part = parts_[link.part];
  const int64_t changes = part.changes - part.changes_of[link.member];
  if (link.changes != changes) link.message = part.delivery.message_to(link.member, asked_[link.part]);
  link.changes = changes;
  return link.message;
}

void Dual::change(const Link& link) {
  ++parts_[link.part].changes;
  ++parts_[link.part].changes_of[link.member];
  ask(asked_, link, paid_[link.part][link.member]);
}

/// Divides all that a vertex costs equally between deliveries that lead on.
void Dual::update(size_t vertex, bool forward, double limit) {
  const auto& links = links_[vertex];
  if (links.empty()) return;
  const std::vector<double> costs = gathered(vertex);
  const double least = least_of(costs);
  const auto before = std::count_if(links.begin(), links.end(), [](const Link& link) { return link.earlier; });
  const auto after = std::count_if(links.begin(), links.end(), [](const Link& link) { return link.later; });
  const double share = 1.0 / static_cast<double>(std::max<int64_t>({before, after, 1}));
  const double grain = large_ && limit < kForbidden ? std::ldexp(1.0, std::ilogb(limit) - kDigits) : 0;
  for (size_t mode = 0; mode < costs.size(); ++mode) {
    // The rest costs no less than the bound without the least of these.
    if (bound_ + (costs[mode] - least) > limit) costs_[vertex][mode] = kForbidden;
  }
  for (const Link& link : links) {
    auto& paid = paid_[link.part][link.member];
    const double part = (forward ? link.later : link.earlier) ? share : 0;
    for (size_t mode = 0; mode < costs.size(); ++mode) {
      const bool chosen = costs_[vertex][mode] < kForbidden && costs[mode] < kForbidden;
      paid[mode] = chosen ? paid[mode] + part * (costs[mode] - least) : kForbidden;
      if (chosen && grain > 0) paid[mode] = std::nearbyint(paid[mode] / grain) * grain;
    }
    change(link);
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
