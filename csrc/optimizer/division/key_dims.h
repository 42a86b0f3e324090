#pragma once

#include <utility>
#include <vector>

#include "tra/nodes.h"

namespace joinsum::optimizer::division {

/// A key dimension along which the work of an operator can be divided.
struct KeyDim {
  int64_t keys = 0;
  std::vector<std::pair<size_t, int64_t>> at;  ///< operands that have it, and which of their dimensions it is

  /// The dimension of an operand; nothing if the operand lacks it.
  std::optional<int64_t> of(size_t operand) const;
};

/// The key dimensions of an operator, in the order in which its operands have them: of a call without the letters that
/// it needs whole.
std::vector<KeyDim> key_dims(const tra::Node& node);

}  // namespace joinsum::optimizer::division
