// A query over sparse and dense tensors as an operator of torch's, which plans give to sites.

#include <torch/library.h>

#include "kernels/sparse/query.h"

namespace joinsum::kernels::torch_call {
namespace {

at::Tensor sparse_query(at::TensorList operands, c10::ArrayRef<double> fills, c10::string_view expression,
                        c10::string_view output, c10::string_view letters, at::IntArrayRef extents, bool dense) {
  const sparse::Query query{std::string(expression), std::string(output), std::string(letters), extents.vec(), dense};
  TORCH_CHECK(operands.size() == fills.size() && query.letters.size() == query.extents.size(),
              "sparse_query: each operand has a fill, and each new letter an extent");
  return sparse::result_of(query, operands, fills);
}

TORCH_LIBRARY_FRAGMENT(joinsum, library) {
  library.def(
      "sparse_query(Tensor[] operands, float[] fills, str expression, str output, str letters, SymInt[] extents, bool "
      "dense) -> Tensor");
}

TORCH_LIBRARY_IMPL(joinsum, CPU, library) { library.impl("sparse_query", &sparse_query); }

TORCH_LIBRARY_IMPL(joinsum, SparseCPU, library) { library.impl("sparse_query", &sparse_query); }

}  // namespace
}  // namespace joinsum::kernels::torch_call
