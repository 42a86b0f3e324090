#include "sparse/kernels/interpreter.h"

namespace joinsum::sparse::kernels {

template Tensor interpret_as<int64_t>(const Prepared&, const InterpreterOptions&);

}  // namespace joinsum::sparse::kernels
