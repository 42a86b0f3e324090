#pragma once

#include <optional>
#include <string>

#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include "kernels/call/call.h"

namespace joinsum::kernels::torch_call {

/// An operator of torch's by its name. Those of torch and joinsum are looked up once; others each time, since who
/// defines an operator in Python may define it again.
class NamedOperator {
 public:
  explicit NamedOperator(c10::OperatorName name);
  const c10::OperatorName& name() const { return name_; }
  /// Raises KernelError where torch has none of that name.
  c10::OperatorHandle handle() const;

 private:
  c10::OperatorName name_;
  std::optional<c10::OperatorHandle> handle_;
};

/// A call with torch's operator and the arguments that are the same for every part of the work; `call` outlives it.
class PreparedCall {
 public:
  /// Raises KernelError naming the operator where torch has none of that name, or an argument does not fit its schema.
  explicit PreparedCall(const call::Call& call);

  const call::Call& call() const { return call_; }

  /// The results on one part of the work: blocks whose axes are the operands' letters, and where the part begins along
  /// each letter. Arrays of the results' letters, contiguous; those that the operator gives undefined, and what is no
  /// tensor, are not counted.
  /// `into`: contiguous arrays that the results are computed into, if it `computes_into` arrays; none: new ones.
  /// Raises std::out_of_range naming the operator where an index is out of range; torch's error where a matrix cannot
  /// be factored; KernelError where it fails otherwise, or a result is of another shape or dtype than the call says.
  std::vector<at::Tensor> run(const std::vector<at::Tensor>& operands, const std::map<char, int64_t>& begins,
                              const std::vector<at::Tensor>& into = {}) const;

  /// Whether torch has a kernel for the device that computes all results into given arrays.
  bool computes_into(at::DeviceType device) const;
  /// Whether result number `result` may overwrite an operand: the one that its own argument is named after (`exp_avg`
  /// of `exp_avg_out`); of an operator that torch calls pointwise, and of `joinsum::fused`, any.
  bool may_overwrite(size_t result, size_t operand) const { return out_variant_ && may_overwrite_[result][operand]; }

 private:
  friend class CallRun;
  /// How the axes of a block become those of an operand.
  struct Arrangement {
    Dims order;         ///< of the block's axes; empty where they are in order
    bool apart = true;  ///< no two of them become one
  };
  /// An argument of the schema: the same for all parts, or what `given` says of one.
  struct Slot {
    std::string name;
    c10::TypePtr type;
    const call::CallArgument* given = nullptr;
    std::optional<c10::IValue> constant = {};
    std::optional<Arrangement> arrangement = {};  ///< of an operand
  };
  Arrangement arrangement_of(const call::CallArgument& operand) const;
  const call::CallArgument* argument_for(const c10::Argument& wanted, size_t place) const;
  void find_out_variant(const c10::OperatorHandle& handle);
  bool named_after(const std::string& result, size_t operand) const;

  const call::Call& call_;
  NamedOperator function_;
  std::vector<Slot> slots_;
  bool takes_strides_ = false;  ///< of operands, which are contiguous otherwise
  bool pointwise_ = false;
  bool results_apart_ = true;                      ///< no axis of a result has several letters
  std::optional<NamedOperator> out_variant_ = {};  ///< computes all results into given tensors
  bool out_list_ = false;                          ///< as one list; they may overwrite any operand
  bool into_on_cpu_ = false;                       ///< whether torch has a kernel of it for the device
  bool into_on_cuda_ = false;
  std::vector<std::vector<bool>> may_overwrite_;  ///< by result and operand
};

/// Begin and end along each letter that is divided.
using Shard = std::map<char, std::pair<int64_t, int64_t>>;

/// The results on a shard of these operands.
std::vector<at::Tensor> run(call::Call call, std::vector<at::Tensor> operands, const Shard& shard);

}  // namespace joinsum::kernels::torch_call
