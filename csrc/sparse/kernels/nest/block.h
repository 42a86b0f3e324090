#pragma once

#include <cstdint>

namespace joinsum::sparse::kernels::nest {

/// Visits of the innermost loops that are computed together, by columns.
inline constexpr int64_t kBlock = 256;

/// The entries of one operand at the visits of a block.
struct BlockEntries {
  enum class Kind : uint8_t { kAbsent, kContiguous, kListed };
  Kind kind = Kind::kAbsent;
  int64_t first = 0;                ///< contiguous: of the first visit
  const int64_t* listed = nullptr;  ///< -1 where the operand is absent
  bool may_be_absent = false;       ///< listed: whether there may be a -1
};

}  // namespace joinsum::sparse::kernels::nest
