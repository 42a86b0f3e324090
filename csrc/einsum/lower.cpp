#include "einsum/lower.h"

#include <algorithm>

#include "einsum/text.h"
#include "kernels/table/expression_kernel.h"
#include "kernels/table/table.h"
#include "relation/call_typing.h"

namespace joinsum::einsum {
namespace {

constexpr const char* kAlphabet = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";

/// Letters that stand for the labels of one vertex in kernels.
class Letters {
 public:
  explicit Letters(const Labels& labels) : labels_(labels) {
    JOINSUM_USER_CHECK(labels.size() <= 52, "lower: one einsum of more labels than letters: labels=", labels.size(),
                       ", most=52");
  }
  std::string of(const Labels& labels) const {
    std::string out;
    for (const std::string& label : labels) out += kAlphabet[axis_of(labels_, label)];
    return out;
  }

 private:
  const Labels labels_;
};

Kernel with_labels(const std::string& name, const std::string& labels) { return {name, {labels}}; }

tra::NodePtr transform(const Kernel& kernel, const tra::NodePtr& input) {
  // `detach` matters to gradients only, which are graphs of their own.
  const bool same = kernel == Kernel{"id", {}} || kernel == Kernel{"detach", {}};
  return same ? input : tra::make(tra::Transform{kernel}, {input});
}

/// Aggregates the key dimensions that no axis is linked to; the others come in the order of the axes.
tra::NodePtr aggregate_keys(const tra::NodePtr& value, const Kernel& aggregate) {
  Dims kept;
  for (const relation::Axis& axis : value->type().axes) {
    if (axis.linked()) kept.push_back(axis.key_dim);
  }
  const bool all = static_cast<int64_t>(kept.size()) == value->type().arity();
  return all ? value : tra::make(tra::Aggregate{std::move(kept), aggregate}, {value});
}

/// A tensor as a relation; axis a has labels[a].
struct Operand {
  tra::NodePtr value;
  Labels labels;

  const relation::Axis& axis(const std::string& label) const { return value->type().axes[axis_of(labels, label)]; }
};

/// One vertex.
class Lower {
 public:
  Lower(const Einsum& op, std::vector<tra::NodePtr> values, Extents extents, DType dtype)
      : op_(op), extents_(std::move(extents)), dtype_(dtype), letters_(labels_of(all_labels(op))) {
    for (size_t i = 0; i < values.size(); ++i) operands_.push_back({std::move(values[i]), op.operands[i]});
    const Labels given = labels_of(op.operands);
    kept_ = common(labels_of({op.result}), given);
    gone_ = without(given, op.result);
  }

  LoweredVertex run() {
    JOINSUM_USER_CHECK(operands_.size() <= 2,
                       "lower: an einsum of more than two operands; take it apart with binary: ", operation_text(op_));
    const bool widened = is_half_float(operands_[0].value->type().dtype) && aggregates_parts();
    for (Operand& operand : operands_) {
      if (widened) operand.value = transform(with_labels("cast", "f32"), operand.value);
      operand = with_diagonal(std::move(operand));
    }
    tra::NodePtr value = operands_.size() == 1 ? unary() : binary();
    if (value->type().dtype != dtype_) value = transform(with_labels("cast", name_of(dtype_)), value);
    return {work_ == nullptr ? operands_[0].value : work_, keys(), finished(value)};
  }

 private:
  static std::vector<Labels> all_labels(const Einsum& op) {
    std::vector<Labels> all = op.operands;
    all.push_back(op.result);
    return all;
  }

  /// Whether partial results of several parts are aggregated.
  bool aggregates_parts() const {
    const auto cut = [&](const std::string& label) {
      return std::any_of(operands_.begin(), operands_.end(), [&](const Operand& operand) {
        return has(operand.labels, label) && operand.axis(label).linked();
      });
    };
    return std::any_of(gone_.begin(), gone_.end(), cut) &&
           kernels::table::row_of(op_.aggregate).facts.idempotent == false;
  }

  Operand with_diagonal(Operand operand) const {
    if (distinct(operand.labels)) return operand;
    for (const std::string& label : operand.labels) check_alike(label, operand, operand);
    const Labels once = labels_of({operand.labels});
    const std::string text = letters_.of(operand.labels) + "->" + letters_.of(once);
    return {transform(with_labels("arrange", text), operand.value), once};
  }

  /// Raises unless `label` is cut at the same points in both.
  void check_alike(const std::string& label, const Operand& a, const Operand& b) const {
    const auto points = [&](const Operand& operand, size_t axis) {
      const relation::Axis& cut = operand.value->type().axes[axis];
      return cut.linked() ? cut.cuts : CutPoints{0, cut.extent};
    };
    for (size_t i = 0; i < a.labels.size(); ++i) {
      for (size_t j = 0; j < b.labels.size(); ++j) {
        if (a.labels[i] != label || b.labels[j] != label) continue;
        JOINSUM_USER_CHECK(points(a, i) == points(b, j),
                           "einsum: a label is cut at different points; give its axes the same parts: label=", label,
                           ", cuts=", points(a, i), " and ", points(b, j), ", einsum=", operation_text(op_));
      }
    }
  }

