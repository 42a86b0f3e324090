#include <algorithm>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <queue>
#include <set>
#include <unordered_map>

#include "sparse/statistics/statistics.h"

namespace joinsum::sparse::statistics {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
/// Up to so many indices, all their sets are visited; above, the nearest so many sets.
constexpr size_t kMostVisitedWhole = 14;
constexpr size_t kMostVisited = 2000;

/// At most `count` distinct coordinates along `axes` for each one along `given`.
struct Bound {
  IndexSet axes;
  IndexSet given;
  double count;
};

class Chain : public Statistics {
 public:
  Chain(IndexSet indices_, std::vector<Bound> bounds_) : Statistics(indices_), bounds(std::move(bounds_)) {}
  const std::vector<Bound> bounds;
};

const std::vector<Bound>& bounds_of(const StatisticsPtr& statistics) {
  return static_cast<const Chain&>(*statistics).bounds;
}

/// The least bound for each pair of sets.
class Bounds {
 public:
  void add(IndexSet axes, IndexSet given, double count) {
    axes &= ~given;
    const auto [found, is_new] = least_.emplace(std::pair(axes, given), count);
    if (!is_new) found->second = std::min(found->second, count);
  }

  std::vector<Bound> list() const {
    std::vector<Bound> all;
    for (const auto& [key, count] : least_) all.push_back({key.first, key.second, count});
    return all;
  }

 private:
  std::map<std::pair<IndexSet, IndexSet>, double> least_;
};

IndexSet indices_in(const std::vector<Bound>& bounds) {
  IndexSet all = 0;
  for (const Bound& bound : bounds) all |= bound.axes | bound.given;
  return all;
}

/// The cheapest product of bounds that leads from the set `from` to a superset of `target`.
class Paths {
 public:
  Paths(const std::vector<Bound>& bounds, IndexSet target, const IndexSpace& space) : target_(target) {
    for (const Bound& bound : bounds) {
      if (bound.count == 0 || bound.count < extent_of(bound.axes, space)) edges_.push_back(bound);
    }
    for (const int64_t index : members_of(target | indices_in(bounds))) {
      edges_.push_back({only(index), 0, static_cast<double>(space.sizes[index])});
    }
  }

  double cheapest(IndexSet from) const {
    // A bound of zero says that there is no element at all.
    for (const Bound& edge : edges_) {
      if (edge.count == 0) return 0;
    }
    const std::vector<int64_t> members = members_of(target_ | from | indices_in(edges_));
    return members.size() <= kMostVisitedWhole ? over_all_sets(from, members) : over_nearest_sets(from);
  }

 private:
  /// Edges only add indices, so that sets in the order of their numbers come before what they lead to.
  double over_all_sets(IndexSet from, const std::vector<int64_t>& members) const {
    const auto compressed = [&](IndexSet set) {
      IndexSet out = 0;
      for (size_t i = 0; i < members.size(); ++i) {
        if (contains(set, members[i])) out |= only(static_cast<int64_t>(i));
      }
      return out;
    };
    std::vector<Bound> edges;
    for (const Bound& edge : edges_) edges.push_back({compressed(edge.axes), compressed(edge.given), edge.count});
    const IndexSet target = compressed(target_);
    std::vector<double> best(size_t{1} << members.size(), kInfinity);
    best[compressed(from)] = 1;
    double least = kInfinity;
    for (IndexSet set = 0; set < best.size(); ++set) {
      const double here = best[set];
      if (here >= least) continue;
      if ((target & ~set) == 0) {
        least = here;
        continue;
      }
      for (const Bound& edge : edges) {
        if ((edge.given & ~set) != 0) continue;
        double& there = best[set | edge.axes];
        there = std::min(there, here * edge.count);
      }
    }
    return least;
  }

