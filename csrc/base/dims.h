#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/check.h"

namespace joinsum {

/// An ordered list of dimension positions, or of extents.
using Dims = std::vector<int64_t>;

/// The integer vector that names a tuple.
using Key = std::vector<int64_t>;

/// Prints a key as `<0,1>`.
std::string key_text(const Key& key);

/// Position of `dim` in `dims`, if it is there.
std::optional<int64_t> position_of(const Dims& dims, int64_t dim);

/// Dimensions below `arity` that `dims` lacks, in order.
Dims complement(const Dims& dims, int64_t arity);

/// The list 0, 1, ..., arity-1.
Dims all_dims(int64_t arity);

/// The components of `key` at `dims`, in that order.
Key project(const Key& key, const Dims& dims);

/// Raises unless `dims` are distinct and below `arity`. `who` opens the message, `what` names the list.
void check_dims(const std::string& who, const std::string& what, const Dims& dims, int64_t arity);

/// Product of non-negative extents; raises when it exceeds int64.
int64_t checked_product(const std::string& who, const Dims& extents);

/// ⌈a/b⌉ for a ≥ 0, b > 0.
constexpr int64_t ceil_div(int64_t a, int64_t b) { return a / b + (a % b != 0 ? 1 : 0); }

/// First index of part `part` when `extent` is cut in `parts`: ⌈part·extent/parts⌉.
/// A cut in c coarsens a cut in any multiple of c, so refining a split moves nothing that is in place.
int64_t part_begin(int64_t extent, int64_t parts, int64_t part);

/// The part that holds `index` under `part_begin`.
int64_t part_of(int64_t extent, int64_t parts, int64_t index);

/// Boundaries between the parts of an axis: 0 = first < ... = extent.
using CutPoints = std::vector<int64_t>;

/// Cuts `extent` in `parts` by `part_begin`; more parts than elements gives one part per element,
/// and an extent of 0 gives one empty part, so that a sum over it is 0 as in torch.
CutPoints even_cuts(int64_t extent, int64_t parts);

/// A product of half-open ranges of keys.
struct Box {
  Key lower;
  Key upper;

  static Box below(const Key& frontier) { return {Key(frontier.size(), 0), frontier}; }
  static Box single(const Key& key);
  int64_t arity() const { return static_cast<int64_t>(lower.size()); }
  int64_t extent(int64_t dim) const { return upper[dim] - lower[dim]; }
  Dims extents() const;
  /// Number of keys; raises when it exceeds int64.
  int64_t count() const;
  bool empty() const;
  bool contains(const Key& key) const;
  bool contains(const Box& other) const;
  Box intersect(const Box& other) const;
  /// Keeps what `other` has too.
  void cut_to(const Box& other);
  bool operator==(const Box&) const = default;
  auto operator<=>(const Box&) const = default;
  std::string text() const;
};

/// Calls `visit` for each key of `box`, last component fastest.
void for_each_key(const Box& box, const std::function<void(const Key&)>& visit);

/// All keys of `box`, last component fastest.
std::vector<Key> keys_of(const Box& box);

/// Mixes `value` into `seed` (FNV-1a over the bytes): the same on every machine and run.
uint64_t hash_mix(uint64_t seed, uint64_t value);
uint64_t hash_text(const std::string& text);

}  // namespace joinsum
