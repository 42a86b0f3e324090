#include "sparse/kernels/generated_text.h"

#include <array>
#include <cmath>
#include <cstdio>
#include <limits>

#include "sparse/kernels/nest/arithmetic.h"
#include "sparse/kernels/prepared.h"

namespace joinsum::sparse::kernels {
namespace {

std::string float_text(double value) {
  if (std::isnan(value)) return "__builtin_nan(\"\")";
  if (std::isinf(value)) return value > 0 ? "__builtin_inf()" : "-__builtin_inf()";
  std::array<char, 64> text{};
  const int length = std::snprintf(text.data(), text.size(), "%a", value);
  return std::string(text.data(), length);
}

template <class T>
std::string literal_text(T value) {
  if constexpr (std::is_same_v<T, bool>) return value ? "true" : "false";
  if constexpr (std::is_floating_point_v<T>) {
    const std::string text = float_text(static_cast<double>(value));
    return std::is_same_v<T, float> ? "float(" + text + ")" : text;
  }
  if (std::is_same_v<T, int64_t> && value == std::numeric_limits<T>::min()) return "INT64_MIN";
  return std::to_string(static_cast<int64_t>(value)) + (std::is_same_v<T, int64_t> ? "ll" : "");
}

/// The operator's function in the preamble, of one child.
std::string unary_name(Operator op) {
  using enum Operator;
  switch (op) {
    case kAnd:
    case kOr:
      return "truth";
    case kExp:
      return "exponential";
    case kNegate:
      return "negated";
    case kSquare:
      return "square";
    case kSqrt:
      return "square_root";
    case kSigmoid:
      return "sigmoid";
    case kRelu:
      return "positive_part";
    case kAbs:
      return "absolute";
    case kLog:
      return "logarithm";
    default:
      return "same";
  }
}

std::string binary_name(Operator op) {
  using enum Operator;
  switch (op) {
    case kAdd:
      return "add";
    case kMultiply:
      return "multiply";
    case kSubtract:
      return "subtract";
    case kDivide:
      return "divide";
    case kMin:
      return "smaller";
    case kMax:
      return "larger";
    case kAnd:
      return "both";
    case kOr:
      return "either";
    case kEqual:
      return "equal";
    case kGreater:
      return "greater";
    case kLogAddExp:
      return "log_add_exp";
    default:
      return "power";
  }
}

}  // namespace

std::string generated_type(DType dtype) {
  switch (dtype) {
    case DType::kFloat32:
      return "float";
    case DType::kInt32:
      return "int32_t";
    case DType::kInt64:
      return "int64_t";
    case DType::kUInt8:
      return "uint8_t";
    case DType::kBool:
      return "bool";
    default:
      return "double";
  }
}

std::string generated_literal(DType dtype, double value) {
  return with_arithmetic(dtype, [&](auto zero) { return literal_text(nest::value_of<decltype(zero)>(value)); });
}

std::string generated_identity(DType dtype, Operator op) { return generated_literal(dtype, identity_of(op)); }

std::string generated_apply(Operator op, const std::string& a) { return unary_name(op) + "(" + a + ")"; }

std::string generated_apply(Operator op, const std::string& a, const std::string& b) {
  return binary_name(op) + "(" + a + ", " + b + ")";
}

bool counts_visits(const Kernel& kernel, DType dtype) {
  if (!kernel.aggregate) return false;
  return with_arithmetic(dtype, [&](auto zero) {
    using T = decltype(zero);
    return !(nest::value_of<T>(kernel.body_fill) == nest::identity_in<T>(*kernel.aggregate));
  });
}

}  // namespace joinsum::sparse::kernels