  double over_nearest_sets(IndexSet from) const {
    using Entry = std::pair<double, IndexSet>;
    std::priority_queue<Entry, std::vector<Entry>, std::greater<>> pending;
    std::unordered_map<IndexSet, double> best = {{from, 1.0}};
    pending.emplace(1.0, from);
    double least = kInfinity;
    for (size_t visited = 0; !pending.empty() && visited < kMostVisited; ++visited) {
      const auto [here, set] = pending.top();
      pending.pop();
      if (here > best.at(set)) continue;
      if ((target_ & ~set) == 0) return here;
      for (const Bound& edge : edges_) {
        if ((edge.given & ~set) != 0 || (edge.axes & ~set) == 0) continue;
        const IndexSet next = set | edge.axes;
        const double there = here * edge.count;
        if (there >= least) continue;
        if ((target_ & ~next) == 0) least = there;
        const auto [found, is_new] = best.emplace(next, there);
        if (!is_new && found->second <= there) continue;
        found->second = there;
        pending.emplace(there, next);
      }
    }
    return least;
  }

  std::vector<Bound> edges_;
  IndexSet target_;
};

/// Distinct coordinates along an axis, and the most elements that share one.
struct AxisDegrees {
  double distinct = 0;
  double most = 0;
};

AxisDegrees counted(const tensor::Array<int64_t>& coordinates, int64_t extent) {
  constexpr int64_t kExtentPerElement = 8;
  AxisDegrees out;
  const auto count = [&](int64_t run) {
    out.distinct += run > 0 ? 1 : 0;
    out.most = std::max(out.most, static_cast<double>(run));
  };
  if (extent / kExtentPerElement <= coordinates.size()) {
    std::vector<int64_t> elements(extent);
    for (const int64_t coordinate : coordinates) ++elements[coordinate];
    std::ranges::for_each(elements, count);
    return out;
  }
  std::vector<int64_t> sorted(coordinates.begin(), coordinates.end());
  std::ranges::sort(sorted);
  for (auto begin = sorted.begin(); begin != sorted.end();) {
    const auto end = std::upper_bound(begin, sorted.end(), *begin);
    count(end - begin);
    begin = end;
  }
  return out;
}

std::vector<AxisDegrees> degrees_of(const Tensor& tensor) {
  std::vector<AxisDegrees> out;
  const bool whole = std::ranges::all_of(
      tensor.levels, [](const tensor::Level& level) { return level.format == tensor::LevelFormat::kDense; });
  if (whole) {
    const auto elements = static_cast<double>(tensor.stored());
    for (const int64_t extent : tensor.shape) {
      out.push_back(
          {elements == 0 ? 0 : static_cast<double>(extent), elements / std::max(1.0, static_cast<double>(extent))});
    }
    return out;
  }
  const Coordinates coordinates = to_coordinates(tensor);
  for (size_t axis = 0; axis < coordinates.axes.size(); ++axis) {
    out.push_back(counted(coordinates.axes[axis], tensor.shape[axis]));
  }
  return out;
}

/// The degrees of tensors that are alive, counted once.
class KnownDegrees {
 public:
  std::vector<AxisDegrees> of(const std::shared_ptr<const Tensor>& tensor) {
    {
      const std::scoped_lock lock(mutex_);
      const auto found = known_.find(tensor.get());
      if (found != known_.end() && found->second.tensor.lock() == tensor) return found->second.degrees;
    }
    std::vector<AxisDegrees> degrees = degrees_of(*tensor);
    const std::scoped_lock lock(mutex_);
    if (known_.size() >= kMost) std::erase_if(known_, [](const auto& each) { return each.second.tensor.expired(); });
    known_[tensor.get()] = {tensor, degrees};
    return degrees;
  }

 private:
  struct Known {
    std::weak_ptr<const Tensor> tensor;
    std::vector<AxisDegrees> degrees;
  };
  static constexpr size_t kMost = 1024;
  std::mutex mutex_;
  std::unordered_map<const Tensor*, Known> known_;
};

void add_degrees(Bounds& bounds, const std::shared_ptr<const Tensor>& tensor, IndexSet indices) {
  static KnownDegrees known;
  const std::vector<AxisDegrees> degrees = known.of(tensor);
  for (size_t axis = 0; axis < degrees.size(); ++axis) {
    const IndexSet index = only(static_cast<int64_t>(axis));
    bounds.add(index, 0, degrees[axis].distinct);
    bounds.add(indices & ~index, index, degrees[axis].most);
  }
}

class ChainEstimator : public Estimator {
 public:
  const std::string& name() const override {
    static const std::string text = "chain";
    return text;
  }