  /// Labels of the key dimensions of a join of the operands: the left one's, then those that the right one adds.
  Labels keys() const {
    Labels out;
    for (const Operand& operand : operands_) {
      std::map<int64_t, std::string> cut;
      for (const std::string& label : operand.labels) {
        if (operand.axis(label).linked()) cut.emplace(operand.axis(label).key_dim, label);
      }
      for (const auto& [dim, label] : cut) {
        if (!has(out, label)) out.push_back(label);
      }
    }
    return out;
  }

  tra::NodePtr unary() {
    const Operand& x = operands_[0];
    const tra::NodePtr mapped = transform(op_.join, x.value);
    if (mapped != x.value) work_ = mapped;
    return reduced({mapped, x.labels});
  }

  /// Permutes to the kept labels, and aggregates the others.
  tra::NodePtr reduced(const Operand& x) {
    if (x.labels == kept_) return aggregate_keys(x.value, op_.aggregate);
    const std::string name = gone_.empty() ? "arrange" : kernels::table::reduction_name(op_.aggregate.name);
    JOINSUM_USER_CHECK(kernels::table::has_row(name),
                       "lower: no kernel reduces axes so: aggregate=", op_.aggregate.text());
    const tra::NodePtr arrays =
        transform(with_labels(name, letters_.of(x.labels) + "->" + letters_.of(kept_)), x.value);
    if (work_ == nullptr) work_ = arrays;
    return aggregate_keys(arrays, op_.aggregate);
  }

  tra::NodePtr binary() {
    const Operand& x = operands_[0];
    const Operand& y = operands_[1];
    Dims left, right;
    for (const std::string& label : common(x.labels, y.labels)) {
      check_alike(label, x, y);
      if (!x.axis(label).linked() || !y.axis(label).linked()) continue;
      left.push_back(x.axis(label).key_dim);
      right.push_back(y.axis(label).key_dim);
    }
    const auto join = [&](const Kernel& kernel, const tra::NodePtr& a, const tra::NodePtr& b) {
      return work_ = tra::make(tra::Join{left, right, kernel}, {a, b});
    };
    // A sparse operand meets dense ones in contractions alone.
    const bool sparse = x.value->type().sparse() || y.value->type().sparse();
    if (!sparse && x.labels == y.labels && gone_.empty() && x.labels == kept_) return join(op_.join, x.value, y.value);
    if (const auto name = contraction()) {
      std::string labels = letters_.of(x.labels) + "," + letters_.of(y.labels) + "->" + letters_.of(kept_);
      if (kernels::table::is_expression(op_.join)) labels += ":" + op_.join.label(1);
      Kernel kernel = with_labels(*name, labels);
      kernel.epilogue = op_.join.epilogue;
      return aggregate_keys(join(kernel, x.value, y.value), op_.aggregate);
    }
    Labels order = kept_;
    order.insert(order.end(), gone_.begin(), gone_.end());
    return reduced({join(op_.join, aligned(x, order), aligned(y, order)), order});
  }

  /// The labelled kernel that joins and aggregates at once, if there is one.
  std::optional<std::string> contraction() const {
    if (op_.join.name == "mul" && gone_.empty()) return "contract";
    const std::string name = kernels::table::contraction_name(op_.join.name, op_.aggregate.name);
    const bool fits = !gone_.empty() && op_.join.epilogue.empty() && kernels::table::has_row(name);
    return fits ? std::optional(name) : std::nullopt;
  }

  /// An axis for each label of `order`; those that are missing at the front are left to broadcasting.
  tra::NodePtr aligned(const Operand& x, const Labels& order) const {
    const Labels own = common(order, x.labels);
    Kernel kernel{"id", {}};
    if (own != x.labels) kernel = with_labels("arrange", letters_.of(x.labels) + "->" + letters_.of(own));
    const auto first = std::find_if(order.begin(), order.end(), [&](const auto& label) { return has(own, label); });
    for (auto label = first; label != order.end(); ++label) {
      if (!has(own, *label)) kernel = kernel.followed_by({"insert_dim", {label - first}});
    }
    return transform(kernel, x.value);
  }

  /// Adds the labels that only the result has, and the diagonals of those that it repeats.
  tra::NodePtr finished(tra::NodePtr value) const {
    Labels now = kept_;
    Kernel kernel{"id", {}};
    const Labels wanted = labels_of({op_.result});
    for (size_t a = 0; a < wanted.size(); ++a) {
      if (has(now, wanted[a])) continue;
      kernel = kernel.followed_by({"expand", {static_cast<int64_t>(a), extents_.at(wanted[a])}});
      now.insert(now.begin() + static_cast<int64_t>(a), wanted[a]);
    }
    for (size_t a = 0; a < op_.result.size(); ++a) {
      if (a < now.size() && now[a] == op_.result[a]) continue;
      kernel = kernel.followed_by({"embed_diagonal", {static_cast<int64_t>(a), axis_of(now, op_.result[a])}});
      now.insert(now.begin() + static_cast<int64_t>(a), op_.result[a]);
    }
    return transform(kernel, value);
  }

