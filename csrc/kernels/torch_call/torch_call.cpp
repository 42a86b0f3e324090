#include "kernels/torch_call/torch_call.h"

#include <algorithm>
#include <array>
#include <stdexcept>

#include <ATen/ScalarOps.h>
#include <ATen/core/enum_tag.h>
#include <c10/core/GradMode.h>

#include "kernels/dense/dense.h"

namespace joinsum::kernels::torch_call {

using call::Call;
using call::CallArgument;
using call::CallResult;
using dense::scalar_type;

namespace {

using Kind = CallArgument::Kind;

c10::OperatorName operator_name(const std::string& function) {
  const size_t dot = function.find('.', function.find("::"));
  return {function.substr(0, dot), dot == std::string::npos ? "" : function.substr(dot + 1)};
}

/// Whether an argument is the same on every part of the work.
bool constant(const CallArgument& argument) {
  if (argument.kind == Kind::kOperand || argument.kind == Kind::kExtent || argument.kind == Kind::kOffset) return false;
  return std::all_of(argument.items.begin(), argument.items.end(), constant);
}

/// Whether an operator of joinsum's gives a list of tensors, each of which it can compute over any operand.
bool gives_list(const c10::FunctionSchema& schema) {
  return schema.name().starts_with("joinsum::") && schema.returns().size() == 1 &&
         schema.returns()[0].type()->kind() == c10::TypeKind::ListType;
}

/// Whether `other` takes what `schema` takes and, last, a tensor to write each of its `results` into, or a list of them
/// where the schema gives a list.
bool takes_outputs(const c10::FunctionSchema& other, const c10::FunctionSchema& schema, size_t results) {
  const auto& own = schema.arguments();
  const auto& all = other.arguments();
  const auto same = [](const c10::Argument& a, const c10::Argument& b) {
    return a.name() == b.name() && *a.type() == *b.type() && b.alias_info() == nullptr;
  };
  const bool list = gives_list(schema);
  return all.size() == own.size() + (list ? 1 : results) && std::equal(own.begin(), own.end(), all.begin(), same) &&
         std::all_of(all.begin() + static_cast<int64_t>(own.size()), all.end(), [&](const c10::Argument& argument) {
           return argument.alias_info() != nullptr && argument.alias_info()->isWrite() &&
                  argument.type()->kind() == (list ? c10::TypeKind::ListType : c10::TypeKind::TensorType);
         });
}

/// Overloads by the operator's name; of operators that existed at first use.
const std::vector<c10::OperatorName>& overloads_of(const std::string& name) {
  static const auto* const all = [] {
    auto* names = new std::map<std::string, std::vector<c10::OperatorName>>;
    for (const c10::OperatorName& each : c10::Dispatcher::singleton().getAllOpNames())
      (*names)[each.name].push_back(each);
    return names;
  }();
  static const std::vector<c10::OperatorName> none;
  const auto found = all->find(name);
  return found == all->end() ? none : found->second;
}

/// Overloads that joinsum has for an operator, of `aten::f` those of `joinsum::f`, then those by its name.
std::vector<c10::OperatorName> variants_of(const std::string& name) {
  const std::string own = "joinsum" + name.substr(name.find("::"));
  std::vector<c10::OperatorName> out = overloads_of(own);
  if (own != name) out.insert(out.end(), overloads_of(name).begin(), overloads_of(name).end());
  return out;
}

/// The order that takes axes `from` to axes `to`.
Dims order(const std::string& from, const std::string& to) {
  Dims out;
  for (const char letter : to) out.push_back(static_cast<int64_t>(from.find(letter)));
  return out;
}

std::string all(const std::vector<std::string>& groups) {
  std::string out;
  for (const std::string& group : groups) out += group;
  return out;
}

/// Whether an operator reads operands of any strides; some of torch's read theirs as if they were contiguous.
bool takes_strides(const std::string& function) {
  return function == "joinsum::attention" || function == "joinsum::attention_backward";
}

bool apart(const std::vector<std::string>& groups) {
  return std::all_of(groups.begin(), groups.end(), [](const std::string& group) { return group.size() == 1; });
}

/// Whether every argument that is this operand has these axes.
bool has_axes(const std::vector<CallArgument>& arguments, int64_t operand, const std::vector<std::string>& groups) {
  return std::all_of(arguments.begin(), arguments.end(), [&](const CallArgument& argument) {
    const bool is_operand = argument.kind == Kind::kOperand && argument.integer == operand;
    return (!is_operand || argument.groups == groups) && has_axes(argument.items, operand, groups);
  });
}

const std::map<char, int64_t>& no_begins() {
  static const std::map<char, int64_t> none;
  return none;
}

}  // namespace

NamedOperator::NamedOperator(c10::OperatorName name) : name_(std::move(name)) {
  const bool fixed = name_.name.starts_with("aten::") || name_.name.starts_with("joinsum::");
  if (fixed) handle_ = handle();
}

c10::OperatorHandle NamedOperator::handle() const {
  if (handle_) return *handle_;
  auto found = c10::Dispatcher::singleton().findSchema(name_);
  JOINSUM_KERNEL_CHECK(found.has_value(), "call: torch has no such operator: operator=", c10::toString(name_));
  return *found;
}

/// One run of a call on a part of its work.
class CallRun {
 public:
  CallRun(const PreparedCall& prepared, const std::vector<at::Tensor>& operands, const std::map<char, int64_t>& begins)
      : prepared_(prepared), call_(prepared.call_), operands_(operands), begins_(begins) {
    for (size_t i = 0; i < operands.size(); ++i) {
      for (size_t a = 0; a < call_.operands[i].size(); ++a)
        extent(call_.operands[i][a]) = operands[i].size(static_cast<int64_t>(a));
    }
    for (const auto& [letter, fresh] : call_.extents) extent(letter) = fresh.extent;
  }

