#include "optimizer/placement/least_work.h"

#include <algorithm>
#include <map>

#include "kernels/call.h"
#include "kernels/typing.h"
#include "optimizer/placement/lowering.h"

namespace joinsum::optimizer {
namespace {

/// Ways to divide an operator beyond which they are not listed: only what every operator takes is counted then.
constexpr size_t kMostWays = 30'000;

/// A key dimension of an operator: its keys, and where the operands have it, as operands and their dimensions.
struct KeyDim {
  int64_t keys;
  std::vector<std::pair<size_t, int64_t>> at;
};

/// The keys of the site that has most, if a dimension is divided in so many parts.
struct Share {
  int64_t parts;
  int64_t lower;
  int64_t upper;
};

std::vector<KeyDim> dims_of_join(const tra::Node& node, const tra::Join& op) {
  const int64_t left = node.input(0)->type().arity();
  const kernels::JoinKeys on{op.left_keys, op.right_keys};
  std::vector<KeyDim> out;
  for (const int64_t keys : node.type().frontier) out.push_back({keys, {}});
  for (int64_t dim = 0; dim < left; ++dim) out[dim].at.emplace_back(0, dim);
  const Dims right = on.right_position(left, node.input(1)->type().arity());
  for (size_t dim = 0; dim < right.size(); ++dim) out[right[dim]].at.emplace_back(1, dim);
  return out;
}

/// Letters that the call needs whole are not among them.
std::vector<KeyDim> dims_of_call(const tra::Node& node, const tra::Call& call) {
  std::map<char, KeyDim> by_letter;
  for (size_t i = 0; i < call.operands.size(); ++i) {
    const RelationType& operand = node.input(i)->type();
    for (const char letter : call.operands[i]) {
      const auto dim = kernels::key_of(call.operands[i], operand, letter);
      if (!dim || call.whole.find(letter) != std::string::npos) continue;
      KeyDim& known = by_letter.try_emplace(letter, KeyDim{operand.frontier[*dim], {}}).first->second;
      known.at.emplace_back(i, *dim);
    }
  }
  std::vector<KeyDim> out;
  for (auto& [letter, dim] : by_letter) out.push_back(std::move(dim));
  return out;
}

std::vector<KeyDim> dims_of(const tra::Node& node) {
  if (const auto* join = node.as<tra::Join>()) return dims_of_join(node, *join);
  if (const auto* call = node.as<tra::Call>()) return dims_of_call(node, *call);
  std::vector<KeyDim> out;
  for (const int64_t keys : node.input(0)->type().frontier)
    out.push_back({keys, {{0, static_cast<int64_t>(out.size())}}});
  return out;
}

/// The tuples of `relation` with keys in `box`, as a relation of their own.
RelationType part_of(const RelationType& relation, const Box& box) {
  std::vector<Axis> axes;
  for (const Axis& axis : relation.axes) {
    if (!axis.linked()) {
      axes.push_back(axis);
      continue;
    }
    const auto from = axis.cuts.begin() + box.lower[axis.key_dim];
    CutPoints cuts(from, axis.cuts.begin() + box.upper[axis.key_dim] + 1);
    for (int64_t& cut : cuts) cut -= *from;
    axes.push_back(Axis::cut(axis.key_dim, std::move(cuts)));
  }
  return RelationType::make("optimize", relation.dtype, box.extents(), std::move(axes));
}

/// Divides one operator in all ways, and prices the site that has most to do.
class Divided {
 public:
  /// `join` runs below the sum `node`, if there is one.
  Divided(const tra::Node& node, const tra::Node* join, int64_t sites, PlacementMemory& alone)
      : work_(join != nullptr ? *join : node), alone_(alone), operation_(alone.runs.number(node, join)) {
    for (const KeyDim& dim : dims_of(work_)) {
      dims_.push_back(dim);
      shares_.push_back(shares_of(dim, sites));
    }
    for (const auto& input : work_.inputs()) boxes_.push_back(Box::below(input->type().frontier));
    listed_ = ways(0, sites) <= kMostWays;
    if (listed_) divide(0, sites);
  }

