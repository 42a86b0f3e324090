#include "optimizer/reuse/plan_reuse.h"

#include <algorithm>
#include <cctype>
#include <map>
#include <optional>
#include <unordered_map>

#include "einsum/text.h"
#include "ia/text.h"
#include "optimizer/division/axis_labels.h"
#include "tra/lower.h"

namespace joinsum::optimizer::reuse {
namespace {

using kernels::table::Kernel;

bool is_digit(char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; }

/// The text with `#` for each number.
std::string without_numbers(const std::string& text) {
  std::string out;
  for (size_t i = 0; i < text.size();) {
    if (!is_digit(text[i])) {
      out += text[i++];
      continue;
    }
    const auto digits = [&] {
      while (i < text.size() && is_digit(text[i])) ++i;
    };
    digits();
    if (i + 1 < text.size() && text[i] == '.' && is_digit(text[i + 1])) {
      ++i;
      digits();
    }
    size_t power = i;
    if (power < text.size() && text[power] == 'e') ++power;
    if (power > i && power < text.size() && (text[power] == '-' || text[power] == '+')) ++power;
    if (power > i && power < text.size() && is_digit(text[power])) {
      i = power;
      digits();
    }
    out += '#';
  }
  return out;
}

template <class NodeT>
std::unordered_map<const NodeT*, size_t> numbered(const std::vector<std::shared_ptr<const NodeT>>& order) {
  std::unordered_map<const NodeT*, size_t> out;
  for (const auto& node : order) out.emplace(node.get(), out.size());
  return out;
}

/// Whether two plans have the same kinds of operators over the same inputs, and the same outputs and ties.
template <class PlanT>
bool same_wiring(const PlanT& a, const PlanT& b) {
  if (a.order().size() != b.order().size() || a.outputs().size() != b.outputs().size()) return false;
  const auto left = numbered(a.order());
  const auto right = numbered(b.order());
  for (size_t n = 0; n < a.order().size(); ++n) {
    const auto& of = a.order()[n]->inputs();
    const auto& other = b.order()[n]->inputs();
    const bool same = std::equal(of.begin(), of.end(), other.begin(), other.end(),
                                 [&](const auto& x, const auto& y) { return left.at(x.get()) == right.at(y.get()); });
    if (!same || a.order()[n]->operation().index() != b.order()[n]->operation().index()) return false;
  }
  return std::equal(a.outputs().begin(), a.outputs().end(), b.outputs().begin(), [&](const auto& x, const auto& y) {
    return x.name == y.name && x.tied_input == y.tied_input && left.at(x.node.get()) == right.at(y.node.get());
  });
}

// --- graphs ----------------------------------------------------------------------------------------------------------

/// Whether calls do the same work per element.
bool same_work(const einsum::Call& a, const einsum::Call& b) {
  return a.flops == b.flops && std::equal(a.undecomposed.begin(), a.undecomposed.end(), b.undecomposed.begin(),
                                          b.undecomposed.end(), same_work);
}

bool same_operation(const einsum::Node& a, const einsum::Node& b) {
  if (const auto* input = a.as<einsum::Input>()) return *input == *b.as<einsum::Input>();
  if (const auto* call = a.as<einsum::Call>()) {
    const auto& other = *b.as<einsum::Call>();
    return same_work(*call, other) && without_numbers(call->text()) == without_numbers(other.text());
  }
  const auto& x = *a.as<einsum::Einsum>();
  const auto& y = *b.as<einsum::Einsum>();
  return x.operands == y.operands && x.result == y.result &&
         without_numbers(x.join.text()) == without_numbers(y.join.text()) &&
         without_numbers(x.aggregate.text()) == without_numbers(y.aggregate.text());
}

using Change = std::pair<int64_t, int64_t>;  ///< of an extent

/// The labels of a vertex whose extents differ; one that a tensor has twice counts twice.
std::map<std::string, Change> changes(const einsum::Node& a, const einsum::Node& b) {
  std::map<std::string, Change> out;
  const auto labels = division::axis_labels(a);
  const auto meet = [&](const einsum::Labels& axes, const einsum::Node& x, const einsum::Node& y) {
    for (size_t i = 0; i < axes.size(); ++i) {
      const Change change{x.type().extents[i], y.type().extents[i]};
      if (change.first == change.second) continue;
      const auto before = std::count(axes.begin(), axes.begin() + static_cast<int64_t>(i), axes[i]);
      out.emplace(axes[i] + std::string(before, '+'), change);
    }
  };
  for (size_t i = 0; i < a.inputs().size(); ++i) meet(labels[i], *a.input(i), *b.input(i));
  meet(labels.back(), a, b);
  return out;
}

// --- plans -----------------------------------------------------------------------------------------------------------

/// Finds the operator of a program that an operator of its physical plan computes, and the one of another program in
/// its place. Operators that do the same on the same values are one, since a plan may compute them once.
class Operators {
 public:
  struct Found {
    size_t number = 0;
    bool undecomposed = false;  ///< the undecomposed call that a call names for operands that are not divided
  };

