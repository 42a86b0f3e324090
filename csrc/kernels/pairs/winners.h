#pragma once

#include <memory>
#include <vector>

#include "kernels/pairs/terms.h"

namespace joinsum::kernels::pairs {

/// What is searched: left ⊗ right for elements that equal `extreme`, the largest (or with `least` the smallest) along
/// the letters `inner`, which `extreme` lacks; it has all others.
struct WinnerProblem {
  semiring::Join join;
  bool least;
  Lettered left;
  Lettered right;
  Lettered extreme;
  std::string inner;
  std::map<char, int64_t> extents;
};

/// Where extremes of joined elements are. An index of the letters `inner`, taken as one axis, says it.
struct Winners {
  static constexpr int32_t kNowhere = -1;

  using Ties = std::vector<std::vector<int32_t>>;

  Lettered places;  ///< 32-bit integers: an index, kNowhere, or below it kNowhere - 1 - n for those of ties[n]
  std::string inner;
  std::shared_ptr<const Ties> ties;  ///< indices, which rise

  /// The indices of one place.
  template <class Use>
  void for_each(int32_t place, Use use) const {
    if (place >= 0) return use(place);
    if (place == kNowhere) return;
    for (const int32_t index : (*ties)[static_cast<size_t>(kNowhere - 1 - place)]) use(index);
  }
};

/// One pass over both operands finds the chunks of indices that hold the extremes; then these are searched. Nothing
/// where there are no loops for it, where joined elements may be NaN, where many extremes are tied, and where joined
/// elements exceed `extreme`.
std::optional<Winners> winners(const WinnerProblem& problem);

/// The extremes with their winners, in the same pass: the array of `extreme` is undefined. The result has its letters.
std::optional<std::pair<at::Tensor, Winners>> extremes(const WinnerProblem& problem);

/// The number of winners is added to `out`, which has the letters of the places.
void add_counts(const Winners& found, const Lettered& out);

/// Replaces elements of `out` by smaller ones of `positions`, by index.
void take_positions(const Winners& found, const int64_t* positions, const Lettered& out);

/// Adds the terms of a problem of kTied, whose joined elements the winners are of; says whether it fits them: `out` has
/// the letters `inner`, the weight does not, and is finite.
bool adds_tied(const TermProblem& problem, const Winners& found, const Lettered& out);

}  // namespace joinsum::kernels::pairs
