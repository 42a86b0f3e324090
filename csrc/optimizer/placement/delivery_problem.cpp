#include "optimizer/placement/delivery_problem.h"

#include <algorithm>
#include <cmath>

namespace joinsum::optimizer {
namespace {

/// Rounds of changes; they stop by themselves long before, unless rounding makes them go in circles.
constexpr int kRounds = 100;
/// Numbers of modes' places up to which a table of costs has all of them.
constexpr size_t kMostNumbers = 10'000;

/// Changes modes, vertex by vertex; looks again only at those around a change.
class Descent {
 public:
  Descent(const DeliveryProblem& problem, std::vector<size_t>& modes)
      : problem_(problem), modes_(modes), around_(modes.size()), pending_(modes.size(), true) {
    for (const auto& value : problem.values) {
      for (const auto& member : value.members) {
        auto& around = around_[member.vertex];
        if (around.empty() || around.back() != &value) around.push_back(&value);
      }
    }
  }

  void run(const min_sum::Deadline& deadline) {
    bool gained = true;
    for (int round = 0; gained && round < kRounds; ++round) {
      gained = false;
      for (size_t x = 0; x < modes_.size() && !min_sum::expired(deadline); ++x) {
        if (!pending_[x]) continue;
        pending_[x] = false;
        gained |= change(x);
      }
    }
  }

 private:
  bool change(size_t vertex) {
    std::vector<double> costs = problem_.costs[vertex];
    const size_t before = modes_[vertex];
    for (const auto* value : around_[vertex]) add(*value, vertex, costs);
    modes_[vertex] = before;
    const auto best = std::min_element(costs.begin(), costs.end());
    // A gain that rounding may have made is none.
    if (*best >= costs[before] - 1e-12 * std::abs(costs[before])) return false;
    modes_[vertex] = best - costs.begin();
    for (const auto* value : around_[vertex]) {
      for (const auto& member : value->members) pending_[member.vertex] = true;
    }
    return true;
  }

  /// Adds what delivering `value` costs in each mode of `vertex`, once for modes of the same places.
  void add(const DeliveryProblem::Value& value, size_t vertex, std::vector<double>& costs) {
    const auto is_vertex = [&](const auto& member) { return member.vertex == vertex; };
    const auto first = std::find_if(value.members.begin(), value.members.end(), is_vertex);
    if (first != value.members.begin() && std::none_of(first + 1, value.members.end(), is_vertex))
      return add_as_reader(value, first - value.members.begin(), costs);
    // The number of what a mode's places are, in order: by one membership after the other.
    std::vector<size_t> number(costs.size(), 0);
    size_t count = 1;
    for (const auto& member : value.members) {
      if (member.vertex != vertex) continue;
      const size_t places = *std::max_element(member.places.begin(), member.places.end()) + 1;
      for (size_t mode = 0; mode < costs.size(); ++mode) number[mode] = number[mode] * places + member.places[mode];
      count *= places;
      if (count > kMostNumbers) count = renumber(number);
    }
    std::vector<double> known(count, -1);
    for (size_t mode = 0; mode < costs.size(); ++mode) {
      double& cost = known[number[mode]];
      if (cost < 0) {
        modes_[vertex] = mode;
        cost = problem_.delivery(value, modes_).cost;
      }
      costs[mode] += cost;
    }
  }

  /// The same of a vertex that reads the value once.
  void add_as_reader(const DeliveryProblem::Value& value, size_t reader, std::vector<double>& costs) {
    const auto& members = value.members;
    std::vector<size_t> others;
    for (size_t i = 1; i < members.size(); ++i) {
      if (i != reader) others.push_back(members[i].places[modes_[members[i].vertex]]);
    }
    const std::vector<size_t>& all = members[reader].places;
    std::vector<size_t> places = all;
    std::sort(places.begin(), places.end());
    places.erase(std::unique(places.begin(), places.end()), places.end());
    const size_t made = members[0].places[modes_[members[0].vertex]];
    const std::vector<double> paid = delivered_beside(*value.routes, made, std::move(others), places);
    std::vector<double> by_place(places.back() + 1);
    for (size_t i = 0; i < places.size(); ++i) by_place[places[i]] = paid[i];
    for (size_t mode = 0; mode < costs.size(); ++mode) costs[mode] += by_place[all[mode]];
  }

  /// Gives equal numbers one that is below their count, which it returns.
  static size_t renumber(std::vector<size_t>& numbers) {
    std::vector<size_t> different = numbers;
    std::sort(different.begin(), different.end());
    different.erase(std::unique(different.begin(), different.end()), different.end());
    for (size_t& each : numbers) {
      each = std::lower_bound(different.begin(), different.end(), each) - different.begin();
    }
    return different.size();
  }

  const DeliveryProblem& problem_;
  std::vector<size_t>& modes_;
  std::vector<std::vector<const DeliveryProblem::Value*>> around_;  ///< each vertex
  std::vector<bool> pending_;
};

size_t made(const DeliveryProblem::Value& value, const std::vector<size_t>& modes) {
  return value.members[0].places[modes[value.members[0].vertex]];
}

std::vector<size_t> needed(const DeliveryProblem::Value& value, const std::vector<size_t>& modes) {
  std::vector<size_t> out;
  out.reserve(value.members.size());
  for (size_t i = 1; i < value.members.size(); ++i)
    out.push_back(value.members[i].places[modes[value.members[i].vertex]]);
  return out;
}

}  // namespace

Delivered DeliveryProblem::delivery(const Value& value, const std::vector<size_t>& modes) const {
  std::vector<size_t> places = needed(value, modes);
  return delivered(*value.routes, made(value, modes), std::move(places));
}

std::vector<double> DeliveryProblem::costs_by_put(const Value& value, const std::vector<size_t>& modes) const {
  std::vector<size_t> places = needed(value, modes);
  return optimizer::costs_by_put(*value.routes, made(value, modes), places);
}

double DeliveryProblem::cost(const std::vector<size_t>& modes) const {
  double out = 0;
  for (size_t x = 0; x < modes.size(); ++x) out += costs[x][modes[x]];
  for (const Value& value : values) out += delivery(value, modes).cost;
  return out;
}

void DeliveryProblem::improve(std::vector<size_t>& modes, const min_sum::Deadline& deadline) const {
  Descent(*this, modes).run(deadline);
}

}  // namespace joinsum::optimizer