  const Einsum& op_;
  Extents extents_;
  DType dtype_;  ///< of the result
  Letters letters_;
  std::vector<Operand> operands_;
  Labels kept_;
  Labels gone_;
  tra::NodePtr work_;
};

void check_input(const Node& node, const relation::RelationType& type) {
  const std::string& name = node.as<Input>()->name;
  Dims extents, linked;
  for (const relation::Axis& axis : type.axes) {
    extents.push_back(axis.extent);
    if (axis.linked()) linked.push_back(axis.key_dim);
  }
  JOINSUM_USER_CHECK(type.dtype == node.type().dtype && extents == node.type().extents,
                     "lower: an input's relation is of another type: name=", name, ", relation=", type.text(),
                     ", type=", node.type().text());
  std::sort(linked.begin(), linked.end());
  JOINSUM_USER_CHECK(type.regular() && linked == all_dims(type.arity()),
                     "lower: a tensor's relation has each key once, and each key dimension cuts one axis: name=", name,
                     ", relation=", type.text());
}

/// A call keeps its letters; those that it adds are cut as `parts` says.
LoweredVertex lowered_call(Call call, std::vector<tra::NodePtr> values, const std::map<char, int64_t>& parts) {
  for (const auto& [letter, count] : parts) call.extents.at(letter).parts = count;
  const tra::NodePtr made = tra::make(std::move(call), std::move(values));
  const std::string& letters = made->as<tra::Call>()->result().letters;
  Labels keys;
  for (const char letter : letters) {
    if (relation::key_of(letters, made->type(), letter)) keys.emplace_back(1, letter);
  }
  return {made, std::move(keys), made};
}

std::vector<tra::NodePtr> lower_nodes(const Plan& plan, const std::map<std::string, tra::NodePtr>& inputs,
                                      LoweredVertices& vertices) {
  std::map<std::string, relation::RelationType> relations;
  for (const auto& [name, value] : inputs) relations[name] = value->type();
  const NewLetterParts parts = new_letter_parts(plan, relations);
  std::unordered_map<const Node*, tra::NodePtr> lowered;
  for (const NodePtr& node : plan.order()) {
    const auto* op = node->as<Einsum>();
    const auto* call = node->as<Call>();
    if (op == nullptr && call == nullptr) {
      const auto found = inputs.find(node->as<Input>()->name);
      JOINSUM_USER_CHECK(found != inputs.end(), "lower: an input is not given: name=", node->as<Input>()->name);
      check_input(*node, found->second->type());
      lowered[node.get()] = found->second;
      continue;
    }
    std::vector<tra::NodePtr> values;
    for (const NodePtr& input : node->inputs()) values.push_back(lowered.at(input.get()));
    LoweredVertex made;
    if (call != nullptr) {
      const auto own = parts.find(node.get());
      made = lowered_call(*call, std::move(values), own == parts.end() ? std::map<char, int64_t>{} : own->second);
    } else {
      const Extents extents = extents_of(*op, types_of<Node>(node->inputs()));
      made = Lower(*op, std::move(values), extents, node->type().dtype).run();
    }
    lowered[node.get()] = made.value;
    vertices[node.get()] = std::move(made);
  }
  std::vector<tra::NodePtr> outputs;
  for (const auto& output : plan.outputs()) outputs.push_back(lowered.at(output.node.get()));
  return outputs;
}

}  // namespace

tra::Plan lower(const Plan& plan, const std::map<std::string, relation::RelationType>& inputs) {
  LoweredVertices vertices;
  return lower(plan, inputs, vertices);
}

tra::Plan lower(const Plan& plan, const std::map<std::string, relation::RelationType>& inputs,
                LoweredVertices& vertices) {
  std::map<std::string, tra::NodePtr> nodes;
  for (const auto& [name, type] : inputs) nodes[name] = tra::make_input(name, type);
  std::vector<tra::Plan::Output> outputs;
  const auto values = lower_nodes(plan, nodes, vertices);
  for (size_t i = 0; i < values.size(); ++i) {
    outputs.push_back({plan.outputs()[i].name, values[i], plan.outputs()[i].tied_input});
  }
  return tra::Plan::make(std::move(outputs));
}

std::vector<tra::NodePtr> lower(const Plan& plan, const std::map<std::string, tra::NodePtr>& inputs) {
  LoweredVertices vertices;
  return lower_nodes(plan, inputs, vertices);
}

}  // namespace joinsum::einsum
