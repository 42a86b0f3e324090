#pragma once

#include "kernels/table/table.h"

namespace joinsum::kernels::table {

/// A kernel applied to values, as rows write derivatives: `mul(d, conjugate(y))`; a value is a name without operands.
/// Kernels that follow are part of it: `square | negate(z)` is -z².
struct Formula {
  Kernel kernel;
  std::vector<Formula> operands = {};

  /// Raises PlanError where the text is no formula.
  static Formula parse(const std::string& text);

  /// Whether it is the value `name`.
  bool is(const std::string& name) const { return operands.empty() && kernel.name == name; }
  bool reads(const std::string& name) const;
  bool operator==(const Formula&) const = default;
};

/// The formula in the row of the elementwise `kernel` for its operand `operand`; nothing where the row has none.
std::optional<Formula> derivative(const Kernel& kernel, size_t operand);

}  // namespace joinsum::kernels::table
