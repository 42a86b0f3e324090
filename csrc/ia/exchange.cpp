#include "ia/exchange.h"

#include <algorithm>
#include <map>
#include <set>
#include <span>

namespace joinsum::ia {
namespace {

int64_t common_prefix(const Dims& a, const Dims& b) {
  int64_t length = 0;
  while (length < static_cast<int64_t>(a.size()) && a[length] == b[length]) ++length;
  return length;
}

/// The holder that shares the longest coordinate prefix with `receiver`; ties: receiver mod holders.
int64_t nearest(const Grid& grid, const std::vector<int64_t>& holders, int64_t receiver) {
  if (holders.size() == 1) return holders[0];
  const Dims at = grid.coordinates(receiver);
  int64_t longest = -1;
  std::vector<int64_t> best;
  for (const int64_t holder : holders) {
    const int64_t prefix = common_prefix(grid.coordinates(holder), at);
    if (prefix > longest) best.clear();
    longest = std::max(longest, prefix);
    if (prefix == longest) best.push_back(holder);
  }
  return best[receiver % static_cast<int64_t>(best.size())];
}

/// Sites by their coordinates on `axes`, each list ascending.
std::map<int64_t, std::vector<int64_t>> classes(const Grid& grid, const Dims& axes) {
  Dims weights(grid.axes.size());
  int64_t weight = 1;
  for (auto a = axes.rbegin(); a != axes.rend(); ++a) {
    weights[*a] = weight;
    weight *= grid.axes[*a];
  }
  std::map<int64_t, std::vector<int64_t>> out;
  for (int64_t site = 0; site < grid.sites(); ++site) {
    int64_t number = 0;
    int64_t rest = site;
    for (int64_t a = grid.rank() - 1; a >= 0; --a) {
      number += rest % grid.axes[a] * weights[a];
      rest /= grid.axes[a];
    }
    out[number].push_back(site);
  }
  return out;
}

/// What some sites store: each box with the sites that hold it and how many tuples of its key each has.
struct Stock {
  struct Entry {
    std::vector<int64_t> holders;
    std::map<int64_t, int64_t> repeats;
  };
  std::map<Box, Entry> entries;

