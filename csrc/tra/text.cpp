#include "tra/text.h"

#include "base/plan_text.h"

namespace joinsum::tra {
namespace {

struct OperationText {
  std::string operator()(const Input& op) const { return op.name; }
  std::string operator()(const Aggregate& op) const { return dims_text(op.group_by) + "; " + op.kernel.text(); }
  std::string operator()(const Join& op) const {
    return dims_text(op.left_keys) + "; " + dims_text(op.right_keys) + "; " + op.kernel.text();
  }
  std::string operator()(const Rekey& op) const { return op.key_map.text(); }
  std::string operator()(const Filter& op) const { return op.predicate.text(); }
  std::string operator()(const Transform& op) const { return op.kernel.text(); }
  std::string operator()(const Tile& op) const { return dims_text({op.axis, op.size}); }
  std::string operator()(const Concat& op) const { return dims_text({op.key_dim, op.axis}); }
  std::string operator()(const Call& call) const { return call.text(); }
  std::string operator()(const Upsert&) const { return {}; }
};

std::pair<int64_t, int64_t> parse_pair(Scanner& scanner) {
  const int64_t first = scanner.integer();
  scanner.expect(",");
  return {first, scanner.integer()};
}

struct Level {
  using Node = tra::Node;
  using Plan = tra::Plan;

  relation::LookupTables tables;

  std::string header(const Plan&) const { return "tra"; }
  std::string input_name(const Node& node) const { return node.as<Input>()->name; }
  std::string node_text(const Node& node) const { return operation_text(node.operation()); }
  std::string type_text(const RelationType& type, bool full) const { return type.text(full); }

  void parse_header(Scanner& scanner) const { scanner.expect("tra"); }
  RelationType parse_type(Scanner& scanner) const { return RelationType::parse(scanner); }
  NodePtr make_input(std::string name, RelationType type) const {
    return tra::make_input(std::move(name), std::move(type));
  }
  NodePtr make(Operation operation, std::vector<NodePtr> inputs) const {
    return tra::make(std::move(operation), std::move(inputs));
  }

  ResolveOperation<Node> parse_operation(Scanner& scanner, const std::string& name) const {
    if (name == "upsert") return [](const std::vector<NodePtr>&) { return Operation(Upsert{}); };
    scanner.expect("[");
    Operation operation = parse_arguments(scanner, name);
    scanner.expect("]");
    return [operation = std::move(operation)](const std::vector<NodePtr>&) { return operation; };
  }

  Operation parse_arguments(Scanner& scanner, const std::string& name) const {
    if (name == "aggregate" || name == "agg") {
      return Aggregate{parse_dims(scanner), Kernel::parse(scanner)};
    }
    if (name == "join") {
      return Join{parse_dims(scanner), parse_dims(scanner), Kernel::parse(scanner)};
    }
    if (name == "rekey") return Rekey{KeyMap::parse(scanner, tables)};
    if (name == "filter") return Filter{KeyExpression::parse(scanner, tables)};
    if (name == "transform") return Transform{Kernel::parse(scanner)};
    if (name == "tile" || name == "concat") {
      const auto [first, second] = parse_pair(scanner);
      return name == "tile" ? Operation(Tile{first, second}) : Operation(Concat{first, second});
    }
    if (name == "call") return Call::parse(scanner);
    scanner.fail("no such operator: name=" + name +
                 ", operators=[aggregate, join, rekey, filter, transform, tile, concat, call, upsert]");
  }
};

}  // namespace

std::string print(const Plan& plan) { return print_plan(Level{}, plan); }

Plan parse(const std::string& text, const relation::LookupTables& tables) {
  return PlanParser<Level>(text, Level{tables}).parse();
}

std::string operation_text(const Operation& operation) {
  const std::string inside = std::visit(OperationText{}, operation);
  if (std::holds_alternative<Input>(operation)) return inside;
  return operator_name(operation) + (std::holds_alternative<Upsert>(operation) ? "" : "[" + inside + "]");
}

/// Without the inferred types, so that the contents of lookup tables are no part of it.
uint64_t Plan::hash() const { return hash_text(print_plan(Level{}, *this, PlanTypes::kHidden)); }

bool operator==(const Plan& a, const Plan& b) { return same_plan<Node>(a, b); }

std::unordered_map<const Node*, std::string> node_names(const Plan& plan) {
  return name_nodes<Node>(plan, [](const Node& node) { return node.as<Input>()->name; });
}

relation::LookupTables tables_of(const Plan& plan) {
  relation::LookupTables out;
  for (const NodePtr& node : plan.order()) {
    if (const auto* rekey = node->as<Rekey>()) rekey->key_map.collect_tables(out);
    if (const auto* filter = node->as<Filter>()) filter->predicate.collect_tables(out);
  }
  return out;
}

}  // namespace joinsum::tra
