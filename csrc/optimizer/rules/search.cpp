#include "optimizer/rules/search.h"

#include <algorithm>
#include <set>

#include "ia/text.h"

namespace joinsum::optimizer::rules {
namespace {

/// The plans from which each round of a beam search continues.
constexpr size_t kBeamWidth = 8;

using Roots = std::vector<const ia::Node*>;

/// Interned plans are equal where their outputs are the same nodes.
Roots roots_of(const ia::Plan& plan) {
  Roots out;
  for (const auto& output : plan.outputs()) out.push_back(output.node.get());
  return out;
}

Step step(const ia::Plan& before, const Score& score, const Rewrite& rewrite, const Score& after) {
  return {rewrite.rule->name, ia::node_names(before).at(rewrite.node.get()), score.value, after.value};
}

/// A plan that a search has reached, and how.
struct Visit {
  Rewrite rewrite;
  Score score;
  int64_t parent = -1;
};

/// All plans that a search has reached, each once.
class Visits {
 public:
  Visits(const ia::Plan& plan, const Search& search) : search_(search) {
    const ia::Plan start = search.interner.intern(plan);
    seen_.insert(roots_of(start));
    all_.push_back({{nullptr, nullptr, start}, search.pricer.score(start), -1});
  }

  const Score& score(int64_t index) const { return all_[index].score; }
  int64_t size() const { return static_cast<int64_t>(all_.size()); }

  /// Adds the plans one rule away that are new; false where time or the number of plans is up.
  bool expand(int64_t index) {
    if (all_[index].score.value > search_.limits.cost) {
      complete_ = false;
      return true;
    }
    const ia::Plan plan = all_[index].rewrite.plan;
    for (const ia::NodePtr& node : plan.order()) {
      if (late_ = late_ || min_sum::expired(search_.limits.deadline); late_) return false;
      for (Rewrite& rewrite : rewrites_at(plan, node, search_.rules, search_.interner)) {
        if (!seen_.insert(roots_of(rewrite.plan)).second) continue;
        if (size() >= search_.limits.plans) return false;
        const Score score = search_.pricer.score(rewrite.plan);
        all_.push_back({std::move(rewrite), score, index});
      }
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

  Found found(bool complete) const {
    const int64_t index = best();
    Found out{all_[index].rewrite.plan, all_[index].score, {}, size(), complete && complete_, late_};
    for (int64_t at = index; all_[at].parent >= 0; at = all_[at].parent) {
      const Visit& before = all_[all_[at].parent];
      out.steps.push_back(step(before.rewrite.plan, before.score, all_[at].rewrite, all_[at].score));
    }
    std::reverse(out.steps.begin(), out.steps.end());
    return out;
  }

 private:
  const Search& search_;
  std::vector<Visit> all_;
  std::set<Roots> seen_;
  bool late_ = false;
  bool complete_ = true;  ///< no plan was too expensive to follow
};

}  // namespace

Found greedy(const ia::Plan& plan, const Search& search) {
  Found out{search.interner.intern(plan), {}, {}, 1, false, false};
  out.score = search.pricer.score(out.plan);
  for (bool better = true; better;) {
    better = false;
    for (size_t at = 0; at < out.plan.order().size(); ++at) {
      if (out.out_of_time = min_sum::expired(search.limits.deadline); out.out_of_time) return out;
      std::optional<Rewrite> best;
      Score score = out.score;
      for (Rewrite& rewrite : rewrites_at(out.plan, out.plan.order()[at], search.rules, search.interner)) {
        if (out.plans >= search.limits.plans) return out;
        ++out.plans;
        const Score after = search.pricer.score(rewrite.plan);
        if (!(after < score)) continue;
        score = after;
        best = std::move(rewrite);
      }
      if (!best) continue;
      out.steps.push_back(step(out.plan, out.score, *best, score));
      out.plan = std::move(best->plan);
      out.score = score;
      better = true;
    }
  }
  return out;
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
                     [&](int64_t a, int64_t b) { return visits.score(a) < visits.score(b); });
    if (front.size() > kBeamWidth) front.resize(kBeamWidth);
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

}  // namespace joinsum::optimizer::rules
