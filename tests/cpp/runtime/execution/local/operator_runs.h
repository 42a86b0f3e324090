#pragma once

#include <gtest/gtest.h>

#include "runtime/execution/local/local_operator.h"
#include "runtime/execution/local/pair_pattern.h"
#include "runtime/test_store.h"

namespace joinsum::runtime::execution::local {

/// Runs operators on operands of one piece each.
class OperatorRuns {
 public:
  std::vector<PinnedPiece> run(const LocalOperator& operation,
                               const std::vector<std::pair<const relation::RelationType*, at::Tensor>>& operands,
                               bool overwritable = false) {
    std::vector<PinnedOperand> pinned;
    std::vector<Box> boxes;
    std::vector<PartOperand> copies;
    for (const auto& [type, array] : operands) {
      boxes.push_back(Box::below(type->frontier));
      copies.push_back({array.clone()});
      pinned.emplace_back(std::vector<PinnedPiece>{{boxes.back(), array}});
      pinned.back().overwritable = overwritable;
    }
    const int64_t before = flops;
    auto pieces = operation.run(pinned, {}, context());
    const int64_t own = flops - before;
    for (const PinnedPiece& piece : pieces) {
      const OnePart part = operation.on(boxes, piece.box);
      if (part == nullptr) continue;
      ++parts;
      EXPECT_EQ(pieces.size(), 1U);
      EXPECT_TRUE(at::equal(part(copies, context()), piece.array));
      EXPECT_EQ(flops, before + 2 * own);
      flops = before + own;
    }
    return pieces;
  }
  RunContext context() { return {scalars, *store, flops, winners}; }

  kernels::table::Scalars scalars;
  std::shared_ptr<storage::BlockStore> store = testing::make_test_store();
  int64_t flops = 0;
  int64_t parts = 0;  ///< runs that were one part, and gave the same as that
  FoundWinners winners;
};

}  // namespace joinsum::runtime::execution::local
