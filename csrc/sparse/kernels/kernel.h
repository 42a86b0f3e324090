#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "sparse/operators/operators.h"
#include "sparse/tensor/tensor.h"

namespace joinsum::sparse::kernels {

using operators::larger;
using operators::Operator;
using operators::smaller;
using tensor::Array;
using tensor::hash_of_coordinate;
using tensor::Level;
using tensor::LevelFormat;
using tensor::Tensor;
using tensor::Values;

/// An operand of a kernel: a tensor whose levels are read in the order of the loops.
struct Operand {
  std::vector<int64_t> loops;        ///< the loop of each level, ascending
  std::vector<LevelFormat> formats;  ///< of each level
  double fill = 0;
};

/// One loop of a kernel's nest. It visits the coordinates that any of `walkers` stores below its entry, or the whole
/// range where there are no walkers; the other operands of the loop look their coordinate up. A coordinate that none of
/// the walkers stores needs no visit: the body is then at its fill, whatever the other operands are.
struct Loop {
  std::vector<int64_t> walkers;
  std::vector<int64_t> lookups;
  bool single = false;  ///< visits one coordinate at most (`with_single_loops`)
};

/// A node of the body: an operand's value, a literal, or an operator applied to earlier nodes.
struct BodyNode {
  enum class Kind : uint8_t { kOperand, kLiteral, kMap };
  Kind kind = Kind::kLiteral;
  int64_t operand = -1;
  double literal = 0;
  Operator op = Operator::kAdd;
  std::vector<int64_t> children = {};
};

/// A loop nest: result[output loops] = aggregate over the other loops of body(operands). Aggregates range over every
/// coordinate, also those that are not visited, where the body is at its fill.
///
/// An operand that does not store a visited coordinate is absent from there on: its value is its fill. Where the
/// absence of one operand alone puts the body at its fill (`required`), the visit ends there.
struct Kernel {
  std::vector<Loop> loops;
  std::vector<Operand> operands;
  std::vector<bool> required;         ///< of each operand
  std::vector<BodyNode> body;         ///< the last one is the result
  std::optional<Operator> aggregate;  ///< none where every loop is one of the output
  std::vector<int64_t> output;        ///< the loop of each level of the result, in its order of levels
  std::vector<LevelFormat> formats;   ///< of each level of the result
  double body_fill = 0;               ///< the body where all operands are at their fill
  DType dtype = DType::kFloat64;      ///< in which fills were computed, and of the result where there are no operands
};

/// The arguments of one run: an operand's tensors, whose levels have the formats and order that the kernel names, and
/// the extent of each loop.
struct KernelArguments {
  std::vector<const Tensor*> operands;
  std::vector<int64_t> extents;
};

}  // namespace joinsum::sparse::kernels
