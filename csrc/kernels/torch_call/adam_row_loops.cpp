// Compiled without errno, for which roots would be calls, and for several sets of instructions, of which the
// processor's best runs.

#include "kernels/torch_call/adam_row_loops.h"

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define JOINSUM_CLONES __attribute__((target_clones("default", "arch=haswell", "arch=skylake-avx512")))
#else
#define JOINSUM_CLONES
#endif

namespace joinsum::kernels::torch_call {

JOINSUM_CLONES void adam_row(float* __restrict param, float* __restrict first, float* __restrict second,
                             const float* __restrict grad, int64_t width, const AdamStep& step) {
  const AdamStep s = step;
  for (int64_t c = 0; c < width; ++c) {
    first[c] = s.keep1 * first[c] + s.take1 * grad[c];
    second[c] = s.keep2 * second[c] + s.take2 * grad[c] * grad[c];
    param[c] -= s.rate * first[c] / (__builtin_sqrtf(second[c]) * s.root + s.epsilon);
  }
}

JOINSUM_CLONES void adam_resting_row(float* __restrict param, float* __restrict first, float* __restrict second,
                                     int64_t width, const AdamStep& step) {
  const AdamStep s = step;
  for (int64_t c = 0; c < width; ++c) {
    first[c] *= s.keep1;
    second[c] *= s.keep2;
    param[c] -= s.rate * first[c] / (__builtin_sqrtf(second[c]) * s.root + s.epsilon);
  }
}

JOINSUM_CLONES void add_multiple(float* __restrict sum, const float* __restrict x, float value, int64_t width) {
  for (int64_t c = 0; c < width; ++c) sum[c] += value * x[c];
}

}  // namespace joinsum::kernels::torch_call
