#include "sparse/operators/exponential.h"

// Compiled so that a product and a sum are rounded apart: all instructions then give the same result. Without traps of
// floating-point numbers, which nobody asks for, choices between two of them need no branches.

namespace joinsum::sparse::operators {

#if defined(__x86_64__) && defined(__linux__) && defined(__GNUC__) && !defined(__clang__) && \
    !defined(__SANITIZE_ADDRESS__)
#define JOINSUM_WIDEST __attribute__((target_clones("default", "avx2", "arch=skylake-avx512")))
#else
#define JOINSUM_WIDEST
#endif

JOINSUM_WIDEST void exponentials(const double* x, int64_t count, double* out) {
  for (int64_t i = 0; i < count; ++i) out[i] = exponential(x[i]);
}

JOINSUM_WIDEST void exponentials(const float* x, int64_t count, float* out) {
  for (int64_t i = 0; i < count; ++i) out[i] = exponential(x[i]);
}

JOINSUM_WIDEST void sigmoids(const double* x, int64_t count, double* out) {
  for (int64_t i = 0; i < count; ++i) out[i] = sigmoid(x[i]);
}

JOINSUM_WIDEST void sigmoids(const float* x, int64_t count, float* out) {
  for (int64_t i = 0; i < count; ++i) out[i] = sigmoid(x[i]);
}

}  // namespace joinsum::sparse::operators
