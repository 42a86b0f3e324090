#pragma once

#include <map>
#include <tuple>

#include "kernels/pairs/winners.h"
#include "runtime/execution/local/local_operator.h"
#include "runtime/execution/local/tile_program.h"

namespace joinsum::runtime::execution::local {

/// An extreme of joined elements: the tuples that hold it and its operands, by the values that their elements come
/// from. Letters are those of the extreme, then those that it lacks, as they come in the operands: A, B, ...
struct ExtremeName {
  using Tuple = std::tuple<const ia::Node*, Key, std::string>;

  Tuple extreme, first, second;
  kernels::semiring::Join join;
  bool least;
  auto operator<=>(const ExtremeName&) const = default;
};

/// An extreme that a program compares joined elements with.
struct ComparedExtreme {
  ExtremeName name;
  std::string letters;            ///< the program's, for A, B, ...
  std::string inner;              ///< those that the extreme lacks
  size_t extreme, first, second;  ///< steps
};

/// The winners that a run of a plan has found: the ties are counted first, then each operand's gradient needs them.
class FoundWinners {
 public:
  /// Nothing where they are not known.
  const std::optional<kernels::pairs::Winners>* at(const ExtremeName& name) const {
    const auto found = found_.find(name);
    return found == found_.end() ? nullptr : &found->second;
  }
  const std::optional<kernels::pairs::Winners>& add(const ExtremeName& name,
                                                    std::optional<kernels::pairs::Winners> found) {
    return found_.insert_or_assign(name, std::move(found)).first->second;
  }

 private:
  std::map<ExtremeName, std::optional<kernels::pairs::Winners>> found_;
};

/// A program that is a sum of terms over the joined elements of two arrays (kernels::pairs::adds_terms): argmax and
/// argmin, the number of ties, and gradients of contractions.
struct PairPattern {
  kernels::semiring::Term term;
  kernels::semiring::Join join;
  /// Steps that read arrays.
  size_t own;
  std::optional<size_t> left, weight;
  size_t right;
  std::string inner = {};  ///< the reduced letters
  std::optional<size_t> positions = {};
  int64_t no_position = 0;
  std::optional<ComparedExtreme> compared = {};
};

/// `contraction`, whose result is that extreme, wrapped so that it leaves the winners for the programs that compare
/// with it; unchanged where the extreme is not a contraction of the two tuples, all of `node`'s and of its operands'.
LocalOperatorPtr with_winners(const ia::Node& node, const ExtremeName& name, LocalOperatorPtr contraction);

/// The pattern of a program, if it is one.
std::optional<PairPattern> pair_pattern(const TileProgram& program);

/// Runs it as `program` would; says whether there are loops for these arrays, which lie anyhow. Winners that it finds
/// are added to `winners`, those that are there spare it the search.
bool runs_pattern(const PairPattern& pattern, const TileProgram& program, const std::vector<at::Tensor>& arrays,
                  FoundWinners& winners, const at::Tensor& out, bool accumulate);

}  // namespace joinsum::runtime::execution::local
