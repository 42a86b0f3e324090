#include "optimizer/placement/fitting.h"

#include <algorithm>
#include <numeric>

#include "optimizer/cost/cost.h"

namespace joinsum::optimizer {
namespace {

/// Vertices of graphs that are searched at most.
constexpr size_t kMostVertices = 20;
/// Parts of placements that are followed, and placements that are lowered, at most in each order of ways.
constexpr int64_t kMostExtended = 40'000;
constexpr int64_t kMostLowered = 6'000;
/// A gain that rounding may have made is none.
constexpr double kRounding = 1e-12;

int64_t most_of(const std::vector<int64_t>& bytes) { return *std::max_element(bytes.begin(), bytes.end()); }

void add(std::vector<int64_t>& sum, const std::vector<int64_t>& bytes) {
  for (size_t site = 0; site < sum.size(); ++site) sum[site] += bytes[site];
}

}  // namespace

bool Fitting::possible(const ProblemParts& from) {
  const auto& outputs = from.plan.outputs();
  const bool tied = std::any_of(outputs.begin(), outputs.end(), [](const auto& output) { return output.tied_input; });
  const bool calls = std::any_of(from.vertices.begin(), from.vertices.end(),
                                 [](const Vertex& vertex) { return vertex.call() != nullptr; });
  return from.vertices.size() <= kMostVertices && !tied && !calls;
}

Fitting::Fitting(const ProblemParts& from, const Routing& routing, const Dual& dual, int64_t limit)
    : from_(from), routing_(routing), dual_(dual), limit_(limit) {}

/// What is found in one order bounds what is looked at in the other.
Fitted Fitting::search(double most) {
  most_ = most;
  for (const First first : {First::kCheap, First::kSmall}) {
    run(first);
    if (found_.complete) break;
  }
  return std::move(found_);
}

void Fitting::run(First first) {
  first_ = first;
  extended_ = lowered_ = 0;
  modes_.assign(from_.vertices.size(), 0);
  put_.assign(routing_.problem().values.size(), 0);
  found_.complete = true;
  extend(0, dual_.nothing(), Bytes(from_.memory.places.grid().sites(), 0));
}

/// Tries the ways of a vertex, with those that the vertices before it have.
void Fitting::extend(size_t vertex, const Dual::Partial& partial, const Bytes& inputs) {
  if (vertex == from_.vertices.size()) return try_puts(0, 0);
  const auto& modes = from_.vertices[vertex].modes;
  const std::vector<double> bounds = dual_.bounds(partial, vertex);
  std::vector<std::optional<Bytes>> bytes;
  std::vector<std::pair<double, size_t>> order;
  for (size_t mode = 0; mode < modes.size(); ++mode) {
    bytes.push_back(bounds[mode] < most_ ? kept(vertex, modes[mode], inputs) : std::nullopt);
    if (!bytes.back()) continue;
    const bool small = first_ == First::kSmall;
    order.emplace_back(small ? static_cast<double>(most_of(*bytes.back())) : bounds[mode], mode);
  }
  std::sort(order.begin(), order.end());
  const bool input = from_.vertices[vertex].input() != nullptr && !from_.vertices[vertex].output;
  for (const auto& [key, mode] : order) {
    if (bounds[mode] * (1 - kRounding) >= most_) continue;
    if (++extended_ > kMostExtended || lowered_ > kMostLowered) {
      found_.complete = false;
      return;
    }
    modes_[vertex] = mode;
    extend(vertex + 1, dual_.with(partial, vertex, mode), input ? *bytes[mode] : inputs);
  }
}

/// What each site keeps at least while the vertex runs so; nothing where that is more than it can. `inputs` are those
/// of the vertices before it.
std::optional<Fitting::Bytes> Fitting::kept(size_t vertex, const Mode& mode, const Bytes& inputs) {
  const Vertex& of = from_.vertices[vertex];
  Bytes out = inputs;
  if (!of.output) add(out, bytes_of(mode.result));
  for (size_t i = 0; i < of.operands.size(); ++i) {
    const auto operand = static_cast<size_t>(of.operands[i]);
    const Vertex& source = from_.vertices[operand];
    const bool stays = source.input() != nullptr && !source.output &&
                       source.modes[modes_[operand]].result->placement == mode.needs[i]->placement;
    const auto before = of.operands.begin() + static_cast<int64_t>(i);
    const auto same = std::find(of.operands.begin(), before, of.operands[i]);
    const bool known = same != before && mode.needs[same - of.operands.begin()]->placement == mode.needs[i]->placement;
    if (!stays && !known) add(out, bytes_of(mode.needs[i]));
  }
  if (most_of(out) > limit_) return std::nullopt;
  return out;
}

/// Tries the places where values may be put beside, from this one on; what all costs but what they do is known.
void Fitting::try_puts(size_t value, double cost) {
  const DeliveryProblem& problem = routing_.problem();
  if (value == problem.values.size()) {
    for (size_t x = 0; x < modes_.size(); ++x) cost += problem.costs[x][modes_[x]];
    if (cost < most_ - kRounding * std::abs(most_ < kForbidden ? most_ : 0)) look_at(cost);
    return;
  }
  const std::vector<double> costs = problem.costs_by_put(problem.values[value], modes_);
  std::vector<size_t> order(costs.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return costs[a] < costs[b]; });
  for (const size_t put : order) {
    if (cost + costs[put] >= most_ || !found_.complete) return;
    put_[value] = put;
    try_puts(value + 1, cost + costs[put]);
  }
}

void Fitting::look_at(double cost) {
  if (++lowered_ > kMostLowered) {
    found_.complete = false;
    return;
  }
  Choice choice = routing_.choice(modes_, put_);
  if (!fits(choice)) return;
  found_.choice = std::move(choice);
  most_ = cost;
}

bool Fitting::fits(const Choice& choice) {
  Lowered nodes;
  const ia::Plan plan = Lowering(from_.plan, from_.demands, from_.memory, from_.vertices).plan_of(choice, nodes);
  ReceivedBytes received;
  for (const ia::NodePtr& node : plan.order()) {
    const bool moves = node->as<ia::Broadcast>() != nullptr || node->as<ia::Shuffle>() != nullptr;
    if (moves) received.emplace(node.get(), received_by(*node));
  }
  return peak_of(plan, received).bytes <= limit_;
}

const Fitting::Bytes& Fitting::bytes_of(const Place* place) {
  Bytes& out = bytes_[place];
  if (out.empty()) {
    for (int64_t site = 0; site < place->type.sites(); ++site) out.push_back(place->type.bytes(site));
  }
  return out;
}

const Fitting::Bytes& Fitting::received_by(const ia::Node& move) {
  Places& places = from_.memory.places;
  Bytes& out = received_[{places.of(move.input(0)->type()), places.of(move.type())}];
  if (out.empty()) {
    ReceivedBytes received;
    node_cost(move, Fusion::kNone, from_.memory.cluster, &received);
    out = received.at(&move);
  }
  return out;
}

}  // namespace joinsum::optimizer
