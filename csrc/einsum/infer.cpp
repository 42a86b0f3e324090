#include "einsum/infer.h"

#include "kernels/table/table.h"

namespace joinsum::einsum {
namespace {

void check_aggregate(const Kernel& aggregate) {
  JOINSUM_USER_CHECK(
      kernels::table::row_of(aggregate).form == kernels::table::Form::kElementwise &&
          kernels::table::reduces_in_any_order(aggregate),
      "einsum: an aggregation is an elementwise kernel, associative and commutative: aggregate=", aggregate.text());
}

/// The dtype that the joined operands have.
DType joined_dtype(const Einsum& op, const std::vector<TensorType>& inputs) {
  if (kernels::table::operands_of(op.join) == static_cast<int64_t>(inputs.size())) {
    std::vector<DType> dtypes;
    for (const TensorType& input : inputs) dtypes.push_back(input.dtype);
    return kernels::table::result_dtype(op.join, dtypes);
  }
  DType dtype = inputs[0].dtype;
  for (size_t i = 1; i < inputs.size(); ++i) {
    const Kernel join = i + 1 == inputs.size() ? op.join : op.join.first();
    dtype = kernels::table::result_dtype(join, {dtype, inputs[i].dtype});
  }
  return dtype;
}

TensorType infer_einsum(const Einsum& op, const std::vector<TensorType>& inputs) {
  JOINSUM_USER_CHECK(!inputs.empty(), "einsum: at least one operand");
  JOINSUM_USER_CHECK(inputs.size() == op.operands.size(),
                     "einsum: labels for another number of operands: labels=", op.operands.size(),
                     ", operands=", inputs.size());
  check_join(op.join, inputs.size());
  check_aggregate(op.aggregate);
  const Extents extents = extents_of(op, inputs);
  TensorType type;
  type.dtype = joined_dtype(op, inputs);
  const Labels gone = without(labels_of(op.operands), op.result);
  if (!gone.empty()) {
    const DType aggregated = kernels::table::result_dtype(op.aggregate, {type.dtype, type.dtype});
    JOINSUM_USER_CHECK(aggregated == type.dtype,
                       "einsum: an aggregation keeps the dtype: aggregate=", op.aggregate.text(),
                       ", dtype=", name_of(type.dtype), ", result=", name_of(aggregated));
  }
  for (const std::string& label : gone) {
    JOINSUM_USER_CHECK(extents.at(label) > 0 || kernels::table::row_of(op.aggregate).facts.identity,
                       "einsum: no value for an aggregation of nothing: aggregate=", op.aggregate.text(),
                       ", label=", label);
  }
  for (const std::string& label : op.result) type.extents.push_back(extents.at(label));
  checked_product("einsum", type.extents);
  return type;
}

TensorType infer_call(const Call& call, const std::vector<TensorType>& inputs) {
  JOINSUM_USER_CHECK(!inputs.empty(), "call: at least one operand: call=", call.text());
  std::vector<Dims> shapes;
  for (const TensorType& input : inputs) shapes.push_back(input.extents);
  const auto extents = kernels::call::extents_of(call, shapes);
  TensorType type{call.result().dtype, {}};
  for (const char letter : call.result().letters) type.extents.push_back(extents.at(letter));
  checked_product("call", type.extents);
  type.entries = call.result().entries;
  return type;
}

}  // namespace

void check_join(const Kernel& join, size_t operands) {
  const kernels::table::Row& row = kernels::table::row_of(join);
  JOINSUM_USER_CHECK(row.form == kernels::table::Form::kElementwise,
                     "einsum: a join is an elementwise kernel: join=", join.text());
  const int64_t takes = kernels::table::operands_of(join);
  // Two at a time, or all at once.
  const bool fits = takes == static_cast<int64_t>(operands) || (takes == 2 && operands > 2 && row.operands == 2);
  JOINSUM_USER_CHECK(fits, "einsum: the join has another number of operands: join=", join.text(), ", takes=", takes,
                     ", given=", operands);
  for (const Kernel& next : join.epilogue) {
    JOINSUM_USER_CHECK(kernels::table::row_of(next).form == kernels::table::Form::kElementwise,
                       "einsum: a join is an elementwise kernel: join=", join.text());
  }
}

TensorType infer(const Operation& operation, const std::vector<TensorType>& inputs) {
  if (const auto* call = std::get_if<Call>(&operation)) return infer_call(*call, inputs);
  const auto* op = std::get_if<Einsum>(&operation);
  JOINSUM_USER_CHECK(op != nullptr,
                     "input: the type of an input is given, not inferred: name=", std::get<Input>(operation).name);
  return infer_einsum(*op, inputs);
}

}  // namespace joinsum::einsum
