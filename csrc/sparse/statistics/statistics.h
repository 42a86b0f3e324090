#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "sparse/program/program.h"

namespace joinsum::sparse::statistics {

using operators::Operator;
using program::Degree;
using program::Distinct;
using program::IndexSpace;
using program::InputTensor;
using tensor::Coordinates;
using tensor::Tensor;

/// A set of indices of an IndexSpace, one bit each.
using IndexSet = uint64_t;
inline constexpr int64_t kMostIndices = 64;

inline IndexSet only(int64_t index) { return IndexSet{1} << index; }
inline bool contains(IndexSet set, int64_t index) { return (set & only(index)) != 0; }
/// Members in ascending order.
std::vector<int64_t> members_of(IndexSet set);
/// Product of the extents of a set's indices.
double extent_of(IndexSet set, const IndexSpace& space);

/// What an estimator knows of the stored elements of a value with these indices; each estimator has a kind of its own.
class Statistics {
 public:
  explicit Statistics(IndexSet indices_) : indices(indices_) {}
  virtual ~Statistics() = default;
  const IndexSet indices;
};
using StatisticsPtr = std::shared_ptr<const Statistics>;

/// Estimates how many elements of a value are not at its fill, from those of its operands. `join` and `unite` get the
/// indices of the result; a child may have fewer, along the others its elements repeat.
/// Source: Galley, section 7.
class Estimator {
 public:
  virtual ~Estimator() = default;
  virtual const std::string& name() const = 0;
  /// Of a tensor; index a is its axis a.
  virtual StatisticsPtr of_tensor(const InputTensor& tensor) const = 0;
  /// The same elements with `ids[i]` for index i: of those where equal ids have equal coordinates.
  virtual StatisticsPtr relabelled(const StatisticsPtr& statistics, const std::vector<int64_t>& ids,
                                   const IndexSpace& space) const = 0;
  /// Of a map that is at its fill wherever one of these children is at its own.
  virtual StatisticsPtr join(const std::vector<StatisticsPtr>& children, IndexSet indices,
                             const IndexSpace& space) const = 0;
  /// Of a map that is at its fill only where all children are.
  virtual StatisticsPtr unite(const std::vector<StatisticsPtr>& children, IndexSet indices,
                              const IndexSpace& space) const = 0;
  /// Of the projection on these indices.
  virtual StatisticsPtr aggregate(const StatisticsPtr& child, IndexSet indices, const IndexSpace& space) const = 0;
  /// Elements, over the indices that the statistics have.
  virtual double estimate(const StatisticsPtr& statistics, const IndexSpace& space) const = 0;
  /// Of a literal, which stores nothing.
  virtual StatisticsPtr of_literal() const = 0;
};
using EstimatorPtr = std::shared_ptr<const Estimator>;

/// `uniform`: every element is stored with one probability. Source: Galley, section 7.2.
EstimatorPtr uniform_estimator();
/// `chain`: an upper bound from the largest numbers of elements per coordinate. Source: Galley, section 7.3.
EstimatorPtr chain_estimator();
/// `exact`: counts the elements of the tensors that are given; for tests, and for small programs.
EstimatorPtr exact_estimator();

/// The estimator of that name; raises PlanError naming those there are.
EstimatorPtr estimator_named(const std::string& name);
/// Adds an estimator under its name; raises PlanError when it is taken.
void register_estimator(EstimatorPtr estimator);
std::vector<std::string> estimator_names();

/// The children of a map, of these fills, whose own fill annihilates it: they alone decide where it is at its fill, if
/// there are any. `fill` is the map's: one that annihilates by another value does not lead there.
std::vector<size_t> deciding_children(Operator op, const std::vector<double>& fills, double fill);

}  // namespace joinsum::sparse::statistics
