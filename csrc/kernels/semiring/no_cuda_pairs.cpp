#include "base/check.h"
#include "kernels/semiring/cuda_pairs.h"

namespace joinsum::kernels::semiring {

bool cuda_takes(Type, Reduction) { return false; }

void run_on_cuda(const CudaProblem&) {
  JOINSUM_KERNEL_CHECK(false, "contract: this build has no loops for CUDA; build joinsum where nvcc is found");
}

}  // namespace joinsum::kernels::semiring
