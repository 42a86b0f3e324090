#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "sparse/logical/term.h"

namespace joinsum::sparse::logical {

/// Axes of a tensor that others determine: no two stored elements agree along `given` and differ along `axes`.
struct Dependency {
  std::vector<int64_t> axes;
  std::vector<int64_t> given;
};

/// The functional dependencies of tensors that a program reads more than once, by name: of single axes, and those that
/// its degrees state.
using Dependencies = std::map<std::string, std::vector<Dependency>>;

/// Counted where the tensor's entries are known, else as its degrees state them.
std::vector<Dependency> dependencies_of(const InputTensor& tensor);

/// Tensors that an expression reads more than once, or squares.
std::set<std::string> read_again(const ExpressionPtr& expression);

/// Joins of a tensor with itself along axes that determine others: where both elements are stored they are the same
/// one, so that indices of the other axes are equal, and an aggregate over one of two is left out. An expression over
/// X[i,j] = Σ_s L[i,s] S[s,j] that squares X needs no pair of s. `left_out` gets the indices that are left out.
/// Source: the chase of joins with functional dependencies; Abiteboul, Hull and Vianu, Foundations of Databases, 8.4.
TermPtr with_unified_indices(Terms& terms, TermPtr term, const Dependencies& dependencies,
                             std::vector<int64_t>* left_out = nullptr);

}  // namespace joinsum::sparse::logical
