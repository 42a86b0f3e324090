#include "einsum/axis_classes.h"

#include <algorithm>

namespace joinsum::einsum {
namespace {

/// Most keys of one joined relation, so that numbers of keys stay far from overflow.
constexpr int64_t kMostKeys = int64_t{1} << 40;

}  // namespace

AxisClasses::AxisClasses(const Plan& plan) {
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

bool AxisClasses::has_new_letter(int64_t its_class) const {
  return std::ranges::any_of(new_letters_, [&](const auto& of_call) {
    return std::ranges::any_of(of_call.second, [&](const auto& letter) { return find(letter.second) == its_class; });
  });
}

/// Cuts the classes of most elements first, as long as no vertex has too many keys.
void AxisClasses::cut(const Plan& plan, int64_t sites) {
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

int64_t AxisClasses::add() {
  whole_.push_back(false);
  return classes_.add();
}

int64_t AxisClasses::keys(const std::set<int64_t>& classes) const {
  int64_t count = 1;
  for (const int64_t each : classes) count *= parts_.at(each);
  return count;
}

void AxisClasses::unite(int64_t a, int64_t b) {
  const bool whole = whole_[find(a)] || whole_[find(b)];
  classes_.unite(a, b);
  whole_[find(a)] = whole;
}

void AxisClasses::identify(const Einsum& op, const Node& node) {
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
void AxisClasses::identify(const Call& call, const Node& node) {
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

void AxisClasses::tie(const Plan& plan, const Plan::Output& output) {
  for (const NodePtr& input : plan.inputs()) {
    if (input->as<Input>()->name != *output.tied_input) continue;
    for (size_t a = 0; a < input->type().extents.size(); ++a) {
      unite(axes_.at(input.get())[a], axes_.at(output.node.get())[a]);
    }
  }
}

}  // namespace joinsum::einsum
