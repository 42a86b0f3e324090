#include "runtime/execution/local/local_operator.h"

#include "kernels/dense/dense.h"

namespace joinsum::runtime::execution::local {

PinnedOperand::PinnedOperand(const Operand& operand) : overwritable(operand.overwritable) {
  pins_.reserve(operand.pieces.size());
  for (const storage::Piece& piece : operand.pieces) {
    pieces.push_back({piece.box, pins_.emplace_back(piece.block).array()});
  }
}

CallOperator::CallOperator(const kernels::call::Call& call, std::vector<const relation::RelationType*> operands)
    : prepared_(call), types_(std::move(operands)) {}

std::vector<at::Tensor> CallOperator::run(const std::vector<PinnedOperand>& operands, const RunContext& context) const {
  const kernels::call::Call& op = prepared_.call();
  std::vector<at::Tensor> arrays;
  std::map<char, int64_t> begins;
  std::map<char, double> extents;
  for (const auto& [letter, fresh] : op.extents) {  // never divided
    begins[letter] = 0;
    extents[letter] = static_cast<double>(fresh.extent);
  }
  for (size_t i = 0; i < operands.size(); ++i) {
    JOINSUM_CHECK(operands[i].pieces.size() == 1, "call=", op.text(), ", operand=", i);
    const PinnedPiece& piece = operands[i].pieces.front();
    for (size_t a = 0; a < op.operands[i].size(); ++a) {
      const relation::Axis& axis = types_[i]->axes[a];
      begins[op.operands[i][a]] = axis.linked() ? axis.cuts[piece.box.lower[axis.key_dim]] : 0;
      extents[op.operands[i][a]] = static_cast<double>(axis.extent_over(piece.box));
    }
    arrays.push_back(piece.array);
  }
  context.flops += static_cast<int64_t>(kernels::call::flops(op, extents));
  auto results = prepared_.run(arrays, begins,
                               checked_ ? arrays_for_results(operands, extents, context) : std::vector<at::Tensor>{});
  checked_ = true;
  return results;
}

/// Where the results are computed: in operands that may be overwritten, else in arrays of the store. None where the
/// operator allocates.
std::vector<at::Tensor> CallOperator::arrays_for_results(const std::vector<PinnedOperand>& operands,
                                                         const std::map<char, double>& extents,
                                                         const RunContext& context) const {
  if (operands.empty()) return {};
  const at::TensorOptions options = operands.front().pieces.front().array.options();
  if (!prepared_.computes_into(options.device().type())) return {};
  std::vector<at::Tensor> out;
  std::vector<bool> taken(operands.size());
  for (size_t i = 0; i < prepared_.call().results.size(); ++i) {
    const kernels::call::CallResult& result = prepared_.call().results[i];
    const at::ScalarType dtype = kernels::dense::scalar_type(result.dtype);
    at::Tensor into;
    for (size_t o = 0; o < operands.size() && !into.defined(); ++o) {
      const at::Tensor& array = operands[o].pieces.front().array;
      const bool fits = operands[o].overwritable && !taken[o] && prepared_.may_overwrite(i, o) &&
                        array.scalar_type() == dtype && array.is_contiguous();
      if (!fits) continue;
      into = array;
      taken[o] = true;
    }
    Dims shape;
    for (const char letter : result.letters) shape.push_back(static_cast<int64_t>(extents.at(letter)));
    out.push_back(into.defined() ? into : context.store.allocate(shape, options.dtype(dtype)));
  }
  return out;
}

}  // namespace joinsum::runtime::execution::local
