#pragma once

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "kernels/call/call.h"

namespace joinsum::kernels::call {

/// Groups results of calls by the run that computes them: calls that are equal but for their output, on equal operands,
/// run once. `Operands` is ordered; calls outlive this.
template <class Operands, class Result>
class FirstResults {
 public:
  /// The result of the same run that came first; `result` itself if there was none.
  Result first(const Operands& operands, const Call& call, const Result& result) {
    auto& runs = runs_[operands];
    const auto same =
        std::find_if(runs.begin(), runs.end(), [&](const auto& run) { return run.first->runs_with(call); });
    if (same != runs.end()) return same->second;
    runs.emplace_back(&call, result);
    return result;
  }

 private:
  std::map<Operands, std::vector<std::pair<const Call*, Result>>> runs_;
};

}  // namespace joinsum::kernels::call
