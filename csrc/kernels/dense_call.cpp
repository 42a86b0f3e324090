#include "kernels/dense_call.h"

#include <algorithm>

#include <ATen/ScalarOps.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/GradMode.h>

#include "kernels/dense.h"

namespace joinsum::kernels {
namespace {

using Kind = CallArgument::Kind;

/// One run of a call on a part of its work.
class DenseCall {
 public:
  DenseCall(const Call& call, const std::vector<at::Tensor>& operands, const std::map<char, int64_t>& begins)
      : call_(call), operands_(operands), begins_(begins), operator_(found(call.function)) {
    for (size_t i = 0; i < operands.size(); ++i) {
      for (size_t a = 0; a < call.operands[i].size(); ++a)
        extents_[call.operands[i][a]] = operands[i].size(static_cast<int64_t>(a));
    }
    for (const auto& [letter, fresh] : call.extents) extents_[letter] = fresh.extent;
  }

  std::vector<at::Tensor> run() const {
    torch::jit::Stack stack = arguments();
    const c10::NoGradGuard no_grad;
    try {
      operator_.callBoxed(stack);
    } catch (const c10::Error& error) {
      throw KernelError(concatenate("call: torch's operator fails: operator=", call_.function,
                                    ", error=", error.what_without_backtrace(), ", call=", call_.text()));
    }
    std::vector<at::Tensor> given;
    for (const c10::IValue& value : stack) take(value, given);
    JOINSUM_KERNEL_CHECK(given.size() >= call_.results.size(),
                         "call: torch's operator gives fewer tensors: operator=", call_.function,
                         ", given=", given.size(), ", call=", call_.text());
    std::vector<at::Tensor> out;
    for (size_t i = 0; i < call_.results.size(); ++i) out.push_back(lettered(call_.results[i], given[i]));
    return out;
  }

 private:
  template <class... Parts>
  void check(bool condition, const Parts&... parts) const {
    JOINSUM_KERNEL_CHECK(condition, "call: ", parts..., ", operator=", call_.function, ", call=", call_.text());
  }

  static c10::OperatorHandle found(const std::string& function) {
    const size_t dot = function.find('.', function.find("::"));
    const c10::OperatorName name(function.substr(0, dot), dot == std::string::npos ? "" : function.substr(dot + 1));
    auto schema = c10::Dispatcher::singleton().findSchema(name);
    JOINSUM_KERNEL_CHECK(schema.has_value(), "call: torch has no such operator: operator=", function);
    return *schema;
  }

  int64_t elements(const std::string& letters) const {
    int64_t out = 1;
    for (const char letter : letters) out *= extents_.at(letter);
    return out;
  }

  Dims shape(const std::vector<std::string>& groups) const {
    Dims out;
    for (const std::string& group : groups) out.push_back(elements(group));
    return out;
  }

  /// The order that takes axes `from` to axes `to`.
  static Dims order(const std::string& from, const std::string& to) {
    Dims out;
    for (const char letter : to) out.push_back(static_cast<int64_t>(from.find(letter)));
    return out;
  }

  static std::string all(const std::vector<std::string>& groups) {
    std::string out;
    for (const std::string& group : groups) out += group;
    return out;
  }

  /// Contiguous: some operators of torch's read their operands as if they were.
  at::Tensor operand(const CallArgument& argument) const {
    const at::Tensor& block = operands_[argument.integer];
    const std::string& letters = call_.operands[argument.integer];
    return block.permute(order(letters, all(argument.groups))).reshape(shape(argument.groups)).contiguous();
  }

  at::Tensor lettered(const CallResult& result, const at::Tensor& given) const {
    const Dims expected = shape(result.groups);
    check(given.sizes() == at::IntArrayRef(expected), "a result has another shape: shape=", given.sizes().vec(),
          ", expected=", expected);
    check(given.scalar_type() == scalar_type(result.dtype),
          "a result has another dtype: dtype=", c10::toString(given.scalar_type()),
          ", expected=", name_of(result.dtype));
    const std::string letters = all(result.groups);
    Dims apart;
    for (const char letter : letters) apart.push_back(extents_.at(letter));
    return given.reshape(apart).permute(order(letters, result.letters)).contiguous();
  }

