#pragma once

#include <memory>
#include <vector>

#include "optimizer/placement/message_memory.h"
#include "optimizer/placement/move_prices.h"

namespace joinsum::optimizer {

/// The layouts between which a value moves, and what the moves cost.
struct Routes {
  std::vector<const Place*> made;    ///< what the operator leaves
  std::vector<const Place*> put;     ///< where it may be put beside, for all its readers
  std::vector<const Place*> needed;  ///< where readers want it
  /// From where it is made (rows) to where it is put, and at the end what it costs to be put nowhere.
  std::vector<double> putting;
  /// To where it is needed (rows) from where it is made, from where it is put, and from nowhere; and transposed.
  std::vector<double> taking;
  std::vector<double> taking_from;

  size_t columns() const { return put.size() + 1; }
  size_t sources() const { return made.size() + columns(); }
  bool free() const;  ///< whether no choice costs anything
};

/// How a value gets to its readers: it is made in one place, may be put in one more, and is moved from the cheaper one
/// to each other place that some reader needs, once.
///
/// Messages are costs per place: `asked[0]` what its maker asks for making it there, `asked[1 + i]` what reader i asks
/// for needing it there. Readers of one place share a move to it, so the least cost is found over all ways to divide
/// the readers in groups of one place: exact, in time 3^readers * made * put.
class Delivery {
 public:
  using Asked = std::vector<std::vector<double>>;

  /// Deliveries on the same routes that share `memory` compute equal messages once.
  Delivery(std::shared_ptr<const Routes> routes, size_t readers, MessageMemory* memory)
      : routes_(std::move(routes)), readers_(readers), memory_(memory) {}

  /// That member `member` may ask for.
  size_t places(size_t member) const { return member == 0 ? routes_->made.size() : routes_->needed.size(); }
  /// That a message looks at, about.
  double entries() const { return entries(*routes_, readers_); }
  static double entries(const Routes& routes, size_t readers);
  /// For each place of member `member` (0: the maker), the least cost of delivery with what all others ask.
  std::vector<double> message_to(size_t member, const Asked& asked) const;
  /// The least cost of delivery with all that is asked.
  double least(const Asked& asked) const;

 private:
  std::vector<double> to_maker(const Asked& asked) const;
  std::vector<double> to_reader(size_t reader, const Asked& asked) const;

  std::shared_ptr<const Routes> routes_;
  size_t readers_;
  MessageMemory* memory_;
};

/// What it costs to bring a value from where it is made to all of `needed`, and where it is put for that: positions in
/// the lists of `routes`, of which the number of those to put is nowhere.
struct Delivered {
  double cost = 0;
  size_t put = 0;
};
Delivered delivered(const Routes& routes, size_t made, std::vector<size_t> needed);
/// The same cost by where it is put; each of `needed` is left once.
std::vector<double> costs_by_put(const Routes& routes, size_t made, std::vector<size_t>& needed);
/// The same cost for each of `places`, which is needed beside `needed`.
std::vector<double> delivered_beside(const Routes& routes, size_t made, std::vector<size_t> needed,
                                     const std::vector<size_t>& places);

}  // namespace joinsum::optimizer
