#include "optimizer/model/min_sum_tables.h"

#include <algorithm>
#include <bit>
#include <unordered_map>

#include "optimizer/min_sum/min_sum.h"

namespace joinsum::optimizer::model {
namespace {

using layouts::Layout;

/// Up to so many combinations of produced and staging layouts, both are chosen; beyond, the staging layout alone. The
/// first is a limit for all values together, the others bound the share of one value.
constexpr size_t kStatesOfAll = 15000;
constexpr size_t kFewestStates = 150;
constexpr size_t kMostStates = 2500;

/// The variables of a vertex: its strategy, and the layouts from which its value is read.
int64_t strategy_variable(int64_t vertex) { return 2 * vertex; }
int64_t sources_variable(int64_t vertex) { return 2 * vertex + 1; }

class TableBuilder {
 public:
  explicit TableBuilder(const PlacementModel& model)
      : plan_(model.plan),
        constraints_(model.constraints),
        cache_(model.cache),
        vertices_(model.vertices),
        consumers_(consumers_of(model)) {
    for (const Vertex& vertex : vertices_) {
      auto& produced = produced_.emplace_back();
      if (vertex.output) continue;
      number_[vertex.node] = static_cast<int64_t>(produced_.size()) - 1;
      for (const Strategy& strategy : vertex.strategies) {
        const Layout* layout = vertex.layout_like(strategy.result);
        if (std::find(produced.begin(), produced.end(), layout) == produced.end()) produced.push_back(layout);
      }
    }
  }

  void run() {
    for (size_t v = 0; v < vertices_.size(); ++v) list_sources(static_cast<int64_t>(v));
    list_tables();
  }

  /// Whether each value may be read from all layouts. Two readers that require one further layout share the move to it,
  /// which no pair of sources expresses.
  bool complete() const {
    for (size_t v = 0; v < vertices_.size(); ++v) {
      const Kind kind = kind_of(v);
      if (kind == Kind::kBoth && min_sum::size_of(consumers_[v].operands) + consumers_[v].outputs > 2) return false;
      const bool apart = !cost::row_of(cache_.objective).always_stages && !pinned(vertices_[v]);
      if (kind == Kind::kStaged && apart) return false;
    }
    return true;
  }

  std::vector<std::vector<Sources>>& sources() { return sources_; }
  std::vector<std::vector<double>>& source_costs() { return source_costs_; }
  std::vector<VariablePair>& tables() { return tables_; }

 private:
  /// Which combinations of produced and staging layouts a value may have.
  enum class Kind { kEnd, kStays, kReduces, kBoth, kStaged };

  /// What determines a table's costs: layouts and numbers. Tables of equal keys are shared.
  class Key {
   public:
    void add(const Layout* layout) { words_.push_back(reinterpret_cast<std::uintptr_t>(layout)); }
    void add(double number) { words_.push_back(std::bit_cast<uint64_t>(number)); }
    void add(const std::vector<Sources>& sources) {
      for (const Sources& source : sources) {
        add(source.produced);
        add(source.staged);
      }
      end();
    }
    void end() { words_.push_back(kEnd); }
    bool operator==(const Key&) const = default;
    struct Hash {
      size_t operator()(const Key& key) const {
        uint64_t out = key.words_.size();
        for (const uint64_t word : key.words_) out = (out ^ (word >> 4)) * 0x9E3779B97F4A7C15ULL;
        return out;
      }
    };

   private:
    static constexpr uint64_t kEnd = 1;  // no layout's address
    std::vector<uint64_t> words_;
  };

  bool pinned(const Vertex& vertex) const { return !vertex.output && constraints_.pins.contains(vertex.node); }
  double move(const Layout& from, const Layout& to) const { return cache_.move_prices(from, to); }

  double byte_cost(const Layout* staged) const {
    return constraints_.byte_price > 0 ? constraints_.byte_price * static_cast<double>(staged->type.most_bytes()) : 0;
  }

  Kind kind_of(size_t v) const {
    const Vertex& vertex = vertices_[v];
    const int64_t readers = min_sum::size_of(consumers_[v].operands);
    if (vertex.output) return Kind::kEnd;
    if (cost::row_of(cache_.objective).always_stages || pinned(vertex)) return Kind::kStaged;
    if (readers + 2 * consumers_[v].outputs <= 1) return Kind::kStays;
    if (readers == 0 && consumers_[v].tied == 0) return Kind::kReduces;
    const size_t most = std::clamp(kStatesOfAll / vertices_.size(), kFewestStates, kMostStates);
    return produced_[v].size() * vertex.layouts.size() <= most ? Kind::kBoth : Kind::kStaged;
  }