  double seconds() const { return listed_ && least_ < kForbidden ? least_ : 0; }

 private:
  /// Of numbers of parts that leave as much to the site with most, the least.
  std::vector<Share> shares_of(const KeyDim& dim, int64_t sites) const {
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

  /// Keys, and extents of what is linked to them.
  std::vector<int64_t> extents_of(const KeyDim& dim, const Share& share) const {
    std::vector<int64_t> out{share.upper - share.lower};
    for (const auto& [operand, at] : dim.at) {
      for (const Axis& axis : work_.input(operand)->type().axes) {
        if (axis.linked() && axis.key_dim == at) out.push_back(axis.cuts[share.upper] - axis.cuts[share.lower]);
      }
    }
    return out;
  }

  size_t ways(size_t dim, int64_t sites) const {
    if (dim == dims_.size()) return 1;
    size_t out = 0;
    for (const Share& share : shares_[dim]) {
      if (share.parts <= sites && out <= kMostWays) out += ways(dim + 1, sites / share.parts);
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
    std::vector<const Place*> operands;
    for (size_t i = 0; i < boxes_.size(); ++i)
      operands.push_back(alone_.places.replicated(alone_.places.number(part_of(work_.input(i)->type(), boxes_[i]))));
    const Run& run = alone_.runs.of(operation_, operands);
    if (run.result != nullptr) least_ = std::min(least_, run.value);
  }

  const tra::Node& work_;
  PlacementMemory& alone_;
  size_t operation_;
  std::vector<KeyDim> dims_;
  std::vector<std::vector<Share>> shares_;  ///< by dimension
  std::vector<Box> boxes_;                  ///< of operands
  bool listed_ = false;
  double least_ = kForbidden;
};

/// All operators of a plan, equal ones once.
class Work {
 public:
  Work(int64_t sites, const Cluster& cluster) : sites_(sites), alone_({}, Objective::kSeconds, cluster) {}

  double of(const tra::Plan& plan, const std::unordered_set<const tra::Node*>& in_any_order) {
    std::unordered_map<const tra::Node*, int64_t> uses;
    for (const auto& node : plan.order()) {
      for (const auto& input : node->inputs()) ++uses[input.get()];
    }
    for (const auto& output : plan.outputs()) ++uses[output.node.get()];
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
      // Both may be computed as one.
      out += std::min(0.0, seconds(*node, &join) - alone - seconds(join, nullptr));
    }
    return out;
  }

 private:
  /// Of results of one call only the first takes anything.
  bool is_further(const tra::Node& node) {
    const auto* call = node.as<tra::Call>();
    if (call == nullptr) return false;
    auto& others = calls_[node.inputs()];
    const bool further =
        std::any_of(others.begin(), others.end(), [&](const auto* other) { return other->runs_with(*call); });
    others.push_back(call);
    return further;
  }

  double seconds(const tra::Node& node, const tra::Node* join) {
    const tra::Node& work = join != nullptr ? *join : node;
    std::vector<size_t> key{alone_.runs.number(node, join)};
    for (const auto& input : work.inputs()) {
      if (!input->type().regular()) return 0;
      key.push_back(alone_.places.number(input->type()));
    }
    const auto [at, fresh] = known_.try_emplace(std::move(key), 0);
    if (fresh) at->second = Divided(node, join, sites_, alone_).seconds();
    return at->second;
  }

  int64_t sites_;
  PlacementMemory alone_;
  std::map<std::vector<size_t>, double> known_;  ///< by operator and relations
  std::map<std::vector<tra::NodePtr>, std::vector<const kernels::Call*>> calls_;
};

}  // namespace

double least_work_seconds(const tra::Plan& plan, int64_t sites, const Cluster& cluster,
                          const std::unordered_set<const tra::Node*>& in_any_order) {
  const double opening = cluster.profile && sites > 1 ? cluster.profile->run_seconds : 0;
  return opening + Work(sites, cluster).of(plan, in_any_order);
}

}  // namespace joinsum::optimizer
