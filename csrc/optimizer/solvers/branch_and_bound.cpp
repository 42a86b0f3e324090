#include "optimizer/solvers/branch_and_bound.h"

#include <algorithm>
#include <numeric>

#include "optimizer/cost/cost.h"
#include "optimizer/lowering/placement_lowering.h"

namespace joinsum::optimizer::solvers {
namespace {

/// The most vertices of a graph that is searched.
constexpr size_t kMostVertices = 20;
/// The most partial placements that are extended, and placements that are lowered, in each order of strategies.
constexpr int64_t kMostExtended = 40'000;
constexpr int64_t kMostLowered = 6'000;
/// Gains within this relative rounding error do not count.
constexpr double kRounding = 1e-12;

int64_t most_of(const std::vector<int64_t>& bytes) { return *std::max_element(bytes.begin(), bytes.end()); }

void add(std::vector<int64_t>& sum, const std::vector<int64_t>& bytes) {
  for (size_t site = 0; site < sum.size(); ++site) sum[site] += bytes[site];
}

/// For each vertex whether its plan may leave its value out of memory (`ia::analysis::Materialization`), as far as the
/// placements decide: only sums read it, or values of this kind.
std::vector<bool> possibly_unstored(const model::PlacementModel& model) {
  const std::vector<model::Consumers> consumers = model::consumers_of(model);
  std::vector<bool> out(model.vertices.size(), false);
  for (size_t v = out.size(); v-- > 0;) {
    const model::Vertex& vertex = model.vertices[v];
    const bool computed = vertex.input() == nullptr && vertex.node->as<tra::Aggregate>() == nullptr;
    const auto& readers = consumers[v].operands;
    out[v] = computed && !vertex.output && consumers[v].outputs == 0 && !readers.empty() &&
             std::all_of(readers.begin(), readers.end(), [&](const auto& reader) {
               const model::Vertex& by = model.vertices[reader.first];
               return !by.output && (out[reader.first] || by.node->template as<tra::Aggregate>() != nullptr);
             });
  }
  return out;
}

class BranchAndBound {
 public:
  BranchAndBound(const model::PlacementModel& model, const resharding::ReshardingModel& resharding,
                 const MessagePassing& bound, int64_t limit, double most)
      : model_(model),
        resharding_(resharding),
        bound_(bound),
        limit_(limit),
        unstored_(possibly_unstored(model)),
        most_(most) {}

  /// A result found in one order bounds the search in the other.
  Searched<model::Choice> run() {
    for (const First first : {First::kCheap, First::kSmall}) {
      search(first);
      if (found_.complete) break;
    }
    return std::move(found_);
  }

 private:
  enum class First { kCheap, kSmall };
  using Bytes = std::vector<int64_t>;  ///< by site

  void search(First first) {
    first_ = first;
    extended_ = lowered_ = 0;
    strategies_.assign(model_.vertices.size(), 0);
    staged_.assign(resharding_.problem().values.size(), 0);
    found_.complete = true;
    extend(0, bound_.nothing(), Bytes(model_.cache.layouts.grid().sites(), 0));
  }

  /// Tries the strategies of a vertex beside those chosen for the vertices before it.
  void extend(size_t vertex, const MessagePassing::Partial& partial, const Bytes& inputs) {
    if (vertex == model_.vertices.size()) return try_stagings(0, 0);
    const auto& strategies = model_.vertices[vertex].strategies;
    const std::vector<double> bounds = bound_.bounds(partial, vertex);
    std::vector<std::optional<Bytes>> bytes;
    std::vector<std::pair<double, size_t>> order;
    for (size_t strategy = 0; strategy < strategies.size(); ++strategy) {
      bytes.push_back(bounds[strategy] < most_ ? needed(vertex, strategies[strategy], inputs) : std::nullopt);
      if (!bytes.back()) continue;
      const bool small = first_ == First::kSmall;
      order.emplace_back(small ? static_cast<double>(most_of(*bytes.back())) : bounds[strategy], strategy);
    }
    std::sort(order.begin(), order.end());
    const bool input = model_.vertices[vertex].input() != nullptr && !model_.vertices[vertex].output;
    for (const auto& [key, strategy] : order) {
      if (bounds[strategy] * (1 - kRounding) >= most_) continue;
      if (++extended_ > kMostExtended || lowered_ > kMostLowered) {
        found_.complete = false;
        return;
      }
      strategies_[vertex] = strategy;
      extend(vertex + 1, bound_.with(partial, vertex, strategy), input ? *bytes[strategy] : inputs);
    }
  }