  void list_sources(int64_t v) {
    const Vertex& vertex = vertices_[v];
    auto& sources = sources_.emplace_back();
    const Kind kind = kind_of(v);
    if (kind == Kind::kEnd) {
      sources.push_back({});
      source_costs_.push_back({0});
      return;
    }
    if (kind == Kind::kStaged) {
      for (const Layout* layout : vertex.layouts) sources.push_back({nullptr, layout});
    } else {
      for (const Layout* layout : produced_[v]) {
        if (kind == Kind::kStays) sources.push_back({layout, layout});
        if (kind == Kind::kReduces) sources.push_back({layout, best_staging_from(v, layout)});
        if (kind == Kind::kBoth) add_sources(v, layout, sources);
      }
    }
    add_source_costs(v);
  }

  void add_source_costs(int64_t v) {
    auto& costs = source_costs_.emplace_back();
    const ia::Placement* pin = constraints_.pin_of(vertices_[v].node);
    for (const Sources& source : sources_[v]) {
      const bool allowed = pin == nullptr || source.staged->type.placement == *pin;
      costs.push_back(!allowed ? min_sum::kForbidden : source.produced == source.staged ? 0 : byte_cost(source.staged));
    }
  }

  /// The best staging layout of a value that nothing reads, if it is produced in `produced`.
  const Layout* best_staging_from(int64_t v, const Layout* produced) {
    if (!produced->type.placement.pending()) return produced;
    const Layout* best = produced;
    double least = min_sum::kForbidden;
    for (const Layout* staged : vertices_[v].layouts) {
      const double cost =
          staged->type.placement.pending() ? min_sum::kForbidden : move(*produced, *staged) + byte_cost(staged);
      if (cost < least) best = staged;
      least = std::min(least, cost);
    }
    return best;
  }

  /// A value stays in its produced layout, or is also staged in a layout to which the move costs something.
  void add_sources(int64_t v, const Layout* produced, std::vector<Sources>& sources) {
    const bool pending = produced->type.placement.pending();
    sources.push_back({produced, produced});
    for (const Layout* staged : vertices_[v].layouts) {
      if (staged == produced || staged->type.placement.pending()) continue;
      const double price = move(*produced, *staged);
      if (price < min_sum::kForbidden && (price > 0 || pending)) sources.push_back({produced, staged});
    }
  }

  void list_tables() {
    for (size_t v = 0; v < vertices_.size(); ++v) {
      if (!vertices_[v].output) add_own_table(static_cast<int64_t>(v));
      for (size_t i = 0; i < vertices_[v].operands.size(); ++i) add_edge_table(static_cast<int64_t>(v), i);
    }
    for (const auto& output : plan_.outputs()) {
      if (!constraints_.ends.contains(output.name)) add_output(output);
    }
    join_results_of_calls();
  }

  /// Results of one call come from one run of it.
  void join_results_of_calls() {
    const std::vector<size_t> first = first_results(vertices_);
    for (size_t v = 0; v < vertices_.size(); ++v) {
      if (first[v] == v) continue;
      const size_t strategies = vertices_[v].strategies.size();
      Key key;
      key.add(static_cast<double>(strategies));
      key.end();
      add_table(strategy_variable(static_cast<int64_t>(first[v])), strategy_variable(static_cast<int64_t>(v)),
                std::move(key), [&] {
                  std::vector<double> costs(strategies * strategies, min_sum::kForbidden);
                  for (size_t s = 0; s < strategies; ++s) costs[s * strategies + s] = 0;
                  return costs;
                });
    }
  }

  /// Tables with equal keys are shared.
  void add_table(int64_t first, int64_t second, Key key, const auto& entries) {
    min_sum::Problem::Entries& costs = by_key_[std::move(key)];
    if (costs == nullptr) costs = std::make_shared<const std::vector<double>>(entries());
    tables_.push_back({first, second, costs});
  }

  /// The moves from produced to staging layouts.
  void add_own_table(int64_t v) {
    const Vertex& vertex = vertices_[v];
    Key key;
    key.add(sources_[v]);
    for (const Strategy& strategy : vertex.strategies) key.add(strategy.result);
    add_table(strategy_variable(v), sources_variable(v), std::move(key), [&] {
      std::vector<double> costs;
      for (const Strategy& strategy : vertex.strategies) {
        const Layout* at = vertex.layout_like(strategy.result);
        for (const Sources& source : sources_[v]) {
          const bool fits = source.produced == nullptr || source.produced == at;
          costs.push_back(fits ? move(*strategy.result, *source.staged) : min_sum::kForbidden);
        }
      }
      return costs;
    });
  }

