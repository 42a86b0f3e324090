#pragma once

#include "kernels/semiring/term_tiles.h"
#include "runtime/execution/local/tile_program.h"

namespace joinsum::runtime::execution::local {

/// A program that is a sum of terms over the joined elements of two arrays (kernels::pairs::adds_terms): argmax and
/// argmin, the number of ties, and gradients of contractions.
struct PairPattern {
  kernels::semiring::Term term;
  kernels::semiring::Join join;
  /// Steps that read arrays.
  size_t own;
  std::optional<size_t> left, weight;
  size_t right;
  std::string inner = {};  ///< the reduced letters
  std::optional<size_t> positions = {};
  int64_t no_position = 0;
};

/// The pattern of a program, if it is one.
std::optional<PairPattern> pair_pattern(const TileProgram& program);

/// Runs it as `program` would; says whether there are loops for these arrays, which lie anyhow.
bool runs_pattern(const PairPattern& pattern, const TileProgram& program, const std::vector<at::Tensor>& arrays,
                  const at::Tensor& out, bool accumulate);

}  // namespace joinsum::runtime::execution::local
