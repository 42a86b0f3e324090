#pragma once

#include <vector>

#include "sparse/logical/dependencies.h"
#include "sparse/logical/term.h"

namespace joinsum::sparse::logical {

/// Every term that one application of distributivity gives, f(a, g(b, c)) → g(f(a, b), f(a, c)), squares counting as
/// products and differences as sums; without those of more than `most_terms` inputs. Those that move factors of few
/// entries come first: the plan of one bounds the search for the next one's. Indices of the terms are unified.
std::vector<TermPtr> distribution_steps(Terms& terms, const TermPtr& term, int64_t most_terms,
                                        const Dependencies& dependencies);

/// The term in which no step is left; nothing where it would have more than `most_terms` inputs, or be the same.
TermPtr wholly_distributed(Terms& terms, const TermPtr& term, int64_t most_terms, const Dependencies& dependencies);

}  // namespace joinsum::sparse::logical
