#include "optimizer/eindecomp/tables.h"

#include "optimizer/min_sum/min_sum.h"

namespace joinsum::optimizer::eindecomp {
namespace {

using min_sum::size_of;

void append(Dims& out, const Dims& list) {
  out.push_back(size_of(list));
  out.insert(out.end(), list.begin(), list.end());
}

/// A key as one list; different keys give different lists.
Dims flat(const VertexKey& key) {
  Dims out;
  append(out, key.shape.extents);
  out.push_back(size_of(key.shape.operands));
  for (const Dims& labels : key.shape.operands) append(out, labels);
  append(out, key.shape.result);
  for (const bool moves : key.moves) out.push_back(moves ? 1 : 0);
  for (const auto& stored : key.stored) {
    out.push_back(stored ? 1 : 0);
    if (stored) append(out, *stored);
  }
  append(out, key.pinned);
  return out;
}

double cost_of(const VertexKey& key, const Dims& vector) {
  double out = join_floats(key.shape, vector) + aggregation_floats(key.shape, vector);
  for (size_t operand = 0; operand < key.stored.size(); ++operand) {
    if (!key.stored[operand]) continue;
    const Dims& labels = key.shape.operands[operand];
    out += repartition_floats(project(key.shape.extents, labels), *key.stored[operand], project(vector, labels));
  }
  return out;
}

/// The parts of all arrays whose layout matters to others.
std::vector<Dims> seen_by_others(const VertexKey& key, const Dims& vector) {
  std::vector<Dims> out;
  for (size_t operand = 0; operand < key.shape.operands.size(); ++operand) {
    if (key.moves[operand]) out.push_back(project(vector, key.shape.operands[operand]));
  }
  if (key.moves.back()) out.push_back(project(vector, key.shape.result));
  return out;
}

DistinctCuts layouts_of(const std::vector<Dims>& vectors, const Dims& labels) {
  DistinctCuts out;
  std::map<Dims, int64_t> numbers;
  for (const Dims& vector : vectors) {
    const auto [found, added] = numbers.try_emplace(project(vector, labels), size_of(out.distinct));
    if (added) out.distinct.push_back(found->first);
    out.of.push_back(found->second);
  }
  return out;
}

}  // namespace

std::shared_ptr<const VertexTable> PartitionTables::vertex(const VertexKey& key, const std::vector<Dims>& vectors) {
  auto& shared = vertices_[flat(key)];
  if (shared != nullptr) return shared;
  VertexTable table;
  std::map<std::vector<Dims>, int64_t> positions;
  for (const Dims& vector : vectors) {
    const double cost = cost_of(key, vector);
    const auto [found, added] = positions.try_emplace(seen_by_others(key, vector), size_of(table.vectors));
    if (added) {
      table.vectors.push_back(vector);
      table.costs.push_back(cost);
    } else if (cost < table.costs[found->second]) {
      table.vectors[found->second] = vector;
      table.costs[found->second] = cost;
    }
  }
  for (const Dims& labels : key.shape.operands) table.layouts.push_back(layouts_of(table.vectors, labels));
  table.layouts.push_back(layouts_of(table.vectors, key.shape.result));
  shared = std::make_shared<const VertexTable>(std::move(table));
  return shared;
}

std::shared_ptr<const MoveTable> PartitionTables::moves(const std::shared_ptr<const VertexTable>& producer,
                                                        const std::shared_ptr<const VertexTable>& consumer,
                                                        int64_t operand, const Dims& extents) {
  auto& shared = moves_[{producer.get(), consumer.get(), operand}];
  if (shared != nullptr) return shared;
  MoveTable table;
  for (const Dims& produced : producer->layouts.back().distinct) {
    for (const Dims& consumed : consumer->layouts[operand].distinct) {
      table.push_back(repartition_floats(extents, produced, consumed));
    }
  }
  shared = std::make_shared<const MoveTable>(std::move(table));
  return shared;
}

}  // namespace joinsum::optimizer::eindecomp
