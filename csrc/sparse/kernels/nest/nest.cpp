#include "sparse/kernels/nest/nest.h"

#include <algorithm>

namespace joinsum::sparse::kernels::nest {

Nest::Nest(const NestPlan& plan)
    : plan_(plan), positions_(plan.positions), coordinates_(plan.loops.size()), base_(plan.loops.size() + 1) {
  for (const LoopPlan& each : plan.loops) {
    searches_.emplace_back(each.participants.size());
    walks_.emplace_back(each.walkers);
  }
}

void Nest::run(int64_t lower, int64_t upper) {
  for (const int64_t scalar : plan_.required_scalars) {
    if (positions_[scalar] < 0) return;
  }
  loop(0, lower, upper);
}

void Nest::loop(int64_t depth, int64_t lower, int64_t upper) {
  const LoopPlan& plan = plan_.loops[depth];
  if (depth == plan_.innermost) return innermost(lower, upper);
  for (size_t i = plan.walkers; i < plan.participants.size(); ++i) {
    searches_[depth][i].start(plan.participants[i].level, positions_[plan.participants[i].above]);
  }
  if (plan.walkers > 1) return walk_union(depth, lower, upper);
  if (plan.walkers == 1) return walk_one(depth, lower, upper);
  for (int64_t c = lower; c < upper; ++c) visit(depth, c);
}

void Nest::walk_one(int64_t depth, int64_t lower, int64_t upper) {
  const Participant& walker = plan_.loops[depth].participants[0];
  Walk walk;
  walk.start(walker.level, positions_[walker.above], lower, upper);
  if (walk.coordinate == Walk::kPastAll) return;
  int64_t& position = positions_[walker.above + 1];
  if (walker.level.lists()) {
    const int64_t* coordinates = walker.level.coordinates;
    for (int64_t entry = walk.entry; entry < walk.end; ++entry) {
      position = entry;
      visit(depth, coordinates[entry]);
    }
    return;
  }
  for (; walk.coordinate != Walk::kPastAll; walk.next(walker.level)) {
    position = walk.entry;
    visit(depth, walk.coordinate);
  }
}

void Nest::walk_union(int64_t depth, int64_t lower, int64_t upper) {
  const LoopPlan& plan = plan_.loops[depth];
  std::vector<Walk>& walks = walks_[depth];
  for (int64_t w = 0; w < plan.walkers; ++w) {
    walks[w].start(plan.participants[w].level, positions_[plan.participants[w].above], lower, upper);
  }
  while (true) {
    int64_t least = Walk::kPastAll;
    for (const Walk& walk : walks) least = std::min(least, walk.coordinate);
    if (least == Walk::kPastAll) return;
    bool visited = true;
    for (int64_t w = 0; w < plan.walkers; ++w) {
      const bool here = walks[w].coordinate == least;
      positions_[plan.participants[w].above + 1] = here ? walks[w].entry : -1;
      visited = visited && (here || !plan.participants[w].required);
      if (here) walks[w].next(plan.participants[w].level);
    }
    if (visited) visit(depth, least);
  }
}

void Nest::visit(int64_t depth, int64_t coordinate) {
  const LoopPlan& plan = plan_.loops[depth];
  for (size_t i = plan.walkers; i < plan.participants.size(); ++i) {
    const Participant& each = plan.participants[i];
    const int64_t entry = searches_[depth][i].find(each.level, coordinate);
    if (entry < 0 && each.required) return;
    positions_[each.above + 1] = entry;
  }
  coordinates_[depth] = coordinate;
  base_[depth + 1] = base_[depth] + plan.stride * coordinate;
  const int64_t inner = depth + 1;
  if (inner != plan_.prefix) return loop(inner, 0, plan_.loops[inner].extent);
  begin_element();
  loop(inner, 0, plan_.loops[inner].extent);
  end_element();
}

}  // namespace joinsum::sparse::kernels::nest
