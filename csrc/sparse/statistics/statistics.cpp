#include "sparse/statistics/statistics.h"

#include <algorithm>
#include <bit>
#include <mutex>

#include "sparse/tensor/fills.h"

namespace joinsum::sparse::statistics {
namespace {

struct Registry {
  std::mutex mutex;
  std::vector<EstimatorPtr> estimators = {uniform_estimator(), chain_estimator(), exact_estimator()};
};

Registry& registry() {
  static Registry all;
  return all;
}

}  // namespace

std::vector<int64_t> members_of(IndexSet set) {
  std::vector<int64_t> members;
  members.reserve(std::popcount(set));
  for (; set != 0; set &= set - 1) members.push_back(std::countr_zero(set));
  return members;
}

double extent_of(IndexSet set, const IndexSpace& space) {
  double extent = 1;
  for (; set != 0; set &= set - 1) extent *= static_cast<double>(space.sizes[std::countr_zero(set)]);
  return extent;
}

EstimatorPtr estimator_named(const std::string& name) {
  Registry& all = registry();
  const std::scoped_lock lock(all.mutex);
  std::vector<std::string> names;
  for (const EstimatorPtr& each : all.estimators) {
    if (each->name() == name) return each;
    names.push_back(each->name());
  }
  throw PlanError(concatenate("sparse program: no such estimator: estimator=", name, ", there are ", names));
}

void register_estimator(EstimatorPtr estimator) {
  Registry& all = registry();
  const std::scoped_lock lock(all.mutex);
  for (const EstimatorPtr& each : all.estimators) {
    JOINSUM_USER_CHECK(each->name() != estimator->name(),
                       "register_estimator: the name is taken: estimator=", estimator->name());
  }
  all.estimators.push_back(std::move(estimator));
}

std::vector<std::string> estimator_names() {
  Registry& all = registry();
  const std::scoped_lock lock(all.mutex);
  std::vector<std::string> names;
  for (const EstimatorPtr& each : all.estimators) names.push_back(each->name());
  return names;
}

std::vector<size_t> deciding_children(Operator op, const std::vector<double>& fills, double fill) {
  std::vector<size_t> found;
  for (size_t i = 0; i < fills.size(); ++i) {
    if (tensor::decides(op, fills[i], fill)) found.push_back(i);
  }
  return found;
}

}  // namespace joinsum::sparse::statistics
