#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <queue>
#include <set>
#include <unordered_map>

#include "sparse/statistics/degrees.h"
#include "sparse/statistics/statistics.h"

namespace joinsum::sparse::statistics {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
/// Up to so many indices, all their sets are visited; above, the nearest so many sets.
constexpr size_t kMostVisitedWhole = 14;
constexpr size_t kMostVisited = 2000;
/// After so many targets, those of all sets are found at once.
constexpr int64_t kAskedOneByOne = 4;

/// At most `count` distinct coordinates along `axes` for each one along `given`.
struct Bound {
  IndexSet axes;
  IndexSet given;
  double count;
};

/// The least bound for each pair of sets.
class Bounds {
 public:
  Bounds() { least_.reserve(16); }

  void add(IndexSet axes, IndexSet given, double count) {
    axes &= ~given;
    const auto found = std::ranges::lower_bound(least_, std::pair(axes, given), {}, key_of);
    if (found == least_.end() || key_of(*found) != std::pair(axes, given)) {
      least_.insert(found, {axes, given, count});
    } else {
      found->count = std::min(found->count, count);
    }
  }

  /// By their sets.
  std::vector<Bound> list() && { return std::move(least_); }

 private:
  static std::pair<IndexSet, IndexSet> key_of(const Bound& bound) { return {bound.axes, bound.given}; }

  std::vector<Bound> least_;
};

IndexSet indices_in(const std::vector<Bound>& bounds) {
  IndexSet all = 0;
  for (const Bound& bound : bounds) all |= bound.axes | bound.given;
  return all;
}

/// Products of bounds that lead from no index to sets of them.
class Paths {
 public:
  /// `indices` are those of all sets.
  Paths(const std::vector<Bound>& bounds, IndexSet indices, const IndexSpace& space) {
    edges_.reserve(bounds.size() + std::popcount(indices | indices_in(bounds)));
    for (const Bound& bound : bounds) {
      if (bound.count == 0 || bound.count < extent_of(bound.axes, space)) edges_.push_back(bound);
      is_empty_ = is_empty_ || bound.count == 0;
    }
    for (const int64_t index : members_of(indices | indices_in(bounds))) {
      edges_.push_back({only(index), 0, static_cast<double>(space.sizes[index])});
      is_empty_ = is_empty_ || space.sizes[index] == 0;
    }
    remove_useless();
    const std::vector<int64_t> members = members_of(indices_in(edges_));
    numbered_ = members.size() <= kMostVisitedWhole;
    if (!numbered_) return;
    // Of up to so many indices all sets have numbers.
    for (size_t i = 0; i < members.size(); ++i) number_[members[i]] = static_cast<int64_t>(i);
    for (Bound& edge : edges_) edge = {numbered(edge.axes), numbered(edge.given), edge.count};
    sets_ = size_t{1} << members.size();
  }

  /// The cheapest one to a set that has all of `target`.
  double cheapest(IndexSet target) const {
    // A bound of zero says that there is no element at all.
    if (is_empty_) return 0;
    if (!numbered_) return over_nearest_sets(target);
    return ++asked_ > kAskedOneByOne ? of_table(numbered(target)) : over_all_sets(numbered(target));
  }

 private:
  IndexSet numbered(IndexSet set) const {
    IndexSet out = 0;
    for (; set != 0; set &= set - 1) out |= only(number_[std::countr_zero(set)]);
    return out;
  }

  /// Edges that lead no further, from no more sets and no cheaper than others.
  void remove_useless() {
    const auto better = [](const Bound& a, const Bound& b) {
      return (b.axes & ~a.axes) == 0 && (a.given & ~b.given) == 0 && a.count <= b.count;
    };
    std::vector<Bound> useful;
    useful.reserve(edges_.size());
    for (size_t i = 0; i < edges_.size(); ++i) {
      bool needed = true;
      for (size_t j = 0; j < edges_.size() && needed; ++j) {
        if (j != i && better(edges_[j], edges_[i])) needed = better(edges_[i], edges_[j]) && i < j;
      }
      if (needed) useful.push_back(edges_[i]);
    }
    edges_ = std::move(useful);
  }

