#pragma once

#include <string>

#include "sparse/kernels/kernel.h"

/// Words of generated C++.
namespace joinsum::sparse::kernels {

inline std::string number(int64_t n) { return std::to_string(n); }
/// `double`, `int64_t`, ...
std::string generated_type(DType dtype);
/// A number as a dtype has it: a hex float, an integer, `true`.
std::string generated_literal(DType dtype, double value);
/// The identity of an aggregate.
std::string generated_identity(DType dtype, Operator op);
/// op(a), op(a, b).
std::string generated_apply(Operator op, const std::string& a);
std::string generated_apply(Operator op, const std::string& a, const std::string& b);

/// Whether visits that are left out change an element: the body's fill is not the aggregate's identity.
bool counts_visits(const Kernel& kernel, DType dtype);

}  // namespace joinsum::sparse::kernels
