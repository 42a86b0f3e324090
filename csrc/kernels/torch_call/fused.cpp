// Several elementwise operators in one pass over memory.

#include <ATen/ATen.h>
#include <torch/library.h>

#include "kernels/fusion/program.h"

namespace joinsum::kernels::torch_call {
namespace {

std::vector<at::Tensor> fused(at::TensorList operands, c10::string_view program, bool channels_last) {
  return fusion::Program::of(program)->run(operands, channels_last);
}

void fused_out(at::TensorList operands, c10::string_view program, bool channels_last, at::TensorList out) {
  TORCH_CHECK(!channels_last, "joinsum::fused: results that are given lie in the order of their axes");
  fusion::Program::of(program)->run_into(operands, out);
}

/// Result number i is written over operand overwritten[i], unless that is negative; gives the others.
std::vector<at::Tensor> fused_(at::TensorList operands, c10::string_view program, at::IntArrayRef overwritten,
                               bool channels_last) {
  const std::vector<at::Tensor> results = fusion::Program::of(program)->run(operands, channels_last, overwritten);
  std::vector<at::Tensor> own;
  for (size_t i = 0; i < results.size(); ++i) {
    if (overwritten[i] < 0) own.push_back(results[i]);
  }
  return own;
}

TORCH_LIBRARY_FRAGMENT(joinsum, library) {
  library.def("fused(Tensor[] operands, str program, *, bool channels_last=False) -> Tensor[]");
  library.def("fused.out(Tensor[] operands, str program, *, bool channels_last=False, Tensor(a!)[] out) -> ()");
  library.def("fused_(Tensor(a!)[] operands, str program, int[] overwritten, *, bool channels_last=False) -> Tensor[]");
}

TORCH_LIBRARY_IMPL(joinsum, CPU, library) {
  library.impl("fused", &fused);
  library.impl("fused.out", &fused_out);
  library.impl("fused_", &fused_);
}

}  // namespace
}  // namespace joinsum::kernels::torch_call
