#include <cmath>

#include "sparse/statistics/statistics.h"

namespace joinsum::sparse::statistics {
namespace {

class Uniform : public Statistics {
 public:
  Uniform(IndexSet indices_, double density_) : Statistics(indices_), density(density_) {}
  const double density;
};

double density_of(const StatisticsPtr& statistics) { return static_cast<const Uniform&>(*statistics).density; }

/// 1 - (1 - p)^n, also where p is tiny or n huge.
double of_any(double p, double n) {
  if (p <= 0 || n <= 0) return 0;
  if (p >= 1) return 1;
  return -std::expm1(n * std::log1p(-p));
}

class UniformEstimator : public Estimator {
 public:
  const std::string& name() const override {
    static const std::string text = "uniform";
    return text;
  }

  StatisticsPtr of_tensor(const InputTensor& tensor) const override {
    double elements = 1;
    for (const int64_t extent : tensor.shape) elements *= static_cast<double>(extent);
    const IndexSet indices = tensor.shape.empty() ? 0 : ~IndexSet{0} >> (kMostIndices - tensor.shape.size());
    return std::make_shared<Uniform>(indices, elements == 0 ? 0 : tensor.nnz / elements);
  }

  StatisticsPtr relabelled(const StatisticsPtr& statistics, const std::vector<int64_t>& ids,
                           const IndexSpace&) const override {
    IndexSet indices = 0;
    for (const int64_t old : members_of(statistics->indices)) indices |= only(ids[old]);
    return std::make_shared<Uniform>(indices, density_of(statistics));
  }

  StatisticsPtr join(const std::vector<StatisticsPtr>& children, IndexSet indices, const IndexSpace&) const override {
    double density = 1;
    for (const StatisticsPtr& child : children) density *= density_of(child);
    return std::make_shared<Uniform>(indices, density);
  }

  StatisticsPtr unite(const std::vector<StatisticsPtr>& children, IndexSet indices, const IndexSpace&) const override {
    // Of logarithms: differences of small probabilities from 1 would lose their digits.
    double log_none = 0;
    for (const StatisticsPtr& child : children) log_none += std::log1p(-std::min(1.0, density_of(child)));
    return std::make_shared<Uniform>(indices, -std::expm1(log_none));
  }

  StatisticsPtr aggregate(const StatisticsPtr& child, IndexSet indices, const IndexSpace& space) const override {
    const IndexSet removed = child->indices & ~indices;
    if (removed == 0) return child;
    return std::make_shared<Uniform>(child->indices & indices, of_any(density_of(child), extent_of(removed, space)));
  }

  double estimate(const StatisticsPtr& statistics, const IndexSpace& space) const override {
    const double density = density_of(statistics);
    return density == 0 ? 0 : density * extent_of(statistics->indices, space);
  }

  StatisticsPtr of_literal() const override { return std::make_shared<Uniform>(0, 0.0); }
};

}  // namespace

EstimatorPtr uniform_estimator() { return std::make_shared<UniformEstimator>(); }

}  // namespace joinsum::sparse::statistics