  Stock(const PhysicalType& type, const std::vector<int64_t>& sites) {
    for (const int64_t site : sites) {
      for (const Box& box : type.stored(site)) {
        Entry& entry = entries[box];
        if (++entry.repeats[site] == 1) entry.holders.push_back(site);
      }
    }
  }
};

/// Adds what `receiver` needs of `piece` (a part of one stocked box).
void add_copies(const PhysicalType& source, const Box& piece, const Stock::Entry& entry, int64_t receiver,
                bool every_holder, std::vector<Transfer>& out) {
  const int64_t size = source.relation.elements_over(piece);
  if (size == 0) return;
  if (every_holder) {
    for (const int64_t holder : entry.holders) {
      if (holder != receiver) out.push_back({holder, receiver, piece, 0, size * entry.repeats.at(holder)});
    }
    return;
  }
  if (entry.repeats.contains(receiver)) return;
  const int64_t from = nearest(source.grid, entry.holders, receiver);
  out.push_back({from, receiver, piece, 0, size * entry.repeats.at(from)});
}

/// Moves a relation none of whose pending axes changes.
std::vector<Transfer> copies(const PhysicalType& source, const PhysicalType& target) {
  std::vector<Transfer> out;
  // Tuples of one key that lie scattered are all different; replicas on a grid are all equal.
  const bool every_holder = source.placement.scattered() != nullptr && !source.relation.unique();
  const bool singles = !source.holding.regular();
  for (const auto& [number, sites] : classes(source.grid, source.placement.axes_in<Pending>())) {
    const Stock stock(source, sites);
    for (const int64_t receiver : sites) {
      const auto needed_list = target.stored(receiver);
      const std::set<Box> needed(needed_list.begin(), needed_list.end());
      for (const Box& box : needed) {
        if (singles && box.count() == 1) {
          add_copies(source, box, stock.entries.at(box), receiver, every_holder, out);
          continue;
        }
        for (const auto& [held, entry] : stock.entries) {
          const Box piece = held.intersect(box);
          if (!piece.empty()) add_copies(source, piece, entry, receiver, every_holder, out);
        }
      }
    }
  }
  return out;
}

/// Divides the elements of `box` among the `members` that hold a partial of it (all, where none does); adds their
/// shares, and what each then sends to the other members. With one member and h holders that is (h-1)·box, or h·box
/// where the member holds none: nothing less works, since each of the h partials has to leave its site.
void add_shares(const RelationType& relation, const Box& box, const std::vector<int64_t>& holders,
                const std::vector<int64_t>& members, Exchange& out) {
  std::vector<int64_t> folders;
  std::set_intersection(members.begin(), members.end(), holders.begin(), holders.end(), std::back_inserter(folders));
  if (folders.empty()) folders = members;
  const int64_t size = relation.elements_over(box);
  const auto parts = static_cast<int64_t>(folders.size());
  for (int64_t i = 0; i < parts; ++i) {
    const int64_t begin = part_begin(size, parts, i);
    const int64_t end = part_begin(size, parts, i + 1);
    if (begin == end && i > 0) continue;
    out.shares.push_back({folders[i], box, begin, end, holders});
    if (begin == end) continue;
    for (const int64_t holder : holders) {
      if (holder != folders[i]) out.reduce.push_back({holder, folders[i], box, begin, end});
    }
    for (const int64_t member : members) {
      if (member != folders[i]) out.gather.push_back({folders[i], member, box, begin, end});
    }
  }
}

/// Sites by the boxes of `target` that they store. Boxes of one placement are equal or apart.
std::map<Box, std::vector<int64_t>> needers(const PhysicalType& target, const std::vector<int64_t>& sites) {
  std::map<Box, std::vector<int64_t>> out;
  for (const int64_t site : sites) {
    for (const Box& box : target.stored(site)) out[box].push_back(site);
  }
  return out;
}

/// Folds what is pending straight into the target: each piece is folded by the sites that need it. Sites that differ
/// along an axis that the source replicates, or that stays pending, keep to themselves.
void settle(const PhysicalType& source, const PhysicalType& target, Exchange& out) {
  Dims apart = source.placement.axes_in<Replicated>();
  for (const int64_t a : target.placement.axes_in<Pending>()) apart.push_back(a);
  for (const auto& [number, sites] : classes(source.grid, apart)) {
    const auto needed = needers(target, sites);
    const Stock stock(source, sites);
    for (const auto& [held, entry] : stock.entries) {
      if (const auto same = needed.find(held); same != needed.end()) {
        add_shares(source.relation, held, entry.holders, same->second, out);
        continue;
      }
      for (const auto& [box, members] : needed) {
        const Box piece = held.intersect(box);
        if (!piece.empty()) add_shares(source.relation, piece, entry.holders, members, out);
      }
    }
  }
}

}  // namespace

int64_t Exchange::elements() const {
  int64_t elements = 0;
  for (const auto* stage : {&reduce, &gather, &copy}) {
    for (const Transfer& transfer : *stage) elements += transfer.elements();
  }
  return elements;
}

Exchange exchange(const PhysicalType& source, const PhysicalType& target) {
  JOINSUM_CHECK(source.relation == target.relation && source.grid == target.grid,
                "exchange between types of two relations");
  Exchange out{"", {}, {}, {}, source, {}};
  const Dims kept = target.placement.axes_in<Pending>();
  if (source.placement.axes_in<Pending>() != kept) {
    out.fold = *source.placement.pending_kernel();
    settle(source, target, out);
    out.settled = target;
  }
  if (!(out.settled.placement == target.placement)) out.copy = copies(out.settled, target);
  return out;
}

namespace {

/// Axes along which neither type changes: sites that differ in these alone hold and need the same, so the first of
/// them stands for all.
class Alike {
 public:
  Alike(const PhysicalType& source, const PhysicalType& target) {
    int64_t stride = source.grid.sites();
    const Dims whole = target.placement.axes_in<Replicated>();
    for (const int64_t axis : source.placement.axes_in<Replicated>()) {
      if (position_of(whole, axis)) axes_.push_back({axis, source.grid.axes[axis]});
    }
    Dims strides;
    for (const int64_t size : source.grid.axes) strides.push_back(stride /= size);
    for (Axis& axis : axes_) {
      count_ *= axis.size;
      axis.stride = strides[axis.number];
    }
  }
  /// Sites that each first one stands for.
  int64_t count() const { return count_; }
  bool first(int64_t site) const {
    return std::all_of(axes_.begin(), axes_.end(),
                       [&](const Axis& axis) { return site / axis.stride % axis.size == 0; });
  }

