#pragma once

#include <cstddef>
#include <cstdint>

namespace joinsum {

/// Bytes of freed memory that stay with the process.
inline constexpr int64_t kReusedBytes = int64_t{1} << 29;

/// Memory for large arrays that come and go, from what earlier ones have freed: pages that are fresh from the system
/// take up to ten times as long as what is computed into them, and threads that take some wait for each other. Null
/// where there is none. Thread-safe.
void* allocate_reused(size_t bytes);
/// Frees memory of `allocate_reused`.
void free_reused(void* memory);

}  // namespace joinsum
