#include <algorithm>
#include <set>

#include "base/disjoint_sets.h"
#include "einsum/lower.h"

namespace joinsum::einsum {
namespace {

/// Most keys of one joined relation, so that numbers of keys stay far from overflow.
constexpr int64_t kMostKeys = int64_t{1} << 40;

/// Axes of tensors and labels of vertices, those that are one in one class.
class Classes {
 public:
  explicit Classes(const Plan& plan) {
    for (const NodePtr& node : plan.order()) {
      auto& axes = axes_[node.get()];
      for (size_t a = 0; a < node->type().extents.size(); ++a) axes.push_back(add());
      if (const auto* op = node->as<Einsum>()) identify(*op, *node);
      if (const auto* call = node->as<Call>()) identify(*call, *node);
    }
    for (const auto& output : plan.outputs()) {
      if (output.tied_input) tie(plan, output);
    }
  }

  int64_t of(const Node& node, size_t axis) const { return find(axes_.at(&node)[axis]); }
  int64_t of_new_letter(const Node& node, char letter) const { return find(new_letters_.at(&node).at(letter)); }

  /// Parts of an axis once `cut` has been called.
  int64_t parts(const Node& node, size_t axis) const { return parts_.at(find(axes_.at(&node)[axis])); }

  /// Cuts the classes of most elements first, as long as no vertex has too many keys.
  void cut(const Plan& plan, int64_t sites) {
    std::map<int64_t, int64_t> extents;
    std::vector<std::set<int64_t>> vertices;
    for (const NodePtr& node : plan.order()) {
      auto& met = vertices.emplace_back();
      const auto meet = [&](const Node& tensor) {
        for (size_t a = 0; a < tensor.type().extents.size(); ++a) {
          const int64_t own = find(axes_.at(&tensor)[a]);
          extents[own] = tensor.type().extents[a];
          met.insert(own);
        }
      };
      meet(*node);
      for (const NodePtr& input : node->inputs()) meet(*input);
    }
    std::vector<std::pair<int64_t, int64_t>> order;
    for (const auto& [own, extent] : extents) {
      parts_[own] = 1;
      order.emplace_back(-extent, own);
    }
    std::sort(order.begin(), order.end());
    for (const auto& [extent, own] : order) {
      const int64_t parts = whole_[own] ? 1 : std::max<int64_t>(1, std::min(sites, -extent));
      const bool fits = std::all_of(vertices.begin(), vertices.end(), [&](const std::set<int64_t>& met) {
        return !met.contains(own) || keys(met) <= kMostKeys / parts;
      });
      if (fits) parts_[own] = parts;
    }
  }

 private:
  int64_t add() {
    whole_.push_back(false);
    return classes_.add();
  }

  int64_t keys(const std::set<int64_t>& classes) const {
    int64_t count = 1;
    for (const int64_t each : classes) count *= parts_.at(each);
    return count;
  }

  int64_t find(int64_t member) const { return classes_.find(member); }
  void unite(int64_t a, int64_t b) {
    const bool whole = whole_[find(a)] || whole_[find(b)];
    classes_.unite(a, b);
    whole_[find(a)] = whole;
  }

  void identify(const Einsum& op, const Node& node) {
    std::map<std::string, int64_t> label;
    const auto meet = [&](const Labels& labels, const std::vector<int64_t>& axes) {
      for (size_t a = 0; a < labels.size(); ++a) {
        const auto [at, fresh] = label.try_emplace(labels[a], axes[a]);
        if (!fresh) unite(at->second, axes[a]);
        if (std::count(labels.begin(), labels.end(), labels[a]) > 1) whole_[find(axes[a])] = true;
      }
    };
    for (size_t i = 0; i < op.operands.size(); ++i) meet(op.operands[i], axes_.at(node.input(i).get()));
    const Labels given = labels_of(op.operands);
    meet(op.result, axes_.at(&node));
    for (const std::string& broadcast : without(op.result, given)) whole_[find(label.at(broadcast))] = true;
  }