 private:
  struct Axis {
    int64_t number;
    int64_t size;
    int64_t stride = 1;
  };
  std::vector<Axis> axes_;
  int64_t count_ = 1;
};

/// Counts the elements of a relation over boxes; planners do for many boxes of one relation.
class Elements {
 public:
  explicit Elements(const RelationType& relation) {
    for (int64_t dim = 0; dim < relation.arity(); ++dim) {
      const Dims axes = relation.axes_of(dim);
      Dims& before = before_.emplace_back();
      if (axes.size() == 1) {
        before = relation.axes[axes[0]].cuts;
        continue;
      }
      Box key = Box::below(relation.frontier);
      before.push_back(0);
      for (int64_t k = 0; k < relation.frontier[dim]; ++k) {
        key.lower[dim] = k;
        key.upper[dim] = k + 1;
        before.push_back(before.back() + relation.elements_along(dim, key));
      }
    }
    for (const joinsum::Axis& axis : relation.axes) each_ *= axis.linked() ? 1 : axis.extent;
  }

  int64_t over(const Box& box) const { return over(box, box); }
  /// What two boxes have in common.
  int64_t over(const Box& a, const Box& b) const {
    int64_t out = each_;
    for (size_t d = 0; d < before_.size(); ++d) {
      const int64_t lower = std::max(a.lower[d], b.lower[d]);
      const int64_t upper = std::min(a.upper[d], b.upper[d]);
      if (upper <= lower) return 0;
      out *= before_[d][upper] - before_[d][lower];
    }
    return out;
  }

