#include "ia/analysis/volume.h"

#include <algorithm>
#include <span>

#include "ia/analysis/exchange.h"

namespace joinsum::ia::analysis {
namespace {

/// Axes that both types replicate: sites that differ only along them hold and need the same, so the first of them
/// represents all.
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
  /// The number of sites that each first site represents.
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
    for (const relation::Axis& axis : relation.axes) each_ *= axis.linked() ? 1 : axis.extent;
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

/// A relation that is not pending: each site receives what it needs and does not hold.
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

Dims joined(Dims a, const Dims& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

/// Partials that are all reduced, where sites that differ in pending axes alone hold one box or nothing, equally many
/// of them each, and these boxes together are the relation. Sites that differ along axes that the source replicates
/// exchange nothing.
class RegularReductions {
 public:
  RegularReductions(const PhysicalType& source, const PhysicalType& target)
      : source_(source), target_(target), elements_(source.relation) {
    const Dims apart = source.placement.axes_in<Replicated>();
    const Dims held = joined(apart, source.placement.axes_in<Split>());
    const Dims wanted = target.placement.axes_in<Split>();
    held_ = source.grid.numbers(held);
    wanted_ = source.grid.numbers(joined(apart, wanted));
    piece_ = source.grid.numbers(joined(held, wanted));
    whole_ = elements_.over(Box::below(source.relation.frontier)) *
             checked_product("volume", project(source.grid.axes, apart));
  }

  /// Empty where partials have other layouts.
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
      const double share = own > 0 ? static_cast<double>(own) / static_cast<double>(both_[piece_[site]]) : 0;
      const double rest = static_cast<double>(wanted.size - wanted.covered) / static_cast<double>(wanted.sites);
      const auto holders = static_cast<double>(holders_);
      reduced = std::max(reduced, share * (holders - 1) + rest * holders);
      gathered = std::max(gathered, static_cast<double>(wanted.size) - share - rest);
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
  int64_t whole_ = 0;    ///< elements, in all groups of sites that exchange nothing with other groups
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

/// Partial values: each piece is reduced by the sites that need it and hold a partial value of it, or by all that need
/// it where none of them does.
void add_reductions(const PhysicalType& source, const PhysicalType& target, Volume& out) {
  const Alike alike(source, target);
  Dims apart = source.placement.axes_in<Replicated>();
  for (const int64_t a : target.placement.axes_in<Pending>()) apart.push_back(a);
  std::vector<double> reduced(source.sites());
  std::vector<double> gathered(source.sites());
  std::vector<int64_t> needing;
  std::vector<int64_t> holding;
  const Elements elements(source.relation);
  for (const auto& [number, sites] : source.grid.classes(apart)) {
    if (!alike.first(sites.front())) continue;
    const auto needed = by_box(target.holding, sites, needing);
    for (const BoxSites& held : by_box(source.holding, sites, holding)) {
      for (const BoxSites& wanted : needed) {
        const int64_t size = elements.over(*held.box, *wanted.box);
        if (size == 0) continue;
        const auto holders = static_cast<int64_t>(held.sites.size());
        const auto members = static_cast<int64_t>(wanted.sites.size());
        const int64_t both = common(wanted.sites, held.sites);
        const int64_t reducers = both > 0 ? both : members;
        const int64_t incoming = both > 0 ? holders - 1 : holders;
        out.reduce += size * incoming * alike.count();
        out.gather += size * (members - 1) * alike.count();
        const double share = static_cast<double>(size) / static_cast<double>(reducers);
        for (const int64_t site : wanted.sites) {
          const bool reduces = both == 0 || std::binary_search(held.sites.begin(), held.sites.end(), site);
          if (reduces) reduced[site] += share * static_cast<double>(incoming);
          gathered[site] += static_cast<double>(size) - (reduces ? share : 0.0);
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
    const auto regular = target.placement.pending() ? std::nullopt : RegularReductions(source, target).volume();
    if (regular) {
      out = *regular;
    } else {
      add_reductions(source, target, out);
    }
  } else {
    out = counted(exchange(source, target), source.sites());
  }
  out.stages = (out.reduce > 0 ? 1 : 0) + (out.gather > 0 ? 1 : 0) + (out.copy > 0 ? 1 : 0);
  return out;
}

}  // namespace joinsum::ia::analysis
