#include "kernels/dense/dense.h"

#include <array>
#include <atomic>
#include <mutex>
#include <set>
#include <unordered_map>

#include <c10/core/GradMode.h>

#include "kernels/dense/letters.h"
#include "kernels/dense/loops.h"
#include "kernels/table/rows.h"

namespace joinsum::kernels::dense {

using table::all_rows;
using table::Form;
using table::inserted_extent;
using table::Kernel;
using table::result_dtype;
using table::result_shape;
using table::Row;
using table::row_of;
using table::Scalars;
using table::Subscripts;

namespace {

using Tensors = std::vector<at::Tensor>;

std::atomic<int64_t> calls{0};

/// Functions of user kernels by name.
class UserFunctions {
 public:
  static UserFunctions& instance() {
    static UserFunctions functions;
    return functions;
  }

  void set(const std::string& name, DenseFunction function) {
    const std::lock_guard lock(mutex_);
    if (function) {
      functions_[name] = std::move(function);
    } else {
      functions_.erase(name);
    }
  }

  DenseFunction get(const std::string& name) const {
    const std::lock_guard lock(mutex_);
    const auto found = functions_.find(name);
    JOINSUM_KERNEL_CHECK(found != functions_.end(), name, ": user's kernel without a function: name=", name);
    return found->second;
  }

