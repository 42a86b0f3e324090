#include "sparse/kernels/interpret.h"

#include "sparse/kernels/interpreter.h"

namespace joinsum::sparse::kernels {

Tensor interpret(const Kernel& kernel, const KernelArguments& arguments, const InterpreterOptions& options) {
  const Prepared run = prepared(kernel, arguments);
  return with_arithmetic(run.dtype, [&](auto zero) { return interpret_as<decltype(zero)>(run, options); });
}

Tensor interpret(const Kernel& kernel, const KernelArguments& arguments, int threads) {
  return interpret(kernel, arguments, InterpreterOptions{.threads = threads});
}

}  // namespace joinsum::sparse::kernels
