#pragma once

#include <cstdint>

/// Sums and minima of rows of doubles, with the widest instructions that the machine has; results are the same on all.
namespace joinsum::optimizer::min_sum {

void add_row(double* __restrict sum, const double* __restrict row, int64_t count);

/// Adds a row of which each entry counts `most` at most.
void add_limited_row(double* __restrict sum, const double* __restrict limited, double most, int64_t count);

/// Lowers each entry to constant + row where that is less.
void lower_row(double* __restrict least, const double* __restrict row, double constant, int64_t count);

/// As `lower_row`, over the sum of two rows.
void lower_rows(double* __restrict least, const double* __restrict left, const double* __restrict right,
                double constant, int64_t count);

/// Lowers each entry (r, c) of `least` to left(r, k) + right(k, c) where that is less, for all k: matrices of `rows` x
/// `columns`, `rows` x `inner` and `inner` x `columns`, row-major.
void lower_product(double* __restrict least, const double* __restrict left, const double* __restrict right,
                   int64_t rows, int64_t inner, int64_t columns);

/// For each non-empty subset of some elements, as bits, the least sum over all its partitions into groups, where a
/// group costs its row of `limited`, or its entry of `most` if that is less. Rows of `best` follow one another, that of
/// the empty set is 0; rows of `limited` and entries of `most` are `stride` apart. There are `sets` subsets.
void lower_groups(double* __restrict best, const double* __restrict limited, const double* __restrict most,
                  int64_t sets, int64_t columns, int64_t stride);

/// The least entry of the sum of two rows.
double least_of_rows(const double* left, const double* right, int64_t count);
/// Of `row` plus `limited`, of which no entry counts more than `most`.
double least_of_limited_rows(const double* row, const double* limited, double most, int64_t count);

}  // namespace joinsum::optimizer::min_sum
