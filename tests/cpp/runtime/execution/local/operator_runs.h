#pragma once

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
    for (const auto& [type, array] : operands) {
      pinned.emplace_back(std::vector<PinnedPiece>{{Box::below(type->frontier), array}});
      pinned.back().overwritable = overwritable;
    }
    return operation.run(pinned, {}, context());
  }
  RunContext context() { return {scalars, *store, flops, winners}; }

  kernels::table::Scalars scalars;
  std::shared_ptr<storage::BlockStore> store = testing::make_test_store();
  int64_t flops = 0;
  FoundWinners winners;
};

}  // namespace joinsum::runtime::execution::local
