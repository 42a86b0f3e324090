#include "kernels/table/expression_kernel.h"

#include <map>

#include "base/check.h"

namespace joinsum::kernels::table {

using expression::Expression;
using expression::Function;

bool is_expression(const Kernel& kernel) { return kernel.name == "expression"; }

Expression expression_of(const Kernel& kernel) {
  if (is_expression(kernel)) return Expression::parse(kernel.label(1), kernel.integer(0));
  const std::string& label = kernel.label(0);
  const size_t colon = label.find(':');
  JOINSUM_KERNEL_CHECK(colon != std::string::npos, kernel.name,
                       ": labels and an expression, as in ij,jk->ik:exp(x0-x1): given=", label);
  return Expression::parse(label.substr(colon + 1), 2);
}

Kernel expression_kernel(const Expression& expression, int64_t operands) {
  const auto& arguments = expression.arguments;
  bool in_order = static_cast<int64_t>(arguments.size()) == operands;
  for (size_t i = 0; i < arguments.size(); ++i) {
    in_order = in_order && arguments[i] == Expression::of_operand(static_cast<int64_t>(i));
  }
  if (operands == 1 && expression == Expression::of_operand(0)) return {"id", {}};
  if (in_order) {
    static const std::map<Function, std::string> named{
        {Function::kAdd, "add"},    {Function::kSubtract, "sub"},   {Function::kMultiply, "mul"},
        {Function::kDivide, "div"}, {Function::kEqual, "equal"},    {Function::kNegate, "negate"},
        {Function::kExp, "exp"},    {Function::kLog, "log"},        {Function::kSqrt, "sqrt"},
        {Function::kTanh, "tanh"},  {Function::kSigmoid, "sigmoid"}};
    if (const auto found = named.find(expression.function); found != named.end()) return {found->second, {}};
  }
  return {"expression", {operands, expression.text()}};
}

}  // namespace joinsum::kernels::table
