#include "optimizer/layouts/least_work.h"

#include <algorithm>
#include <map>

#include "kernels/call/first_results.h"
#include "optimizer/division/key_dims.h"

namespace joinsum::optimizer::layouts {
namespace {

/// An operator with more divisions counts nothing: they are not enumerated.
constexpr size_t kMostDivisions = 30'000;

/// The keys of the site that has most, if a dimension is divided in so many parts.
struct Share {
  int64_t parts;
  int64_t lower;
  int64_t upper;
};

/// The tuples of `relation` with keys in `box`, as a relation of their own.
relation::RelationType part_of(const relation::RelationType& relation, const Box& box) {
  std::vector<relation::Axis> axes;
  for (const relation::Axis& axis : relation.axes) {
    if (!axis.linked()) {
      axes.push_back(axis);
      continue;
    }
    const auto from = axis.cuts.begin() + box.lower[axis.key_dim];
    CutPoints cuts(from, axis.cuts.begin() + box.upper[axis.key_dim] + 1);
    for (int64_t& cut : cuts) cut -= *from;
    axes.push_back(relation::Axis::cut(axis.key_dim, std::move(cuts)));
  }
  auto part = relation::RelationType::make("optimize", relation.dtype, box.extents(), std::move(axes));
  if (relation.sparse()) part.entries = relation.stored_of(part.elements());
  return part;
}

/// Tries all divisions of one operator's work, and prices the busiest site.
class Divided {
 public:
  /// `join` runs below the sum `node`, if there is one.
  Divided(const tra::Node& node, const tra::Node* join, int64_t sites, PlacementCache& alone)
      : work_(join != nullptr ? *join : node), alone_(alone), operation_(alone.operator_costs.number(node, join)) {
    for (const division::KeyDim& dim : division::key_dims(work_)) {
      dims_.push_back(dim);
      shares_.push_back(shares_of(dim, sites));
    }
    for (const auto& input : work_.inputs()) boxes_.push_back(Box::below(input->type().frontier));
    listed_ = divisions(0, sites) <= kMostDivisions;
    if (listed_) divide(0, sites);
  }

  double seconds() const { return listed_ && least_ < min_sum::kForbidden ? least_ : 0; }

 private:
  /// Of the part counts that leave the busiest site the same work, the least one.
  std::vector<Share> shares_of(const division::KeyDim& dim, int64_t sites) const {
    std::map<std::vector<int64_t>, Share> out;
    for (int64_t parts = 1; parts <= sites; ++parts) {
      if (sites % parts != 0) continue;
      std::pair<std::vector<int64_t>, Share> most;
      for (int64_t part = 0; part < parts; ++part) {
        const Share share{parts, part_begin(dim.keys, parts, part), part_begin(dim.keys, parts, part + 1)};
        most = std::max(most, std::pair(extents_of(dim, share), share),
                        [](const auto& a, const auto& b) { return a.first < b.first; });
      }
      out.insert(most);
    }
    std::vector<Share> shares;
    for (const auto& [extents, share] : out) shares.push_back(share);
    return shares;
  }

  /// The number of keys, and the extents of the axes linked to them.
  std::vector<int64_t> extents_of(const division::KeyDim& dim, const Share& share) const {
    std::vector<int64_t> out{share.upper - share.lower};
    for (const auto& [operand, at] : dim.at) {
      for (const relation::Axis& axis : work_.input(operand)->type().axes) {
        if (axis.linked() && axis.key_dim == at) out.push_back(axis.cuts[share.upper] - axis.cuts[share.lower]);
      }
    }
    return out;
  }

  size_t divisions(size_t dim, int64_t sites) const {
    if (dim == dims_.size()) return 1;
    size_t out = 0;
    for (const Share& share : shares_[dim]) {
      if (share.parts <= sites && out <= kMostDivisions) out += divisions(dim + 1, sites / share.parts);
    }
    return out;
  }

  void divide(size_t dim, int64_t sites) {
    if (dim == dims_.size()) return price();
    for (const Share& share : shares_[dim]) {
      if (share.parts > sites) continue;
      for (const auto& [operand, at] : dims_[dim].at) {
        boxes_[operand].lower[at] = share.lower;
        boxes_[operand].upper[at] = share.upper;
      }
      divide(dim + 1, sites / share.parts);
    }
  }

  void price() {
    std::vector<const Layout*> operands;
    for (size_t i = 0; i < boxes_.size(); ++i)
      operands.push_back(alone_.layouts.replicated(alone_.layouts.number(part_of(work_.input(i)->type(), boxes_[i]))));
    const OperatorCost& run = alone_.operator_costs.of(operation_, operands);
    if (run.result != nullptr) least_ = std::min(least_, run.value);
  }

  const tra::Node& work_;
  PlacementCache& alone_;
  size_t operation_;
  std::vector<division::KeyDim> dims_;
  std::vector<std::vector<Share>> shares_;  ///< by dimension
  std::vector<Box> boxes_;                  ///< of operands
  bool listed_ = false;
  double least_ = min_sum::kForbidden;
};

/// All operators of a plan, equal ones once.
class Work {
 public:
  Work(int64_t sites, const cost::Cluster& cluster) : sites_(sites), alone_({}, cost::Objective::kSeconds, cluster) {}

  double of(const tra::Plan& plan, const std::unordered_set<const tra::Node*>& in_any_order) {
    const auto uses = use_counts(plan);
    const auto counts = [&](const tra::Node& node) {
      return node.as<tra::Input>() == nullptr && !in_any_order.contains(&node);
    };
    double out = 0;
    for (const auto& node : plan.order()) {
      if (!counts(*node) || is_further(*node)) continue;
      const double alone = seconds(*node, nullptr);
      out += alone;
      if (node->as<tra::Aggregate>() == nullptr) continue;
      const tra::Node& join = *node->input(0);
      if (join.as<tra::Join>() == nullptr || uses.at(&join) > 1 || !counts(join)) continue;
      // The sum and its join may run as one operator.
      out += std::min(0.0, seconds(*node, &join) - alone - seconds(join, nullptr));
    }
    return out;
  }

 private:
  /// Whether another result of the same call comes before: one run computes all results.
  bool is_further(const tra::Node& node) {
    const auto* call = node.as<tra::Call>();
    return call != nullptr && results_.first(node.inputs(), *call, &node) != &node;
  }

  double seconds(const tra::Node& node, const tra::Node* join) {
    const tra::Node& work = join != nullptr ? *join : node;
    std::vector<size_t> key{alone_.operator_costs.number(node, join)};
    for (const auto& input : work.inputs()) {
      if (!input->type().regular()) return 0;
      key.push_back(alone_.layouts.number(input->type()));
    }
    const auto [at, fresh] = known_.try_emplace(std::move(key), 0);
    if (fresh) at->second = Divided(node, join, sites_, alone_).seconds();
    return at->second;
  }

  int64_t sites_;
  PlacementCache alone_;
  std::map<std::vector<size_t>, double> known_;  ///< by operator and relations
  kernels::call::FirstResults<std::vector<tra::NodePtr>, const tra::Node*> results_;
};

}  // namespace

double least_work_seconds(const tra::Plan& plan, int64_t sites, const cost::Cluster& cluster,
                          const std::unordered_set<const tra::Node*>& in_any_order) {
  const double opening = cluster.profile && sites > 1 ? cluster.profile->run_seconds : 0;
  return opening + Work(sites, cluster).of(plan, in_any_order);
}

}  // namespace joinsum::optimizer::layouts