  /// The moves from the layouts of a value to the one that a reader requires; of an input with one start also directly
  /// from there.
  void add_edge_table(int64_t v, size_t operand) {
    const Vertex& reader = vertices_[v];
    const int64_t u = reader.operands[operand];
    const Vertex& producer = vertices_[u];
    const Layout* start = nullptr;
    if (producer.input() != nullptr && producer.strategies.size() == 1 && !pinned(producer))
      start = producer.strategies[0].result;
    Key key;
    key.add(sources_[u]);
    for (const Strategy& strategy : reader.strategies) key.add(strategy.operand_layouts[operand]);
    key.end();
    key.add(start);
    add_table(sources_variable(u), strategy_variable(v), std::move(key), [&] {
      std::vector<double> costs;
      for (const Sources& source : sources_[u]) {
        const Layout* produced = source.produced != nullptr ? source.produced : start;
        for (const Strategy& strategy : reader.strategies) {
          double cost = move(*source.staged, *strategy.operand_layouts[operand]);
          if (produced != nullptr) cost = std::min(cost, move(*produced, *strategy.operand_layouts[operand]));
          costs.push_back(cost);
        }
      }
      return costs;
    });
  }

  /// An output is reduced, and a tied one ends in the layout in which its input starts.
  void add_output(const tra::Plan::Output& output) {
    const int64_t v = number_.at(output.node.get());
    for (size_t i = 0; i < sources_[v].size(); ++i) {
      if (sources_[v][i].staged->type.placement.pending()) source_costs_[v][i] = min_sum::kForbidden;
    }
    if (!output.tied_input) return;
    for (size_t u = 0; u < vertices_.size(); ++u) {
      const Vertex& input = vertices_[u];
      if (input.output || input.input() == nullptr || input.input()->name != *output.tied_input) continue;
      if (static_cast<int64_t>(u) == v) continue;
      std::vector<double> costs;
      for (const Sources& source : sources_[v]) {
        for (const Strategy& start : input.strategies) {
          double cost = move(*source.staged, *start.result);
          if (source.produced != nullptr) cost = std::min(cost, move(*source.produced, *start.result));
          costs.push_back(cost);
        }
      }
      tables_.push_back({sources_variable(v), strategy_variable(static_cast<int64_t>(u)),
                         std::make_shared<const std::vector<double>>(std::move(costs))});
    }
  }

  const tra::Plan& plan_;
  const PlacementConstraints& constraints_;
  layouts::PlacementCache& cache_;
  const std::vector<Vertex>& vertices_;
  std::vector<Consumers> consumers_;
  std::unordered_map<const tra::Node*, int64_t> number_;
  std::vector<std::vector<const Layout*>> produced_;  ///< layouts in which a value is produced
  std::vector<std::vector<Sources>> sources_;
  std::vector<std::vector<double>> source_costs_;
  std::vector<VariablePair> tables_;
  std::unordered_map<Key, min_sum::Problem::Entries, Key::Hash> by_key_;
};

}  // namespace

MinSumTables::MinSumTables(const PlacementModel& model) : vertices_(model.vertices) {
  TableBuilder builder(model);
  builder.run();
  sources_ = std::move(builder.sources());
  source_costs_ = std::move(builder.source_costs());
  tables_ = std::move(builder.tables());
}

bool lists_all_sources(const PlacementModel& model) { return TableBuilder(model).complete(); }

min_sum::Problem MinSumTables::problem(std::vector<std::vector<double>> costs) const {
  min_sum::Problem problem;
  for (size_t v = 0; v < vertices_.size(); ++v) {
    problem.add_variable(std::move(costs[v]));
    problem.add_variable(source_costs_[v]);
  }
  for (const VariablePair& table : tables_) problem.add_pair(table.first, table.second, table.costs);
  return problem;
}

std::vector<size_t> MinSumTables::strategies(const std::vector<int64_t>& values) const {
  std::vector<size_t> out;
  for (size_t v = 0; v < vertices_.size(); ++v) {
    out.push_back(static_cast<size_t>(values[strategy_variable(static_cast<int64_t>(v))]));
  }
  return out;
}

Choice MinSumTables::choice(const std::vector<int64_t>& values) const {
  Choice out;
  for (size_t v = 0; v < vertices_.size(); ++v) {
    const auto number = static_cast<int64_t>(v);
    out.strategies.push_back(&vertices_[v].strategies[values[strategy_variable(number)]]);
    out.staged.push_back(sources_[v][values[sources_variable(number)]].staged);
  }
  return out;
}

}  // namespace joinsum::optimizer::model