  StatisticsPtr of_tensor(const InputTensor& tensor) const override {
    const IndexSet indices = tensor.shape.empty() ? 0 : ~IndexSet{0} >> (kMostIndices - tensor.shape.size());
    Bounds bounds;
    bounds.add(indices, 0, tensor.nnz);
    if (tensor.entries != nullptr && tensor.shape.size() > 1) add_degrees(bounds, tensor.entries, indices);
    for (const Degree& degree : tensor.degrees) {
      IndexSet axes = 0, given = 0;
      for (const int64_t axis : degree.axes) axes |= only(axis);
      for (const int64_t axis : degree.given) given |= only(axis);
      bounds.add(axes, given, degree.count);
    }
    return std::make_shared<Chain>(indices, bounds.list());
  }

  StatisticsPtr relabelled(const StatisticsPtr& statistics, const std::vector<int64_t>& ids,
                           const IndexSpace&) const override {
    const auto id_of = [&](int64_t old) { return old < static_cast<int64_t>(ids.size()) ? ids[old] : -1; };
    const auto mapped = [&](IndexSet set) {
      IndexSet out = 0;
      for (const int64_t old : members_of(set)) out |= only(id_of(old));
      return out;
    };
    Bounds bounds;
    for (const Bound& bound : bounds_of(statistics)) {
      const auto members = members_of(bound.axes | bound.given);
      if (std::ranges::any_of(members, [&](int64_t old) { return id_of(old) < 0; })) continue;
      bounds.add(mapped(bound.axes), mapped(bound.given), bound.count);
    }
    return std::make_shared<Chain>(mapped(statistics->indices), bounds.list());
  }

  StatisticsPtr join(const std::vector<StatisticsPtr>& children, IndexSet indices, const IndexSpace&) const override {
    Bounds bounds;
    for (const StatisticsPtr& child : children) {
      for (const Bound& bound : bounds_of(child)) bounds.add(bound.axes, bound.given, bound.count);
    }
    return std::make_shared<Chain>(indices, bounds.list());
  }

  StatisticsPtr unite(const std::vector<StatisticsPtr>& children, IndexSet indices,
                      const IndexSpace& space) const override {
    std::map<std::pair<IndexSet, IndexSet>, std::pair<double, size_t>> sums;
    size_t united = 0;
    for (const StatisticsPtr& child : children) {
      const auto& bounds = bounds_of(child);
      // One without any element adds none.
      if (std::ranges::any_of(bounds, [](const Bound& bound) { return bound.count == 0; })) continue;
      ++united;
      const IndexSet missing = indices & ~child->indices;
      Bounds extended;
      for (const Bound& bound : bounds) {
        extended.add(bound.axes | missing, bound.given, bound.count * extent_of(missing, space));
      }
      for (const Bound& bound : extended.list()) {
        auto& [sum, times] = sums[{bound.axes, bound.given}];
        sum += bound.count;
        ++times;
      }
    }
    Bounds bounds;
    if (united == 0) bounds.add(indices, 0, 0);
    for (const auto& [key, sum] : sums) {
      if (sum.second == united) bounds.add(key.first, key.second, sum.first);
    }
    return std::make_shared<Chain>(indices, bounds.list());
  }

  StatisticsPtr aggregate(const StatisticsPtr& child, IndexSet kept, const IndexSpace&) const override {
    if ((child->indices & ~kept) == 0) return child;
    return std::make_shared<Chain>(child->indices & kept, bounds_of(child));
  }

  double estimate(const StatisticsPtr& statistics, const IndexSpace& space) const override {
    const double bound = Paths(bounds_of(statistics), statistics->indices, space).cheapest(0);
    return std::min(bound, extent_of(statistics->indices, space));
  }

  StatisticsPtr of_literal() const override { return std::make_shared<Chain>(0, std::vector<Bound>{{0, 0, 0.0}}); }
};

}  // namespace

EstimatorPtr chain_estimator() { return std::make_shared<ChainEstimator>(); }

}  // namespace joinsum::sparse::statistics