  /// All results of a call, of which the node is one, have the letters.
  void identify(const Call& call, const Node& node) {
    std::map<char, int64_t> known;
    const auto meet = [&](const std::string& letters, const std::vector<int64_t>& axes) {
      for (size_t a = 0; a < letters.size(); ++a) {
        const auto [at, fresh] = known.try_emplace(letters[a], axes[a]);
        if (!fresh) unite(at->second, axes[a]);
      }
    };
    for (size_t i = 0; i < call.operands.size(); ++i) meet(call.operands[i], axes_.at(node.input(i).get()));
    meet(call.result().letters, axes_.at(&node));
    for (const auto& [letter, fresh] : call.extents) {
      new_letters_[&node][letter] = known.contains(letter) ? known.at(letter) : add();
    }
  }

  void tie(const Plan& plan, const Plan::Output& output) {
    for (const NodePtr& input : plan.inputs()) {
      if (input->as<Input>()->name != *output.tied_input) continue;
      for (size_t a = 0; a < input->type().extents.size(); ++a) {
        unite(axes_.at(input.get())[a], axes_.at(output.node.get())[a]);
      }
    }
  }

  std::unordered_map<const Node*, std::vector<int64_t>> axes_;
  std::unordered_map<const Node*, std::map<char, int64_t>> new_letters_;  ///< of calls
  DisjointSets classes_;
  std::vector<bool> whole_;
  std::map<int64_t, int64_t> parts_;
};

}  // namespace

relation::RelationType cut_evenly(const std::string& who, const TensorType& type, const Dims& parts) {
  Dims frontier;
  std::vector<relation::Axis> axes;
  for (size_t a = 0; a < parts.size(); ++a) {
    if (parts[a] == 1) {
      axes.push_back(relation::Axis::whole(type.extents[a]));
    } else {
      const auto key_dim = static_cast<int64_t>(frontier.size());
      axes.push_back(relation::Axis::cut(key_dim, joinsum::even_cuts(type.extents[a], parts[a])));
      frontier.push_back(parts[a]);
    }
  }
  auto relation = relation::RelationType::make(who, type.dtype, std::move(frontier), std::move(axes));
  relation.entries = type.entries;
  return relation;
}

std::map<std::string, relation::RelationType> even_cuts(const Plan& plan, int64_t sites) {
  JOINSUM_USER_CHECK(sites >= 1, "even_cuts: at least one site: sites=", sites);
  Classes classes(plan);
  classes.cut(plan, sites);
  std::map<std::string, relation::RelationType> out;
  for (const NodePtr& node : plan.inputs()) {
    Dims parts;
    for (size_t a = 0; a < node->type().extents.size(); ++a) parts.push_back(classes.parts(*node, a));
    const std::string& name = node->as<Input>()->name;
    out[name] = cut_evenly("input " + name, node->type(), parts);
  }
  return out;
}

NewLetterParts new_letter_parts(const Plan& plan, const std::map<std::string, relation::RelationType>& inputs) {
  const Classes classes(plan);
  std::map<int64_t, int64_t> parts;
  for (const NodePtr& node : plan.inputs()) {
    const auto found = inputs.find(node->as<Input>()->name);
    if (found == inputs.end()) continue;
    const auto& axes = found->second.axes;
    for (size_t a = 0; a < std::min(axes.size(), node->type().extents.size()); ++a) {
      if (axes[a].linked()) parts[classes.of(*node, a)] = static_cast<int64_t>(axes[a].cuts.size()) - 1;
    }
  }
  NewLetterParts out;
  for (const NodePtr& node : plan.order()) {
    const auto* call = node->as<Call>();
    if (call == nullptr) continue;
    for (const auto& [letter, fresh] : call->extents) {
      const auto at = parts.find(classes.of_new_letter(*node, letter));
      if (at != parts.end()) out[node.get()][letter] = at->second;
    }
  }
  return out;
}

}  // namespace joinsum::einsum
