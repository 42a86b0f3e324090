#include "runtime/execution/local/local_operator.h"

#include "kernels/dense/dense.h"

namespace joinsum::runtime::execution::local {

PinnedOperand::PinnedOperand(Operand operand) : overwritable(operand.overwritable) {
  pins_.reserve(operand.pieces.size());
  pieces.reserve(operand.pieces.size());
  for (storage::Piece& piece : operand.pieces) {
    pieces.push_back({std::move(piece.box), pins_.emplace_back(piece.block).array()});
  }
}

CallOperator::CallOperator(const kernels::call::Call& call, const std::vector<const relation::RelationType*>& operands,
                           const std::map<int64_t, std::vector<Box>>& boxes)
    : prepared_(call) {
  for (const auto& [site, of_operands] : boxes) {
    OnSite& own = sites_[site];
    std::map<char, double> extents;
    for (const auto& [letter, fresh] : call.extents) {  // never divided
      own.begins[letter] = 0;
      extents[letter] = static_cast<double>(fresh.extent);
    }
    for (size_t i = 0; i < operands.size(); ++i) {
      for (size_t a = 0; a < call.operands[i].size(); ++a) {
        const relation::Axis& axis = operands[i]->axes[a];
        const Box& box = of_operands[i];
        own.begins[call.operands[i][a]] = axis.linked() ? axis.cuts[box.lower[axis.key_dim]] : 0;
        extents[call.operands[i][a]] = static_cast<double>(axis.extent_over(box));
      }
      if (operands[i]->sparse() && kernels::call::counts_entries(call)) {
        const int64_t elements = operands[i]->elements_over(of_operands[i]);
        own.entries[i] = relation::density_of(*operands[i]) * static_cast<double>(elements);
      }
    }
    own.flops = kernels::call::flops(call, extents);
    for (const kernels::call::CallResult& result : call.results) {
      Dims& shape = own.shapes.emplace_back();
      for (const char letter : result.letters) shape.push_back(static_cast<int64_t>(extents.at(letter)));
    }
  }
}

int64_t CallOperator::OnSite::flops_of(const std::vector<at::Tensor>& operands) const {
  double out = flops;
  for (const auto& [operand, expected] : entries) {
    const at::Tensor& array = operands[operand];
    if (array.is_sparse() && expected > 0) out *= static_cast<double>(array._nnz()) / expected;
  }
  return static_cast<int64_t>(out);
}

std::vector<at::Tensor> CallOperator::run(int64_t site, c10::ArrayRef<PartOperand> operands,
                                          const RunContext& context) const {
  std::vector<at::Tensor> arrays;
  arrays.reserve(operands.size());
  for (const PartOperand& operand : operands) arrays.push_back(operand.array);
  const OnSite& own = sites_.at(site);
  context.flops += own.flops_of(arrays);
  auto results = prepared_.run(arrays, own.begins,
                               checked_ ? arrays_for_results(own, operands, context) : std::vector<at::Tensor>{});
  checked_ = true;
  return results;
}

/// Where the results are computed: in operands that may be overwritten, each in memory of its own, else in arrays of
/// the store. None where the operator allocates.
std::vector<at::Tensor> CallOperator::arrays_for_results(const OnSite& own, c10::ArrayRef<PartOperand> operands,
                                                         const RunContext& context) const {
  if (operands.empty()) return {};
  const at::TensorOptions options = operands.front().array.options();
  if (!prepared_.computes_into(options.device().type())) return {};
  std::vector<at::Tensor> out;
  std::vector<bool> taken(operands.size());
  for (size_t i = 0; i < prepared_.call().results.size(); ++i) {
    const kernels::call::CallResult& result = prepared_.call().results[i];
    const at::ScalarType dtype = kernels::dense::scalar_type(result.dtype);
    at::Tensor into;
    for (size_t o = 0; o < operands.size() && !into.defined(); ++o) {
      const at::Tensor& array = operands[o].array;
      const bool fits = operands[o].overwritable && !taken[o] && prepared_.may_overwrite(i, o) &&
                        array.scalar_type() == dtype && array.is_contiguous() && array.sizes() == own.shapes[i];
      if (!fits) continue;
      into = array;
      taken[o] = true;
    }
    out.push_back(into.defined() ? into : context.store.allocate(own.shapes[i], options.dtype(dtype)));
  }
  return out;
}

}  // namespace joinsum::runtime::execution::local
