#include "kernels/table/sparsity.h"

#include <array>

#include "kernels/table/table.h"

namespace joinsum::kernels::table {

bool gives_sparse(const Kernel& kernel, bool left, bool right) {
  const Row& row = row_of(kernel);
  if (row.user || (!left && !right)) return false;
  if (left && right && contracts(kernel)) return operands_of(kernel) == 2;
  if (row.form != Form::kElementwise || !row.joins_by) return false;
  const std::array<double, 2> zeros{};
  return left && right ? row.element(zeros.data(), nullptr) == 0 : row.facts.annihilator == 0.0;
}

}  // namespace joinsum::kernels::table
