#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/dims.h"
#include "base/dtype.h"
#include "base/scanner.h"

namespace joinsum::relation {

/// One array axis of a relation. An axis that was made by cutting is *linked* to the key dimension that counts its
/// parts: the array at key k covers [cuts[k_d], cuts[k_d + 1]) of it. An unlinked axis has one extent in all tuples.
struct Axis {
  static constexpr int64_t kUnlinked = -1;

  int64_t extent = 0;  ///< of the whole axis when linked, of each tuple's array otherwise
  int64_t key_dim = kUnlinked;
  CutPoints cuts;  ///< frontier[key_dim] + 1 points when linked, none otherwise

  static Axis whole(int64_t extent) { return {extent, kUnlinked, {}}; }
  static Axis cut(int64_t key_dim, CutPoints cuts);
  bool linked() const { return key_dim != kUnlinked; }
  /// Extent in the array of the tuple at `key`.
  int64_t extent_at(const Key& key) const;
  /// Extent of the axis over all keys of `box`.
  int64_t extent_over(const Box& box) const;
  bool operator==(const Axis&) const = default;
};

/// The type of a tensor relation: a bag of (key, array) tuples.
/// `keys` is null when every key below the frontier is there exactly once (the relation is then unique and
/// continuous); otherwise it lists the keys, ascending, with repeats. The frontier is the least bound of the keys.
/// `entries` is set where the arrays are sparse: about how many elements all of them store, each with its indices.
struct RelationType {
  DType dtype = DType::kFloat32;
  Dims frontier;
  std::vector<Axis> axes;
  std::shared_ptr<const std::vector<Key>> keys;
  std::optional<int64_t> entries;

  /// Checks and normalises: sorts `keys`, shrinks the frontier (and cut points with it) to their bound, and drops them
  /// when they are all keys below it. `who` opens messages.
  static RelationType make(const std::string& who, DType dtype, Dims frontier, std::vector<Axis> axes,
                           std::shared_ptr<const std::vector<Key>> keys = nullptr);
  /// The relation of a tensor of extents `shape` cut in `parts[i]` parts along axis i.
  static RelationType of_tensor(DType dtype, const Dims& shape, const Dims& parts);
  /// The same cut at given points along each axis.
  static RelationType of_tensor(DType dtype, const std::vector<CutPoints>& cuts);

  int64_t arity() const { return static_cast<int64_t>(frontier.size()); }
  int64_t rank() const { return static_cast<int64_t>(axes.size()); }
  bool regular() const { return keys == nullptr; }
  std::optional<Key> first_duplicate() const;
  std::optional<Key> first_hole() const;
  bool unique() const { return !first_duplicate(); }
  bool continuous() const { return !first_hole(); }
  int64_t tuples() const;
  std::vector<Key> all_keys() const;

  Dims array_shape(const Key& key) const;
  /// Shape shared by all arrays, if there is one.
  std::optional<Dims> uniform_shape() const;
  int64_t elements_at(const Key& key) const;
  /// Elements of all keys of `box`, in closed form.
  int64_t elements_over(const Box& box) const;
  /// What key dimension `dim` contributes to that product: its keys, times what is linked to them.
  int64_t elements_along(int64_t dim, const Box& box) const;
  /// Elements of the whole relation.
  int64_t elements() const;
  bool sparse() const { return entries.has_value(); }
  /// How many of that many elements are stored: all of them, or what a sparse relation stores of them if its entries
  /// are spread evenly.
  int64_t stored_of(int64_t elements) const;
  /// Bytes of that many elements: every count of bytes of a relation's elements asks here. An estimate where the
  /// relation is sparse.
  int64_t bytes_of(int64_t elements) const;
  /// Bytes of all tuples.
  int64_t bytes() const { return bytes_of(elements()); }
  /// Axes linked to key dimension `dim`.
  Dims axes_of(int64_t dim) const;

  /// Prints `f32[100,50]<4,2>`, with `sparse{300}` behind it for sparse arrays of about 300 entries. An axis prints as
  /// its extent; `@d` follows where it is linked otherwise than axis i to key i by even cuts (`@-` for unlinked,
  /// `@1{0,30,100}` for other cuts). Irregular keys follow: all of them with `full`, else the first hole and the first
  /// duplicate.
  std::string text(bool full = false) const;
  static RelationType parse(Scanner& scanner);
  static RelationType parse(const std::string& text);
  /// Estimated entries are not compared.
  bool operator==(const RelationType& other) const;
};

/// Finds axes for arrays whose extents are known tuple by tuple: an axis of one extent is unlinked, one whose extent is
/// a function of a single key component is linked to it. Raises where neither holds, naming the first key.
/// `preferred[a]` (a key dimension or Axis::kUnlinked) is tried first.
std::vector<Axis> fit_axes(const std::string& who, const Dims& frontier, const std::vector<Key>& keys,
                           const std::vector<Dims>& shapes, const Dims& preferred);

/// Raises unless `count` keys may be listed one by one (the exact checks enumerate keys).
void check_enumerable(const std::string& who, int64_t count);

}  // namespace joinsum::relation
