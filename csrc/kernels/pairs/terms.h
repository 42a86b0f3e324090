#pragma once

#include <ATen/ATen.h>

#include "kernels/pairs/pairs.h"
#include "kernels/semiring/term_tiles.h"

namespace joinsum::kernels::pairs {

/// An array with a letter for each axis; it repeats along letters that it lacks, and needs no memory for that.
struct Lettered {
  at::Tensor array;
  std::string letters;
};

/// A sum over joined elements: a batch of out[r, c] = Σ over k of terms of own[r, c], left[r, k], weight[r, k] and
/// right[k, c] (semiring::Term). Letters that `out` lacks are k, in the order of `inner`; which of the others are rows,
/// columns or batch follows from the operands that have them. `own` has no letter of k.
struct TermProblem {
  semiring::Term term;
  semiring::Join join;  ///< of left and right, or of own and right
  Lettered own;
  Lettered left;    ///< undefined for kSlope
  Lettered weight;  ///< undefined for kCount and kPosition
  Lettered right;
  std::string inner;
  std::map<char, int64_t> extents;
};

/// Adds the terms to `out`, or of kPosition replaces elements of `out` by smaller positions, `positions[k]`, which
/// rise; says whether there are loops for it: on the CPU, for floats and doubles, of kPosition also for integers of 32
/// and 64 bits. It packs panels, some MiB for each of torch's threads.
bool adds_terms(const TermProblem& problem, const Lettered& out, const int64_t* positions = nullptr);

}  // namespace joinsum::kernels::pairs
