#include "sparse/kernels/nest/merged_loops.h"

#include <algorithm>

namespace joinsum::sparse::kernels::nest {
namespace {

constexpr int64_t kCompared = 64;  // offsets that are compared before one looks for a difference

/// Whether a loop can be merged with others that `walker` walks; only the first one may walk a dense level.
bool fits(const LoopPlan& loop, const Participant& walker, bool first) {
  if (loop.walkers != 1 || loop.participants[0].operand != walker.operand) return false;
  const LevelFormat format = loop.participants[0].level.format;
  if (!loop.participants[0].level.lists() && !(first && format == LevelFormat::kDense)) return false;
  return std::all_of(loop.participants.begin() + 1, loop.participants.end(),
                     [](const Participant& each) { return each.level.format == LevelFormat::kDense; });
}

}  // namespace

int64_t first_merged_loop(const NestPlan& plan) {
  const int64_t last = std::ssize(plan.loops) - 1;
  if (plan.loops[last].participants.empty()) return last;
  const Participant& walker = plan.loops[last].participants[0];
  int64_t first = last;
  if (!fits(plan.loops[last], walker, false)) return last;
  while (first > 0 && fits(plan.loops[first - 1], walker, true)) {
    --first;
    if (!plan.loops[first].participants[0].level.lists()) break;
  }
  return first;
}

MergedLoops::MergedLoops(const NestPlan& plan) : plan_(plan), first_loop_(plan.innermost) {
  const auto loops = static_cast<size_t>(std::ssize(plan.loops) - first_loop_);
  for (size_t l = 0; l < loops; ++l) {
    const LoopPlan& loop = plan.loops[first_loop_ + static_cast<int64_t>(l)];
    const Participant& walker = loop.participants[0];
    levels_.push_back(walker.level);
    if (l == 0) {
      above_ = walker.above;
      operands_.push_back(walker.operand);
    }
    for (size_t i = 1; i < loop.participants.size(); ++i) {
      const Participant& each = loop.participants[i];
      const auto number = std::find(operands_.begin() + 1, operands_.end(), each.operand) - operands_.begin() - 1;
      if (number == std::ssize(lookups_)) {
        lookups_.push_back({.above = each.above, .required = each.required});
        operands_.push_back(each.operand);
      }
      Lookup& lookup = lookups_[number];
      lookup.loops.push_back(static_cast<int64_t>(l));
      lookup.sizes.push_back(each.level.size);
    }
  }
  entries_.resize(operands_.size());
  for (Lookup& lookup : lookups_) lookup.listed.resize(kBlock);
  listed_.assign(loops, std::vector<int64_t>(kBlock));
  read_.assign(loops, std::vector<int64_t>(kBlock));
  expanded_.resize(loops);
  is_expanded_.resize(loops);
  ends_of_lists_.resize(kBlock);
  coordinates_.resize(loops);
  cursors_.resize(loops);
  ends_.resize(loops);
  places_.resize(kBlock);
}

void MergedLoops::start(const int64_t* positions, int64_t lower, int64_t upper) {
  at_ = end_ = count_ = 0;
  last_list_ = -1;
  first_fiber_ = positions[above_];
  if (first_fiber_ < 0) return;
  for (Lookup& lookup : lookups_) {
    lookup.fiber = positions[lookup.above];
    if (lookup.fiber < 0 && lookup.required) return;
  }
  Walk walk;
  walk.start(levels_[0], first_fiber_, lower, upper);
  int64_t begin = walk.entry;
  int64_t end = walk.end;
  if (begin >= end) return;
  for (size_t l = 0; l + 1 < levels_.size(); ++l) {
    cursors_[l] = begin;
    ends_[l] = end;
    begin = levels_[l + 1].begin(begin);
    end = levels_[l + 1].begin(end);
  }
  at_ = begin;
  end_ = end;
}

bool MergedLoops::next() {
  count_ = std::min(kBlock, end_ - at_);
  if (count_ == 0) return false;
  entries_[0] = {.kind = BlockEntries::Kind::kContiguous, .first = at_};
  const size_t last = levels_.size() - 1;
  read_coordinates(last, {.first = at_}, count_);
  Entries entries = find_lists(at_);
  at_ += count_;
  for (size_t l = last; l > 0; --l) {
    if (l < last) entries = above(l, entries);
    read_coordinates(l - 1, entries, lists_);
  }
  std::fill(is_expanded_.begin(), is_expanded_.end(), false);
  find_places();
  for (size_t i = 0; i < lookups_.size(); ++i) look_up(i);
  return true;
}

/// The lists of a level that so many entries, which follow each other, are in, if each is in one of its own.
std::optional<int64_t> MergedLoops::lists_of_one(size_t loop, int64_t first, int64_t count) {
  if (levels_[loop].single) return first;
  const int64_t* offsets = levels_[loop].offsets;
  int64_t& cursor = cursors_[loop - 1];
  while (offsets[cursor + 1] <= first) ++cursor;
  int64_t differs = cursor + count > ends_[loop - 1] ? 1 : 0;
  for (int64_t i = 0; i <= count && differs == 0; i += kCompared) {
    const int64_t past = std::min(count + 1, i + kCompared);
    for (int64_t j = i; j < past; ++j) differs |= offsets[cursor + j] - first - j;
  }
  if (differs != 0) return std::nullopt;
  // At the last of them, which the next entries may be in, too.
  const int64_t list = cursor;
  cursor += count - 1;
  return list;
}

/// The lists of the last loop that the block's entries, from `first` on, are in.
MergedLoops::Entries MergedLoops::find_lists(int64_t first) {
  const size_t loop = levels_.size() - 1;
  lists_ = count_;
  list_ends_ = nullptr;
  continues_ = false;
  if (const auto alone = lists_of_one(loop, first, count_)) return {.first = *alone};
  const int64_t* offsets = levels_[loop].offsets;
  int64_t* listed = listed_[loop - 1].data();
  lists_ = 0;
  int64_t cursor = cursors_[loop - 1];
  for (int64_t done = 0; done < count_; ++cursor) {
    const int64_t end = std::min(count_, offsets[cursor + 1] - first);
    if (end <= done) continue;  // an empty list
    listed[lists_] = cursor;
    ends_of_lists_[lists_++] = done = end;
  }
  list_ends_ = ends_of_lists_.data();
  continues_ = listed[0] == last_list_;
  cursors_[loop - 1] = last_list_ = listed[lists_ - 1];
  if (last_list_ - listed[0] == lists_ - 1) return {.first = listed[0]};
  return {.listed = listed};
}

/// The lists of a loop that its entries, one for each of the block's lists, are in.
MergedLoops::Entries MergedLoops::above(size_t loop, const Entries& entries) {
  if (entries.listed == nullptr) {
    if (const auto alone = lists_of_one(loop, entries.first, lists_)) return {.first = *alone};
  } else if (levels_[loop].single) {
    return entries;
  }
  const int64_t* offsets = levels_[loop].offsets;
  int64_t* listed = listed_[loop - 1].data();
  int64_t& cursor = cursors_[loop - 1];
  for (int64_t i = 0; i < lists_; ++i) {
    const int64_t entry = entries.listed == nullptr ? entries.first + i : entries.listed[i];
    while (offsets[cursor + 1] <= entry) ++cursor;
    listed[i] = cursor;
  }
  return {.listed = listed};
}

void MergedLoops::read_coordinates(size_t loop, const Entries& entries, int64_t count) {
  const LevelView& level = levels_[loop];
  int64_t* read = read_[loop].data();
  coordinates_[loop] = read;
  if (!level.lists()) {
    const int64_t before = first_fiber_ * level.size;
    for (int64_t i = 0; i < count; ++i) {
      read[i] = (entries.listed == nullptr ? entries.first + i : entries.listed[i]) - before;
    }
  } else if (entries.listed == nullptr) {
    coordinates_[loop] = level.coordinates + entries.first;
  } else {
    for (int64_t i = 0; i < count; ++i) read[i] = level.coordinates[entries.listed[i]];
  }
}

/// The coordinates of a loop at the block's visits.
const int64_t* MergedLoops::at_visits(size_t loop) {
  if (alone() || loop + 1 == levels_.size()) return coordinates_[loop];
  std::vector<int64_t>& expanded = expanded_[loop];
  if (!is_expanded_[loop]) {
    expanded.resize(kBlock);
    for (int64_t list = 0, i = 0; list < lists_; ++list) {
      for (; i < list_ends_[list]; ++i) expanded[i] = coordinates_[loop][list];
    }
    is_expanded_[loop] = true;
  }
  return expanded.data();
}

void MergedLoops::find_places() {
  const bool of_visits = plan_.loops.back().stride != 0;
  const int64_t count = of_visits ? count_ : lists_;
  std::fill_n(places_.begin(), count, 0);
  for (size_t l = 0; l < levels_.size(); ++l) {
    const int64_t stride = plan_.loops[first_loop_ + static_cast<int64_t>(l)].stride;
    if (stride == 0) continue;
    const int64_t* coordinates = of_visits ? at_visits(l) : coordinates_[l];
    for (int64_t i = 0; i < count; ++i) places_[i] += stride * coordinates[i];
  }
}

void MergedLoops::look_up(size_t number) {
  Lookup& lookup = lookups_[number];
  BlockEntries& entries = entries_[number + 1];
  entries = {};
  if (lookup.fiber < 0) return;
  const bool as_they_are = lookup.fiber == 0 && lookup.loops.size() == 1;
  entries = {.kind = BlockEntries::Kind::kListed, .listed = at_visits(lookup.loops[0])};
  if (as_they_are) return;
  int64_t* listed = lookup.listed.data();
  std::fill_n(listed, count_, lookup.fiber);
  for (size_t l = 0; l < lookup.loops.size(); ++l) {
    const int64_t* coordinates = at_visits(lookup.loops[l]);
    for (int64_t i = 0; i < count_; ++i) listed[i] = listed[i] * lookup.sizes[l] + coordinates[i];
  }
  entries.listed = listed;
}

}  // namespace joinsum::sparse::kernels::nest
