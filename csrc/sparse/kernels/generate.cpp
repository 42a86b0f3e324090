#include "sparse/kernels/generate.h"

#include "sparse/kernels/kernel_writer.h"

namespace joinsum::sparse::kernels {

std::string generated_function(const Kernel& kernel, DType dtype, const std::string& name) {
  return KernelWriter(kernel, dtype).function(name);
}

std::string generate(const Kernel& kernel, DType dtype) {
  return generated_preamble() + "\n" + generated_function(kernel, dtype, kKernelSymbol);
}

}  // namespace joinsum::sparse::kernels
