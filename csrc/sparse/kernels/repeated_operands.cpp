#include "sparse/kernels/repeated_operands.h"

#include <algorithm>

namespace joinsum::sparse::kernels {
namespace {

/// Of each operand, the first one that is the same.
std::vector<int64_t> first_alike(const Kernel& kernel, const KernelArguments& arguments) {
  std::vector<int64_t> first;
  for (int64_t o = 0; o < std::ssize(kernel.operands); ++o) {
    const Operand& operand = kernel.operands[o];
    first.push_back(o);
    if (operand.formats.empty() || operand.formats.back() == LevelFormat::kDense) continue;
    for (int64_t earlier = 0; earlier < o; ++earlier) {
      const bool alike = arguments.operands[earlier] == arguments.operands[o] &&
                         kernel.operands[earlier].loops == operand.loops &&
                         kernel.operands[earlier].fill == operand.fill;
      if (!alike) continue;
      first.back() = earlier;
      break;
    }
  }
  return first;
}

}  // namespace

KernelCall without_repeated_operands(const Kernel& kernel, const KernelArguments& arguments) {
  if (arguments.operands.size() != kernel.operands.size()) return {kernel, arguments};
  const std::vector<int64_t> first = first_alike(kernel, arguments);
  KernelCall out{kernel, {{}, arguments.extents}};
  out.kernel.operands.clear();
  out.kernel.required.clear();
  std::vector<int64_t> number(first.size());
  for (size_t o = 0; o < first.size(); ++o) {
    if (first[o] != static_cast<int64_t>(o)) {
      number[o] = number[first[o]];
      if (kernel.required[o]) out.kernel.required[number[o]] = true;
      continue;
    }
    number[o] = std::ssize(out.kernel.operands);
    out.kernel.operands.push_back(kernel.operands[o]);
    out.kernel.required.push_back(kernel.required[o]);
    out.arguments.operands.push_back(arguments.operands[o]);
  }
  if (out.kernel.operands.size() == kernel.operands.size()) return out;
  for (Loop& loop : out.kernel.loops) {
    const auto renumbered = [&](std::vector<int64_t>& operands, const std::vector<int64_t>& without) {
      for (int64_t& operand : operands) operand = number[operand];
      std::ranges::sort(operands);
      operands.erase(std::ranges::unique(operands).begin(), operands.end());
      std::erase_if(operands, [&](int64_t each) { return std::ranges::find(without, each) != without.end(); });
    };
    renumbered(loop.walkers, {});
    renumbered(loop.lookups, loop.walkers);
  }
  for (BodyNode& node : out.kernel.body) {
    if (node.kind == BodyNode::Kind::kOperand) node.operand = number[node.operand];
  }
  return out;
}

}  // namespace joinsum::sparse::kernels
