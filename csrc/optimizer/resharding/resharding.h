#pragma once

#include <memory>
#include <vector>

#include "optimizer/layouts/move_prices.h"
#include "optimizer/resharding/message_cache.h"

namespace joinsum::optimizer::resharding {

/// The layouts between which a value moves, and what the moves cost.
struct Routes {
  std::vector<const layouts::Layout*> produced;  ///< layouts in which operators produce it
  std::vector<const layouts::Layout*> staged;    ///< layouts in which it may be staged for all its readers
  std::vector<const layouts::Layout*> required;  ///< layouts that readers require
  /// From produced layouts (rows) to staging layouts; the last column is the cost of not staging.
  std::vector<double> staging_costs;
  /// To required layouts (rows) from produced layouts, from staging layouts, and from no staging layout; and
  /// transposed.
  std::vector<double> fetch_costs;
  std::vector<double> fetch_costs_by_source;

  size_t columns() const { return staged.size() + 1; }
  size_t sources() const { return produced.size() + columns(); }
  bool free() const;  ///< whether no choice costs anything
};

/// How a value reaches its readers. The operator produces it in one layout; it may be staged in one more; and each
/// layout that some reader requires is fetched once, from the cheaper of the two.
///
/// Members charge costs per layout: `messages[0]` are the producer's charges per produced layout, `messages[1 + i]`
/// those of reader i per required layout. Readers that require one layout share the move to it, so the least cost is
/// found over all partitions of the readers into such groups: exactly, in time 3^readers * produced * staged.
class Resharding {
 public:
  using Messages = std::vector<std::vector<double>>;

  /// Reshardings on the same routes that share a cache compute equal messages once.
  Resharding(std::shared_ptr<const Routes> routes, size_t readers, MessageCache* cache)
      : routes_(std::move(routes)), readers_(readers), cache_(cache) {}

  /// The number of layouts of a member: 0 is the producer, then the readers.
  size_t layouts(size_t member) const { return member == 0 ? routes_->produced.size() : routes_->required.size(); }
  /// About how many table entries a message reads.
  static double entries(const Routes& routes, size_t readers);
  /// For each layout of a member, the least cost of the resharding together with all other members' charges.
  std::vector<double> message_to(size_t member, const Messages& messages) const;
  /// The least cost of the resharding together with all members' charges.
  double least(const Messages& messages) const;

 private:
  std::vector<double> to_producer(const Messages& messages) const;
  std::vector<double> to_reader(size_t reader, const Messages& messages) const;

  std::shared_ptr<const Routes> routes_;
  size_t readers_;
  MessageCache* cache_;
};

/// The cost of resharding a value from one produced layout to all required ones, and the best staging layout, as
/// positions in the lists of `routes`. Position `routes.staged.size()` means that the value is not staged.
struct ReshardingCost {
  double cost = 0;
  size_t staged = 0;
};
ReshardingCost resharding_cost(const Routes& routes, size_t produced, std::vector<size_t> required);
/// The same cost for each staging layout. Removes duplicates from `required`.
std::vector<double> costs_by_staged(const Routes& routes, size_t produced, std::vector<size_t>& required);
/// The same cost if each of `layouts` in turn is required besides `required`.
std::vector<double> resharding_cost_beside(const Routes& routes, size_t produced, std::vector<size_t> required,
                                           const std::vector<size_t>& layouts);

}  // namespace joinsum::optimizer::resharding