  /// A lower bound of the bytes that each site holds while the vertex runs; empty if that exceeds the limit. `inputs`
  /// are the bytes of inputs among the vertices before it.
  std::optional<Bytes> needed(size_t vertex, const model::Strategy& strategy, const Bytes& inputs) {
    const model::Vertex& of = model_.vertices[vertex];
    Bytes out = inputs;
    if (!of.output && !unstored_[vertex] && !lowering::may_start_as_read(model_, of))
      add(out, bytes_of(strategy.result));
    for (size_t i = 0; i < of.operands.size(); ++i) {
      const auto operand = static_cast<size_t>(of.operands[i]);
      const model::Vertex& source = model_.vertices[operand];
      const bool stays =
          source.input() != nullptr && !source.output && !lowering::may_start_as_read(model_, source) &&
          source.strategies[strategies_[operand]].result->placement == strategy.operand_layouts[i]->placement;
      const auto before = of.operands.begin() + static_cast<int64_t>(i);
      const auto same = std::find(of.operands.begin(), before, of.operands[i]);
      const bool known = same != before && strategy.operand_layouts[same - of.operands.begin()]->placement ==
                                               strategy.operand_layouts[i]->placement;
      if (!stays && !known && !unstored_[operand]) add(out, bytes_of(strategy.operand_layouts[i]));
    }
    if (most_of(out) > limit_) return std::nullopt;
    return out;
  }

  /// Enumerates staging layouts from this value on; `cost` is fixed except for staging.
  void try_stagings(size_t value, double cost) {
    const resharding::ReshardingProblem& problem = resharding_.problem();
    if (value == problem.values.size()) {
      for (size_t x = 0; x < strategies_.size(); ++x) cost += problem.costs[x][strategies_[x]];
      if (cost < most_ - kRounding * std::abs(most_ < min_sum::kForbidden ? most_ : 0)) consider(cost);
      return;
    }
    const std::vector<double> costs = problem.costs_by_staged(problem.values[value], strategies_);
    std::vector<size_t> order(costs.size());
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return costs[a] < costs[b]; });
    for (const size_t staged : order) {
      if (cost + costs[staged] >= most_ || !found_.complete) return;
      staged_[value] = staged;
      try_stagings(value + 1, cost + costs[staged]);
    }
  }

  void consider(double cost) {
    if (++lowered_ > kMostLowered) {
      found_.complete = false;
      return;
    }
    model::Choice choice = resharding_.choice(strategies_, staged_);
    if (!fits(choice)) return;
    found_.best = std::move(choice);
    most_ = cost;
  }

  bool fits(const model::Choice& choice) {
    lowering::LoweredNodes nodes;
    const ia::Plan plan = lowering::lowered(model_, choice, nodes);
    cost::ReceivedBytes received;
    for (const ia::NodePtr& node : plan.order()) {
      if (ia::is_move(node->operation())) received.emplace(node.get(), received_by(*node));
    }
    const ia::analysis::Materialization materialization(plan);
    const ia::analysis::Schedule schedule(plan, materialization, cost::schedule_seconds(plan, model_.cache.cluster));
    return cost::peak_of(plan, materialization, schedule, received).bytes <= limit_;
  }

  const Bytes& bytes_of(const layouts::Layout* layout) {
    Bytes& out = bytes_[layout];
    if (out.empty()) {
      for (int64_t site = 0; site < layout->type.sites(); ++site) out.push_back(layout->type.bytes(site));
    }
    return out;
  }

  const Bytes& received_by(const ia::Node& move) {
    layouts::Layouts& layouts = model_.cache.layouts;
    Bytes& out = received_[{layouts.of(move.input(0)->type()), layouts.of(move.type())}];
    if (out.empty()) {
      cost::ReceivedBytes received;
      cost::node_cost(move, cost::Fusion::kNone, model_.cache.cluster, &received);
      out = received.at(&move);
    }
    return out;
  }

  const model::PlacementModel& model_;
  const resharding::ReshardingModel& resharding_;
  const MessagePassing& bound_;
  int64_t limit_;
  std::vector<bool> unstored_;  ///< by vertex
  std::unordered_map<const layouts::Layout*, Bytes> bytes_;
  std::map<std::pair<const layouts::Layout*, const layouts::Layout*>, Bytes> received_;
  First first_ = First::kCheap;
  std::vector<size_t> strategies_;
  std::vector<size_t> staged_;  ///< by value of the problem
  double most_;                 ///< cost of the best placement found, at first the limit
  int64_t extended_ = 0;
  int64_t lowered_ = 0;
  Searched<model::Choice> found_;
};

}  // namespace

bool is_searchable(const model::PlacementModel& model) {
  const auto& outputs = model.plan.outputs();
  const bool tied = std::any_of(outputs.begin(), outputs.end(), [](const auto& output) { return output.tied_input; });
  const bool calls = std::any_of(model.vertices.begin(), model.vertices.end(),
                                 [](const model::Vertex& vertex) { return vertex.call() != nullptr; });
  return model.vertices.size() <= kMostVertices && !tied && !calls;
}

Searched<model::Choice> branch_and_bound(const model::PlacementModel& model,
                                         const resharding::ReshardingModel& resharding, const MessagePassing& bound,
                                         int64_t limit, double most) {
  return BranchAndBound(model, resharding, bound, limit, most).run();
}

}  // namespace joinsum::optimizer::solvers
