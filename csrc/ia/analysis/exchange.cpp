#include "ia/analysis/exchange.h"

#include <algorithm>
#include <map>
#include <utility>

namespace joinsum::ia::analysis {
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

/// What some sites store, ascending: each box with the sites that hold it, also ascending, and how many tuples of its
/// key each has.
struct Stock {
  struct Entry {
    Box box;
    std::vector<int64_t> holders;
    std::vector<int64_t> repeats;  ///< of each holder
  };
  std::vector<Entry> entries;

  Stock(const PhysicalType& type, const std::vector<int64_t>& sites) {
    std::vector<std::pair<Box, int64_t>> all;
    for (const int64_t site : sites) {
      for (Box& box : type.stored(site)) all.emplace_back(std::move(box), site);
    }
    std::sort(all.begin(), all.end());
    for (auto& [box, site] : all) {
      if (entries.empty() || entries.back().box != box) entries.push_back({std::move(box), {}, {}});
      Entry& entry = entries.back();
      if (!entry.holders.empty() && entry.holders.back() == site) {
        ++entry.repeats.back();
      } else {
        entry.holders.push_back(site);
        entry.repeats.push_back(1);
      }
    }
  }

  const Entry& at(const Box& box) const {
    const auto found = std::lower_bound(entries.begin(), entries.end(), box,
                                        [](const Entry& entry, const Box& wanted) { return entry.box < wanted; });
    JOINSUM_CHECK(found != entries.end() && found->box == box, "no site stores ", box.text());
    return *found;
  }
};

/// Adds what `receiver` needs of `piece` (a part of one stocked box).
void add_copies(const PhysicalType& source, const Box& piece, const Stock::Entry& entry, int64_t receiver,
                bool every_holder, std::vector<Transfer>& out) {
  const int64_t size = source.relation.elements_over(piece);
  if (size == 0) return;
  if (every_holder) {
    for (size_t i = 0; i < entry.holders.size(); ++i) {
      if (entry.holders[i] != receiver) {
        out.push_back({entry.holders[i], receiver, piece, 0, size * entry.repeats[i]});
      }
    }
    return;
  }
  if (std::binary_search(entry.holders.begin(), entry.holders.end(), receiver)) return;
  const int64_t from = nearest(source.grid, entry.holders, receiver);
  const auto at = std::lower_bound(entry.holders.begin(), entry.holders.end(), from) - entry.holders.begin();
  out.push_back({from, receiver, piece, 0, size * entry.repeats[at]});
}

/// Moves a relation none of whose pending axes changes.
std::vector<Transfer> copies(const PhysicalType& source, const PhysicalType& target) {
  std::vector<Transfer> out;
  // Scattered tuples of one key are all different; replicas on a grid are all equal.
  const bool every_holder = source.placement.scattered() != nullptr && !source.relation.unique();
  const bool singles = !source.holding.regular();
  for (const auto& [number, sites] : source.grid.classes(source.placement.axes_in<Pending>())) {
    const Stock stock(source, sites);
    for (const int64_t receiver : sites) {
      std::vector<Box> needed = target.stored(receiver);
      std::sort(needed.begin(), needed.end());
      needed.erase(std::unique(needed.begin(), needed.end()), needed.end());
      for (const Box& box : needed) {
        if (singles && box.count() == 1) {
          add_copies(source, box, stock.at(box), receiver, every_holder, out);
          continue;
        }
        for (const Stock::Entry& entry : stock.entries) {
          const Box piece = entry.box.intersect(box);
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

/// Sites by the boxes of `target` that they store. Boxes of one placement are equal or disjoint.
std::map<Box, std::vector<int64_t>> needers(const PhysicalType& target, const std::vector<int64_t>& sites) {
  std::map<Box, std::vector<int64_t>> out;
  for (const int64_t site : sites) {
    for (const Box& box : target.stored(site)) out[box].push_back(site);
  }
  return out;
}

/// Reduces partial values straight into the target: the sites that need a piece reduce it. Sites that differ along an
/// axis that the source replicates, or that stays pending, exchange nothing.
void reduce_partials(const PhysicalType& source, const PhysicalType& target, Exchange& out) {
  Dims apart = source.placement.axes_in<Replicated>();
  for (const int64_t a : target.placement.axes_in<Pending>()) apart.push_back(a);
  for (const auto& [number, sites] : source.grid.classes(apart)) {
    const auto needed = needers(target, sites);
    const Stock stock(source, sites);
    for (const Stock::Entry& entry : stock.entries) {
      if (const auto same = needed.find(entry.box); same != needed.end()) {
        add_shares(source.relation, entry.box, entry.holders, same->second, out);
        continue;
      }
      for (const auto& [box, members] : needed) {
        const Box piece = entry.box.intersect(box);
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
    out.reduction = *source.placement.pending_kernel();
    reduce_partials(source, target, out);
    out.reduced = target;
  }
  if (!(out.reduced.placement == target.placement)) out.copy = copies(out.reduced, target);
  return out;
}

int64_t wire_bytes(const PhysicalType& source, const PhysicalType& target) {
  return source.relation.bytes_of(exchange(source, target).elements());
}

}  // namespace joinsum::ia::analysis