  static void take(const c10::IValue& value, std::vector<at::Tensor>& out) {
    if (value.isTensor()) {
      if (value.toTensor().defined()) out.push_back(value.toTensor());
    } else if (value.isTensorList()) {
      for (const at::Tensor& each : value.toTensorVector()) out.push_back(each);
    }
  }

  // --- arguments -----------------------------------------------------------------------------------------------------

  torch::jit::Stack arguments() const {
    const c10::FunctionSchema& schema = operator_.schema();
    torch::jit::Stack stack;
    size_t taken = 0;
    for (size_t i = 0; i < schema.arguments().size(); ++i) {
      const c10::Argument& wanted = schema.arguments()[i];
      const CallArgument* given = argument_for(wanted, i);
      if (given != nullptr) {
        ++taken;
        stack.push_back(value(*given, *wanted.type(), wanted.name()));
      } else {
        check(wanted.default_value().has_value(), "an argument is missing: argument=", wanted.name());
        stack.push_back(*wanted.default_value());
      }
    }
    check(taken == call_.arguments.size(), "arguments that the operator does not take: taken=", taken,
          ", given=", call_.arguments.size());
    return stack;
  }

  /// By place, then by name.
  const CallArgument* argument_for(const c10::Argument& wanted, size_t place) const {
    const auto& given = call_.arguments;
    if (place < given.size() && given[place].name.empty()) return &given[place];
    const auto at =
        std::find_if(given.begin(), given.end(), [&](const auto& each) { return each.name == wanted.name(); });
    return at == given.end() ? nullptr : &*at;
  }

  c10::IValue value(const CallArgument& given, const c10::Type& type, const std::string& name) const {
    if (const auto* optional = type.castRaw<c10::OptionalType>()) {
      return given.kind == Kind::kNone ? c10::IValue() : value(given, *optional->getElementType(), name);
    }
    switch (given.kind) {
      case Kind::kNone:
        break;
      case Kind::kBool:
        return number(c10::Scalar(given.integer != 0), type);
      case Kind::kInteger:
        return number(c10::Scalar(given.integer), type);
      case Kind::kNumber:
        return number(c10::Scalar(given.number), type);
      case Kind::kText:
        return type.kind() == c10::TypeKind::DeviceObjType ? c10::IValue(c10::Device(given.text))
                                                           : c10::IValue(given.text);
      case Kind::kDType:
        return static_cast<int64_t>(scalar_type(*dtype_from_name(given.text)));
      case Kind::kOperand:
        return operand(given);
      case Kind::kExtent:
        return number(c10::Scalar(elements(given.text)), type);
      case Kind::kOffset:
        return number(c10::Scalar(begins_.at(given.text[0])), type);
      case Kind::kList:
        return list(given, type, name);
    }
    check(false, "an argument does not fit: argument=", name, ", given=", given.print(), ", type=", type.repr_str());
    return {};
  }

  /// Where a tensor is wanted, a number is one that takes the others' dtype, as in torch's Python calls.
  static c10::IValue number(const c10::Scalar& value, const c10::Type& type) {
    if (type.kind() == c10::TypeKind::FloatType) return value.toDouble();
    if (type.kind() != c10::TypeKind::TensorType) return value;
    at::Tensor out = c10::scalar_to_tensor(value);
    out.unsafeGetTensorImpl()->set_wrapped_number(true);
    return out;
  }

  c10::IValue list(const CallArgument& given, const c10::Type& type, const std::string& name) const {
    const auto* listed = type.castRaw<c10::ListType>();
    check(listed != nullptr, "a list does not fit: argument=", name, ", type=", type.repr_str());
    c10::impl::GenericList out(listed->getElementType());
    for (const CallArgument& item : given.items) out.push_back(value(item, *listed->getElementType(), name));
    return c10::IValue(out);
  }

  const Call& call_;
  const std::vector<at::Tensor>& operands_;
  const std::map<char, int64_t>& begins_;
  c10::OperatorHandle operator_;
  std::map<char, int64_t> extents_;
};

}  // namespace

std::vector<at::Tensor> dense_call(const Call& call, const std::vector<at::Tensor>& operands,
                                   const std::map<char, int64_t>& begins) {
  return DenseCall(call, operands, begins).run();
}

}  // namespace joinsum::kernels
