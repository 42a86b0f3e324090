#include <algorithm>

#include <ATen/ATen.h>

#include "kernels/dense/loops.h"
#include "kernels/table/expression_kernel.h"

namespace joinsum::kernels::dense {

using expression::compares;
using expression::Expression;
using expression::Function;
using table::expression_of;
using table::Kernel;

namespace {

constexpr int64_t kBlock = 1 << 16;
constexpr int64_t kDeviceBlock = 1 << 24;

/// An expression on tensors of one dtype, one operation after the other.
class Evaluation {
 public:
  explicit Evaluation(const std::vector<at::Tensor>& operands) : operands_(operands) {}

  at::Tensor of(const Expression& e) const {
    if (e.function == Function::kOperand) return operands_[static_cast<size_t>(e.operand)];
    const at::TensorOptions options = operands_[0].options();
    if (e.function == Function::kNumber) return at::scalar_tensor(scalar(e.number), options);
    if (compares(e.function)) return truth(e).to(options.dtype());
    if (e.function == Function::kWhere) return at::where(truth(e.arguments[0]), of(e.arguments[1]), of(e.arguments[2]));
    const at::Tensor a = of(e.arguments[0]);
    return e.arguments.size() == 1 ? unary(e.function, a) : binary(e.function, a, of(e.arguments[1]));
  }

 private:
  at::Scalar scalar(double number) const {
    if (!at::isIntegralType(operands_[0].scalar_type(), false)) return number;
    return static_cast<int64_t>(number);
  }

  /// Where an expression is not 0.
  at::Tensor truth(const Expression& e) const {
    if (!compares(e.function)) return of(e).ne(0);
    const at::Tensor a = of(e.arguments[0]), b = of(e.arguments[1]);
    switch (e.function) {
      case Function::kLess:
        return a.lt(b);
      case Function::kLessEqual:
        return a.le(b);
      case Function::kGreater:
        return a.gt(b);
      case Function::kGreaterEqual:
        return a.ge(b);
      case Function::kEqual:
        return a.eq(b);
      default:
        return a.ne(b);
    }
  }

  static at::Tensor unary(Function function, const at::Tensor& a) {
    switch (function) {
      case Function::kNegate:
        return a.neg();
      case Function::kExp:
        return a.exp();
      case Function::kLog:
        return a.log();
      case Function::kSqrt:
        return a.sqrt();
      case Function::kTanh:
        return a.tanh();
      case Function::kSigmoid:
        return a.sigmoid();
      default:
        JOINSUM_CHECK(false, "function=", static_cast<int>(function));
    }
  }

  static at::Tensor binary(Function function, const at::Tensor& a, const at::Tensor& b) {
    switch (function) {
      case Function::kAdd:
        return a.add(b);
      case Function::kSubtract:
        return a.sub(b);
      case Function::kMultiply:
        return a.mul(b);
      case Function::kDivide:
        return a.div(b);
      case Function::kPower:
        return a.pow(b);
      default:
        JOINSUM_CHECK(false, "function=", static_cast<int>(function));
    }
  }

  const std::vector<at::Tensor>& operands_;
};

/// Halves the longest axis until a part has few elements; each part is written when it is worked out.
void by_blocks(const Expression& e, const std::vector<at::Tensor>& operands, const at::Tensor& out) {
  const auto widest = std::max_element(out.sizes().begin(), out.sizes().end());
  if (out.dim() == 0 || out.numel() <= block_elements(out) || *widest == 1) {
    out.copy_(Evaluation(operands).of(e));
    return;
  }
  const int64_t axis = widest - out.sizes().begin();
  const int64_t extent = *widest, half = extent / 2;
  for (const auto& [start, length] : {std::pair(int64_t{0}, half), std::pair(half, extent - half)}) {
    std::vector<at::Tensor> parts;
    for (const at::Tensor& operand : operands) parts.push_back(operand.narrow(axis, start, length));
    by_blocks(e, parts, out.narrow(axis, start, length));
  }
}

}  // namespace

int64_t block_elements(const at::Tensor& tensor) { return tensor.is_cpu() ? kBlock : kDeviceBlock; }

void expression(const Kernel& kernel, const std::vector<at::Tensor>& operands, at::Tensor& out) {
  std::vector<at::Tensor> spread;
  for (const at::Tensor& operand : operands) spread.push_back(operand.expand(out.sizes()));
  by_blocks(expression_of(kernel), spread, out);
}

}  // namespace joinsum::kernels::dense
