#include "optimizer/eindecomp/linearise.h"

#include <algorithm>

#include "optimizer/min_sum/min_sum.h"

namespace joinsum::optimizer::eindecomp {
namespace {

/// Rounds of solving all paths again; most gains come in the first ones.
constexpr int64_t kRounds = 10;

using Path = std::vector<int64_t>;

class Linearisation {
 public:
  Linearisation(const PartitionProblem& problem, const min_sum::Limits& limits, double pair_entries)
      : problem_(problem), limits_(limits), pair_entries_(pair_entries), choices_(problem.vertices(), kOpen) {}

  Choices run() {
    int64_t next = 0;
    std::vector<Path> paths;
    for (;;) {
      while (next < problem_.vertices() && choices_[next] != kOpen) ++next;
      if (next == problem_.vertices()) break;
      paths.push_back(expired() ? Path{next} : longest_path());
      choose(paths.back());
    }
    improve(paths);
    return std::move(choices_);
  }

 private:
  bool expired() const { return min_sum::expired(limits_.deadline); }

  /// The longest path of open vertices, or as much of its start as may be solved at once.
  Path longest_path() const {
    std::vector<int64_t> lengths(choices_.size(), 0);
    std::vector<const PartitionProblem::Edge*> before(choices_.size(), nullptr);
    int64_t last = kOpen;
    // Vertices come after those that they read.
    for (int64_t v = 0; v < problem_.vertices(); ++v) {
      if (choices_[v] != kOpen) continue;
      lengths[v] = 1;
      for (const int64_t position : problem_.edges_at(v)) {
        const auto& edge = problem_.edges()[position];
        if (edge.consumer != v || lengths[edge.producer] < lengths[v]) continue;
        lengths[v] = lengths[edge.producer] + 1;
        before[v] = &edge;
      }
      if (last == kOpen || lengths[v] > lengths[last]) last = v;
    }
    Path path{last};
    for (; before[path.back()] != nullptr;) path.push_back(before[path.back()]->producer);
    std::reverse(path.begin(), path.end());
    return affordable(path);
  }

  /// The longest start of a path whose tables fit the limit.
  Path affordable(const Path& path) const {
    Path out;
    std::vector<bool> inside(choices_.size(), false);
    double entries = 0;
    for (const int64_t v : path) {
      for (const int64_t position : problem_.edges_at(v)) {
        const auto& edge = problem_.edges()[position];
        if (edge.consumer == v && inside[edge.producer]) entries += problem_.entries(edge);
      }
      if (!out.empty() && entries > pair_entries_) break;
      inside[v] = true;
      out.push_back(v);
    }
    return out;
  }

  void choose(const Path& path) {
    const min_sum::Problem part = problem_.part(path, choices_);
    const min_sum::Solution solution = min_sum::solve(part, limits_);
    for (size_t i = 0; i < path.size(); ++i) choices_[path[i]] = solution.values[i];
  }

  void improve(const std::vector<Path>& paths) {
    double cost = problem_.cost(choices_);
    for (int64_t round = 0; round < kRounds; ++round) {
      const double before = cost;
      for (const Path& path : paths) {
        if (expired()) return;
        const Choices before_path = choices_;
        choose(path);
        const double next = problem_.cost(choices_);
        // Where a path is not solved exactly, solving it again may lose.
        if (next >= cost) choices_ = before_path;
        cost = std::min(cost, next);
      }
      if (cost >= before) return;
    }
  }

  const PartitionProblem& problem_;
  const min_sum::Limits& limits_;
  double pair_entries_;
  Choices choices_;
};

}  // namespace

Choices linearise(const PartitionProblem& problem, const min_sum::Limits& limits, double pair_entries) {
  return Linearisation(problem, limits, pair_entries).run();
}

}  // namespace joinsum::optimizer::eindecomp
