#pragma once

#include <cstdint>
#include <functional>

namespace joinsum::kernels::pairs {

/// Calls `work(begin, end)` for ranges of the numbers below `pieces`, on torch's threads.
void for_each_range(int64_t pieces, const std::function<void(int64_t, int64_t)>& work);

}  // namespace joinsum::kernels::pairs
