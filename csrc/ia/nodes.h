#pragma once

#include "base/plan.h"
#include "ia/type.h"
#include "kernels/call/call.h"
#include "kernels/table/kernel.h"
#include "relation/key_expression.h"

namespace joinsum::ia {

using kernels::table::Kernel;
using relation::KeyExpression;
using relation::KeyMap;

/// An argument of the run, stored as the placement in its type says.
struct Input {
  std::string name;
  bool operator==(const Input&) const = default;
};

/// Gives every site of the grid axes `axes` what any of them holds; pending axes among them are reduced.
/// Source: TRA paper, section 4 (1); the paper's form has all axes.
struct Broadcast {
  Dims axes;
  bool operator==(const Broadcast&) const = default;
};

/// Moves each tuple to the sites that own it under `target`; contents stay the same, pending axes that the target does
/// not keep are reduced. Relations shuffled to matching targets meet on one site.
/// Source: TRA paper, section 4 (2); the paper's Shuf names key dims, ours one state per grid axis.
struct Shuffle {
  GridPlacement target;
  bool operator==(const Shuffle&) const = default;
};

/// Joins the tuples that each site holds. Source: TRA paper, section 4 (3).
struct LocalJoin {
  Dims left_keys;
  Dims right_keys;
  Kernel kernel;
  bool operator==(const LocalJoin&) const = default;
};

/// Aggregates the groups that each site holds; where a group is spread over sites, they hold partial values, and the
/// result is pending. Source: section 4 (4).
struct LocalAggregate {
  Dims group_by;
  Kernel kernel;
  bool operator==(const LocalAggregate&) const = default;
};

/// Keeps the tuples whose key satisfies `predicate`. Source: section 4 (5).
struct LocalFilter {
  KeyExpression predicate;
  bool operator==(const LocalFilter&) const = default;
};

/// Each tuple gives `outputs` tuples: key_map at (key, m), output m of array_map. Source: section 4 (6).
struct LocalMap {
  int64_t outputs = 1;
  KeyMap key_map;
  Kernel array_map;
  bool operator==(const LocalMap&) const = default;
};

/// Runs an operator of torch's on what each site holds of its operands. All operands that have a letter are split along
/// it alike. The result is pending where a letter that it lacks is split.
struct LocalCall {
  kernels::call::Call call;
  bool operator==(const LocalCall&) const = default;
};

/// Keeps what each site holds of the first operand, without the tuples whose key the second one has on any site, and
/// what it holds of the second. Both have one placement, or no tuple of either is replicated: then a tuple is stored
/// where its new value is, and removed from its old site without a message. Not in the paper.
struct LocalUpsert {
  bool operator==(const LocalUpsert&) const = default;
};

using Operation =
    std::variant<Input, Broadcast, Shuffle, LocalJoin, LocalAggregate, LocalFilter, LocalMap, LocalCall, LocalUpsert>;
using Node = joinsum::Node<Operation, PhysicalType>;
using NodePtr = Node::Pointer;

/// The only ways to create a node; they infer its type and raise every type error.
NodePtr make_input(std::string name, PhysicalType type);
NodePtr make(Operation operation, std::vector<NodePtr> inputs);

/// `broadcast` over all axes, and the paper's `shuffle[dims]`.
NodePtr broadcast(NodePtr input);
NodePtr shuffle(NodePtr input, const Dims& dims);

/// Grid axes of the broadcast that takes `from` to `to`; nothing if no broadcast does.
std::optional<Dims> broadcast_axes(const Placement& from, const Placement& to);
/// `node` at `target`: the node itself if it is there, a broadcast if one takes it there, else a shuffle.
NodePtr move_to(const NodePtr& node, const Placement& target);

/// Whether an operation moves a relation: a broadcast or a shuffle.
bool is_move(const Operation& operation);
/// Name of the operator as plans and errors print it: `local_join`.
std::string operator_name(const Operation& operation);

/// The same for equal operations.
uint64_t operation_hash(const Operation& operation);

/// Names of the run-time scalars that an operation's kernel reads.
std::vector<std::string> scalars_of(const Operation& operation);

class Plan : public joinsum::Plan<Node> {
 public:
  Plan() = default;
  /// Checks names, ties (an output tied to an input has its type) and that all inputs lie on one grid; inputs of one
  /// name must be one node.
  static Plan make(std::vector<Output> outputs);
  const Grid& grid() const { return grid_; }
  /// Input nodes by first use.
  std::vector<NodePtr> inputs() const;
  /// Printed form; equal plans print alike.
  std::string text() const;
  uint64_t hash() const;

 private:
  explicit Plan(std::vector<Output> outputs) : joinsum::Plan<Node>(std::move(outputs)) {}
  Grid grid_;
};

/// Equal operators over equal inputs, node by node, with equal sharing, names and ties.
bool operator==(const Plan& a, const Plan& b);

}  // namespace joinsum::ia
