#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "ia/fusion.h"
#include "runtime/relation.h"
#include "runtime/transport.h"

namespace joinsum::runtime {

/// What one node of a run did, on the sites of this process together.
struct NodeTrace {
  std::string node;  ///< as the plan's text names it
  std::string operation;
  int64_t bytes_sent = 0;
  int64_t bytes_received = 0;
  int64_t kernel_calls = 0;
  int64_t flops = 0;
  double seconds = 0;
  int64_t peak_bytes = 0;  ///< most bytes kept by the store while the node ran
  int64_t site_bytes = 0;  ///< most bytes of the run that one site kept then: inputs, live blocks and messages
};

struct RunResult {
  std::map<std::string, StoredRelation> outputs;
  std::vector<NodeTrace> trace;
};

/// What every run of one plan asks of it.
struct PlanFacts;

/// Runs plans on one transport. What it has found out about a plan is kept for the next run of it.
class Executor {
 public:
  /// `most_joined_bytes`: as ia::Formation has it.
  Executor(std::shared_ptr<Transport> transport, std::shared_ptr<BlockStore> store,
           int64_t most_joined_bytes = ia::kMostJoinedBytes);

  /// Runs `plan` in dependency order; a block is freed after its last use. Inputs must have the plan's input types.
  /// Blocks of an input that an output is tied to may be overwritten. All sites must run equal plans: checked before
  /// anything moves.
  RunResult run(const ia::Plan& plan, const std::map<std::string, StoredRelation>& inputs,
                const kernels::Scalars& scalars = {});

  /// Inputs of the last run, which may have failed, that it has overwritten or was about to.
  const std::set<std::string>& overwritten() const { return overwritten_; }

  Transport& transport() { return *transport_; }
  BlockStore& store() { return *store_; }
  const std::shared_ptr<BlockStore>& store_pointer() const { return store_; }

 private:
  std::shared_ptr<const PlanFacts> facts_of(const ia::Plan& plan);

  std::shared_ptr<Transport> transport_;
  std::shared_ptr<BlockStore> store_;
  int64_t most_joined_bytes_;
  std::set<std::string> overwritten_;
  std::vector<std::shared_ptr<const PlanFacts>> known_;  ///< of the last plans, the latest first
};

}  // namespace joinsum::runtime
