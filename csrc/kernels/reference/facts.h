#pragma once

#include "kernels/reference/array.h"
#include "kernels/table/table.h"

namespace joinsum::kernels::reference {

/// Runs a kernel on arrays. It must know the kernel that is checked, and any user's kernel over which it distributes.
using Evaluate = std::function<Array(const table::Kernel&, const std::vector<Array>&)>;

/// What the facts of a row are tried on, where the defaults do not do.
struct FactSamples {
  uint64_t seed = 0;
  /// The kernel with parameters; by default random numbers and the axes 0 and 1. A row with a label needs some.
  std::vector<table::Kernel> kernels = {};
  /// Lists of operand shapes; by default some that fit the form. An opaque row may need some.
  std::vector<std::vector<Dims>> shapes = {};
};

/// Checks on random integers and reals that the result has the shape that the row says and that every declared fact
/// holds, and raises KernelError with a counterexample otherwise. The row need not be registered.
///
/// A fact that compares f(f(a, b), c) fails where that cannot be formed. Values agree within 1e-8, relative to the
/// larger one if that exceeds 1; results that are both infinite with one sign agree, and so do two of which one is not
/// a number and the other not finite (x/0 + y/0 and (x + y)/0 are such).
void check_facts(const table::Row& row, const Evaluate& evaluate, const FactSamples& samples = {});

}  // namespace joinsum::kernels::reference
