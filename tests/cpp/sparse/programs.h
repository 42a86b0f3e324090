#pragma once

#include <map>
#include <random>
#include <string>
#include <vector>

#include "sparse/program/program.h"
#include "sparse/statistics/statistics.h"

namespace joinsum::sparse::testing {

using namespace operators;   // NOLINT: what tests write programs with
using namespace tensor;      // NOLINT
using namespace program;     // NOLINT
using namespace statistics;  // NOLINT

/// A tensor of f64 with one entry for each row of coordinates, all of value 1.
inline InputTensor entries(Dims shape, const std::vector<Dims>& rows, double fill = 0) {
  Coordinates coordinates{.shape = shape};
  for (size_t axis = 0; axis < shape.size(); ++axis) {
    std::vector<int64_t> along;
    for (const Dims& row : rows) along.push_back(row[axis]);
    coordinates.axes.emplace_back(std::move(along));
  }
  std::vector<std::byte> bytes(rows.size() * sizeof(double));
  for (size_t i = 0; i < rows.size(); ++i) {
    const double one = 1;
    std::copy_n(reinterpret_cast<const std::byte*>(&one), sizeof one, bytes.data() + i * sizeof one);
  }
  coordinates.values = {DType::kFloat64, Array<std::byte>(std::move(bytes))};
  const auto rank = static_cast<int64_t>(shape.size());
  const std::vector<LevelFormat> formats(shape.size(), LevelFormat::kSortedList);
  auto tensor = std::make_shared<Tensor>(from_coordinates(coordinates, all_dims(rank), formats, fill));
  return {std::move(shape), fill, tensor, static_cast<double>(rows.size()), {}};
}

/// A tensor of which each element is stored with this probability.
inline InputTensor random_entries(std::mt19937& random, const Dims& shape, double density) {
  std::vector<Dims> rows;
  std::bernoulli_distribution stored(density);
  for (const Key& key : keys_of(Box::below(shape))) {
    if (stored(random)) rows.push_back(key);
  }
  return entries(shape, rows);
}

/// A tensor of which only the number of entries is known.
inline InputTensor counted(Dims shape, double nnz, double fill = 0) {
  return {std::move(shape), fill, nullptr, nnz, {}};
}

inline ExpressionPtr in(const std::string& tensor, const std::string& letters) {
  std::vector<std::string> indices;
  for (const char letter : letters) indices.emplace_back(1, letter);
  return make_input(tensor, std::move(indices));
}

inline ExpressionPtr map(Operator op, std::vector<ExpressionPtr> children) { return make_map(op, std::move(children)); }

inline ExpressionPtr times(std::vector<ExpressionPtr> children) {
  return make_map(Operator::kMultiply, std::move(children));
}

inline ExpressionPtr plus(std::vector<ExpressionPtr> children) { return make_map(Operator::kAdd, std::move(children)); }

inline ExpressionPtr reduce(Operator op, const std::string& letters, ExpressionPtr child) {
  std::vector<std::string> indices;
  for (const char letter : letters) indices.emplace_back(1, letter);
  return make_aggregate(op, std::move(indices), std::move(child));
}

inline ExpressionPtr sum(const std::string& letters, ExpressionPtr child) {
  return reduce(Operator::kAdd, letters, std::move(child));
}

inline Program program_of(std::map<std::string, InputTensor> tensors, ExpressionPtr expression,
                          const std::string& output) {
  std::vector<std::string> indices;
  for (const char letter : output) indices.emplace_back(1, letter);
  return Program({}, std::move(tensors), {{"q", std::move(expression), std::move(indices)}});
}

}  // namespace joinsum::sparse::testing