  /// The cost of one path: always the edge that costs least for each index that it adds.
  double of_one_path(IndexSet target) const {
    double cost = 1;
    IndexSet set = 0;
    while ((target & ~set) != 0) {
      const Bound* best = nullptr;
      double least = kInfinity;
      for (const Bound& edge : edges_) {
        const IndexSet added = edge.axes & ~set;
        if ((edge.given & ~set) != 0 || added == 0) continue;
        const double each = std::log(edge.count) / std::popcount(added);
        if (each >= least) continue;
        least = each;
        best = &edge;
      }
      if (best == nullptr) return kInfinity;
      set |= best->axes;
      cost *= best->count;
    }
    return cost;
  }

  /// Edges only add indices, so that sets in the order of their numbers come before what they lead to.
  double over_all_sets(IndexSet target) const {
    thread_local std::vector<double> best;
    best.assign(sets_, kInfinity);
    best[0] = 1;
    double least = of_one_path(target);
    for (IndexSet set = 0; set < sets_; ++set) {
      const double here = best[set];
      if (here >= least) continue;
      if ((target & ~set) == 0) {
        least = here;
        continue;
      }
      for (const Bound& edge : edges_) {
        if ((edge.given & ~set) != 0) continue;
        double& there = best[set | edge.axes];
        there = std::min(there, here * edge.count);
      }
    }
    return least;
  }

  /// The same for each target at once: loop orders ask for most sets of a query's indices.
  double of_table(IndexSet target) const {
    if (table_.empty()) {
      table_.assign(sets_, kInfinity);
      table_[0] = 1;
      for (IndexSet set = 0; set < sets_; ++set) {
        if (table_[set] == kInfinity) continue;
        for (const Bound& edge : edges_) {
          if ((edge.given & ~set) != 0) continue;
          double& there = table_[set | edge.axes];
          there = std::min(there, table_[set] * edge.count);
        }
      }
      // Then the least of all sets that have the target: with each index, or without.
      for (IndexSet index = 1; index < sets_; index <<= 1) {
        for (IndexSet set = 0; set < sets_; ++set) {
          if ((set & index) == 0) table_[set] = std::min(table_[set], table_[set | index]);
        }
      }
    }
    return table_[target];
  }

  double over_nearest_sets(IndexSet target) const {
    using Entry = std::pair<double, IndexSet>;
    std::priority_queue<Entry, std::vector<Entry>, std::greater<>> pending;
    std::unordered_map<IndexSet, double> best = {{0, 1.0}};
    pending.emplace(1.0, 0);
    double least = kInfinity;
    for (size_t visited = 0; !pending.empty() && visited < kMostVisited; ++visited) {
      const auto [here, set] = pending.top();
      pending.pop();
      if (here > best.at(set)) continue;
      if ((target & ~set) == 0) return here;
      for (const Bound& edge : edges_) {
        if ((edge.given & ~set) != 0 || (edge.axes & ~set) == 0) continue;
        const IndexSet next = set | edge.axes;
        const double there = here * edge.count;
        if (there >= least) continue;
        if ((target & ~next) == 0) least = there;
        const auto [found, is_new] = best.emplace(next, there);
        if (!is_new && found->second <= there) continue;
        found->second = there;
        pending.emplace(there, next);
      }
    }
    return least;
  }

  std::vector<Bound> edges_;
  bool is_empty_ = false;
  bool numbered_ = false;
  std::array<int64_t, kMostIndices> number_ = {};
  size_t sets_ = 0;
  mutable int64_t asked_ = 0;
  mutable std::vector<double> table_;  ///< by target
};

/// Bounds, of which projections have the same.
class Bounded {
 public:
  Bounded(IndexSet indices, std::vector<Bound> bounds) : indices_(indices), bounds_(std::move(bounds)) {}

  const std::vector<Bound>& bounds() const { return bounds_; }
  const Paths& paths(const IndexSpace& space) const {
    if (!paths_) paths_.emplace(bounds_, indices_, space);
    return *paths_;
  }

