#include "sparse/program/join.h"

#include <algorithm>
#include <map>
#include <optional>

#include "kernels/expression/expression.h"

namespace joinsum::sparse::program {
namespace {

using joinsum::kernels::expression::Function;
using Scalar = joinsum::kernels::expression::Expression;
using enum Operator;

const std::map<std::string, Operator>& binary_kernels() {
  static const std::map<std::string, Operator> table = {
      {"mul", kMultiply}, {"add", kAdd},   {"sub", kSubtract}, {"div", kDivide},         {"max", kMax},
      {"min", kMin},      {"pow", kPower}, {"equal", kEqual},  {"logaddexp", kLogAddExp}};
  return table;
}

const std::map<std::string, Operator>& unary_kernels() {
  static const std::map<std::string, Operator> table = {{"exp", kExp},         {"log", kLog},   {"sqrt", kSqrt},
                                                        {"sigmoid", kSigmoid}, {"relu", kRelu}, {"negate", kNegate},
                                                        {"square", kSquare},   {"abs", kAbs}};
  return table;
}

std::string trimmed(const std::string& text) {
  const size_t begin = text.find_first_not_of(" \t"), end = text.find_last_not_of(" \t");
  return begin == std::string::npos ? "" : text.substr(begin, end - begin + 1);
}

/// The value of a kernel of one operand; nothing where there is none of that name.
ExpressionPtr of_one(const std::string& kernel, const ExpressionPtr& operand) {
  if (kernel == "id") return operand;
  const auto found = unary_kernels().find(kernel);
  return found == unary_kernels().end() ? nullptr : make_map(found->second, {operand});
}

ExpressionPtr of_two(const std::string& kernel, const ExpressionPtr& a, const ExpressionPtr& b, DType dtype) {
  // Differences below zero would wrap around.
  if (kernel == "abs_difference" && dtype == DType::kUInt8) {
    return make_map(kSubtract, {make_map(kMax, {a, b}), make_map(kMin, {a, b})});
  }
  if (kernel == "squared_difference") return make_map(kSquare, {make_map(kSubtract, {a, b})});
  if (kernel == "abs_difference") return make_map(kAbs, {make_map(kSubtract, {a, b})});
  const auto found = binary_kernels().find(kernel);
  return found == binary_kernels().end() ? nullptr : make_map(found->second, {a, b});
}

/// Raises PlanError for a kernel of one operand that is given several, and the other way round.
void check_count(const std::string& kernel, size_t operands) {
  const bool takes_one = unary_kernels().contains(kernel);
  const bool takes_two = binary_kernels().contains(kernel) || kernel.ends_with("_difference");
  const bool wrong = operands == 1 ? takes_two && kernel != "mul" : takes_one;
  JOINSUM_USER_CHECK(!wrong, "einsum: the join has another number of operands: join=", kernel,
                     ", takes=", takes_one ? 1 : 2, ", given=", operands);
}

ExpressionPtr of_kernel(const std::string& kernel, const std::vector<ExpressionPtr>& operands, DType dtype) {
  check_count(kernel, operands.size());
  if (operands.size() == 1) return of_one(kernel == "mul" ? "id" : kernel, operands.front());
  ExpressionPtr value = operands.front();
  for (size_t i = 1; i < operands.size() && value != nullptr; ++i) value = of_two(kernel, value, operands[i], dtype);
  return value;
}

[[noreturn]] void refuse(const std::string& what) {
  std::string maps;
  for (const auto& [name, op] : unary_kernels()) maps += (maps.empty() ? "" : ", ") + name;
  throw PlanError(
      "einsum: sparse operands cannot be joined by " + what +
      "; there are mul, add, sub, div, max, min, pow, equal, logaddexp, squared_difference, abs_difference, the maps " +
      maps + ", comparisons such as x0>=x1, and expressions of these; or make the operands dense with to_dense()");
}

/// Whether a text is one word, and not the name of an operand.
bool is_name(const std::string& text) {
  const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  const auto is_part = [&](char c) {
    return is_digit(c) || c == '_' || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
  };
  if (text.empty() || is_digit(text[0]) || !std::ranges::all_of(text, is_part)) return false;
  const bool numbered = text.size() > 1 && text[0] == 'x' && std::ranges::all_of(text.substr(1), is_digit);
  return !numbered && text != "x" && text != "y" && text != "z";
}

std::optional<Operator> operator_of(Function function) {
  switch (function) {
    case Function::kAdd:
      return kAdd;
    case Function::kSubtract:
      return kSubtract;
    case Function::kMultiply:
      return kMultiply;
    case Function::kDivide:
      return kDivide;
    case Function::kNegate:
      return kNegate;
    case Function::kPower:
      return kPower;
    case Function::kExp:
      return kExp;
    case Function::kLog:
      return kLog;
    case Function::kSqrt:
      return kSqrt;
    case Function::kSigmoid:
      return kSigmoid;
    case Function::kEqual:
      return kEqual;
    case Function::kGreater:
    case Function::kLess:
      return kGreater;
    default:
      return {};
  }
}

ExpressionPtr of_scalar(const Scalar& scalar, const std::vector<ExpressionPtr>& operands) {
  if (scalar.function == Function::kNumber) return make_literal(scalar.number);
  if (scalar.function == Function::kOperand) return operands[scalar.operand];
  std::vector<ExpressionPtr> arguments;
  for (const Scalar& argument : scalar.arguments) arguments.push_back(of_scalar(argument, operands));
  if (scalar.function == Function::kLess || scalar.function == Function::kLessEqual) {
    std::swap(arguments[0], arguments[1]);
  }
  switch (scalar.function) {
    case Function::kLessEqual:
    case Function::kGreaterEqual:
      return make_map(kMax, {make_map(kGreater, arguments), make_map(kEqual, arguments)});
    case Function::kNotEqual:
      return make_map(kEqual, {make_map(kEqual, arguments), make_literal(0)});
    default:
      break;
  }
  const auto op = operator_of(scalar.function);
  if (!op) refuse(scalar.text());
  return make_map(*op, std::move(arguments));
}

}  // namespace

ExpressionPtr joined(const std::string& join, const std::vector<ExpressionPtr>& operands, DType dtype) {
  const size_t bar = join.find('|');
  if (ExpressionPtr value = of_kernel(trimmed(join.substr(0, bar)), operands, dtype)) {
    if (bar == std::string::npos) return value;
    return joined(join.substr(bar + 1), {value}, dtype);
  }
  if (bar != std::string::npos || is_name(trimmed(join))) refuse(join);
  return of_scalar(Scalar::parse(join, static_cast<int64_t>(operands.size())), operands);
}

Operator aggregate_named(const std::string& aggregation) {
  static const std::map<std::string, Operator> table = {
      {"sum", kAdd}, {"prod", kMultiply},      {"max", kMax}, {"min", kMin}, {"any", kOr},
      {"all", kAnd}, {"logsumexp", kLogAddExp}};
  const auto found = table.find(aggregation);
  JOINSUM_USER_CHECK(found != table.end(), "einsum: sparse operands cannot be reduced by agg='", aggregation,
                     "'; there are sum, prod, max, min, logsumexp, any and all; or make them dense with to_dense()");
  return found->second;
}

}  // namespace joinsum::sparse::program
