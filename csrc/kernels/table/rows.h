#pragma once

#include <limits>
#include <map>

#include "kernels/table/table.h"

namespace joinsum::kernels::table {

/// What the sources of the table share, all of it about a given row: also of one that is not registered (yet).

inline constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// Facts of a linear function, and of one that only moves elements.
inline Facts linear() { return {.linear = true}; }
inline Facts moves() { return {.linear = true, .moves_elements = true}; }

/// The built-in rows, in table order.
std::vector<Row> builtin_rows();

/// The elementwise ones, by kind.
std::vector<Row> identity_rows();
std::vector<Row> arithmetic_rows();
std::vector<Row> algebraic_rows();
std::vector<Row> function_rows();
std::vector<Row> loss_rows();
std::vector<Row> update_rows();

/// Raises KernelError unless a row may be registered by a user.
void check_row(const Row& row);

/// Raises KernelError unless `kernel` has the parameters that its row asks for.
void check_parameters(const Row& row, const Kernel& kernel);

/// Extent of each letter; raises KernelError where ranks or extents do not fit.
std::map<char, int64_t> letter_extents(const std::string& kernel, const Subscripts& labels,
                                       const std::vector<Dims>& operands);

/// Extents of `letters` in their order.
Dims extents_of(const std::string& letters, const std::map<char, int64_t>& extents);

Dims result_shape(const Row& row, const Kernel& kernel, const std::vector<Dims>& operands, int64_t output);

}  // namespace joinsum::kernels::table