 private:
  IndexSet indices_;
  std::vector<Bound> bounds_;
  mutable std::optional<Paths> paths_;  ///< once asked for
};

class Chain : public Statistics {
 public:
  Chain(IndexSet indices_, std::vector<Bound> bounds)
      : Statistics(indices_), bounded(std::make_shared<Bounded>(indices_, std::move(bounds))) {}
  Chain(IndexSet indices_, std::shared_ptr<const Bounded> bounded_)
      : Statistics(indices_), bounded(std::move(bounded_)) {}
  const std::shared_ptr<const Bounded> bounded;
};

const std::shared_ptr<const Bounded>& bounded_of(const StatisticsPtr& statistics) {
  return static_cast<const Chain&>(*statistics).bounded;
}

const std::vector<Bound>& bounds_of(const StatisticsPtr& statistics) { return bounded_of(statistics)->bounds(); }

/// Bounds of the last joins, by those of their children: those of projections of the same children are the same, and so
/// are the paths that are found with them.
class LastJoins {
 public:
  /// `indices` are those of the result.
  std::shared_ptr<const Bounded> of(const std::vector<StatisticsPtr>& children, IndexSet indices) {
    const auto is_same = [](const StatisticsPtr& child, const auto& bounded) { return bounded_of(child) == bounded; };
    for (const Joined& each : last_) {
      const bool repeats = (indices & ~each.bound) != 0;
      if (!repeats && each.bounded && std::ranges::equal(children, each.children, is_same)) return each.bounded;
    }
    Bounds bounds;
    Joined joined;
    for (const StatisticsPtr& child : children) {
      for (const Bound& bound : bounds_of(child)) bounds.add(bound.axes, bound.given, bound.count);
      joined.children.push_back(bounded_of(child));
    }
    std::vector<Bound> list = std::move(bounds).list();
    joined.bound = indices_in(list);
    joined.bounded = std::make_shared<Bounded>(indices, std::move(list));
    // Along an index that no bound has, elements repeat as often as its extent says.
    if ((indices & ~joined.bound) != 0) return joined.bounded;
    next_ = (next_ + 1) % last_.size();
    last_[next_] = joined;
    return joined.bounded;
  }

 private:
  struct Joined {
    std::vector<std::shared_ptr<const Bounded>> children;
    IndexSet bound = 0;  ///< indices of the bounds
    std::shared_ptr<const Bounded> bounded;
  };
  std::array<Joined, 8> last_ = {};
  size_t next_ = 0;
};

LastJoins& last_joins() {
  thread_local LastJoins joins;
  return joins;
}

void add_degrees(Bounds& bounds, const std::shared_ptr<const Tensor>& tensor, IndexSet indices) {
  const std::vector<AxisDegrees> degrees = degrees_of(tensor);
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
    return std::make_shared<Chain>(indices, std::move(bounds).list());
  }

  StatisticsPtr relabelled(const StatisticsPtr& statistics, const std::vector<int64_t>& ids,
                           const IndexSpace&) const override {
    const auto id_of = [&](int64_t old) { return old < static_cast<int64_t>(ids.size()) ? ids[old] : -1; };
    const auto mapped = [&](IndexSet set) {
      IndexSet out = 0;
      for (; set != 0; set &= set - 1) out |= only(id_of(std::countr_zero(set)));
      return out;
    };
    const auto is_mapped = [&](IndexSet set) {
      for (; set != 0; set &= set - 1) {
        if (id_of(std::countr_zero(set)) < 0) return false;
      }
      return true;
    };
    Bounds bounds;
    for (const Bound& bound : bounds_of(statistics)) {
      if (!is_mapped(bound.axes | bound.given)) continue;
      bounds.add(mapped(bound.axes), mapped(bound.given), bound.count);
    }
    return std::make_shared<Chain>(mapped(statistics->indices), std::move(bounds).list());
  }

  StatisticsPtr join(const std::vector<StatisticsPtr>& children, IndexSet indices, const IndexSpace&) const override {
    return std::make_shared<Chain>(indices, last_joins().of(children, indices));
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
      for (const Bound& bound : std::move(extended).list()) {
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
    return std::make_shared<Chain>(indices, std::move(bounds).list());
  }

  StatisticsPtr aggregate(const StatisticsPtr& child, IndexSet indices, const IndexSpace&) const override {
    if ((child->indices & ~indices) == 0) return child;
    return std::make_shared<Chain>(child->indices & indices, bounded_of(child));
  }

  double estimate(const StatisticsPtr& statistics, const IndexSpace& space) const override {
    const double bound = bounded_of(statistics)->paths(space).cheapest(statistics->indices);
    return std::min(bound, extent_of(statistics->indices, space));
  }

  StatisticsPtr of_literal() const override { return std::make_shared<Chain>(0, std::vector<Bound>{{0, 0, 0.0}}); }
};

}  // namespace

EstimatorPtr chain_estimator() { return std::make_shared<ChainEstimator>(); }

}  // namespace joinsum::sparse::statistics
