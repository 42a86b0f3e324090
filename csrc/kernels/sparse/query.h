#pragma once

#include <string>
#include <vector>

#include <ATen/ATen.h>

namespace joinsum::kernels::sparse {

/// One query over sparse and dense tensors: an expression of maps over tensors x0, x1, ..., and an aggregate of it.
struct Query {
  std::string expression;
  std::string output;   ///< a letter for each axis of the result
  std::string letters;  ///< that no operand has, and their extents
  std::vector<int64_t> extents;
  bool dense = false;  ///< whether the result is
};

/// The result: strided where the query says so, else a coalesced `torch.sparse_coo` tensor. Operands are strided or
/// such tensors, and have one dtype and a fill each. Queries that are alike are planned once.
at::Tensor result_of(const Query& query, at::TensorList operands, c10::ArrayRef<double> fills);

}  // namespace joinsum::kernels::sparse
