#pragma once

#include <memory>
#include <string>
#include <vector>

#include "ia/placement.h"
#include "relation/relation_type.h"

namespace joinsum::ia {

using relation::RelationType;

/// Which tuples each site holds, exactly, so that costs are exact. Of a regular holding, each site has at most one box
/// of keys, every key of it once; of any other, a list of keys, ascending, with repeats.
class Holding {
 public:
  using KeyList = std::shared_ptr<const std::vector<Key>>;

  /// A site without a box holds nothing; so does one with an empty box.
  static Holding of_boxes(std::vector<std::optional<Box>> boxes);
  static Holding of_keys(std::vector<KeyList> keys);
  /// What sites hold of `relation` under `placement`, a grid placement without pending axes.
  static Holding placed(const RelationType& relation, const Grid& grid, const Placement& placement);

  bool regular() const { return keys_.empty(); }
  int64_t sites() const { return static_cast<int64_t>(regular() ? boxes_.size() : keys_.size()); }
  /// Of a regular holding.
  const std::optional<Box>& box(int64_t site) const { return boxes_[site]; }
  /// Keys on the site, ascending, with repeats; shared between sites that hold the same ones.
  KeyList keys(int64_t site) const;
  bool empty(int64_t site) const { return tuples(site) == 0; }
  int64_t tuples(int64_t site) const;
  int64_t elements(const RelationType& relation, int64_t site) const;
  /// Sites that hold a tuple of `key`, ascending.
  std::vector<int64_t> sites_of(const Key& key) const;
  /// Compares lists of keys by address: lists that are not shared differ.
  bool operator==(const Holding&) const = default;

 private:
  std::vector<std::optional<Box>> boxes_;
  std::vector<KeyList> keys_;
};

/// Type of a physical relation: what it holds, and where.
struct PhysicalType {
  RelationType relation;
  Grid grid;
  Placement placement;
  Holding holding;

  /// A reduced relation on a grid placement; checks the placement.
  static PhysicalType placed(const std::string& who, RelationType relation, Grid grid, Placement placement);
  int64_t sites() const { return holding.sites(); }
  /// Into how many parts the sites divide each key dimension.
  Dims parts() const;
  int64_t bytes(int64_t site) const { return relation.bytes_of(holding.elements(relation, site)); }
  /// Bytes on the site that holds most of the relation.
  int64_t most_bytes() const;
  /// The boxes in which a site stores its tuples: whole boxes where arrays of a box make one tensor, else one tuple
  /// each.
  std::vector<Box> stored(int64_t site) const;
  /// Prints `f32[100,50]<4,2> on 2x2x2 (0, *, +add)`.
  std::string text(bool full = false) const;
  /// Equal in relation and placement (and so in what every site holds, for types of one plan).
  bool operator==(const PhysicalType& other) const;
};

/// A type that many relations have; never null.
using SharedType = std::shared_ptr<const PhysicalType>;
inline SharedType shared(PhysicalType type) { return std::make_shared<const PhysicalType>(std::move(type)); }

/// What sites hold once `source` has been moved to `placement`. Within each coordinate of the axes that stay pending,
/// what any site held moves to the sites that the placement names.
Holding reduced_holding(const PhysicalType& source, const Placement& placement);

}  // namespace joinsum::ia
