#include "einsum/transforms/binary.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "einsum/text.h"
#include "einsum/transforms/expression.h"
#include "kernels/table/expression_kernel.h"
#include "kernels/table/table.h"

namespace joinsum::einsum::transforms {
namespace {

struct Operand {
  NodePtr node;
  Labels labels;
};

Path from_the_left(size_t operands) {
  Path path;
  // The result of each step stands last.
  for (size_t left = operands; left > 1; --left)
    path.emplace_back(left == operands ? 0 : static_cast<int64_t>(left) - 1, left == operands ? 1 : 0);
  return path;
}

/// Whether either operand may be aggregated before it is joined.
bool distributes(const Einsum& op) {
  const Kernel join = op.join.first();
  return kernels::table::distributes(join, op.aggregate.name, 0) &&
         kernels::table::distributes(join, op.aggregate.name, 1);
}

/// Whether an extreme of what is joined is chosen from more elements than the extremes of the steps are: a minimum is
/// not larger where only one of its operands is.
bool loses_ties(const Einsum& op) {
  const bool grows_with_both = distributes(op) && !kernels::table::row_of(op.join.first()).facts.idempotent;
  return kernels::table::row_of(op.aggregate).facts.idempotent && !grows_with_both;
}

/// Whether aggregating early can drop an infinity that gives NaN with one of another operand.
bool loses_nans(const Einsum& op) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const kernels::table::Element join = kernels::table::row_of(op.join.first()).element;
  const std::array<double, 2> opposites{kInfinity, -kInfinity};
  return join != nullptr && distributes(op) && std::isnan(join(opposites.data(), nullptr));
}

/// Splits one vertex of several operands into steps of two.
class Steps {
 public:
  Steps(const std::string& name, const Einsum& op, const std::vector<NodePtr>& inputs, bool waits)
      : name_(name), op_(op) {
    for (size_t i = 0; i < inputs.size(); ++i) operands_.push_back({inputs[i], op.operands[i]});
    const kernels::table::Facts& facts = kernels::table::row_of(op.join.first()).facts;
    any_order_ = facts.associative && facts.commutative;
    aggregates_early_ = !waits && op.join.epilogue.empty() && distributes(op) && nothing_stays_nothing(facts);
  }

  NodePtr run(const Path& path) {
    JOINSUM_USER_CHECK(path.size() + 1 == operands_.size(),
                       "binary: a path has one step less than operands: vertex=", name_, ", steps=", path.size(),
                       ", operands=", operands_.size());
    for (const auto& [first, second] : path) step(first, second);
    return operands_[0].node;
  }

 private:
  /// Whether what an aggregation of no elements gives, joined with the rest, is an aggregation of no elements again.
  bool nothing_stays_nothing(const kernels::table::Facts& join) const {
    const auto identity = kernels::table::row_of(op_.aggregate).facts.identity;
    const bool some = std::none_of(operands_.begin(), operands_.end(), [](const Operand& operand) {
      const Dims& extents = operand.node->type().extents;
      return std::find(extents.begin(), extents.end(), 0) != extents.end();
    });
    return some || (join.annihilator && join.annihilator == identity);
  }

  void step(int64_t first, int64_t second) {
    const auto count = static_cast<int64_t>(operands_.size());
    const bool there = first >= 0 && second >= 0 && first < count && second < count && first != second;
    JOINSUM_USER_CHECK(there, "binary: a step joins two of the operands that are left: vertex=", name_, ", step=(",
                       first, ", ", second, "), left=", count);
    const bool in_order = begun_ ? first == count - 1 && second == 0 : first == 0 && second == 1;
    JOINSUM_USER_CHECK(any_order_ || in_order, "binary: this join is taken from the left: vertex=", name_,
                       ", join=", op_.join.text(), ", step=(", first, ", ", second, ")");
    begun_ = true;
    const Operand left = operands_[first], right = operands_[second];
    operands_.erase(operands_.begin() + std::max(first, second));
    operands_.erase(operands_.begin() + std::min(first, second));
    const bool last = operands_.empty();
    Einsum op{{left.labels, right.labels},
              last ? op_.result : kept(left, right),
              last ? op_.join : op_.join.first(),
              op_.aggregate,
              last ? op_.extents : Extents{}};
    Labels labels = op.result;
    operands_.push_back({make(std::move(op), {left.node, right.node}), std::move(labels)});
  }

  /// Labels that the result or another operand still needs, or all where aggregation must wait.
  Labels kept(const Operand& left, const Operand& right) const {
    const Labels all = labels_of({left.labels, right.labels});
    if (!aggregates_early_) return all;
    Labels needed = op_.result;
    for (const Operand& other : operands_) needed.insert(needed.end(), other.labels.begin(), other.labels.end());
    return common(all, needed);
  }

  const std::string& name_;
  const Einsum& op_;
  std::vector<Operand> operands_;
  bool any_order_ = false;
  bool aggregates_early_ = false;
  bool begun_ = false;
};

}  // namespace

Plan binary(const Plan& plan, const std::map<std::string, Path>& paths) {
  std::unordered_map<const Node*, NodePtr> made;
  return binary(plan, paths, made);
}

Plan binary(const Plan& plan, const std::map<std::string, Path>& paths, std::unordered_map<const Node*, NodePtr>& made,
            AggregationStep aggregation) {
  const auto names = node_names(plan);
  size_t used = 0;
  Plan out = translated<Plan>(plan, made, [&](const NodePtr& node, std::vector<NodePtr> inputs) {
    const auto* op = node->as<Einsum>();
    if (node->as<Input>() != nullptr) return node;
    if (op == nullptr || inputs.size() <= 2) return make(node->operation(), std::move(inputs));
    if (kernels::table::is_expression(op->join)) return expression_apart(*op, inputs);
    const auto path = paths.find(names.at(node.get()));
    if (path != paths.end()) ++used;
    const bool waits = (aggregation == AggregationStep::kWhereTiesStay && loses_ties(*op)) ||
                       (aggregation == AggregationStep::kWhereNaNsStay && loses_nans(*op));
    return Steps(names.at(node.get()), *op, inputs, waits)
        .run(waits || path == paths.end() ? from_the_left(inputs.size()) : path->second);
  });
  JOINSUM_USER_CHECK(used == paths.size(),
                     "binary: a path for a vertex that has no more than two operands, or is not there: paths=",
                     paths.size(), ", used=", used);
  return out;
}

bool may_lose_nans(const Plan& plan) {
  const auto order = plan.order();
  return std::any_of(order.begin(), order.end(), [](const NodePtr& node) {
    const auto* op = node->as<Einsum>();
    return op != nullptr && op->operands.size() > 2 && loses_nans(*op);
  });
}

}  // namespace joinsum::einsum::transforms
