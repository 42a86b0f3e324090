#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "sparse/kernels/kernel.h"

namespace joinsum::sparse::kernels {

/// One value of a kernel's body, computed where the last loop that it depends on begins its visit.
struct BodyStep {
  enum class Kind : uint8_t { kOperand, kLiteral, kMap };
  Kind kind = Kind::kLiteral;
  int64_t node = 0;    ///< of the body
  int64_t depth = -1;  ///< that loop; -1: none
  std::string name;
  std::string left;  ///< map: names of the values it is applied to; of one child, only `left`
  std::string right;
  bool finishes = true;  ///< whether it is the node's value, not a part of a longer map
};

/// The body as steps in an order in which each comes after those it reads. Longer maps are folds of two at a time.
std::vector<BodyStep> body_steps(const Kernel& kernel);

}  // namespace joinsum::sparse::kernels
