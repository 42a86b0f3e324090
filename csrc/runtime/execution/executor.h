#pragma once

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "ia/analysis/materialization.h"
#include "runtime/communication/transport.h"
#include "runtime/execution/executable.h"
#include "runtime/storage/block_store.h"
#include "runtime/storage/relation.h"

namespace joinsum::runtime::execution {

/// What one node of a run did, on the sites of this process together.
struct NodeCounts {
  int64_t bytes_sent = 0;
  int64_t bytes_received = 0;
  int64_t kernel_calls = 0;
  int64_t flops = 0;
  double seconds = 0;
  int64_t peak_bytes = 0;    ///< maximum of the store's bytes while the node ran
  int64_t site_bytes = 0;    ///< maximum over the sites of the run's bytes then: inputs, live blocks and messages
  int64_t pooled_bytes = 0;  ///< of freed blocks that the store had not returned to the system when the node ended
};

struct NodeTrace : NodeCounts {
  std::string node;  ///< as the plan's text names it
  std::string operation;
};

/// What the nodes of a run did, in the order of the executable's steps.
class RunTrace {
 public:
  RunTrace(std::shared_ptr<const Executable> executable, std::vector<NodeCounts> counts)
      : executable_(std::move(executable)), counts_(std::move(counts)) {}
  std::vector<NodeTrace> entries() const;

 private:
  std::shared_ptr<const Executable> executable_;
  std::vector<NodeCounts> counts_;
};

/// The inputs of a run by name; the caller keeps names and relations.
struct RunInputs : std::unordered_map<std::string_view, const storage::StoredRelation*> {
  RunInputs() = default;
  RunInputs(const std::map<std::string, storage::StoredRelation>& inputs) {
    for (const auto& [name, relation] : inputs) emplace(name, &relation);
  }
};

struct RunResult {
  std::map<std::string, storage::StoredRelation> outputs;
  RunTrace trace;
};

/// Runs plans on one transport. The executables of the last plans are cached.
class Executor {
 public:
  /// `most_joined_bytes`: as ia::analysis::Materialization has it.
  Executor(std::shared_ptr<communication::Transport> transport, std::shared_ptr<storage::BlockStore> store,
           int64_t most_joined_bytes = ia::analysis::kMostJoinedBytes);

  /// Runs `plan` in dependency order; a block is freed after its last use. Inputs must have the plan's input types.
  /// Blocks of an input that an output is tied to may be overwritten. All sites must run equal plans: checked before
  /// anything moves.
  RunResult run(const ia::Plan& plan, const RunInputs& inputs, const kernels::table::Scalars& scalars = {});

  /// Plans that are run for the first time from now on are scheduled by these seconds, which must be equal on all
  /// sites.
  void schedule_by(std::function<ia::analysis::SecondsOf(const ia::Plan&)> seconds_of) {
    seconds_of_ = std::move(seconds_of);
  }

  /// What runs of `plan` walk.
  std::shared_ptr<const Executable> executable(const ia::Plan& plan);

  /// Inputs of the last run, which may have failed, that it has overwritten or was about to.
  std::set<std::string> overwritten() const;

  communication::Transport& transport() { return *transport_; }
  storage::BlockStore& store() { return *store_; }

 private:
  std::shared_ptr<communication::Transport> transport_;
  std::shared_ptr<storage::BlockStore> store_;
  int64_t most_joined_bytes_;
  std::function<ia::analysis::SecondsOf(const ia::Plan&)> seconds_of_;
  std::shared_ptr<const Executable> last_;                 ///< that has run
  std::set<size_t> overwritten_;                           ///< values of its inputs
  std::vector<std::shared_ptr<const Executable>> cached_;  ///< of the last plans, the latest first
};

}  // namespace joinsum::runtime::execution
