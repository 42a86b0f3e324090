#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/dims.h"
#include "base/dtype.h"
#include "base/scanner.h"

namespace joinsum::kernels::call {

/// An argument of a call as its text gives it.
struct CallArgument {
  enum class Kind {
    kNone,
    kBool,     ///< `integer` is 0 or 1
    kInteger,  ///< 3
    kNumber,   ///< 0.5, inf, nan
    kText,     ///< 'mean'
    kDType,    ///< f32
    kOperand,  ///< %0{a,bc}: operand `integer` with one axis for each of `groups`
    kExtent,   ///< |bc|: elements along the letters of `text`, in the part of the work that the call does
    kOffset,   ///< @b: the first index of the letter `text` in that part
    kList,     ///< [..] of `items`
  };
  Kind kind = Kind::kNone;
  std::string name = {};  ///< of a keyword argument
  int64_t integer = 0;
  double number = 0;
  std::string text = {};
  std::vector<std::string> groups = {};  ///< letters that one axis runs through, last fastest; none: one element
  std::vector<CallArgument> items = {};

  std::string print() const;
  bool operator==(const CallArgument& other) const;
};

/// A result: its letters, the axes in which the operator gives it, and about how many elements it stores if it is
/// sparse.
struct CallResult {
  std::string letters;
  DType dtype = DType::kFloat32;
  std::vector<std::string> groups = {};
  std::optional<int64_t> entries = {};
  bool operator==(const CallResult&) const = default;
};

/// A letter that no operand has.
struct NewLetter {
  int64_t extent = 0;
  int64_t parts = 1;  ///< in which the results are cut along it
  bool operator==(const NewLetter&) const = default;
};

/// One result of an operator of torch's dispatcher on operands whose axes have letters. The work may be divided by a
/// letter: freely, if the operator does to each part what it does to the whole; leaving partials of the results that
/// lack the letter, while those that have it are divided (`reduce`); or not at all (`undivided`). Prints as
/// `0; aten::_softmax; ab -> ab:f32; (%0{a,b}, 1, false) -> {a,b}; undivided=b; flops=5 ab`. A decomposed operator
/// names the call that does the same undecomposed: `...; undecomposed (0) {0; aten::_softmax; ab -> ab:f32; ...}`. A
/// sparse result of about 9 elements is `ab:f32 sparse{9}`.
/// Source: EinDecomp, section 2: a vertex of the graph runs as one kernel call for each part of its unique labels.
struct Call {
  int64_t output = 0;  ///< which of the results it is; calls equal but for it run once
  std::string function;
  std::vector<std::string> operands;  ///< letters of their axes, each once
  std::vector<CallResult> results;
  std::vector<CallArgument> arguments;
  std::string undivided;
  std::string same;                    ///< letters of which results that lack them do not depend on the part at hand
  std::map<char, std::string> reduce;  ///< the kernel that reduces partials of results that lack the letter
  std::map<char, NewLetter> extents;
  std::vector<std::pair<double, std::string>> flops;  ///< a sum: each times the extents of the letters
  Dims undecomposed_operands;                         ///< those of this call that `undecomposed` has, in its order
  std::vector<Call>
      undecomposed;  ///< none, or what has the same result where no letter is divided that it needs undivided

  const CallResult& result() const { return results[output]; }
  std::string text() const;
  static Call parse(Scanner& scanner);
  uint64_t hash() const;
  bool operator==(const Call&) const = default;
  /// Whether both are results of one run, if their operands are the same.
  bool runs_with(const Call& other) const;
};

/// Raises where letters, operands, results and arguments of a call do not fit together.
void check(const Call& call);

/// Extent of each letter; raises PlanError where operands do not fit, naming the call, the operand and the letter.
std::map<char, int64_t> extents_of(const Call& call, const std::vector<Dims>& operands);

/// Whether the operator takes sparse operands.
bool takes_sparse(const Call& call);

/// Whether the call's flops count entries of sparse operands, not elements.
bool counts_entries(const Call& call);

/// Whether the operator changes rows of its operands and gives these as its results.
bool changes_rows(const Call& call);

/// Bytes that the call reads and writes for one result, where its operands and that result have so many: of an operand
/// of which it looks up or changes rows those alone.
double moved_bytes(const Call& call, const std::vector<double>& operands, double result);

/// Raises PlanError: what an operator of torch's does is known where torch is.
[[noreturn]] void fail_to_interpret(const Call& call);

/// Floating-point operations of the call on parts of these extents.
double flops(const Call& call, const std::map<char, double>& extents);

}  // namespace joinsum::kernels::call
