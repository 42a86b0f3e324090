#include "sparse/kernels/nest/candidates.h"

#include <algorithm>
#include <numeric>

namespace joinsum::sparse::kernels::nest {
namespace {

using Kind = BlockEntries::Kind;

/// Matches two ascending lists from (a, b) on until one ends or `room` matches are found, whose entries are written;
/// moves (a, b) past what was compared.
int64_t intersect(const int64_t* left, Walk& a, const int64_t* right, Search& b, int64_t room, int64_t* left_entries,
                  int64_t* right_entries) {
  int64_t i = a.entry;
  int64_t j = b.at;
  int64_t found = 0;
  constexpr int64_t kMuchLonger = 16;
  if (a.end - i > kMuchLonger * (b.end - j) || b.end - j > kMuchLonger * (a.end - i)) {
    while (i < a.end && j < b.end && found < room) {
      i = gallop(left, i, a.end, right[j]);
      if (i == a.end) break;
      j = gallop(right, j, b.end, left[i]);
      if (j == b.end || right[j] != left[i]) continue;
      left_entries[found] = i++;
      right_entries[found++] = j++;
    }
  } else {
    while (i < a.end && j < b.end && found < room) {
      const int64_t x = left[i];
      const int64_t y = right[j];
      left_entries[found] = i;
      right_entries[found] = j;
      found += x == y;
      i += x <= y;
      j += y <= x;
    }
  }
  a.entry = i;
  b.at = j;
  return found;
}

}  // namespace

Candidates::Candidates(const LoopPlan& plan)
    : plan_(plan),
      entries_(plan.participants.size()),
      walks_(plan.participants.size()),
      searches_(plan.participants.size()),
      columns_(plan.participants.size() * kBlock),
      own_coordinates_(kBlock),
      keep_(kBlock) {}

void Candidates::start(const int64_t* positions, int64_t lower, int64_t upper) {
  lower_ = lower;
  upper_ = upper;
  for (size_t i = 0; i < entries_.size(); ++i) entries_[i].kind = Kind::kAbsent;
  start_leader(positions);
  for (size_t i = looked_up_from_; i < entries_.size(); ++i) {
    searches_[i].start(plan_.participants[i].level, positions[plan_.participants[i].above]);
  }
}

void Candidates::start_leader(const int64_t* positions) {
  looked_up_from_ = plan_.walkers;
  if (plan_.walkers == 0) {
    leader_ = Leader::kRange;
    return;
  }
  for (int64_t i = 0; i < plan_.walkers; ++i) {
    walks_[i].start(plan_.participants[i].level, positions[plan_.participants[i].above], lower_, upper_);
  }
  if (plan_.walkers > 1) {
    leader_ = Leader::kUnion;
    return;
  }
  const LevelView& level = plan_.participants[0].level;
  if (walks_[0].coordinate == Walk::kPastAll) {
    leader_ = Leader::kNone;
  } else if (level.format == LevelFormat::kDense) {
    // The walker itself is read as a lookup of the range.
    leader_ = Leader::kRange;
    looked_up_from_ = 0;
  } else if (level.format == LevelFormat::kBytemap) {
    leader_ = Leader::kBytemap;
  } else {
    leader_ = Leader::kList;
    if (plan_.participants.size() < 2) return;
    const Participant& second = plan_.participants[1];
    if (!second.required || second.level.format != LevelFormat::kSortedList || positions[second.above] < 0) return;
    leader_ = Leader::kIntersection;
    looked_up_from_ = 2;
    searches_[1].start(second.level, positions[second.above]);
  }
}

bool Candidates::next() {
  is_range_ = false;
  count_ = 0;
  switch (leader_) {
    case Leader::kNone:
      return false;
    case Leader::kRange:
      next_range();
      break;
    case Leader::kList:
      next_list();
      break;
    case Leader::kBytemap:
      next_bytemap();
      break;
    case Leader::kIntersection:
      next_intersection();
      break;
    case Leader::kUnion:
      next_union();
      break;
  }
  if (count_ == 0) return false;
  for (int64_t i = looked_up_from_; i < std::ssize(entries_); ++i) look_up(i);
  return true;
}

void Candidates::next_range() {
  count_ = std::max<int64_t>(0, std::min(kBlock, upper_ - lower_));
  std::iota(own_coordinates_.begin(), own_coordinates_.begin() + count_, lower_);
  coordinates_ = own_coordinates_.data();
  is_range_ = true;
  lower_ += count_;
}

void Candidates::next_list() {
  Walk& walk = walks_[0];
  count_ = std::min(kBlock, walk.end - walk.entry);
  coordinates_ = plan_.participants[0].level.coordinates + walk.entry;
  entries_[0] = {.kind = Kind::kContiguous, .first = walk.entry};
  walk.entry += count_;
}

void Candidates::next_bytemap() {
  Walk& walk = walks_[0];
  const uint8_t* stored = plan_.participants[0].level.stored;
  int64_t* entries = column(0);
  for (; walk.entry < walk.end && count_ < kBlock; ++walk.entry, ++walk.coordinate) {
    entries[count_] = walk.entry;
    own_coordinates_[count_] = walk.coordinate;
    count_ += stored[walk.entry] != 0;
  }
  coordinates_ = own_coordinates_.data();
  set_listed(0, false);
}

void Candidates::next_intersection() {
  const int64_t* left = plan_.participants[0].level.coordinates;
  count_ =
      intersect(left, walks_[0], plan_.participants[1].level.coordinates, searches_[1], kBlock, column(0), column(1));
  for (int64_t i = 0; i < count_; ++i) own_coordinates_[i] = left[column(0)[i]];
  coordinates_ = own_coordinates_.data();
  set_listed(0, false);
  set_listed(1, false);
}

void Candidates::next_union() {
  for (int64_t w = 0; w < plan_.walkers; ++w) set_listed(w, true);
  coordinates_ = own_coordinates_.data();
  while (count_ < kBlock) {
    int64_t least = Walk::kPastAll;
    for (int64_t w = 0; w < plan_.walkers; ++w) least = std::min(least, walks_[w].coordinate);
    if (least == Walk::kPastAll) return;
    bool kept = true;
    for (int64_t w = 0; w < plan_.walkers; ++w) {
      const bool here = walks_[w].coordinate == least;
      column(w)[count_] = here ? walks_[w].entry : -1;
      kept = kept && (here || !plan_.participants[w].required);
      if (here) walks_[w].next(plan_.participants[w].level);
    }
    own_coordinates_[count_] = least;
    count_ += kept;
  }
}

void Candidates::set_listed(int64_t participant, bool may_be_absent) {
  entries_[participant] = {.kind = Kind::kListed, .listed = column(participant), .may_be_absent = may_be_absent};
}

void Candidates::look_up(int64_t participant) {
  if (searches_[participant].fiber < 0) return;
  const LevelView& level = plan_.participants[participant].level;
  switch (level.format) {
    case LevelFormat::kDense:
      if (is_range_ && count_ > 0) {
        const int64_t first = searches_[participant].find<LevelFormat::kDense>(level, coordinates_[0]);
        entries_[participant] = {.kind = Kind::kContiguous, .first = first};
        return;
      }
      return look_up_as<LevelFormat::kDense>(participant);
    case LevelFormat::kBytemap:
      return look_up_as<LevelFormat::kBytemap>(participant);
    case LevelFormat::kSortedList:
      return look_up_as<LevelFormat::kSortedList>(participant);
    default:
      return look_up_as<LevelFormat::kHash>(participant);
  }
}

template <LevelFormat kFormat>
void Candidates::look_up_as(int64_t participant) {
  const LevelView& level = plan_.participants[participant].level;
  Search search = searches_[participant];
  int64_t* entries = column(participant);
  const bool filters = plan_.participants[participant].required && kFormat != LevelFormat::kDense;
  set_listed(participant, !filters && kFormat != LevelFormat::kDense);
  if (!filters) {
    for (int64_t i = 0; i < count_; ++i) entries[i] = search.find<kFormat>(level, coordinates_[i]);
    searches_[participant] = search;
    return;
  }
  int64_t kept = 0;
  for (int64_t i = 0; i < count_; ++i) {
    const int64_t entry = search.find<kFormat>(level, coordinates_[i]);
    entries[kept] = entry;
    keep_[kept] = i;
    kept += entry >= 0;
  }
  searches_[participant] = search;
  if (kept < count_) compact(participant, kept);
}

void Candidates::compact(int64_t participant, int64_t kept) {
  for (int64_t i = 0; i < kept; ++i) own_coordinates_[i] = coordinates_[keep_[i]];
  coordinates_ = own_coordinates_.data();
  count_ = kept;
  is_range_ = false;
  for (int64_t p = 0; p < participant; ++p) {
    BlockEntries& entries = entries_[p];
    if (entries.kind == Kind::kContiguous) {
      int64_t* listed = column(p);
      for (int64_t i = 0; i < kept; ++i) listed[i] = entries.first + keep_[i];
      set_listed(p, false);
    } else if (entries.kind == Kind::kListed) {
      int64_t* listed = column(p);
      for (int64_t i = 0; i < kept; ++i) listed[i] = listed[keep_[i]];
    }
  }
}

}  // namespace joinsum::sparse::kernels::nest