  Operators(const tra::Plan& planned, const tra::Plan& requested) : planned_(planned), requested_(requested) {
    const auto numbers = numbered(planned.order());
    for (size_t n = 0; n < planned.order().size(); ++n) {
      const tra::Node& node = *planned.order()[n];
      first_.push_back(n);
      if (node.as<tra::Input>() != nullptr) continue;
      std::vector<size_t> inputs;
      for (const auto& input : node.inputs()) inputs.push_back(first_[numbers.at(input.get())]);
      const auto* call = node.as<tra::Call>();
      if (call != nullptr && !call->undecomposed.empty()) {
        std::vector<size_t> read;
        for (const int64_t operand : call->undecomposed_operands) read.push_back(inputs[operand]);
        add(read, {n, true});
      }
      first_[n] = add(inputs, {n, false});
    }
  }

  /// The operator that does `operation` on the values of these numbers.
  std::optional<Found> find(const ia::Operation& operation, const std::vector<size_t>& inputs) const {
    const auto at = by_inputs_.find(inputs);
    if (at == by_inputs_.end()) return std::nullopt;
    const auto same = [&](const Found& each) { return local(planned_, each) == operation; };
    const auto found = std::find_if(at->second.begin(), at->second.end(), same);
    return found == at->second.end() ? std::nullopt : std::optional(*found);
  }

  /// The transform by `kernel` of the value of that number.
  std::optional<Found> find_transform(const Kernel& kernel, size_t value) const {
    const auto at = by_inputs_.find({value});
    if (at == by_inputs_.end()) return std::nullopt;
    for (const Found& each : at->second) {
      const auto* transform = planned_.order()[each.number]->as<tra::Transform>();
      if (transform != nullptr && transform->kernel == kernel) return each;
    }
    return std::nullopt;
  }

  /// As the other program has it.
  ia::Operation requested(const Found& found) const { return local(requested_, found); }

 private:
  static ia::Operation local(const tra::Plan& program, const Found& found) {
    const tra::Node& node = *program.order()[found.number];
    if (found.undecomposed) return ia::LocalCall{node.as<tra::Call>()->undecomposed.front()};
    return tra::local_operation(node);
  }

  /// The number of the first operator that does the same.
  size_t add(const std::vector<size_t>& inputs, const Found& operation) {
    const auto other = find(local(planned_, operation), inputs);
    if (!other) {
      by_inputs_[inputs].push_back(operation);
      return operation.number;
    }
    JOINSUM_USER_CHECK(requested(*other) == requested(operation),
                       "reused: operators that did the same differ: operator=",
                       tra::operator_name(planned_.order()[operation.number]->operation()));
    return other->number;
  }

  const tra::Plan& planned_;
  const tra::Plan& requested_;
  std::vector<size_t> first_;
  std::map<std::vector<size_t>, std::vector<Found>> by_inputs_;
};

/// Builds a physical plan again for another program.
class Rebuilder {
 public:
  Rebuilder(const ia::Plan& plan, const tra::Plan& planned, const tra::Plan& requested)
      : plan_(plan), requested_(requested), operators_(planned, requested) {
    for (size_t n = 0; n < planned.order().size(); ++n) {
      const auto* input = planned.order()[n]->as<tra::Input>();
      if (input != nullptr) inputs_[input->name] = n;
    }
  }

  ia::Plan run() {
    for (const ia::NodePtr& node : plan_.order()) {
      if (const auto* input = node->as<ia::Input>()) {
        place(*node, input->name);
      } else {
        make(*node);
      }
    }
    std::vector<ia::Plan::Output> outputs = plan_.outputs();
    for (size_t i = 0; i < outputs.size(); ++i) {
      outputs[i].node = rebuilt_.at(outputs[i].node.get()).node;
      JOINSUM_CHECK(outputs[i].node->type().relation == requested_.outputs()[i].node->type(),
                    "reused: a plan of another result: output=", outputs[i].name);
    }
    return ia::Plan::make(std::move(outputs));
  }

 private:
  /// A node of the new plan, and the number of the program's value that it holds.
  struct Rebuilt {
    ia::NodePtr node;
    size_t value = 0;
  };

  void place(const ia::Node& node, const std::string& name) {
    const size_t value = inputs_.at(name);
    const auto type = ia::PhysicalType::placed("reused: input " + name, requested_.order()[value]->type(),
                                               node.type().grid, node.type().placement);
    rebuilt_[&node] = {ia::make_input(name, type), value};
  }

  void make(const ia::Node& node) {
    std::vector<ia::NodePtr> inputs;
    std::vector<size_t> values;
    for (const auto& input : node.inputs()) {
      inputs.push_back(rebuilt_.at(input.get()).node);
      values.push_back(rebuilt_.at(input.get()).value);
    }
    if (ia::is_move(node.operation())) {
      rebuilt_[&node] = {ia::make(node.operation(), std::move(inputs)), values.front()};
      return;
    }
    const auto found = fused(node.operation(), values);
    JOINSUM_USER_CHECK(found, "reused: the plan has an operator that is not one of its program's: operator=",
                       ia::operation_text(node.operation(), node.type()));
    rebuilt_[&node] = {ia::make(found->first, std::move(inputs)), found->second};
  }

