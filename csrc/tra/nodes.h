#pragma once

#include "base/plan.h"
#include "kernels/call/call.h"
#include "kernels/table/kernel.h"
#include "relation/key_expression.h"
#include "relation/relation_type.h"

namespace joinsum::tra {

using kernels::call::Call;
using kernels::table::Kernel;
using relation::KeyExpression;
using relation::KeyMap;
using relation::RelationType;

/// An argument of the run.
struct Input {
  std::string name;
  bool operator==(const Input&) const = default;
};

/// Aggregates the tuples that agree on `group_by`. Source: TRA paper, section 3.1 (1).
struct Aggregate {
  Dims group_by;
  Kernel kernel;
  bool operator==(const Aggregate&) const = default;
};

/// Pairs the tuples that agree on the join keys; the key is all left components, then the right ones that are not join
/// keys. Source: section 3.1 (2).
struct Join {
  Dims left_keys;
  Dims right_keys;
  Kernel kernel;
  bool operator==(const Join&) const = default;
};

/// Gives each tuple the key that `key_map` makes of its own. Source: section 3.1 (3).
struct Rekey {
  KeyMap key_map;
  bool operator==(const Rekey&) const = default;
};

/// Keeps the tuples whose key satisfies `predicate`. Source: section 3.1 (4).
struct Filter {
  KeyExpression predicate;
  bool operator==(const Filter&) const = default;
};

/// Runs `kernel` on each array. Source: section 3.1 (5).
struct Transform {
  Kernel kernel;
  bool operator==(const Transform&) const = default;
};

/// Cuts each array in pieces of `size` along `axis`; a new last key component counts them. Source: section 3.1 (6).
struct Tile {
  int64_t axis = 0;
  int64_t size = 1;
  bool operator==(const Tile&) const = default;
};

/// Joins the arrays that differ in key component `key_dim` only along `axis`, in key order. Source: section 3.1 (7).
struct Concat {
  int64_t key_dim = 0;
  int64_t axis = 0;
  bool operator==(const Concat&) const = default;
};

/// The tuples of the second operand, and those of the first whose key it lacks: SQL's upsert. Not in the paper, whose
/// operators make relations and never write into one.
struct Upsert {
  bool operator==(const Upsert&) const = default;
};

using Operation = std::variant<Input, Aggregate, Join, Rekey, Filter, Transform, Tile, Concat, Call, Upsert>;
using Node = joinsum::Node<Operation, RelationType>;
using NodePtr = Node::Pointer;

/// The only ways to create a node; they infer its type and raise every type error.
NodePtr make_input(std::string name, RelationType type);
NodePtr make(Operation operation, std::vector<NodePtr> inputs);

/// Name of the operator as plans and errors print it: `aggregate`.
std::string operator_name(const Operation& operation);

class Plan : public joinsum::Plan<Node> {
 public:
  Plan() = default;
  /// Checks names and ties (an output tied to an input has its type); inputs of one name must be one node.
  static Plan make(std::vector<Output> outputs);
  std::vector<NodePtr> inputs() const;
  std::string text() const;
  uint64_t hash() const;

 private:
  explicit Plan(std::vector<Output> outputs) : joinsum::Plan<Node>(std::move(outputs)) {}
};

/// Equal operators over equal inputs, node by node, with equal sharing, names and ties.
bool operator==(const Plan& a, const Plan& b);

}  // namespace joinsum::tra
