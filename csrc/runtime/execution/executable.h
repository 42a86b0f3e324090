#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "ia/analysis/materialization.h"
#include "ia/analysis/schedule.h"
#include "runtime/communication/moves/moves.h"
#include "runtime/execution/local/local_operator.h"

namespace joinsum::runtime::execution {

/// The value of one node of the plan in a run.
struct Value {
  const ia::Node* node = nullptr;
  ia::SharedType type;  ///< the node's; a result that is tied to an input of its type shares the input's
  std::string name;     ///< as the plan's text names it
  std::map<int64_t, std::vector<Box>> boxes;  ///< that each site of this process stores
  std::optional<std::string> input = {};      ///< its name, of an input
};

/// A step reads an input of the run.
struct ReadInput {
  std::string name;
};

/// A step computes results on each site from what the site holds.
struct ComputeLocally {
  local::LocalOperatorPtr operation;                ///< of one result
  std::unique_ptr<const local::CallOperator> call;  ///< of several
  std::map<int64_t, std::vector<Box>> boxes;  ///< that a site goes through, where these are not those of its result
  std::map<int64_t, local::OnePart> parts;    ///< by site, where the operation's work is one part
};

/// A step whose result an earlier step has computed with its own.
struct ComputedBefore {};

using Action =
    std::variant<ReadInput, std::unique_ptr<const communication::moves::PreparedMove>, ComputeLocally, ComputedBefore>;

/// One node of the plan in a run. Numbers are positions in the executable's values.
struct Step {
  std::string operation;  ///< as the plan's text has it
  std::string label;      ///< opens errors: `local_join a3`
  std::vector<size_t> operands;
  std::vector<bool> overwritable;  ///< operands that nothing else reads from now on: results may overwrite their blocks
  std::vector<size_t> results;     ///< the node's own first
  Action action;
};

/// What a run does next.
struct Task {
  using Kind = ia::analysis::Task::Kind;
  Kind kind = Kind::kCompute;
  size_t number = 0;               ///< the step of a kCompute, the group of moves of the others
  std::vector<size_t> last_reads;  ///< values that nothing reads later
};

/// A result of the run.
struct Result {
  std::string name;
  size_t value = 0;
  bool own_blocks = false;  ///< the value is an input or another result too
};

/// What a process needs to run a plan on its sites; made once for the plan and walked by each run, which derives
/// nothing. Each node is a step; tasks are the order in which steps run.
class Executable {
 public:
  /// `most_joined_bytes`: as ia::analysis::Materialization has it; `seconds_of`: as ia::analysis::Schedule has it.
  Executable(const ia::Plan& plan, const std::vector<int64_t>& local_sites, int64_t most_joined_bytes,
             const ia::analysis::SecondsOf& seconds_of = {});
  Executable(const Executable&) = delete;
  Executable& operator=(const Executable&) = delete;

  const ia::Plan& plan() const { return plan_; }
  const std::vector<Value>& values() const { return values_; }
  const std::vector<Step>& steps() const { return steps_; }
  const std::vector<Task>& tasks() const { return tasks_; }
  /// Steps whose moves travel together.
  const std::vector<std::vector<size_t>>& groups() const { return groups_; }
  const std::vector<Result>& results() const { return results_; }
  /// Names of the run-time scalars, each with the operation that reads it first.
  const std::vector<std::pair<std::string, std::string>>& scalars() const { return scalars_; }
  /// Whether this is of the same plan in memory.
  bool is_of(const ia::Plan& plan) const;
  /// The plan's text and its groups of moves, which all sites must agree on, and their hash.
  std::string common_text() const { return plan_text_ + schedule_text(); }
  uint64_t hash() const { return hash_; }
  /// Tasks in order: what they read and free, their messages in bytes, their kernels' modes.
  std::string text() const;

 private:
  void add_values(const std::vector<int64_t>& local_sites);
  void add_steps(const std::vector<int64_t>& local_sites);
  void leave_winners();
  void add_tasks(const ia::analysis::SecondsOf& seconds_of);
  /// The order in which messages leave.
  std::string schedule_text() const;
  void add_liveness();
  /// Values that a task reads for good: a move's operand until it is finished.
  std::vector<size_t> reads(const Task& task) const;
  void add_results();
  void share_type_of_input(Value& value, const std::string& input) const;
  Action action_of(const ia::Node& node, const std::string& label, const std::vector<int64_t>& local_sites) const;
  local::LocalOperatorPtr operator_of(const ia::Node& node) const;
  void add_parts(Step& step) const;

  ia::Plan plan_;  ///< owns the nodes that the others point to
  std::string plan_text_;
  uint64_t hash_ = 0;
  ia::analysis::Materialization materialization_;
  std::vector<Value> values_;
  std::unordered_map<const ia::Node*, size_t> position_;  ///< in values_
  std::vector<Step> steps_;
  std::vector<std::vector<size_t>> groups_;
  std::vector<Task> tasks_;
  std::vector<Result> results_;
  std::vector<std::pair<std::string, std::string>> scalars_;
};

}  // namespace joinsum::runtime::execution
