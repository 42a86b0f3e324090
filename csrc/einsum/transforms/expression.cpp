#include "einsum/transforms/expression.h"

#include <algorithm>
#include <set>

#include "kernels/table/expression_kernel.h"

namespace joinsum::einsum::transforms {
namespace {

using kernels::expression::Expression;
using kernels::expression::Function;

class Apart {
 public:
  Apart(const Einsum& op, const std::vector<NodePtr>& inputs) : op_(op), nodes_(inputs), labels_(op.operands) {}

  NodePtr run() {
    const Expression last = reduced(reading_all_labels(kernels::table::expression_of(op_.join)));
    Einsum op = vertex(last, op_.result);
    for (const Kernel& next : op_.join.epilogue) op.join = op.join.followed_by(next);
    op.aggregate = op_.aggregate;
    op.extents = op_.extents;
    return make(std::move(op), values_of(last));
  }

 private:
  /// The same function, which reads an operand for each label: also one that no part reads says how often its elements
  /// are aggregated.
  Expression reading_all_labels(Expression e) const {
    Labels known;
    for (const int64_t i : e.reads()) known.insert(known.end(), labels_[i].begin(), labels_[i].end());
    for (size_t i = 0; i < labels_.size(); ++i) {
      if (without(labels_[i], known).empty()) continue;
      known.insert(known.end(), labels_[i].begin(), labels_[i].end());
      e = {Function::kWhere, 0, 0, {Expression::of_number(1), e, Expression::of_operand(static_cast<int64_t>(i))}};
    }
    return e;
  }

  /// The same of at most two values: parts that read two become values of their own.
  Expression reduced(Expression e) {
    for (Expression& each : e.arguments) each = reduced(each);
    while (e.reads().size() > 2) {
      const auto widest = std::max_element(e.arguments.begin(), e.arguments.end(), [](const auto& a, const auto& b) {
        return a.reads().size() < b.reads().size();
      });
      if (widest->reads().size() > 1) {
        *widest = value(*widest);
        continue;
      }
      JOINSUM_CHECK(e.function == Function::kWhere, "expression=", e.text());
      const Expression& condition = e.arguments[0];
      const Expression zero = Expression::of_number(0);
      const Expression where_true = value({Function::kWhere, 0, 0, {condition, e.arguments[1], zero}});
      const Expression where_false = value({Function::kWhere, 0, 0, {condition, zero, e.arguments[2]}});
      e = {Function::kAdd, 0, 0, {where_true, where_false}};
    }
    return e;
  }

  /// Values that `e` reads, by number; one where it reads none.
  static std::vector<int64_t> read_by(const Expression& e) {
    const auto reads = e.reads();
    return reads.empty() ? std::vector<int64_t>{0} : reads;
  }

  std::vector<NodePtr> values_of(const Expression& e) const {
    std::vector<NodePtr> out;
    for (const int64_t i : read_by(e)) out.push_back(nodes_[i]);
    return out;
  }

  Einsum vertex(const Expression& e, Labels result) const {
    Einsum op{{}, std::move(result), {}, Kernel{"add", {}}, {}};
    std::vector<Expression> numbered(nodes_.size());
    for (const int64_t i : read_by(e)) {
      numbered[i] = Expression::of_operand(static_cast<int64_t>(op.operands.size()));
      op.operands.push_back(labels_[i]);
    }
    op.join = kernels::table::expression_kernel(e.substituted(numbered), static_cast<int64_t>(op.operands.size()));
    return op;
  }

  /// A new value for a part of the expression.
  Expression value(const Expression& e) {
    const auto [known, fresh] = known_.try_emplace(e.text(), static_cast<int64_t>(nodes_.size()));
    if (fresh) {
      Labels labels;
      for (const int64_t i : e.reads()) labels.insert(labels.end(), labels_[i].begin(), labels_[i].end());
      labels = labels_of({labels});
      NodePtr node = make(vertex(e, labels), values_of(e));
      nodes_.push_back(std::move(node));
      labels_.push_back(std::move(labels));
    }
    return Expression::of_operand(known->second);
  }

  const Einsum& op_;
  std::vector<NodePtr> nodes_;  ///< operands, then values of parts
  std::vector<Labels> labels_;
  std::map<std::string, int64_t> known_;
};

}  // namespace

NodePtr expression_apart(const Einsum& op, const std::vector<NodePtr>& inputs) { return Apart(op, inputs).run(); }

}  // namespace joinsum::einsum::transforms