  std::vector<at::Tensor> run(const std::vector<at::Tensor>& into) {
    torch::jit::Stack stack;
    stack.reserve(prepared_.slots_.size() + into.size());
    for (const auto& slot : prepared_.slots_) {
      if (slot.constant) {
        stack.push_back(*slot.constant);
      } else if (slot.arrangement) {
        stack.emplace_back(operand(*slot.given, *slot.arrangement));
      } else {
        stack.push_back(value(*slot.given, *slot.type, slot.name));
      }
    }
    c10::List<at::Tensor> listed;
    for (size_t i = 0; i < into.size(); ++i) {
      const at::Tensor each = prepared_.results_apart_ ? into[i] : into[i].view(shape(call_.results[i].groups));
      prepared_.out_list_ ? listed.push_back(each) : void(stack.emplace_back(each));
    }
    if (prepared_.out_list_ && !into.empty()) stack.emplace_back(std::move(listed));
    const c10::OperatorHandle handle = (into.empty() ? prepared_.function_ : *prepared_.out_variant_).handle();
    const c10::NoGradGuard no_grad;
    try {
      handle.callBoxed(stack);
    } catch (const c10::IndexError& error) {
      throw std::out_of_range(failure(error));  // Python's IndexError
    } catch (const c10::LinAlgError&) {
      throw;
    } catch (const c10::Error& error) {
      throw KernelError(failure(error));
    }
    std::vector<at::Tensor> given;
    for (const c10::IValue& value : stack) take(value, given);
    if (!into.empty()) {
      for (size_t i = 0; i < into.size() && !prepared_.out_list_; ++i) {
        check(given[i].is_alias_of(into[i]), "a result was not computed where it was to be: result=", i);
      }
      return into;
    }
    JOINSUM_KERNEL_CHECK(given.size() >= call_.results.size(),
                         "call: torch's operator gives fewer tensors: operator=", call_.function,
                         ", given=", given.size(), ", call=", call_.text());
    std::vector<at::Tensor> out;
    for (size_t i = 0; i < call_.results.size(); ++i) out.push_back(lettered(call_.results[i], given[i]));
    return out;
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
        return operand(given, prepared_.arrangement_of(given));
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

 private:
  template <class... Parts>
  void check(bool condition, const Parts&... parts) const {
    JOINSUM_KERNEL_CHECK(condition, "call: ", parts..., ", operator=", call_.function, ", call=", call_.text());
  }

  std::string failure(const c10::Error& error) const {
    return concatenate("call: torch's operator fails: operator=", call_.function,
                       ", error=", error.what_without_backtrace(), ", call=", call_.text());
  }

  int64_t& extent(char letter) { return extents_[static_cast<unsigned char>(letter)]; }

  int64_t elements(const std::string& letters) const {
    int64_t out = 1;
    for (const char letter : letters) out *= extents_[static_cast<unsigned char>(letter)];
    return out;
  }

  Dims shape(const std::vector<std::string>& groups) const {
    Dims out;
    for (const std::string& group : groups) out.push_back(elements(group));
    return out;
  }

  at::Tensor operand(const CallArgument& argument, const PreparedCall::Arrangement& arrangement) const {
    at::Tensor out = operands_[argument.integer];
    if (out.is_sparse()) {
      check(arrangement.order.empty() && arrangement.apart, "axes of a sparse operand are not arranged anew");
      return out;
    }
    if (!arrangement.order.empty()) out = out.permute(arrangement.order);
    if (!arrangement.apart) out = out.reshape(shape(argument.groups));
    return prepared_.takes_strides_ || out.is_contiguous() ? out : out.contiguous();
  }

  at::Tensor lettered(const CallResult& result, const at::Tensor& given) const {
    const Dims expected = shape(result.groups);
    check(given.sizes() == at::IntArrayRef(expected), "a result has another shape: shape=", given.sizes().vec(),
          ", expected=", expected);
    check(given.scalar_type() == scalar_type(result.dtype),
          "a result has another dtype: dtype=", c10::toString(given.scalar_type()),
          ", expected=", name_of(result.dtype));
    check(given.is_sparse() == result.entries.has_value(), "a result is stored otherwise: sparse=", given.is_sparse());
    if (given.is_sparse()) return given;
    const std::string letters = all(result.groups);
    Dims apart;
    for (const char letter : letters) apart.push_back(elements(std::string(1, letter)));
    return given.reshape(apart).permute(order(letters, result.letters)).contiguous();
  }

  static void take(const c10::IValue& value, std::vector<at::Tensor>& out) {
    if (value.isTensor()) {
      if (value.toTensor().defined()) out.push_back(value.toTensor());
    } else if (value.isTensorList()) {
      for (const at::Tensor& each : value.toTensorVector()) out.push_back(each);
    }
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

  const PreparedCall& prepared_;
  const Call& call_;
  const std::vector<at::Tensor>& operands_;
  const std::map<char, int64_t>& begins_;
  std::array<int64_t, 128> extents_ = {};  ///< by letter
};

PreparedCall::PreparedCall(const Call& call) : call_(call), function_(operator_name(call.function)) {
  const auto check = [&](bool condition, const auto&... parts) {
    JOINSUM_KERNEL_CHECK(condition, "call: ", parts..., ", operator=", call.function, ", call=", call.text());
  };
  const c10::OperatorHandle handle = function_.handle();
  const auto& arguments = handle.schema().arguments();
  const std::vector<at::Tensor> none;
  const CallRun outside(*this, none, no_begins());
  size_t taken = 0;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const c10::Argument& wanted = arguments[i];
    Slot& slot = slots_.emplace_back(Slot{wanted.name(), wanted.type(), argument_for(wanted, i)});
    if (slot.given == nullptr) {
      check(wanted.default_value().has_value(), "an argument is missing: argument=", wanted.name());
      slot.constant = *wanted.default_value();
      continue;
    }
    ++taken;
    if (constant(*slot.given)) slot.constant = outside.value(*slot.given, *wanted.type(), wanted.name());
    if (slot.given->kind == Kind::kOperand) slot.arrangement = arrangement_of(*slot.given);
  }
  check(taken == call.arguments.size(), "arguments that the operator does not take: taken=", taken,
        ", given=", call.arguments.size());
  takes_strides_ = takes_strides(call.function);
  pointwise_ = call.results.size() == 1 && handle.hasTag(at::Tag::pointwise);
  results_apart_ = std::all_of(call.results.begin(), call.results.end(),
                               [](const CallResult& result) { return apart(result.groups); });
  find_out_variant(handle);
}

PreparedCall::Arrangement PreparedCall::arrangement_of(const CallArgument& operand) const {
  const std::string& letters = call_.operands[operand.integer];
  const std::string wanted = all(operand.groups);
  return {wanted == letters ? Dims() : order(letters, wanted), apart(operand.groups)};
}

/// Only of results whose letters are in the operator's own order. What torch derives from the functional operator, for
/// any device, computes new tensors and copies them.
void PreparedCall::find_out_variant(const c10::OperatorHandle& handle) {
  for (const CallResult& result : call_.results) {
    if (all(result.groups) != result.letters) return;
  }
  for (const c10::OperatorName& name : variants_of(function_.name().name)) {
    const auto other = c10::Dispatcher::singleton().findSchema(name);
    if (!other || !takes_outputs(other->schema(), handle.schema(), call_.results.size())) continue;
    into_on_cpu_ = other->hasKernelForDispatchKey(c10::DispatchKey::CPU);
    into_on_cuda_ = other->hasKernelForDispatchKey(c10::DispatchKey::CUDA);
    if (!into_on_cpu_ && !into_on_cuda_) continue;
    out_variant_.emplace(name);
    out_list_ = gives_list(handle.schema());
    for (size_t i = 0; i < call_.results.size(); ++i) {
      const std::string& result = other->schema().arguments()[slots_.size() + (out_list_ ? 0 : i)].name();
      std::vector<bool>& may_overwrite = may_overwrite_.emplace_back();
      for (size_t operand = 0; operand < call_.operands.size(); ++operand) {
        const bool same = call_.operands[operand] == call_.results[i].letters &&
                          has_axes(call_.arguments, static_cast<int64_t>(operand), call_.results[i].groups);
        may_overwrite.push_back(same && (pointwise_ || out_list_ || named_after(result, operand)));
      }
    }
    return;
  }
}

bool PreparedCall::computes_into(at::DeviceType device) const {
  return (device == at::kCPU && into_on_cpu_) || (device == at::kCUDA && into_on_cuda_);
}

/// Whether the argument that receives a result is named after the argument that an operand is.
bool PreparedCall::named_after(const std::string& result, size_t operand) const {
  return std::any_of(slots_.begin(), slots_.end(), [&](const Slot& slot) {
    return slot.given != nullptr && slot.given->kind == Kind::kOperand && slot.name + "_out" == result &&
           slot.given->integer == static_cast<int64_t>(operand);
  });
}

/// By place, then by name.
const CallArgument* PreparedCall::argument_for(const c10::Argument& wanted, size_t place) const {
  const auto& given = call_.arguments;
  if (place < given.size() && given[place].name.empty()) return &given[place];
  const auto at =
      std::find_if(given.begin(), given.end(), [&](const auto& each) { return each.name == wanted.name(); });
  return at == given.end() ? nullptr : &*at;
}

std::vector<at::Tensor> PreparedCall::run(const std::vector<at::Tensor>& operands,
                                          const std::map<char, int64_t>& begins,
                                          const std::vector<at::Tensor>& into) const {
  return CallRun(*this, operands, begins).run(into);
}

std::vector<at::Tensor> run(Call call, std::vector<at::Tensor> operands, const Shard& shard) {
  std::vector<Dims> shapes;
  for (const at::Tensor& operand : operands) shapes.push_back(operand.sizes().vec());
  std::map<char, int64_t> begins;
  for (const auto& [letter, extent] : call::extents_of(call, shapes)) begins[letter] = 0;
  for (const auto& [letter, range] : shard) {
    const auto [begin, end] = range;
    begins[letter] = begin;
    for (size_t i = 0; i < operands.size(); ++i) {
      const size_t axis = call.operands[i].find(letter);
      if (axis != std::string::npos) operands[i] = operands[i].slice(static_cast<int64_t>(axis), begin, end);
    }
    const auto fresh = call.extents.find(letter);
    if (fresh != call.extents.end()) fresh->second.extent = end - begin;
  }
  return PreparedCall(call).run(operands, begins);
}

}  // namespace joinsum::kernels::torch_call
