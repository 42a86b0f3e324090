#include <algorithm>
#include <set>

#include "sparse/statistics/statistics.h"

namespace joinsum::sparse::statistics {
namespace {

/// The most coordinates that one value's statistics may hold.
constexpr size_t kMostElements = 4'000'000;

using Coordinate = std::vector<int64_t>;

void check_count(double elements) {
  JOINSUM_USER_CHECK(elements <= static_cast<double>(kMostElements),
                     "sparse program: too many elements to count exactly: elements=", elements,
                     "; estimate by chain or uniform");
}

/// The coordinates of all stored elements, each along the indices in ascending order.
class Exact : public Statistics {
 public:
  Exact(IndexSet indices_, std::set<Coordinate> elements_) : Statistics(indices_), elements(std::move(elements_)) {
    check_count(static_cast<double>(elements.size()));
  }
  const std::set<Coordinate> elements;
};

const std::set<Coordinate>& elements_of(const StatisticsPtr& statistics) {
  return static_cast<const Exact&>(*statistics).elements;
}

/// Where each of `indices` stands among the members of `all`.
std::vector<size_t> positions_of(IndexSet indices, IndexSet all) {
  const std::vector<int64_t> members = members_of(all);
  std::vector<size_t> positions;
  for (const int64_t index : members_of(indices)) {
    positions.push_back(static_cast<size_t>(std::ranges::find(members, index) - members.begin()));
  }
  return positions;
}

Coordinate at(const Coordinate& coordinate, const std::vector<size_t>& positions) {
  Coordinate out;
  out.reserve(positions.size());
  for (const size_t position : positions) out.push_back(coordinate[position]);
  return out;
}

/// The natural join of two sets of coordinates.
StatisticsPtr joined(const StatisticsPtr& a, const StatisticsPtr& b) {
  const IndexSet shared = a->indices & b->indices, all = a->indices | b->indices;
  const auto shared_of_a = positions_of(shared, a->indices), shared_of_b = positions_of(shared, b->indices);
  if (shared == 0) check_count(static_cast<double>(elements_of(a).size()) * static_cast<double>(elements_of(b).size()));
  std::map<Coordinate, std::vector<const Coordinate*>> by_shared;
  for (const Coordinate& element : elements_of(b)) by_shared[at(element, shared_of_b)].push_back(&element);
  const auto from_a = positions_of(a->indices, all), from_b = positions_of(b->indices, all);
  std::set<Coordinate> out;
  Coordinate element(members_of(all).size());
  for (const Coordinate& left : elements_of(a)) {
    const auto found = by_shared.find(at(left, shared_of_a));
    if (found == by_shared.end()) continue;
    check_count(static_cast<double>(out.size() + found->second.size()));
    for (size_t i = 0; i < left.size(); ++i) element[from_a[i]] = left[i];
    for (const Coordinate* right : found->second) {
      for (size_t i = 0; i < right->size(); ++i) element[from_b[i]] = (*right)[i];
      out.insert(element);
    }
  }
  return std::make_shared<Exact>(all, std::move(out));
}

/// All coordinates along `indices`.
StatisticsPtr everything(IndexSet indices, const IndexSpace& space) {
  check_count(extent_of(indices, space));
  Key extents;
  for (const int64_t index : members_of(indices)) extents.push_back(space.sizes[index]);
  const std::vector<Key> keys = keys_of(Box::below(extents));
  return std::make_shared<Exact>(indices, std::set<Coordinate>(keys.begin(), keys.end()));
}

StatisticsPtr extended(const StatisticsPtr& child, IndexSet indices, const IndexSpace& space) {
  const IndexSet missing = indices & ~child->indices;
  return missing == 0 ? child : joined(child, everything(missing, space));
}

class ExactEstimator : public Estimator {
 public:
  const std::string& name() const override {
    static const std::string text = "exact";
    return text;
  }

  StatisticsPtr of_tensor(const InputTensor& tensor) const override {
    JOINSUM_USER_CHECK(tensor.entries != nullptr,
                       "sparse program: statistics cannot be counted exactly: shape=", tensor.shape,
                       "; give the tensor's entries, or estimate by chain or uniform");
    const Coordinates coordinates = to_coordinates(*tensor.entries);
    std::set<Coordinate> elements;
    const int64_t count = tensor.shape.empty() ? tensor.entries->stored() : coordinates.count();
    for (int64_t i = 0; i < count; ++i) {
      Coordinate element;
      for (const auto& axis : coordinates.axes) element.push_back(axis[i]);
      elements.insert(std::move(element));
    }
    const IndexSet indices = tensor.shape.empty() ? 0 : ~IndexSet{0} >> (kMostIndices - tensor.shape.size());
    return std::make_shared<Exact>(indices, std::move(elements));
  }

  StatisticsPtr relabelled(const StatisticsPtr& statistics, const std::vector<int64_t>& ids,
                           const IndexSpace&) const override {
    const std::vector<int64_t> members = members_of(statistics->indices);
    IndexSet indices = 0;
    for (const int64_t old : members) indices |= only(ids[old]);
    std::set<Coordinate> out;
    for (const Coordinate& element : elements_of(statistics)) {
      std::map<int64_t, int64_t> by_id;
      bool consistent = true;
      for (size_t i = 0; i < members.size(); ++i) {
        const auto [found, is_new] = by_id.emplace(ids[members[i]], element[i]);
        consistent = consistent && found->second == element[i];
      }
      if (!consistent) continue;
      Coordinate coordinate;
      for (const auto& [id, value] : by_id) coordinate.push_back(value);
      out.insert(std::move(coordinate));
    }
    return std::make_shared<Exact>(indices, std::move(out));
  }

  StatisticsPtr join(const std::vector<StatisticsPtr>& children, IndexSet indices,
                     const IndexSpace& space) const override {
    StatisticsPtr out = children.front();
    for (size_t i = 1; i < children.size(); ++i) out = joined(out, children[i]);
    return extended(out, indices, space);
  }

  StatisticsPtr unite(const std::vector<StatisticsPtr>& children, IndexSet indices,
                      const IndexSpace& space) const override {
    std::set<Coordinate> out;
    for (const StatisticsPtr& child : children) {
      if (elements_of(child).empty()) continue;
      const StatisticsPtr whole = extended(child, indices, space);
      out.insert(elements_of(whole).begin(), elements_of(whole).end());
    }
    return std::make_shared<Exact>(indices, std::move(out));
  }

  StatisticsPtr aggregate(const StatisticsPtr& child, IndexSet indices, const IndexSpace&) const override {
    if ((child->indices & ~indices) == 0) return child;
    const auto positions = positions_of(child->indices & indices, child->indices);
    std::set<Coordinate> out;
    for (const Coordinate& element : elements_of(child)) out.insert(at(element, positions));
    return std::make_shared<Exact>(child->indices & indices, std::move(out));
  }

  double estimate(const StatisticsPtr& statistics, const IndexSpace&) const override {
    return static_cast<double>(elements_of(statistics).size());
  }

  StatisticsPtr of_literal() const override { return std::make_shared<Exact>(0, std::set<Coordinate>()); }
};

}  // namespace

EstimatorPtr exact_estimator() { return std::make_shared<ExactEstimator>(); }

}  // namespace joinsum::sparse::statistics
