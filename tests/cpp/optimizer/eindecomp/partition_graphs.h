#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "optimizer/eindecomp/partition.h"

namespace joinsum::optimizer::eindecomp {

using einsum::Labels;
using einsum::json::JsonGraph;
using einsum::json::JsonOperation;

/// A graph, and what is pinned in it.
struct PinnedGraph {
  JsonGraph graph;
  std::vector<PartitionPin> pins;

  const std::vector<JsonOperation>& operations() const { return graph.operations; }
};

inline PartitionPlan partition(const PinnedGraph& pinned, int64_t calls, const PartitionLimits& limits = {}) {
  return partition(pinned.graph, pinned.pins, calls, limits);
}

/// Writes graphs in few letters: an array is its name, a label is a letter.
class GraphWriter {
 public:
  explicit GraphWriter(std::map<char, int64_t> extents) : extents_(std::move(extents)) {}

  GraphWriter& input(const std::string& name, const std::string& labels) {
    Dims extents;
    for (const char label : labels) extents.push_back(extents_.at(label));
    graph.graph.inputs.push_back({name, {DType::kFloat32, std::move(extents)}});
    return *this;
  }

  /// `operands` and `labels` agree in order; the result has the labels `result`.
  GraphWriter& vertex(const std::string& name, const std::vector<std::string>& operands,
                      const std::vector<std::string>& labels, const std::string& result) {
    JsonOperation operation{name, operands, {}, letters(result), {}, "mul", "sum"};
    for (const std::string& each : labels) operation.in_labels.push_back(letters(each));
    for (const std::string& label : einsum::json::all_labels(operation))
      operation.extents[label] = extents_.at(label[0]);
    graph.graph.operations.push_back(std::move(operation));
    return *this;
  }

  GraphWriter& output(const std::string& name, const std::string& of) {
    graph.graph.outputs.emplace_back(name, of);
    return *this;
  }

  GraphWriter& pin(const std::string& name, std::map<std::string, int64_t> parts) {
    graph.pins.push_back({name, std::move(parts)});
    return *this;
  }

  PinnedGraph graph;

 private:
  static Labels letters(const std::string& text) {
    Labels out;
    for (const char label : text) out.emplace_back(1, label);
    return out;
  }

  std::map<char, int64_t> extents_;
};

/// Graphs of einsums over arrays with the axes of one square: so every array fits every reader.
class RandomGraphs {
 public:
  explicit RandomGraphs(uint64_t seed) : random_(seed) {}

  int64_t below(int64_t limit) { return static_cast<int64_t>(random_() % static_cast<uint64_t>(limit)); }

  /// Each array is read by one vertex at most where `tree` is true; otherwise by any, and twice by one.
  PinnedGraph graph(int64_t vertices, bool tree) {
    extent_ = int64_t{1} << (1 + below(4));
    GraphWriter out({{'i', extent_}, {'j', extent_}, {'k', extent_}});
    open_ = {};
    arrays_ = {};
    for (int64_t v = 0; v < vertices; ++v) add_vertex(out, v, tree);
    return std::move(out.graph);
  }

 private:
  std::string operand(GraphWriter& out, bool tree) {
    auto& from = tree ? open_ : arrays_;
    if (from.empty() || below(3) == 0) {
      const std::string name = "x" + std::to_string(inputs_++);
      out.input(name, "ij");
      if (!tree && below(2) == 0) arrays_.push_back(name);
      return name;
    }
    const int64_t chosen = below(static_cast<int64_t>(from.size()));
    const std::string name = from[chosen];
    if (tree) from.erase(from.begin() + chosen);
    return name;
  }

  void add_vertex(GraphWriter& out, int64_t number, bool tree) {
    static const std::vector<std::vector<std::string>> kForms = {
        {"ij", "jk", "ik"}, {"ij", "kj", "ik"}, {"ij", "ij", "ij"}, {"ij", "ji", "ij"},
        {"ij", "jk", "ki"}, {"ij", "ij"},       {"ij", "ji"},       {"ik", "ij"}};
    const auto& form = kForms[below(static_cast<int64_t>(kForms.size()))];
    const std::vector<std::string> labels(form.begin(), form.end() - 1);
    std::vector<std::string> operands;
    for (size_t i = 0; i < labels.size(); ++i) operands.push_back(operand(out, tree));
    const std::string name = "v" + std::to_string(number);
    out.vertex(name, operands, labels, form.back());
    (tree ? open_ : arrays_).push_back(name);
  }

  std::mt19937_64 random_;
  int64_t extent_ = 0;
  int64_t inputs_ = 0;
  std::vector<std::string> open_;
  std::vector<std::string> arrays_;
};

}  // namespace joinsum::optimizer::eindecomp
