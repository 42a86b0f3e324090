#pragma once

#include <set>
#include <string>
#include <vector>

#include "sparse/logical/term.h"

namespace joinsum::sparse::logical {

/// A term after applications of distributivity.
struct Distributed {
  TermPtr term;                        ///< null: there is none
  std::set<std::string> factors = {};  ///< tensors that multiply each summand, where an infinity may be no number
  double entries = 0;                  ///< about those of what multiplies each summand
};

/// Every term that one application of distributivity gives, f(a, g(b, c)) → g(f(a, b), f(a, c)), squares counting as
/// products and differences as sums; without those of more than `most_terms` inputs.
std::vector<Distributed> distribution_steps(Terms& terms, const TermPtr& term, int64_t most_terms);

/// The term in which no step is left; none where it would have more than `most_terms` inputs, or be the same.
Distributed wholly_distributed(Terms& terms, const TermPtr& term, int64_t most_terms);

}  // namespace joinsum::sparse::logical
