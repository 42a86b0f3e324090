#pragma once

#include <chrono>
#include <optional>

namespace joinsum::optimizer::min_sum {

using Clock = std::chrono::steady_clock;
/// When a search stops; empty: never.
using Deadline = std::optional<Clock::time_point>;

inline bool expired(const Deadline& deadline) { return deadline && Clock::now() >= *deadline; }

/// So many seconds from now; none beyond thirty years.
inline Deadline deadline_after(std::optional<double> seconds) {
  constexpr double kEndless = 1e9;
  if (!seconds || *seconds >= kEndless) return std::nullopt;
  return Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(*seconds));
}

/// When `share` of the time until the deadline is gone.
inline Deadline part_of(const Deadline& deadline, double share) {
  if (!deadline) return std::nullopt;
  const auto now = Clock::now();
  return now + std::chrono::duration_cast<Clock::duration>(share * (*deadline - now));
}

}  // namespace joinsum::optimizer::min_sum
