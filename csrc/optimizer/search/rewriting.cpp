#include "optimizer/search/rewriting.h"

#include <algorithm>
#include <limits>
#include <set>

namespace joinsum::optimizer {
namespace {

using Roots = std::vector<const ia::Node*>;

/// Interned plans are equal where their outputs are the same nodes.
Roots roots_of(const ia::Plan& plan) {
  Roots out;
  for (const auto& output : plan.outputs()) out.push_back(output.node.get());
  return out;
}

/// A plan that a search has come to, and from where.
struct Visit {
  ia::Plan plan;
  Score score;
  int64_t parent = -1;
  std::string rule;
  std::string node;
};

/// All plans that a search has come to, each once.
class Visits {
 public:
  Visits(const ia::Plan& plan, const Search& search) : search_(search) {
    const ia::Plan start = search.interner.intern(plan);
    seen_.insert(roots_of(start));
    all_.push_back({start, search.pricer.score(start), -1, "", ""});
  }

  const Visit& operator[](int64_t index) const { return all_[index]; }
  int64_t size() const { return static_cast<int64_t>(all_.size()); }
  bool full() const { return size() >= search_.limits.plans; }
  bool late() {
    const auto& deadline = search_.limits.deadline;
    late_ = late_ || (deadline && std::chrono::steady_clock::now() >= *deadline);
    return late_;
  }

  /// Adds the plans one rule away that are new; false where a limit left some out.
  bool expand(int64_t index) {
    if (late()) return false;
    const ia::Plan plan = all_[index].plan;
    for (Rewrite& rewrite : rewrites(plan, search_.rules, search_.interner)) {
      if (!seen_.insert(roots_of(rewrite.plan)).second) continue;
      if (full() || late()) return false;
      const Score score = search_.pricer.score(rewrite.plan);
      all_.push_back({std::move(rewrite.plan), score, index, rewrite.rule->name, std::move(rewrite.node)});
    }
    return true;
  }

  int64_t best() const {
    int64_t best = 0;
    for (int64_t i = 1; i < size(); ++i) {
      if (all_[i].score < all_[best].score) best = i;
    }
    return best;
  }

  Found found(bool complete) {
    const int64_t index = best();
    Found out{all_[index].plan, all_[index].score, {}, size(), complete, late_};
    for (int64_t at = index; all_[at].parent >= 0; at = all_[at].parent) {
      const Visit& visit = all_[at];
      out.steps.push_back({visit.rule, visit.node, all_[visit.parent].score.value, visit.score.value});
    }
    std::reverse(out.steps.begin(), out.steps.end());
    return out;
  }

 private:
  const Search& search_;
  std::vector<Visit> all_;
  std::set<Roots> seen_;
  bool late_ = false;
};

}  // namespace

Found greedy(const ia::Plan& plan, const Search& search) {
  Visits visits(plan, search);
  int64_t at = 0;
  for (;;) {
    const bool whole = visits.expand(at);
    const int64_t best = visits.best();
    if (best == at || !whole) return visits.found(false);
    at = best;
  }
}

Found beam(const ia::Plan& plan, const Search& search) {
  Visits visits(plan, search);
  std::vector<int64_t> front{0};
  while (!front.empty()) {
    const int64_t first_new = visits.size();
    for (const int64_t index : front) {
      if (!visits.expand(index)) return visits.found(false);
    }
    front.clear();
    for (int64_t i = first_new; i < visits.size(); ++i) front.push_back(i);
    std::stable_sort(front.begin(), front.end(),
                     [&](int64_t a, int64_t b) { return visits[a].score < visits[b].score; });
    if (static_cast<int64_t>(front.size()) > search.limits.width) front.resize(search.limits.width);
  }
  return visits.found(false);
}

Found exhaustive(const ia::Plan& plan, const Search& search) {
  Visits visits(plan, search);
  for (int64_t at = 0; at < visits.size(); ++at) {
    if (!visits.expand(at)) return visits.found(false);
  }
  return visits.found(true);
}

}  // namespace joinsum::optimizer
