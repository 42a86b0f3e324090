#include "einsum/interpret.h"

#include <algorithm>

#include "kernels/table/expression_kernel.h"
#include "kernels/table/table.h"

namespace joinsum::einsum {
namespace {

using kernels::reference::Array;
using kernels::table::Scalars;

/// One einsum on arrays.
class Definition {
 public:
  Definition(const Einsum& op, const std::vector<TensorType>& types, const Scalars& scalars)
      : op_(op), scalars_(scalars), kept_(labels_of({op.result})), all_(kept_), extents_(extents_of(op, types)) {
    for (const std::string& label : without(labels_of(op.operands), kept_)) all_.push_back(label);
  }

  Array run(const std::vector<const Array*>& operands) const {
    return placed(aggregated(kernels::table::is_expression(op_.join) ? at_once(operands) : from_the_left(operands)));
  }

 private:
  Array at_once(const std::vector<const Array*>& operands) const {
    std::vector<Array> spread_out;
    for (size_t i = 0; i < operands.size(); ++i) spread_out.push_back(spread(*operands[i], op_.operands[i]));
    return kernels::reference::run(op_.join, spread_out, scalars_);
  }

  Array from_the_left(const std::vector<const Array*>& operands) const {
    Array joined = spread(*operands[0], op_.operands[0]);
    const Kernel step = operands.size() == 1 ? op_.join : op_.join.first();
    if (operands.size() == 1) joined = kernels::reference::run(op_.join, {joined}, scalars_);
    for (size_t i = 1; i < operands.size(); ++i) {
      const Kernel& join = i + 1 == operands.size() ? op_.join : step;
      joined = kernels::reference::run(join, {joined, spread(*operands[i], op_.operands[i])}, scalars_);
    }
    return joined;
  }

  Dims shape_of(const Labels& labels) const {
    Dims shape;
    for (const std::string& label : labels) shape.push_back(extents_.at(label));
    return shape;
  }

  /// Components of a point of all labels.
  Key at(const Key& point, const Labels& labels) const {
    Key index;
    for (const std::string& label : labels) index.push_back(point[axis_of(all_, label)]);
    return index;
  }

  /// The operand at every point of all labels.
  Array spread(const Array& operand, const Labels& labels) const {
    Array out = Array::zeros(shape_of(all_));
    for_each_key(Box::below(out.shape), [&](const Key& point) { out.at(point) = operand.at(this->at(point, labels)); });
    return out;
  }

  Array aggregated(const Array& joined) const {
    if (kept_.size() == all_.size()) return joined;
    Array out = Array::zeros(shape_of(kept_));
    const auto identity = kernels::table::row_of(op_.aggregate).facts.identity;
    std::vector<bool> begun(out.values.size(), identity.has_value());
    std::fill(out.values.begin(), out.values.end(), identity.value_or(0));
    for_each_key(Box::below(joined.shape), [&](const Key& point) {
      double& total = out.at(at(point, kept_));
      const size_t number = static_cast<size_t>(&total - out.values.data());
      const double value = joined.at(point);
      total = begun[number] ? kernels::reference::run(op_.aggregate, {{{}, {total}}, {{}, {value}}}, scalars_).values[0]
                            : value;
      begun[number] = true;
    });
    return out;
  }

  /// With a label that the result repeats, the diagonal, and zeros beside it.
  Array placed(const Array& value) const {
    Array out = Array::zeros(shape_of(op_.result));
    for_each_key(Box::below(value.shape), [&](const Key& point) {
      Key index;
      for (const std::string& label : op_.result) index.push_back(point[axis_of(kept_, label)]);
      out.at(index) = value.at(point);
    });
    return out;
  }

  const Einsum& op_;
  const Scalars& scalars_;
  Labels kept_;
  Labels all_;
  Extents extents_;
};

}  // namespace

std::map<std::string, Array> interpret(const Plan& plan, const std::map<std::string, Array>& inputs,
                                       const Scalars& scalars) {
  const auto compute = [&](const Node& node, const std::vector<const Array*>& operands) {
    if (const auto* input = node.as<Input>()) {
      const Array& array = interpreted_input(input->name, inputs);
      JOINSUM_USER_CHECK(array.shape == node.type().extents,
                         "interpret: input does not fit its type: name=", input->name, ", shape=", array.shape,
                         ", type=", node.type().text());
      return array;
    }
    if (const auto* call = node.as<Call>()) kernels::call::fail_to_interpret(*call);
    Array result = Definition(*node.as<Einsum>(), types_of<Node>(node.inputs()), scalars).run(operands);
    JOINSUM_CHECK(result.shape == node.type().extents, "shape=", result.shape, ", type=", node.type().text());
    return result;
  };
  return evaluated<Array>(plan, compute);
}

}  // namespace joinsum::einsum
