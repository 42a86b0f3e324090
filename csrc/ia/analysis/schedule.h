#pragma once

#include <functional>
#include <vector>

#include "ia/analysis/materialization.h"

namespace joinsum::ia::analysis {

/// What all processes do next.
struct Task {
  enum class Kind {
    kCompute,  ///< reads an input, or runs a local operator
    kStart,    ///< sends what the moves of a group send first
    kAdvance,  ///< waits for the messages of a stage, and sends those of the next one
    kFinish,   ///< waits for the messages of the last stage; afterwards others read the results
  };
  Kind kind = Kind::kCompute;
  const Node* node = nullptr;  ///< of a kCompute
  size_t group = 0;            ///< of the others
};

/// Moves whose messages travel together, stage by stage.
using MoveGroup = std::vector<const Node*>;

/// Messages of so many bytes are not joined with others of their group, nor partials of so many bytes: copies at both
/// ends would cost more than a message.
constexpr int64_t kSeparateBytes = int64_t{128} << 10;

/// Seconds that a node takes, as a schedule counts them.
struct NodeSeconds {
  double site = 0;     ///< of the site, which can do nothing else then
  double latency = 0;  ///< of a move: of each stage of messages, however many moves travel together
  double link = 0;     ///< of a move: of its bytes on the site's link
  double overlap = 1;  ///< the fraction of latency and link in which the site can compute
};
using SecondsOf = std::function<NodeSeconds(const Node&)>;

/// The order in which sites run a plan, made so that messages travel while they compute; equal on all sites. Without
/// moves it is the plan's order.
///
/// It simulates one site, whose stored values take the seconds that `seconds_of` says, or those of fixed rates, and
/// always runs the first node of those whose operands are there: nodes by their distance from the inputs, as late as
/// their readers permit. A move starts once its operand is there. Moves that nobody waits for soon travel in groups:
/// large ones where sites compute meanwhile, all that can wait where they do not. Readers of a move run when it has
/// arrived by the simulation, or when nothing else is left to do. What overwrites an input comes after its other
/// readers.
class Schedule {
 public:
  /// `seconds_of` must give the same on all sites.
  Schedule(const Plan& plan, const Materialization& materialization, const SecondsOf& seconds_of = {});
  const std::vector<Task>& tasks() const { return tasks_; }
  const std::vector<MoveGroup>& groups() const { return groups_; }
  /// Seconds until the last task has ended.
  double seconds() const { return seconds_; }

 private:
  std::vector<Task> tasks_;
  std::vector<MoveGroup> groups_;
  double seconds_ = 0;
};

}  // namespace joinsum::ia::analysis