 private:
  std::vector<Dims> before_;  ///< by dimension, the elements along it before each key
  int64_t each_ = 1;          ///< along axes that no key cuts
};

/// A settled relation: each site receives what it needs and has not.
void add_copies(const PhysicalType& source, const PhysicalType& target, Volume& out) {
  const Alike alike(source, target);
  const Elements elements(source.relation);
  int64_t most = 0;
  for (int64_t site = 0; site < source.sites(); ++site) {
    if (!alike.first(site)) continue;
    const auto& held = source.holding.box(site);
    const auto& needed = target.holding.box(site);
    int64_t missing = needed ? elements.over(*needed) : 0;
    if (missing > 0 && held) missing -= elements.over(*held, *needed);
    out.copy += missing * alike.count();
    most = std::max(most, missing);
  }
  out.busiest += most;
}

/// For each site its coordinates on `axes` as one number, from 0.
std::vector<int64_t> numbers(const Grid& grid, const Dims& axes) {
  std::vector<int64_t> out(1, 0);
  int64_t weight = 1;
  for (int64_t axis = grid.rank() - 1; axis >= 0; --axis) {
    const bool counts = position_of(axes, axis).has_value();
    const size_t below = out.size();
    for (int64_t at = 1; at < grid.axes[axis]; ++at) {
      for (size_t i = 0; i < below; ++i) out.push_back(out[i] + (counts ? at * weight : 0));
    }
    if (counts) weight *= grid.axes[axis];
  }
  return out;
}

Dims joined(Dims a, const Dims& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

/// Partials that are all settled, where sites that differ in pending axes alone hold one box or nothing, equally many
/// of them each, and these boxes make the whole relation. Sites that differ along axes that the source replicates keep
/// to themselves.
class RegularFolds {
 public:
  RegularFolds(const PhysicalType& source, const PhysicalType& target)
      : source_(source), target_(target), elements_(source.relation) {
    const Dims apart = source.placement.axes_in<Replicated>();
    const Dims held = joined(apart, source.placement.axes_in<Split>());
    const Dims wanted = target.placement.axes_in<Split>();
    held_ = numbers(source.grid, held);
    wanted_ = numbers(source.grid, joined(apart, wanted));
    piece_ = numbers(source.grid, joined(held, wanted));
    whole_ = elements_.over(Box::below(source.relation.frontier)) *
             checked_product("volume", project(source.grid.axes, apart));
  }

  /// Nothing where partials lie otherwise.
  std::optional<Volume> volume() {
    if (!count_holders()) return std::nullopt;
    count_pieces();
    Volume out;
    double reduced = 0;
    double gathered = 0;
    for (int64_t site = 0; site < source_.sites(); ++site) {
      const Wanted& wanted = of_wanted_[wanted_[site]];
      if (wanted.sites == 0) continue;
      const int64_t own = own_[site];
      const double folds = own > 0 ? static_cast<double>(own) / static_cast<double>(both_[piece_[site]]) : 0;
      const double rest = static_cast<double>(wanted.size - wanted.covered) / static_cast<double>(wanted.sites);
      const auto holders = static_cast<double>(holders_);
      reduced = std::max(reduced, folds * (holders - 1) + rest * holders);
      gathered = std::max(gathered, static_cast<double>(wanted.size) - folds - rest);
    }
    for (const Wanted& wanted : of_wanted_) {
      out.reduce += wanted.size * holders_ - wanted.covered;
      out.gather += wanted.size * std::max<int64_t>(wanted.sites - 1, 0);
    }
    out.busiest = static_cast<int64_t>(reduced + (out.gather > 0 ? gathered : 0.0));
    return out;
  }

 private:
  /// A box that some sites need.
  struct Wanted {
    int64_t size = 0;
    int64_t sites = 0;
    int64_t covered = 0;  ///< of its elements, those of which a site that needs them holds a partial
  };

  const Box* held(int64_t site) const {
    const auto& box = source_.holding.box(site);
    return box && !box->empty() ? &*box : nullptr;
  }

  bool count_holders() {
    std::vector<const Box*> boxes(source_.sites());
    std::vector<int64_t> holders(source_.sites());
    int64_t sum = 0;
    for (int64_t site = 0; site < source_.sites(); ++site) {
      const Box* box = held(site);
      if (box == nullptr) continue;
      const Box*& first = boxes[held_[site]];
      if (first == nullptr) sum += elements_.over(*box);
      if (first != nullptr && *first != *box) return false;
      first = box;
      ++holders[held_[site]];
    }
    for (size_t i = 0; i < holders.size(); ++i) {
      if (boxes[i] == nullptr) continue;
      if (holders_ != 0 && holders_ != holders[i]) return false;
      holders_ = holders[i];
    }
    return sum == whole_;
  }

  void count_pieces() {
    both_.resize(source_.sites());
    own_.resize(source_.sites());
    of_wanted_.resize(source_.sites());
    for (int64_t site = 0; site < source_.sites(); ++site) {
      const auto& needed = target_.holding.box(site);
      if (!needed) continue;
      Wanted& wanted = of_wanted_[wanted_[site]];
      if (wanted.sites++ == 0) wanted.size = elements_.over(*needed);
      const Box* box = held(site);
      if (box == nullptr) continue;
      own_[site] = elements_.over(*box, *needed);
      if (both_[piece_[site]]++ == 0) wanted.covered += own_[site];
    }
  }

  const PhysicalType& source_;
  const PhysicalType& target_;
  Elements elements_;
  std::vector<int64_t> held_;  ///< numbers of the boxes that sites hold, and need, and of both
  std::vector<int64_t> wanted_;
  std::vector<int64_t> piece_;
  int64_t whole_ = 0;    ///< elements, in all groups that keep to themselves
  int64_t holders_ = 0;  ///< of each box
  std::vector<int64_t> both_;
  std::vector<int64_t> own_;
  std::vector<Wanted> of_wanted_;
};

/// Sites that hold equal boxes, ascending.
struct BoxSites {
  const Box* box;
  std::span<const int64_t> sites;
};

/// Those of `sites` that hold anything, sorted by their boxes into `sorted`, which the result reads.
std::vector<BoxSites> by_box(const Holding& holding, const std::vector<int64_t>& sites, std::vector<int64_t>& sorted) {
  sorted.clear();
  for (const int64_t site : sites) {
    if (holding.box(site) && !holding.box(site)->empty()) sorted.push_back(site);
  }
  std::sort(sorted.begin(), sorted.end(), [&](int64_t a, int64_t b) {
    const auto order = *holding.box(a) <=> *holding.box(b);
    return order == 0 ? a < b : order < 0;
  });
  std::vector<BoxSites> out;
  for (size_t begin = 0; begin < sorted.size();) {
    const Box& box = *holding.box(sorted[begin]);
    size_t end = begin + 1;
    while (end < sorted.size() && *holding.box(sorted[end]) == box) ++end;
    out.push_back({&box, std::span(sorted).subspan(begin, end - begin)});
    begin = end;
  }
  return out;
}

int64_t common(std::span<const int64_t> a, std::span<const int64_t> b) {
  return std::count_if(a.begin(), a.end(), [&](int64_t site) { return std::binary_search(b.begin(), b.end(), site); });
}

/// Partials: each piece is folded by the sites that need it and hold a partial, or by all that need it.
void add_folds(const PhysicalType& source, const PhysicalType& target, Volume& out) {
  if (!target.placement.pending()) {
    if (const auto regular = RegularFolds(source, target).volume()) {
      out = *regular;
      return;
    }
  }
  const Alike alike(source, target);
  Dims apart = source.placement.axes_in<Replicated>();
  for (const int64_t a : target.placement.axes_in<Pending>()) apart.push_back(a);
  std::vector<double> reduced(source.sites());
  std::vector<double> gathered(source.sites());
  std::vector<int64_t> needing;
  std::vector<int64_t> holding;
  const Elements elements(source.relation);
  for (const auto& [number, sites] : classes(source.grid, apart)) {
    if (!alike.first(sites.front())) continue;
    const auto needed = by_box(target.holding, sites, needing);
    for (const BoxSites& held : by_box(source.holding, sites, holding)) {
      for (const BoxSites& wanted : needed) {
        const int64_t size = elements.over(*held.box, *wanted.box);
        if (size == 0) continue;
        const auto holders = static_cast<int64_t>(held.sites.size());
        const auto members = static_cast<int64_t>(wanted.sites.size());
        const int64_t both = common(wanted.sites, held.sites);
        const int64_t folders = both > 0 ? both : members;
        const int64_t incoming = both > 0 ? holders - 1 : holders;
        out.reduce += size * incoming * alike.count();
        out.gather += size * (members - 1) * alike.count();
        const double share = static_cast<double>(size) / static_cast<double>(folders);
        for (const int64_t site : wanted.sites) {
          const bool folds = both == 0 || std::binary_search(held.sites.begin(), held.sites.end(), site);
          if (folds) reduced[site] += share * static_cast<double>(incoming);
          gathered[site] += static_cast<double>(size) - (folds ? share : 0.0);
        }
      }
    }
  }
  const double most = *std::max_element(reduced.begin(), reduced.end()) +
                      (out.gather > 0 ? *std::max_element(gathered.begin(), gathered.end()) : 0.0);
  out.busiest += static_cast<int64_t>(most);
}

/// From the messages themselves.
Volume counted(const Exchange& exchange, int64_t sites) {
  Volume out;
  int64_t* const totals[] = {&out.reduce, &out.gather, &out.copy};
  const std::vector<Transfer>* const stages[] = {&exchange.reduce, &exchange.gather, &exchange.copy};
  for (size_t i = 0; i < 3; ++i) {
    std::vector<int64_t> received(sites);
    for (const Transfer& transfer : *stages[i]) {
      *totals[i] += transfer.elements();
      received[transfer.to] += transfer.elements();
    }
    out.busiest += *std::max_element(received.begin(), received.end());
  }
  return out;
}

}  // namespace

Volume volume(const PhysicalType& source, const PhysicalType& target) {
  JOINSUM_CHECK(source.relation == target.relation && source.grid == target.grid,
                "volume of a move between types of two relations");
  Volume out;
  if (source.placement == target.placement) return out;
  if (!source.holding.regular() || !target.holding.regular()) {
    out = counted(exchange(source, target), source.sites());
  } else if (!source.placement.pending()) {
    add_copies(source, target, out);
  } else if (source.placement.axes_in<Pending>() != target.placement.axes_in<Pending>()) {
    add_folds(source, target, out);
  } else {
    out = counted(exchange(source, target), source.sites());
  }
  out.stages = (out.reduce > 0 ? 1 : 0) + (out.gather > 0 ? 1 : 0) + (out.copy > 0 ? 1 : 0);
  return out;
}

int64_t wire_bytes(const PhysicalType& source, const PhysicalType& target) {
  return exchange(source, target).elements() * byte_size(source.relation.dtype);
}

}  // namespace joinsum::ia
