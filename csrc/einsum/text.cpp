#include "einsum/text.h"

#include <algorithm>
#include <cctype>

#include "base/plan_text.h"

namespace joinsum::einsum {
namespace {

bool is_letter(char c) { return std::isalpha(static_cast<unsigned char>(c)) != 0; }

std::string label_text(const std::string& label) {
  return label.size() == 1 && is_letter(label[0]) ? label : "{" + label + "}";
}

/// Takes one label from the front of `text`.
std::string take_label(Scanner& scanner, std::string& text) {
  std::string label;
  if (text[0] == '{') {
    const size_t end = text.find('}');
    if (end == std::string::npos) scanner.fail("a label is not closed: labels=" + text);
    label = text.substr(1, end - 1);
    text.erase(0, end + 1);
  } else {
    label = text.substr(0, 1);
    if (!is_letter(label[0])) scanner.fail("not a letter; other labels stand in braces: labels=" + text);
    text.erase(0, 1);
  }
  check_label(label);
  return label;
}

/// Reads `ij,jk->ik`.
void parse_labels(Scanner& scanner, Einsum& op) {
  std::string text = without_blanks(scanner.raw_until(";"));
  op.operands.emplace_back();
  bool after_arrow = false;
  while (!text.empty()) {
    if (text[0] == ',' && !after_arrow) {
      op.operands.emplace_back();
      text.erase(0, 1);
    } else if (text.starts_with("->") && !after_arrow) {
      after_arrow = true;
      text.erase(0, 2);
    } else {
      (after_arrow ? op.result : op.operands.back()).push_back(take_label(scanner, text));
    }
  }
  if (!after_arrow) scanner.fail("labels of the result are missing: expected `->`");
}

Extents parse_extents(Scanner& scanner) {
  Extents extents;
  do {
    std::string text = without_blanks(scanner.raw_until("="));
    if (text.empty()) scanner.fail("expected a label");
    const std::string label = take_label(scanner, text);
    scanner.expect("=");
    const bool fresh = text.empty() && extents.emplace(label, scanner.integer()).second;
    if (!fresh) scanner.fail("an extent is given as in `j=5`, once for each label: label=" + label);
  } while (scanner.accept(","));
  return extents;
}

struct Level {
  using Node = einsum::Node;
  using Plan = einsum::Plan;

  std::string header(const Plan&) const { return "einsum"; }
  std::string input_name(const Node& node) const { return node.as<Input>()->name; }
  std::string node_text(const Node& node) const { return operation_text(node.operation()); }
  std::string type_text(const TensorType& type, bool) const { return type.text(); }

  void parse_header(Scanner& scanner) const { scanner.expect("einsum"); }
  TensorType parse_type(Scanner& scanner) const { return TensorType::parse(scanner); }
  NodePtr make_input(std::string name, TensorType type) const {
    return einsum::make_input(std::move(name), std::move(type));
  }
  NodePtr make(Operation operation, std::vector<NodePtr> inputs) const {
    return einsum::make(std::move(operation), std::move(inputs));
  }

  ResolveOperation<Node> parse_operation(Scanner& scanner, const std::string& name) const {
    if (name != "einsum" && name != "call") {
      scanner.fail("no such operator: name=" + name + ", operators=[einsum, call]");
    }
    scanner.expect("[");
    if (name == "call") {
      Call call = Call::parse(scanner);
      scanner.expect("]");
      return [call = std::move(call)](const std::vector<NodePtr>&) { return call; };
    }
    Einsum op;
    parse_labels(scanner, op);
    scanner.expect(";");
    op.join = Kernel::parse(scanner);
    scanner.expect(";");
    op.aggregate = Kernel::parse(scanner);
    if (scanner.accept(";")) op.extents = parse_extents(scanner);
    scanner.expect("]");
    return [op = std::move(op)](const std::vector<NodePtr>&) { return op; };
  }
};

}  // namespace

void check_label(const std::string& label) {
  const auto plain = [](unsigned char c) { return std::isalnum(c) != 0 || c == '_' || c == '.'; };
  JOINSUM_USER_CHECK(!label.empty() && std::all_of(label.begin(), label.end(), plain),
                     "einsum: a label is letters, digits, _ and .: label=`", label, "`");
}

std::string labels_text(const Labels& labels) {
  std::string out;
  for (const std::string& label : labels) out += label_text(label);
  return out;
}

std::string labels_text(const std::vector<Labels>& operands, const Labels& result) {
  std::string out;
  for (size_t i = 0; i < operands.size(); ++i) out += (i > 0 ? "," : "") + labels_text(operands[i]);
  return out + "->" + labels_text(result);
}

std::string operation_text(const Operation& operation) {
  if (const auto* call = std::get_if<Call>(&operation)) return "call[" + call->text() + "]";
  const auto* op = std::get_if<Einsum>(&operation);
  if (op == nullptr) return std::get<Input>(operation).name;
  std::string out =
      "einsum[" + labels_text(op->operands, op->result) + "; " + op->join.text() + "; " + op->aggregate.text();
  for (const auto& [label, extent] : op->extents) {
    out += (label == op->extents.begin()->first ? "; " : ", ") + label_text(label) + "=" + std::to_string(extent);
  }
  return out + "]";
}

std::string print(const Plan& plan) { return print_plan(Level{}, plan); }

Plan parse(const std::string& text) { return PlanParser<Level>(text, Level{}).parse(); }

uint64_t Plan::hash() const { return hash_text(print_plan(Level{}, *this, PlanTypes::kHidden)); }

bool operator==(const Plan& a, const Plan& b) { return same_plan<Node>(a, b); }

std::unordered_map<const Node*, std::string> node_names(const Plan& plan) {
  return name_nodes<Node>(plan, [](const Node& node) { return node.as<Input>()->name; });
}

}  // namespace joinsum::einsum