 private:
  mutable std::mutex mutex_;
  std::unordered_map<std::string, DenseFunction> functions_;
};

constexpr std::array<at::ScalarType, 12> kScalarTypes{at::kBool,  at::kByte,   at::kChar,         at::kShort,
                                                      at::kInt,   at::kLong,   at::kHalf,         at::kBFloat16,
                                                      at::kFloat, at::kDouble, at::kComplexFloat, at::kComplexDouble};

/// One call of `dense`, checked.
struct Call {
  const Kernel& kernel;
  const Row& row;
  const Tensors& operands;
  const Scalars& scalars;
  int64_t batch;
  int64_t output;
  Dims batch_shape;  ///< broadcast
  Dims shape;        ///< of the result, without the batch axes
  at::ScalarType type;
};

Dims tail(const at::Tensor& tensor, int64_t batch) { return tensor.sizes().slice(static_cast<size_t>(batch)).vec(); }

Dims joined(const Dims& batch_shape, const Dims& shape) {
  Dims out = batch_shape;
  out.insert(out.end(), shape.begin(), shape.end());
  return out;
}

Dims batch_shape_of(const Kernel& kernel, const Tensors& operands, int64_t batch) {
  Dims out(static_cast<size_t>(batch), 1);
  for (const at::Tensor& operand : operands) {
    JOINSUM_KERNEL_CHECK(operand.defined() && batch >= 0 && operand.dim() >= batch, kernel.name,
                         ": operand lacks the batch axes: batch=", batch,
                         ", rank=", operand.defined() ? operand.dim() : -1);
    for (int64_t d = 0; d < batch; ++d) {
      const int64_t extent = operand.size(d);
      JOINSUM_KERNEL_CHECK(extent == out[d] || extent == 1 || out[d] == 1, kernel.name,
                           ": extents of a batch axis differ: axis=", d, ", extents=", out[d], " and ", extent);
      if (out[d] == 1) out[d] = extent;
    }
  }
  return out;
}

Call checked_call(const Kernel& kernel, const Tensors& operands, const Scalars& scalars, int64_t batch,
                  int64_t output) {
  const Row& row = row_of(kernel);
  const Dims batch_shape = batch_shape_of(kernel, operands, batch);
  std::vector<DType> dtypes;
  std::vector<Dims> shapes;
  for (const at::Tensor& operand : operands) {
    dtypes.push_back(dtype_of(operand.scalar_type()));
    shapes.push_back(tail(operand, batch));
    JOINSUM_KERNEL_CHECK(operand.device() == operands[0].device(), kernel.name,
                         ": operands lie on several devices: devices=", operands[0].device(), " and ",
                         operand.device());
  }
  const at::ScalarType type = scalar_type(result_dtype(kernel, dtypes));
  return {kernel, row, operands, scalars, batch, output, batch_shape, result_shape(row, kernel, shapes, output), type};
}

/// Gives all operands one rank: new axes of extent 1 come after the batch axes.
Tensors aligned(const Call& call) {
  int64_t rank = 0;
  for (const at::Tensor& operand : call.operands) rank = std::max(rank, operand.dim());
  Tensors out;
  for (const at::Tensor& operand : call.operands) {
    out.push_back(operand);
    while (out.back().dim() < rank) out.back() = out.back().unsqueeze(call.batch);
  }
  return out;
}

void check_result(const Call& call, const at::Tensor& result, const Dims& shape) {
  JOINSUM_KERNEL_CHECK(result.defined() && shape_of(result) == shape && result.scalar_type() == call.type,
                       call.kernel.name, ": result does not fit: wanted shape=", shape,
                       ", dtype=", at::toString(call.type),
                       ", given shape=", result.defined() ? shape_of(result) : Dims{},
                       ", dtype=", result.defined() ? at::toString(result.scalar_type()) : "none");
}

at::Tensor run_elementwise(const Call& call, at::Tensor out) {
  const Tensors operands = aligned(call);
  const Dims shape = joined(call.batch_shape, call.shape);
  if (out.defined()) check_result(call, out, shape);
  if (call.row.user) {
    const at::Tensor result = UserFunctions::instance().get(call.kernel.name)(call.kernel, operands, call.scalars);
    check_result(call, result, shape);
    return out.defined() ? out.copy_(result) : result;
  }
  const at::Tensor& first = operands[0];
  if (!out.defined()) {
    if (call.kernel.name == "id") return first;
    const auto options = first.options().dtype(call.type);
    out = shape_of(first) == shape ? at::empty_like(first, options) : at::empty(shape, options);
  }
  elementwise(call.kernel, operands, call.scalars, out);
  return out;
}

/// Names the batch axes. An operand that is broadcast along one loses it: its letters are then rows or columns.
at::Tensor run_contraction(const Call& call) {
  Subscripts labels = call.row.labels(call.kernel);
  Tensors operands = call.operands;
  const std::string free = unused_letters(labels.text());
  JOINSUM_KERNEL_CHECK(static_cast<int64_t>(free.size()) >= call.batch, call.kernel.name,
                       ": no letters are left for the batch axes: kernel=", call.kernel.text());
  const std::string batch = free.substr(0, static_cast<size_t>(call.batch));
  for (size_t i = 0; i < operands.size(); ++i) {
    std::string own;
    for (int64_t d = call.batch - 1; d >= 0; --d) {
      if (operands[i].size(d) == call.batch_shape[d]) {
        own.insert(own.begin(), batch[d]);
      } else {
        operands[i] = operands[i].select(d, 0);
      }
    }
    labels.operands[i] = own + labels.operands[i];
  }
  labels.result = batch + labels.result;
  return contract_pair(call.kernel, labels, operands[0], operands[1]);
}

/// Each tuple of the batch by itself, for kernels that know nothing of batches.
at::Tensor run_user(const Call& call) {
  const DenseFunction function = UserFunctions::instance().get(call.kernel.name);
  std::vector<at::Tensor> results;
  for_each_key(Box::below(call.batch_shape), [&](const Key& key) {
    Tensors operands = call.operands;
    for (at::Tensor& operand : operands) {
      for (const int64_t index : key) operand = operand.select(0, operand.size(0) == 1 ? 0 : index);
    }
    results.push_back(function(call.kernel, operands, call.scalars));
    check_result(call, results.back(), call.shape);
  });
  if (call.batch == 0) return results[0];
  const Dims shape = joined(call.batch_shape, call.shape);
  if (results.empty()) return at::empty(shape, call.operands[0].options().dtype(call.type));
  return at::stack(results).view(shape);
}

at::Tensor run_labelled(const Call& call) {
  if (call.row.user) return run_user(call);
  if (call.row.operands == 2) return run_contraction(call);
  return reduce(call.row, call.row.labels(call.kernel), call.operands[0], call.batch);
}

/// A view along whose new axis the elements repeat.
at::Tensor run_insertion(const Call& call) {
  const int64_t axis = call.batch + call.kernel.integer(0);
  const at::Tensor x = call.operands[0].unsqueeze(axis);
  Dims shape = shape_of(x);
  shape[axis] = inserted_extent(call.kernel);
  return x.expand(shape);
}

at::Tensor run_embedding(const Call& call) {
  const at::Tensor& x = call.operands[0];
  const int64_t position = call.batch + call.kernel.integer(0);
  const int64_t axis = call.batch + call.kernel.integer(1);
  at::Tensor out = at::zeros(joined(call.batch_shape, call.shape), x.options());
  out.diagonal(0, axis < position ? axis : axis + 1, position).copy_(x.movedim(axis, -1));
  return out;
}

at::Tensor run_concat(const Call& call) {
  Tensors parts;
  for (const at::Tensor& operand : call.operands) {
    parts.push_back(operand.expand(joined(call.batch_shape, tail(operand, call.batch))));
  }
  return at::cat(parts, call.batch + call.kernel.integer(0));
}

at::Tensor run_form(const Call& call) {
  const at::Tensor& x = call.operands[0];
  switch (call.row.form) {
    case Form::kLabelled:
      return run_labelled(call);
    case Form::kInsertAxis:
      return run_insertion(call);
    case Form::kEmbed:
      return run_embedding(call);
    case Form::kTile: {
      const int64_t axis = call.kernel.integer(0);
      return x.narrow(call.batch + axis, call.output * call.kernel.integer(1), call.shape[axis]);
    }
    case Form::kDuplicate:
      return x;
    case Form::kConcat:
      return run_concat(call);
    case Form::kOpaque:
      return run_user(call);
    case Form::kElementwise:
      break;
  }
  JOINSUM_CHECK(false, "kernel=", call.kernel.text());
}

}  // namespace

at::ScalarType scalar_type(DType dtype) { return kScalarTypes[static_cast<size_t>(dtype)]; }

DType dtype_of(at::ScalarType type) {
  for (size_t i = 0; i < kScalarTypes.size(); ++i) {
    if (kScalarTypes[i] == type) return static_cast<DType>(i);
  }
  throw PlanError(concatenate("dtype: joinsum has no such dtype: dtype=", at::toString(type)));
}

at::Tensor bytes_of(const at::Tensor& array) {
  JOINSUM_CHECK(array.is_contiguous(), "strides=", array.strides().vec());
  return array.as_strided({array.numel()}, {1}).view(at::kByte);
}

at::Tensor run(const Kernel& kernel, const std::vector<at::Tensor>& operands, const Scalars& scalars, int64_t batch,
               int64_t output, at::Tensor out) {
  if (!kernel.epilogue.empty()) {
    JOINSUM_KERNEL_CHECK(!out.defined(), kernel.name,
                         ": a kernel with others after it does not write to `out`: kernel=", kernel.text());
    at::Tensor result = run(kernel.first(), operands, scalars, batch, output);
    for (const Kernel& next : kernel.epilogue) result = run(next, {result}, scalars, batch);
    return result;
  }
  ++calls;
  const c10::NoGradGuard no_grad;
  const Call call = checked_call(kernel, operands, scalars, batch, output);
  if (call.row.form == Form::kElementwise) return run_elementwise(call, std::move(out));
  JOINSUM_KERNEL_CHECK(!out.defined(), kernel.name,
                       ": only an elementwise kernel writes to `out`: kernel=", kernel.text());
  return run_form(call);
}

at::Tensor contract(const Subscripts& labels, const at::Tensor& left, const at::Tensor& right, at::Tensor out,
                    bool accumulate) {
  ++calls;
  const c10::NoGradGuard no_grad;
  return multiply(labels, left, right, std::move(out), accumulate);
}

at::Tensor contract(const Kernel& kernel, const Subscripts& labels, const at::Tensor& left, const at::Tensor& right,
                    at::Tensor out, bool accumulate) {
  ++calls;
  const c10::NoGradGuard no_grad;
  return contract_pair(kernel, labels, left, right, std::move(out), accumulate);
}

bool reduces_axes(const Kernel& kernel) {
  static const std::set<std::string> reductions = [] {
    std::set<std::string> out;
    for (const Row* row : all_rows()) {
      if (!row->reduction.empty()) out.insert(row->reduction);
    }
    return out;
  }();
  return reductions.contains(kernel.name);
}

int64_t kernel_calls() { return calls; }

void reset_kernel_calls() { calls = 0; }

void register_function(const std::string& name, DenseFunction function) {
  UserFunctions::instance().set(name, std::move(function));
}

}  // namespace joinsum::kernels::dense
