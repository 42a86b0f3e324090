#pragma once

#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "optimizer/eindecomp/partition.h"
#include "optimizer/eindecomp/partition_graphs.h"

// The planner once more, without its tables: costs in closed form, plans by enumeration and by the paper's recurrence.

namespace joinsum::optimizer::eindecomp {

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
inline double own_cost(const JsonOperation& vertex, const std::map<std::string, int64_t>& parts) {
  double calls = 1, groups = 1, blocks = 0;
  const auto block = [&](const Labels& labels) {
    double out = 1;
    for (const auto& label : labels) out *= static_cast<double>(vertex.extents.at(label) / parts.at(label));
    return out;
  };
  for (const auto& [label, count] : parts) {
    calls *= static_cast<double>(count);
    const bool kept = einsum::has(vertex.out_labels, label);
    if (kept) groups *= static_cast<double>(count);
  }
  for (const Labels& labels : vertex.in_labels) blocks += block(labels);
  return calls * blocks + (calls - groups) * block(vertex.out_labels);
}

using Parts = std::map<std::string, int64_t>;

inline Dims along(const Parts& parts, const Labels& labels) {
  Dims out;
  for (const auto& label : labels) out.push_back(parts.at(label));
  return out;
}

inline Dims extents_along(const JsonOperation& vertex, const Labels& labels) { return along(vertex.extents, labels); }

/// All ways to cut a vertex in `calls` calls, found by trying every product of powers of two.
inline std::vector<Parts> ways(const JsonOperation& vertex, int64_t calls) {
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

/// The operation that computes an operand; nothing if that is an input.
inline std::optional<size_t> producer(const PinnedGraph& graph, const std::string& operand) {
  for (size_t v = 0; v < graph.operations().size(); ++v) {
    if (graph.operations()[v].name == operand) return v;
  }
  return std::nullopt;
}

/// What is moved to operand `i` of `vertex`, whose producer was cut so.
inline double move_cost(const PinnedGraph& graph, const JsonOperation& vertex, size_t i, const Parts& produced,
                        const Parts& consumed) {
  const JsonOperation& from = graph.operations()[*producer(graph, vertex.inputs[i])];
  return moved(extents_along(vertex, vertex.in_labels[i]), along(produced, from.out_labels),
               along(consumed, vertex.in_labels[i]));
}

/// The least cost of all plans, tried one after the other.
class Enumeration {
 public:
  Enumeration(const PinnedGraph& graph, int64_t calls) : graph_(graph) {
    for (const auto& vertex : graph.operations()) ways_.push_back(ways(vertex, calls));
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
    const JsonOperation& vertex = graph_.operations()[v];
    for (const Parts& way : ways_[v]) {
      double next = cost + own_cost(vertex, way);
      for (size_t i = 0; i < vertex.inputs.size(); ++i) {
        const auto from = producer(graph_, vertex.inputs[i]);
        if (from) next += move_cost(graph_, vertex, i, *chosen_[*from], way);
      }
      chosen_.push_back(&way);
      extend(next);
      chosen_.pop_back();
    }
  }

  const PinnedGraph& graph_;
  std::vector<std::vector<Parts>> ways_;
  std::vector<const Parts*> chosen_;
  double least_ = kNothing;
};

/// The paper's recurrence for graphs whose vertices have one reader each: M[v, d_Z] by vertex and result's layout.
inline double recurrence(const PinnedGraph& graph, int64_t calls) {
  std::vector<std::map<Dims, double>> best(graph.operations().size());
  std::set<int64_t> read;
  for (size_t v = 0; v < graph.operations().size(); ++v) {
    const JsonOperation& vertex = graph.operations()[v];
    for (const Parts& way : ways(vertex, calls)) {
      double cost = own_cost(vertex, way);
      for (size_t i = 0; i < vertex.inputs.size(); ++i) {
        const auto from = producer(graph, vertex.inputs[i]);
        if (!from) continue;
        read.insert(static_cast<int64_t>(*from));
        double least = kNothing;
        for (const auto& [layout, before] : best[*from]) {
          const Dims extents = extents_along(vertex, vertex.in_labels[i]);
          least = std::min(least, before + moved(extents, layout, along(way, vertex.in_labels[i])));
        }
        cost += least;
      }
      const auto [found, added] = best[v].try_emplace(along(way, vertex.out_labels), cost);
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
inline double recount(const PinnedGraph& graph, const PartitionPlan& plan) {
  std::vector<Parts> chosen;
  double out = 0;
  for (size_t v = 0; v < graph.operations().size(); ++v) {
    const JsonOperation& vertex = graph.operations()[v];
    const Labels labels = einsum::json::all_labels(vertex);
    chosen.emplace_back();
    for (size_t i = 0; i < labels.size(); ++i) chosen.back()[labels[i]] = plan.vertices[v].parts[i];
    out += own_cost(vertex, chosen.back());
    for (size_t i = 0; i < vertex.inputs.size(); ++i) {
      const auto from = producer(graph, vertex.inputs[i]);
      if (from) out += move_cost(graph, vertex, i, chosen[*from], chosen.back());
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

}  // namespace joinsum::optimizer::eindecomp
