#pragma once

#include <map>
#include <optional>

#include "optimizer/placement/completion.h"
#include "optimizer/placement/dual.h"
#include "optimizer/placement/routing.h"

namespace joinsum::optimizer {

/// What a search for the cheapest placement has found whose plan fits a limit of bytes that each site may keep.
struct Fitted {
  std::optional<Choice> choice;  ///< the cheapest that was found, if any costs less than what was given
  bool complete = false;         ///< whether all were looked at: then there is no cheaper one
};

/// Looks through the placements of a small graph whose plans fit a limit of bytes per site: depth first, vertex by
/// vertex. A part of a placement is followed no further where the bound of what it costs (`Dual`) is no less than the
/// best cost so far, or where a site cannot keep what it implies: all inputs, and what one operator reads and makes.
/// The rest are lowered, and keep what their plans keep.
class Fitting {
 public:
  /// Of all these the references must outlive it. `limit` in bytes.
  Fitting(const ProblemParts& from, const Routing& routing, const Dual& dual, int64_t limit);

  /// Whether it searches this graph: of few operators, none of which is a call, and without tied outputs.
  static bool possible(const ProblemParts& from);
  /// Of placements that cost less than `most`.
  Fitted search(double most);

 private:
  enum class First { kCheap, kSmall };
  using Bytes = std::vector<int64_t>;  ///< by site

  void run(First first);
  void extend(size_t vertex, const Dual::Partial& partial, const Bytes& inputs);
  std::optional<Bytes> kept(size_t vertex, const Mode& mode, const Bytes& inputs);
  void try_puts(size_t value, double cost);
  void look_at(double cost);
  bool fits(const Choice& choice);
  const Bytes& bytes_of(const Place* place);
  const Bytes& received_by(const ia::Node& move);

  const ProblemParts& from_;
  const Routing& routing_;
  const Dual& dual_;
  int64_t limit_;
  std::unordered_map<const Place*, Bytes> bytes_;
  std::map<std::pair<const Place*, const Place*>, Bytes> received_;
  First first_ = First::kCheap;
  std::vector<size_t> modes_;
  std::vector<size_t> put_;  ///< by value of the problem
  double most_ = kForbidden;
  int64_t extended_ = 0;
  int64_t lowered_ = 0;
  Fitted found_;
};

}  // namespace joinsum::optimizer
