#include "runtime/execution/local/local_operator.h"

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
  return prepared_.run(arrays, begins);
}

}  // namespace joinsum::runtime::execution::local
