#pragma once

#include <algorithm>
#include <limits>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "optimizer/partition/partition.h"
#include "optimizer/partition_graphs.h"

// The planner once more, without its tables: costs in closed form, plans by enumeration and by the paper's recurrence.

namespace joinsum::optimizer {

inline constexpr double kNothing = std::numeric_limits<double>::infinity();

inline std::string message_of(const auto& call) {
  try {
    call();
  } catch (const PlanError& error) {
    return error.what();
  }
  return "no error";
}

/// Elements moved between two layouts: 0 for equal ones, n(r - 1/r) for a gather of r blocks to one, and otherwise
/// (pieces times the size of both blocks) - n.
inline double moved(const Dims& extents, const Dims& produced, const Dims& consumed) {
  double n = 1, made = 1, read = 1, pieces = 1;
  bool gather = true;
  for (size_t axis = 0; axis < extents.size(); ++axis) {
    n *= static_cast<double>(extents[axis]);
    made *= static_cast<double>(produced[axis]);
    read *= static_cast<double>(consumed[axis]);
    pieces *= static_cast<double>(std::max(produced[axis], consumed[axis]));
    gather = gather && consumed[axis] <= produced[axis];
  }
  const double ratio = made / read;
  return gather ? n * (ratio - 1 / ratio) : pieces * (n / made + n / read) - n;
}

/// What a vertex costs by itself, by label.
inline double own_cost(const PartitionVertex& vertex, const std::map<std::string, int64_t>& parts) {
  double calls = 1, groups = 1, blocks = 0;
  const auto block = [&](const LabelList& labels) {
    double out = 1;
    for (const auto& label : labels) out *= static_cast<double>(vertex.extents.at(label) / parts.at(label));
    return out;
  };
  for (const auto& [label, count] : parts) {
    calls *= static_cast<double>(count);
    const bool kept = std::find(vertex.result.begin(), vertex.result.end(), label) != vertex.result.end();
    if (kept) groups *= static_cast<double>(count);
  }
  for (const auto& operand : vertex.operands) blocks += block(operand.labels);
  return calls * blocks + (calls - groups) * block(vertex.result);
}

using Parts = std::map<std::string, int64_t>;

inline Dims along(const Parts& parts, const LabelList& labels) {
  Dims out;
  for (const auto& label : labels) out.push_back(parts.at(label));
  return out;
}

inline Dims extents_along(const PartitionVertex& vertex, const LabelList& labels) {
  return along(vertex.extents, labels);
}

/// All ways to cut a vertex in `calls` calls, found by trying every product of powers of two.
inline std::vector<Parts> ways(const PartitionVertex& vertex, int64_t calls) {
  std::vector<Parts> all{{}};
  for (const auto& [label, extent] : vertex.extents) {
    std::vector<Parts> next;
    for (const Parts& way : all) {
      for (int64_t parts = 1; extent % parts == 0 && parts <= calls; parts *= 2) {
        next.push_back(way);
        next.back()[label] = parts;
      }
    }
    all = std::move(next);
  }
  const auto product = [](const Parts& way) {
    int64_t out = 1;
    for (const auto& [label, parts] : way) out *= parts;
    return out;
  };
  int64_t most = 1;
  for (const Parts& way : all) {
    if (product(way) <= calls) most = std::max(most, product(way));
  }
  std::erase_if(all, [&](const Parts& way) { return product(way) != most; });
  return all;
}

/// What is moved to an operand of `vertex`, whose producer was cut so.
inline double move_cost(const PartitionGraph& graph, const PartitionOperand& operand, const PartitionVertex& vertex,
                        const Parts& produced, const Parts& consumed) {
  return moved(extents_along(vertex, operand.labels), along(produced, graph.vertices[operand.source.index].result),
               along(consumed, operand.labels));
}

inline bool made(const PartitionOperand& operand) { return operand.source.kind == PartitionSource::Kind::kVertex; }

/// The least cost of all plans, tried one after the other.
class Enumeration {
 public:
  Enumeration(const PartitionGraph& graph, int64_t calls) : graph_(graph) {
    for (const auto& vertex : graph.vertices) ways_.push_back(ways(vertex, calls));
  }

  double least() {
    extend(0);
    return least_;
  }

 private:
  void extend(double cost) {
    const size_t v = chosen_.size();
    if (v == ways_.size()) {
      least_ = std::min(least_, cost);
      return;
    }
    const PartitionVertex& vertex = graph_.vertices[v];
    for (const Parts& way : ways_[v]) {
      double next = cost + own_cost(vertex, way);
      for (const auto& operand : vertex.operands) {
        if (made(operand)) next += move_cost(graph_, operand, vertex, *chosen_[operand.source.index], way);
      }
      chosen_.push_back(&way);
      extend(next);
      chosen_.pop_back();
    }
  }

  const PartitionGraph& graph_;
  std::vector<std::vector<Parts>> ways_;
  std::vector<const Parts*> chosen_;
  double least_ = kNothing;
};

/// The paper's recurrence for graphs whose vertices have one reader each: M[v, d_Z] by vertex and result's layout.
inline double recurrence(const PartitionGraph& graph, int64_t calls) {
  std::vector<std::map<Dims, double>> best(graph.vertices.size());
  std::set<int64_t> read;
  for (size_t v = 0; v < graph.vertices.size(); ++v) {
    const PartitionVertex& vertex = graph.vertices[v];
    for (const Parts& way : ways(vertex, calls)) {
      double cost = own_cost(vertex, way);
      for (const auto& operand : vertex.operands) {
        if (!made(operand)) continue;
        read.insert(operand.source.index);
        double least = kNothing;
        for (const auto& [layout, before] : best[operand.source.index]) {
          const Dims extents = extents_along(vertex, operand.labels);
          least = std::min(least, before + moved(extents, layout, along(way, operand.labels)));
        }
        cost += least;
      }
      const auto [found, added] = best[v].try_emplace(along(way, vertex.result), cost);
      if (!added) found->second = std::min(found->second, cost);
    }
  }
  double out = 0;
  for (size_t v = 0; v < best.size(); ++v) {
    if (read.contains(static_cast<int64_t>(v))) continue;
    double least = kNothing;
    for (const auto& [layout, cost] : best[v]) least = std::min(least, cost);
    out += least;
  }
  return out;
}

/// The cost of a plan, from its vectors alone.
inline double recount(const PartitionGraph& graph, const PartitionPlan& plan) {
  std::vector<Parts> chosen;
  double out = 0;
  for (size_t v = 0; v < graph.vertices.size(); ++v) {
    const PartitionVertex& vertex = graph.vertices[v];
    const LabelList labels = labels_of(vertex);
    chosen.emplace_back();
    for (size_t i = 0; i < labels.size(); ++i) chosen.back()[labels[i]] = plan.vertices[v].parts[i];
    out += own_cost(vertex, chosen.back());
    for (const auto& operand : vertex.operands) {
      if (made(operand)) out += move_cost(graph, operand, vertex, chosen[operand.source.index], chosen.back());
    }
  }
  return out;
}

inline double total(const PartitionPlan& plan) {
  double out = 0;
  for (const auto& vertex : plan.vertices) {
    out += vertex.join + vertex.aggregation;
    for (const double repartition : vertex.repartitions) out += repartition;
  }
  return out;
}

inline GraphWriter product(int64_t extent) {
  GraphWriter out({{'i', extent}, {'j', extent}, {'k', extent}});
  out.input("X", "ij").input("Y", "jk").vertex("Z", {"X", "Y"}, {"ij", "jk"}, "ik");
  return out;
}

}  // namespace joinsum::optimizer
