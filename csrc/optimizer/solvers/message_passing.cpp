#include "optimizer/solvers/message_passing.h"

#include <algorithm>
#include <cmath>

namespace joinsum::optimizer::solvers {
namespace {

/// The same routes at a fraction of the prices.
std::shared_ptr<const resharding::Routes> scaled(const std::shared_ptr<const resharding::Routes>& routes,
                                                 double factor) {
  if (factor == 1) return routes;
  auto out = std::make_shared<resharding::Routes>(*routes);
  for (auto* prices : {&out->staging_costs, &out->fetch_costs, &out->fetch_costs_by_source}) {
    for (double& price : *prices) price *= factor;
  }
  return out;
}

/// A problem whose passes read more entries is large.
constexpr double kManyEntries = 1.5e8;
/// The readers that one resharding serves in large problems.
constexpr size_t kFewReaders = 4;
/// The binary digits to which allotments are rounded in large problems, relative to the least cost known.
constexpr int kDigits = 26;

size_t factors_of(size_t readers, size_t most) { return std::max<size_t>(1, (readers + most - 1) / most); }

/// About how many entries a pass reads.
double entries_of(const resharding::ReshardingProblem& problem, size_t most_readers) {
  double out = 0;
  for (const auto& value : problem.values) {
    const size_t readers = value.members.size() - 1;
    const auto parts = static_cast<double>(factors_of(readers, most_readers));
    out += 2 * static_cast<double>(readers + 1) * parts *
           resharding::Resharding::entries(*value.routes, std::min(readers, most_readers));
  }
  return out;
}

/// A bound takes about a fourth of a pass.
constexpr int kPassesBetweenBounds = 3;

}  // namespace

MessagePassing::MessagePassing(const resharding::ReshardingProblem& problem, size_t most_readers, double joint_entries)
    : costs_(problem.costs), links_(problem.costs.size()) {
  const double entries = entries_of(problem, most_readers);
  large_ = entries > kManyEntries;
  if (entries > joint_entries) most_readers = std::min(most_readers, kFewReaders);
  for (const auto& value : problem.values) add(value, most_readers);
  bound_ = evaluated_bound();
}

/// Resharding to some of a value's readers costs no more than resharding to all.
void MessagePassing::add(const resharding::ReshardingProblem::Value& value, size_t most_readers) {
  const size_t readers = value.members.size() - 1;
  const size_t parts = factors_of(readers, most_readers);
  auto& routes = scaled_routes_[{value.routes.get(), parts}];
  if (routes == nullptr) routes = scaled(value.routes, 1.0 / static_cast<double>(parts));
  for (size_t factor = 0; factor < parts; ++factor) {
    std::vector<const resharding::ReshardingProblem::Member*> members{&value.members[0]};
    for (size_t i = factor * readers / parts; i < (factor + 1) * readers / parts; ++i) {
      members.push_back(&value.members[i + 1]);
    }
    const size_t all = members.size();
    factors_.push_back(
        {resharding::Resharding(routes, all - 1, cache_.get()), std::move(members), 0, std::vector<int64_t>(all, 0)});
    link(factors_.size() - 1);
  }
}

void MessagePassing::link(size_t factor) {
  const auto& members = factors_[factor].members;
  auto& allotted = allotted_.emplace_back();
  messages_.emplace_back(members.size());
  for (size_t m = 0; m < members.size(); ++m) {
    const size_t at = members[m]->vertex;
    const auto another = [&](auto&& is) {
      return std::any_of(members.begin(), members.end(), [&](const auto* other) { return is(other->vertex); });
    };
    const Link link{factor, m, another([&](size_t other) { return other < at; }),
                    another([&](size_t other) { return other > at; })};
    links_[at].push_back(link);
    allotted.emplace_back(costs_[at].size(), 0.0);
    charge(messages_, link, allotted.back());
  }
}

void MessagePassing::ascend(double limit) {
  cache_->clear();
  for (size_t x = 0; x < links_.size(); ++x) update(x, true, limit);
  for (size_t x = links_.size(); x > 0; --x) update(x - 1, false, limit);
  if (++passes_ % kPassesBetweenBounds == 0) bound_ = std::max(bound_, evaluated_bound());
}

/// The least of a vertex's costs that are not allotted to reshardings.
double MessagePassing::least_unallotted(size_t vertex) const {
  std::vector<double> rest = costs_[vertex];
  for (size_t strategy = 0; strategy < rest.size(); ++strategy) {
    if (rest[strategy] == min_sum::kForbidden) continue;
    for (const Link& link : links_[vertex]) {
      const double allotted = allotted_[link.factor][link.member][strategy];
      rest[strategy] = allotted == min_sum::kForbidden ? min_sum::kForbidden : rest[strategy] - allotted;
      if (allotted == min_sum::kForbidden) break;
    }
  }
  return min_sum::least_of(rest);
}

double MessagePassing::evaluated_bound() const {
  double out = 0;
  for (size_t x = 0; x < links_.size(); ++x) out += least_unallotted(x);
  for (size_t p = 0; p < factors_.size(); ++p) out += factors_[p].resharding.least(messages_[p]);
  return out;
}

MessagePassing::Partial MessagePassing::nothing() const {
  Partial out;
  out.messages = messages_;
  for (size_t p = 0; p < factors_.size(); ++p) out.least.push_back(factors_[p].resharding.least(messages_[p]));
  for (size_t x = 0; x < links_.size(); ++x) out.costs.push_back(least_unallotted(x));
  return out;
}

MessagePassing::Partial MessagePassing::with(const Partial& partial, size_t vertex, size_t strategy) const {
  Partial out = partial;
  out.costs[vertex] = costs_[vertex][strategy];
  fix(out.messages, vertex, strategy);
  for (const Link& link : links_[vertex])
    out.least[link.factor] = factors_[link.factor].resharding.least(out.messages[link.factor]);
  return out;
}

std::vector<double> MessagePassing::bounds(const Partial& partial, size_t vertex) const {
  std::vector<bool> own(factors_.size(), false);
  bool twice = false;
  for (const Link& link : links_[vertex]) {
    twice = twice || own[link.factor];
    own[link.factor] = true;
  }
  double others = 0;
  for (size_t x = 0; x < links_.size(); ++x) others += x == vertex ? 0 : partial.costs[x];
  for (size_t p = 0; p < factors_.size(); ++p) others += own[p] ? 0 : partial.least[p];
  if (!twice) {
    std::vector<double> out = costs_beside(vertex, partial.messages);
    for (double& bound : out) bound += others;
    return out;
  }
  std::vector<double> out;
  for (size_t strategy = 0; strategy < costs_[vertex].size(); ++strategy) {
    out.push_back(others + costs_[vertex][strategy]);
    if (out.back() == min_sum::kForbidden) continue;
    Messages messages = partial.messages;
    fix(messages, vertex, strategy);
    for (size_t p = 0; p < factors_.size(); ++p) out.back() += own[p] ? factors_[p].resharding.least(messages[p]) : 0;
  }
  return out;
}

std::vector<size_t> MessagePassing::choose() const {
  Messages messages = messages_;
  std::vector<size_t> strategies;
  for (size_t x = 0; x < links_.size(); ++x) {
    const std::vector<double> costs = costs_beside(x, messages);
    strategies.push_back(std::min_element(costs.begin(), costs.end()) - costs.begin());
    fix(messages, x, strategies.back());
  }
  return strategies;
}

/// The cost of each strategy of `vertex`, with the reshardings of its values.
std::vector<double> MessagePassing::costs_beside(size_t vertex, const Messages& messages) const {
  std::vector<double> out = costs_[vertex];
  for (const Link& link : links_[vertex]) {
    const auto message = factors_[link.factor].resharding.message_to(link.member, messages[link.factor]);
    const auto& layouts = factors_[link.factor].members[link.member]->layouts;
    for (size_t strategy = 0; strategy < out.size(); ++strategy) out[strategy] += message[layouts[strategy]];
  }
  return out;
}

/// Takes back what a vertex has allotted to reshardings, and adds the messages that it receives from them. A vertex
/// that reads a value twice does so in two steps.
std::vector<double> MessagePassing::gathered(size_t vertex) {
  std::vector<double> out = costs_[vertex];
  for (Link& link : links_[vertex]) {
    const std::vector<double>& message = message_to(link);
    const auto& layouts = factors_[link.factor].members[link.member]->layouts;
    auto& allotted = allotted_[link.factor][link.member];
    for (size_t strategy = 0; strategy < out.size(); ++strategy) {
      out[strategy] += message[layouts[strategy]];
      allotted[strategy] = out[strategy] == min_sum::kForbidden ? min_sum::kForbidden : -message[layouts[strategy]];
    }
    change(link);
  }
  return out;
}

/// The first and the last member of a resharding receive two messages in a row; nothing has changed between them.
const std::vector<double>& MessagePassing::message_to(Link& link) const {
  const Factor& factor = factors_[link.factor];
  const int64_t changes = factor.changes - factor.changes_of[link.member];
  if (link.changes != changes) link.message = factor.resharding.message_to(link.member, messages_[link.factor]);
  link.changes = changes;
  return link.message;
}

void MessagePassing::change(const Link& link) {
  ++factors_[link.factor].changes;
  ++factors_[link.factor].changes_of[link.member];
  charge(messages_, link, allotted_[link.factor][link.member]);
}

/// Allots all costs of a vertex equally to the reshardings that lead on.
void MessagePassing::update(size_t vertex, bool forward, double limit) {
  const auto& links = links_[vertex];
  if (links.empty()) return;
  const std::vector<double> costs = gathered(vertex);
  const double least = min_sum::least_of(costs);
  const auto before = std::count_if(links.begin(), links.end(), [](const Link& link) { return link.earlier; });
  const auto after = std::count_if(links.begin(), links.end(), [](const Link& link) { return link.later; });
  const double share = 1.0 / static_cast<double>(std::max<int64_t>({before, after, 1}));
  const double grain = large_ && limit < min_sum::kForbidden ? std::ldexp(1.0, std::ilogb(limit) - kDigits) : 0;
  for (size_t strategy = 0; strategy < costs.size(); ++strategy) {
    // The rest costs no less than the bound without the least of these.
    if (bound_ + (costs[strategy] - least) > limit) costs_[vertex][strategy] = min_sum::kForbidden;
  }
  for (const Link& link : links) {
    auto& allotted = allotted_[link.factor][link.member];
    const double factor = (forward ? link.later : link.earlier) ? share : 0;
    for (size_t strategy = 0; strategy < costs.size(); ++strategy) {
      const bool chosen = costs_[vertex][strategy] < min_sum::kForbidden && costs[strategy] < min_sum::kForbidden;
      allotted[strategy] = chosen ? allotted[strategy] + factor * (costs[strategy] - least) : min_sum::kForbidden;
      if (chosen && grain > 0) allotted[strategy] = std::nearbyint(allotted[strategy] / grain) * grain;
    }
    change(link);
  }
}

/// Updates the charges of a member: the least allotment among its strategies, for each layout.
void MessagePassing::charge(Messages& messages, const Link& link, const std::vector<double>& allotted) const {
  const Factor& factor = factors_[link.factor];
  auto& least = messages[link.factor][link.member];
  least.assign(factor.resharding.layouts(link.member), min_sum::kForbidden);
  const auto& layouts = factor.members[link.member]->layouts;
  for (size_t strategy = 0; strategy < allotted.size(); ++strategy)
    least[layouts[strategy]] = std::min(least[layouts[strategy]], allotted[strategy]);
}

/// Restricts the messages of a vertex to the layouts of one strategy.
void MessagePassing::fix(Messages& messages, size_t vertex, size_t strategy) const {
  for (const Link& link : links_[vertex]) {
    auto& fixed = messages[link.factor][link.member];
    fixed.assign(fixed.size(), min_sum::kForbidden);
    fixed[factors_[link.factor].members[link.member]->layouts[strategy]] = 0;
  }
}

}  // namespace joinsum::optimizer::solvers
