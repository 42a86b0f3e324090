#include "ia/text.h"

#include "base/plan_text.h"

namespace joinsum::ia {
namespace {

using Resolve = ResolveOperation<Node>;

struct OperationText {
  const PhysicalType& type;

  std::string operator()(const Input& op) const { return op.name; }
  std::string operator()(const Broadcast& op) const { return dims_text(op.axes); }
  std::string operator()(const Shuffle& op) const { return Placement(op.target).text(type.relation.frontier); }
  std::string operator()(const LocalJoin& op) const {
    return dims_text(op.left_keys) + "; " + dims_text(op.right_keys) + "; " + op.kernel.text();
  }
  std::string operator()(const LocalAggregate& op) const { return dims_text(op.group_by) + "; " + op.kernel.text(); }
  std::string operator()(const LocalFilter& op) const { return op.predicate.text(); }
  std::string operator()(const LocalMap& op) const {
    const std::string outputs = op.outputs == 1 ? "" : std::to_string(op.outputs) + ": ";
    return outputs + op.key_map.text() + "; " + op.array_map.text();
  }
  std::string operator()(const LocalCall& op) const { return op.call.text(); }
  std::string operator()(const LocalUpsert&) const { return {}; }
};

LocalMap parse_map(Scanner& scanner, const relation::LookupTables& tables) {
  LocalMap map;
  if (scanner.peek_number()) {
    map.outputs = scanner.integer();
    scanner.expect(":");
  }
  map.key_map = KeyMap::parse(scanner, tables);
  scanner.expect(";");
  map.array_map = Kernel::parse(scanner);
  return map;
}

const RelationType& only_relation(const std::vector<NodePtr>& inputs) {
  JOINSUM_USER_CHECK(inputs.size() == 1, "shuffle: wrong number of inputs: inputs=", inputs.size(), ", wanted=1");
  return inputs[0]->type().relation;
}

struct Level {
  using Node = ia::Node;
  using Plan = ia::Plan;

  relation::LookupTables tables;
  Grid grid;

  std::string header(const Plan& plan) const { return "ia on " + plan.grid().text(); }
  std::string input_name(const Node& node) const { return node.as<Input>()->name; }
  std::string node_text(const Node& node) const { return operation_text(node.operation(), node.type()); }
  std::string type_text(const PhysicalType& type, bool full) const { return type.text(full); }

  void parse_header(Scanner& scanner) {
    scanner.expect("ia");
    scanner.expect("on");
    grid = Grid::parse(scanner);
  }

  /// The part ` on 2x2` may be left out.
  PhysicalType parse_type(Scanner& scanner) const {
    RelationType relation = RelationType::parse(scanner);
    if (scanner.accept("on")) {
      const Grid stated = Grid::parse(scanner);
      if (!(stated == grid)) scanner.fail("the plan is on another grid: grid=" + grid.text());
    }
    Placement placement = Placement::parse(scanner, grid, relation.frontier);
    return PhysicalType::placed("input", std::move(relation), grid, std::move(placement));
  }

  NodePtr make_input(std::string name, PhysicalType type) const {
    return ia::make_input(std::move(name), std::move(type));
  }
  NodePtr make(Operation operation, std::vector<NodePtr> inputs) const {
    return ia::make(std::move(operation), std::move(inputs));
  }

  Resolve parse_operation(Scanner& scanner, const std::string& name) const {
    if (name == "broadcast" && !scanner.peek("[")) return resolved(Broadcast{all_dims(grid.rank())});
    if (name == "local_upsert" || name == "upsert") return resolved(LocalUpsert{});
    scanner.expect("[");
    Resolve resolve = name == "shuffle" ? parse_shuffle(scanner) : resolved(parse_arguments(scanner, name));
    scanner.expect("]");
    return resolve;
  }

  static Resolve resolved(Operation operation) {
    return [operation = std::move(operation)](const std::vector<NodePtr>&) { return operation; };
  }

  Operation parse_arguments(Scanner& scanner, const std::string& name) const {
    if (name == "broadcast") return Broadcast{scanner.integers()};
    if (name == "local_join" || name == "join") {
      return LocalJoin{parse_dims(scanner), parse_dims(scanner), Kernel::parse(scanner)};
    }
    if (name == "local_aggregate" || name == "aggregate" || name == "agg") {
      return LocalAggregate{parse_dims(scanner), Kernel::parse(scanner)};
    }
    if (name == "local_filter" || name == "filter") return LocalFilter{KeyExpression::parse(scanner, tables)};
    if (name == "local_map" || name == "map") return parse_map(scanner, tables);
    if (name == "local_call" || name == "call") return LocalCall{kernels::call::Call::parse(scanner)};
    scanner.fail("no such operator: name=" + name +
                 ", operators=[broadcast, shuffle, local_join, local_aggregate, local_filter, local_map, local_call, "
                 "local_upsert]");
  }

  /// The split domains of a target default to the input's frontier, so it is read once the input is known.
  Resolve parse_shuffle(Scanner& scanner) const {
    if (!scanner.peek("(")) {
      return [sites = grid, dims = scanner.integers()](const std::vector<NodePtr>& inputs) -> Operation {
        return Shuffle{fill(sites, dims, only_relation(inputs).frontier)};
      };
    }
    const size_t start = scanner.offset();
    scanner.expect("(");
    scanner.raw_until(")");
    scanner.expect(")");
    return [sites = grid, start, &scanner](const std::vector<NodePtr>& inputs) -> Operation {
      const size_t end = scanner.offset();
      scanner.seek(start);
      const Placement target = Placement::parse(scanner, sites, only_relation(inputs).frontier);
      scanner.seek(end);
      JOINSUM_USER_CHECK(target.grid() != nullptr,
                         "shuffle: a target has one state per grid axis: grid=", sites.text());
      return Shuffle{*target.grid()};
    };
  }
};

}  // namespace

std::string print(const Plan& plan) { return print_plan(Level{}, plan); }

Plan parse(const std::string& text, const relation::LookupTables& tables) {
  return PlanParser<Level>(text, Level{tables, {}}).parse();
}

std::string operation_text(const Operation& operation, const PhysicalType& type) {
  const std::string inside = std::visit(OperationText{type}, operation);
  if (std::holds_alternative<Input>(operation)) return inside;
  return operator_name(operation) + (std::holds_alternative<LocalUpsert>(operation) ? "" : "[" + inside + "]");
}

std::unordered_map<const Node*, std::string> node_names(const Plan& plan) {
  return name_nodes<Node>(plan, [](const Node& node) { return node.as<Input>()->name; });
}

/// Without the inferred types, so that the contents of lookup tables are no part of it.
uint64_t Plan::hash() const { return hash_text(print_plan(Level{}, *this, PlanTypes::kHidden)); }

bool operator==(const Plan& a, const Plan& b) { return same_plan<Node>(a, b); }

}  // namespace joinsum::ia