  using Fused = std::pair<ia::Operation, size_t>;  ///< an operation of the other program, and the value that it gives

  /// An operator of the program, or one with the transforms of its result that its kernel runs too.
  std::optional<Fused> fused(const ia::Operation& operation, const std::vector<size_t>& values) const {
    if (const auto found = operators_.find(operation, values))
      return Fused{operators_.requested(*found), found->number};
    ia::Operation first = operation;
    Kernel* kernel = kernel_of(first);
    if (kernel == nullptr) return std::nullopt;
    std::vector<Kernel> rest;
    while (!kernel->epilogue.empty()) {
      rest.insert(rest.begin(), kernel->epilogue.back());
      kernel->epilogue.pop_back();
      const auto found = operators_.find(first, values);
      if (found) return transformed({operators_.requested(*found), found->number}, rest);
    }
    return std::nullopt;
  }

  /// `begun`, followed by the transforms that these kernels make up.
  std::optional<Fused> transformed(Fused begun, const std::vector<Kernel>& kernels) const {
    for (size_t done = 0; done < kernels.size();) {
      Kernel kernel{"id", {}};
      std::optional<Operators::Found> found;
      while (!found && done < kernels.size()) {
        kernel = kernel.followed_by(kernels[done++]);
        found = operators_.find_transform(kernel, begun.second);
      }
      if (!found) return std::nullopt;
      const auto& requested = *requested_.order()[found->number]->as<tra::Transform>();
      Kernel* now = kernel_of(begun.first);
      *now = now->followed_by(requested.kernel);
      begun.second = found->number;
    }
    return begun;
  }

  static Kernel* kernel_of(ia::Operation& operation) {
    if (auto* join = std::get_if<ia::LocalJoin>(&operation)) return &join->kernel;
    if (auto* aggregate = std::get_if<ia::LocalAggregate>(&operation)) return &aggregate->kernel;
    if (auto* map = std::get_if<ia::LocalMap>(&operation)) return &map->array_map;
    return nullptr;
  }

  const ia::Plan& plan_;
  const tra::Plan& requested_;
  Operators operators_;
  std::map<std::string, size_t> inputs_;
  std::unordered_map<const ia::Node*, Rebuilt> rebuilt_;
};

}  // namespace

Scaling scaling(const einsum::Plan& planned, const einsum::Plan& requested) {
  Scaling out;
  if (!same_wiring(planned, requested)) return {1, 1, "their vertices differ"};
  for (size_t n = 0; n < planned.order().size(); ++n) {
    const einsum::Node& a = *planned.order()[n];
    const einsum::Node& b = *requested.order()[n];
    if (!same_operation(a, b) || a.type().dtype != b.type().dtype ||
        a.type().extents.size() != b.type().extents.size()) {
      return {1, 1, "a vertex is another: " + einsum::operation_text(a.operation())};
    }
    const auto changed = changes(a, b);
    if (changed.size() > 1) {
      return {1, 1, "a vertex has two labels that change: " + einsum::operation_text(a.operation())};
    }
    for (const auto& [label, change] : changed) {
      if (change.first == 0 || change.second == 0) return {1, 1, "a label has no elements"};
      if (out.planned == out.requested) out = {change.first, change.second};
      if (out.planned * change.second != out.requested * change.first) return {1, 1, "labels change by several ratios"};
      if (change.first < out.planned) out = {change.first, change.second};
    }
  }
  return out;
}

ia::Plan reused(const ia::Plan& plan, const tra::Plan& planned, const tra::Plan& requested) {
  JOINSUM_USER_CHECK(same_wiring(planned, requested), "reused: the programs have other operators");
  for (size_t n = 0; n < planned.order().size(); ++n) {
    const relation::RelationType& a = planned.order()[n]->type();
    const relation::RelationType& b = requested.order()[n]->type();
    JOINSUM_USER_CHECK(a.frontier == b.frontier, "reused: a value is cut in other parts: planned=", a.text(),
                       ", requested=", b.text());
  }
  return Rebuilder(plan, planned, requested).run();
}

ia::Plan on_one_site(const tra::Plan& program) {
  const ia::Grid grid;
  Counterparts<tra::Node, ia::Plan> local;
  return translated<ia::Plan>(program, local, [&](const tra::NodePtr& node, std::vector<ia::NodePtr> inputs) {
    const auto* input = node->as<tra::Input>();
    if (input == nullptr) return ia::make(tra::local_operation(*node), std::move(inputs));
    return ia::make_input(input->name,
                          ia::PhysicalType::placed("on_one_site", node->type(), grid, ia::Placement::replicated(grid)));
  });
}

}  // namespace joinsum::optimizer::reuse
