#include "optimizer/partition/problem.h"

#include <algorithm>

#include "optimizer/partition/pins.h"

namespace joinsum::optimizer {
namespace {

using Kind = PartitionSource::Kind;

constexpr int64_t kOpen = -1;
/// Entries of a table of moves, 8 bytes each.
constexpr double kMostMoves = 1e8;

int64_t size_of(const auto& list) { return static_cast<int64_t>(list.size()); }

/// Per vertex whether another one reads it.
std::vector<bool> read_by_others(const PartitionGraph& graph) {
  std::vector<bool> out(graph.vertices.size(), false);
  for (const PartitionVertex& vertex : graph.vertices) {
    for (const PartitionOperand& operand : vertex.operands) {
      if (operand.source.kind == Kind::kVertex) out[operand.source.index] = true;
    }
  }
  return out;
}

VertexKey key_of(const PartitionVertex& vertex, const Pinned& pinned, bool read, const Dims& parts) {
  VertexKey out{shape_of(vertex), {}, {}, parts};
  for (const PartitionOperand& operand : vertex.operands) {
    const bool made = operand.source.kind == Kind::kVertex;
    out.moves.push_back(made);
    out.stored.push_back(made ? std::nullopt : pinned.inputs[operand.source.index]);
  }
  out.moves.push_back(read);
  return out;
}

/// Raises where the table of the moves to an operand would be too large.
void check_moves(const PartitionVertex& vertex, const Layouts& produced, const Layouts& consumed) {
  const double moves = static_cast<double>(produced.distinct.size()) * static_cast<double>(consumed.distinct.size());
  JOINSUM_USER_CHECK(moves <= kMostMoves,
                     "partition: more ways to move an operand than can be looked at; plan for fewer calls, or pin "
                     "labels: limit=",
                     kMostMoves, ", vertex=", vertex.name, ", ways=", moves);
}

/// `graph` itself, once it is known to be right.
const PartitionGraph& checked(const PartitionGraph& graph) {
  check(graph);
  return graph;
}

}  // namespace

PartitionProblem::PartitionProblem(const PartitionGraph& graph, int64_t calls) {
  const Pinned pinned = apply_pins(checked(graph), calls);
  stored_ = pinned.inputs;
  const std::vector<bool> read = read_by_others(graph);
  edges_at_.resize(graph.vertices.size());
  for (int64_t v = 0; v < size_of(graph.vertices); ++v) {
    const VertexKey key = key_of(graph.vertices[v], pinned, read[v], pinned.parts[v]);
    tables_.push_back(made_.vertex(key, pinned.vectors[v]));
    for (int64_t operand = 0; operand < size_of(key.shape.operands); ++operand) {
      if (!key.moves[operand]) continue;
      const int64_t producer = graph.vertices[v].operands[operand].source.index;
      const Dims extents = project(key.shape.extents, key.shape.operands[operand]);
      check_moves(graph.vertices[v], tables_[producer]->layouts.back(), tables_[v]->layouts[operand]);
      for (const int64_t end : {producer, v}) edges_at_[end].push_back(size_of(edges_));
      edges_.push_back({producer, v, operand, made_.moves(tables_[producer], tables_[v], operand, extents)});
    }
  }
}

double PartitionProblem::move_floats(const Edge& edge, const Choices& choices) const {
  const Layouts& produced = table(edge.producer).layouts.back();
  const Layouts& consumed = table(edge.consumer).layouts[edge.operand];
  return (*edge.table)[produced.of[choices[edge.producer]] * size_of(consumed.distinct) +
                       consumed.of[choices[edge.consumer]]];
}

double PartitionProblem::cost(const Choices& choices) const {
  double out = 0;
  for (int64_t v = 0; v < vertices(); ++v) out += table(v).costs[choices[v]];
  for (const Edge& edge : edges_) out += move_floats(edge, choices);
  return out;
}

double PartitionProblem::lower_bound() const {
  double out = 0;
  for (const auto& each : tables_) out += *std::min_element(each->costs.begin(), each->costs.end());
  return out;
}

double PartitionProblem::entries(const Edge& edge) const {
  return static_cast<double>(table(edge.producer).vectors.size()) *
         static_cast<double>(table(edge.consumer).vectors.size());
}

std::vector<double> PartitionProblem::costs_beside(int64_t vertex, const Choices& choices) const {
  std::vector<double> out = table(vertex).costs;
  Choices tried = choices;
  for (const int64_t position : edges_at_[vertex]) {
    const Edge& edge = edges_[position];
    if (choices[edge.producer == vertex ? edge.consumer : edge.producer] == kOpen) continue;
    for (int64_t choice = 0; choice < size_of(out); ++choice) {
      tried[vertex] = choice;
      out[choice] += move_floats(edge, tried);
    }
  }
  return out;
}

std::vector<double> PartitionProblem::expanded(const Edge& edge) const {
  const Layouts& produced = table(edge.producer).layouts.back();
  const Layouts& consumed = table(edge.consumer).layouts[edge.operand];
  std::vector<double> out;
  out.reserve(produced.of.size() * consumed.of.size());
  for (const int64_t row : produced.of) {
    const double* costs = edge.table->data() + row * size_of(consumed.distinct);
    for (const int64_t column : consumed.of) out.push_back(costs[column]);
  }
  return out;
}

MinSumProblem PartitionProblem::part(const std::vector<int64_t>& open, const Choices& choices) const {
  MinSumProblem out;
  std::vector<int64_t> variables(tables_.size(), kOpen);
  Choices made = choices;
  for (const int64_t v : open) made[v] = kOpen;
  for (const int64_t v : open) variables[v] = out.add_variable(costs_beside(v, made));
  for (const int64_t v : open) {
    for (const int64_t position : edges_at_[v]) {
      const Edge& edge = edges_[position];
      const bool inside = variables[edge.producer] != kOpen && variables[edge.consumer] != kOpen;
      // Once, although both ends have it.
      if (inside && v == edge.consumer) {
        out.add_pair(variables[edge.producer], variables[edge.consumer], expanded(edge));
      }
    }
  }
  return out;
}

}  // namespace joinsum::optimizer
