#pragma once

#include <cstdint>
#include <functional>

namespace joinsum::kernels::threads {

/// Calls `work(begin, end)` for ranges of the numbers below `pieces`, on torch's threads; `grain` of them are worth a
/// thread.
void for_each_range(int64_t pieces, int64_t grain, const std::function<void(int64_t, int64_t)>& work);

inline void for_each_range(int64_t pieces, const std::function<void(int64_t, int64_t)>& work) {
  for_each_range(pieces, 1, work);
}

}  // namespace joinsum::kernels::threads
