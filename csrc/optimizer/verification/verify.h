#pragma once

#include <string>

#include "ia/nodes.h"
#include "tra/nodes.h"

namespace joinsum::optimizer::verification {

/// Whether a physical plan computes a program, and how that is known.
struct Verdict {
  enum Kind {
    kProved,    ///< by laws: both have one normal form
    kTested,    ///< by running both on random data, in which they agreed
    kRefuted,   ///< they differ; `reason` says where
    kUndecided  ///< neither laws nor a run could tell
  };
  Kind kind = kUndecided;
  std::string reason;
  /// Whether the plan may be run for the program.
  bool accepted() const { return kind == kProved || kind == kTested; }
};

struct VerifyOptions {
  uint64_t seed = 0;
  int64_t rounds = 4;  ///< runs on random data, where laws do not tell
};

/// Compares outputs by name: relation types, ties, whether they are pending, then contents. Contents are equal if both
/// plans have one normal form (given that well-typed plans mean what they would on one site, which the interpreter's
/// tests hold); otherwise both are run by their definitions on small integers, over smaller arrays where theirs are
/// large (same keys, cuts, grid and placements), and must agree within 1e-8 of the largest value.
/// Lookup tables of one name are taken to be one table.
Verdict verify(const ia::Plan& plan, const tra::Plan& program, const VerifyOptions& options = {});

/// `proved`, `tested`, `refuted` or `undecided`.
const char* name_of(Verdict::Kind kind);

}  // namespace joinsum::optimizer::verification
