#pragma once

#include <map>
#include <string>
#include <variant>
#include <vector>

#include "base/scanner.h"

namespace joinsum::kernels::table {

/// A scalar that each run binds by name (a learning rate, a step count); prints as `$name`.
struct ScalarName {
  std::string name;
  bool operator==(const ScalarName&) const = default;
};

/// Values of the scalars that a plan's kernels name.
using Scalars = std::map<std::string, double>;

using Parameter = std::variant<int64_t, double, std::string, ScalarName>;

/// A kernel as plans name it: `relu`, `scale[0.5]`, `adam_first[0.9]`, `sgd_update[$rate]`, `contract[ij,jk->ik]`.
/// What it does is said by its row in the table (kernels/table.h). Kernels of one operand may follow: `add | relu` is
/// relu(a + b). After a reduction they run once, on each group's result.
struct Kernel {
  std::string name;
  std::vector<Parameter> parameters;
  std::vector<Kernel> epilogue = {};  ///< in order; none of them has any itself

  /// The kernel without those that follow.
  Kernel first() const { return {name, parameters}; }
  /// This kernel, then `next`; `id` adds nothing.
  Kernel followed_by(const Kernel& next) const;

  std::string text() const;
  static Kernel parse(Scanner& scanner);
  static Kernel parse(const std::string& text);
  uint64_t hash() const;
  bool operator==(const Kernel&) const = default;

  int64_t integer(size_t index) const;
  const std::string& label(size_t index) const;
  /// Number at `index`, reading `scalars` for a named one; raises PlanError when it is not bound.
  double number(size_t index, const Scalars& scalars) const;
  /// Names of the scalars it reads.
  std::vector<std::string> scalar_names() const;
};

}  // namespace joinsum::kernels::table
