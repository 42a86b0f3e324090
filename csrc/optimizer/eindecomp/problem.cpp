#include "optimizer/eindecomp/problem.h"

#include <algorithm>
#include <set>

#include "optimizer/eindecomp/pins.h"
#include "optimizer/min_sum/min_sum.h"

namespace joinsum::optimizer::eindecomp {
namespace {

using min_sum::size_of;

/// Entries of a table of moves, 8 bytes each.
constexpr double kMostMoves = 1e8;

/// Raises where the table of the moves to an operand would be too large.
void check_moves(const einsum::json::JsonOperation& operation, const DistinctCuts& produced,
                 const DistinctCuts& consumed) {
  const double moves = static_cast<double>(produced.distinct.size()) * static_cast<double>(consumed.distinct.size());
  JOINSUM_USER_CHECK(moves <= kMostMoves,
                     "partition: more moves of an operand than can be compared; plan for fewer calls, or pin "
                     "labels: limit=",
                     kMostMoves, ", operation=", operation.name, ", moves=", moves);
}

}  // namespace

PartitionProblem::PartitionProblem(const einsum::json::JsonGraph& graph, const std::vector<PartitionPin>& pins,
                                   int64_t calls) {
  check(graph);
  const Pinned pinned = apply_pins(graph, pins, calls);
  for (size_t i = 0; i < graph.inputs.size(); ++i) stored_[graph.inputs[i].first] = pinned.inputs[i];
  std::set<std::string> read;
  for (const einsum::json::JsonOperation& operation : graph.operations) {
    read.insert(operation.inputs.begin(), operation.inputs.end());
  }
  edges_at_.resize(graph.operations.size());
  std::map<std::string, int64_t> number;
  for (int64_t v = 0; v < size_of(graph.operations); ++v) {
    const einsum::json::JsonOperation& operation = graph.operations[v];
    VertexKey key{shape_of(operation), {}, {}, pinned.parts[v]};
    for (const std::string& operand : operation.inputs) {
      key.moves.push_back(number.contains(operand));
      key.stored.push_back(stored(operand));
    }
    key.moves.push_back(read.contains(operation.name));
    tables_.push_back(shared_.vertex(key, pinned.vectors[v]));
    for (int64_t operand = 0; operand < size_of(operation.inputs); ++operand) {
      if (!key.moves[operand]) continue;
      const int64_t producer = number.at(operation.inputs[operand]);
      const Dims extents = project(key.shape.extents, key.shape.operands[operand]);
      check_moves(operation, tables_[producer]->layouts.back(), tables_[v]->layouts[operand]);
      for (const int64_t end : {producer, v}) edges_at_[end].push_back(size_of(edges_));
      edges_.push_back({producer, v, operand, shared_.moves(tables_[producer], tables_[v], operand, extents)});
    }
    number[operation.name] = v;
  }
}

const std::optional<Dims>& PartitionProblem::stored(const std::string& operand) const {
  static const std::optional<Dims> anyhow;
  const auto input = stored_.find(operand);
  return input == stored_.end() ? anyhow : input->second;
}

double PartitionProblem::move_floats(const Edge& edge, const Choices& choices) const {
  const DistinctCuts& produced = table(edge.producer).layouts.back();
  const DistinctCuts& consumed = table(edge.consumer).layouts[edge.operand];
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
  const DistinctCuts& produced = table(edge.producer).layouts.back();
  const DistinctCuts& consumed = table(edge.consumer).layouts[edge.operand];
  std::vector<double> out;
  out.reserve(produced.of.size() * consumed.of.size());
  for (const int64_t row : produced.of) {
    const double* costs = edge.table->data() + row * size_of(consumed.distinct);
    for (const int64_t column : consumed.of) out.push_back(costs[column]);
  }
  return out;
}

min_sum::Problem PartitionProblem::part(const std::vector<int64_t>& open, const Choices& choices) const {
  min_sum::Problem out;
  std::vector<int64_t> variables(tables_.size(), kOpen);
  Choices others = choices;
  for (const int64_t v : open) others[v] = kOpen;
  for (const int64_t v : open) variables[v] = out.add_variable(costs_beside(v, others));
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

}  // namespace joinsum::optimizer::eindecomp
