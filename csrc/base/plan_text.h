#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/dims.h"
#include "base/plan.h"
#include "base/scanner.h"

namespace joinsum {

/// What the levels of plan share in printing, parsing and comparing.
///
/// A level is a small struct that says what is its own:
///   using Node, Plan
///   std::string header(const Plan&)                      first line: `tra`, `ia on 2x2`
///   std::string input_name(const Node&)                  of an input
///   std::string node_text(const Node&)                   operator without its inputs: `aggregate[0; add]`
///   std::string type_text(const Node::Type&, bool full)  short form, or the one that `parse_type` reads
///   void parse_header(Scanner&)
///   Node::Type parse_type(Scanner&)
///   ResolveOperation<Node> parse_operation(Scanner&, const std::string& name)   reads the `[...]` after `name`
///   Node::Pointer make_input(std::string, Node::Type)
///   Node::Pointer make(Node::Operation, std::vector<Node::Pointer>)

/// Gives the operation that was read, once the types of its inputs are known.
template <class NodeT>
using ResolveOperation = std::function<typename NodeT::Operation(const std::vector<typename NodeT::Pointer>&)>;

/// Prints dims as operators do: `0, 2`.
std::string dims_text(const Dims& dims);

/// Reads dims and the `;` after them.
Dims parse_dims(Scanner& scanner);

/// `text` without its blanks.
std::string without_blanks(const std::string& text);

/// `message`, with the line of `offset` in `text` appended unless it names a line already.
std::string with_line(const std::string& message, std::string_view text, size_t offset);

/// The operator lines that `parse` would read, or only what makes two plans equal: without the inferred types.
enum class PlanTypes { kShown, kHidden };

/// Names of the nodes that are not inputs: t0, t1, ... in topological order, passing over names that inputs have.
template <class NodeT, class InputName>
std::unordered_map<const NodeT*, std::string> name_nodes(const Plan<NodeT>& plan, const InputName& input_name) {
  std::unordered_map<const NodeT*, std::string> names;
  std::map<std::string, const NodeT*> taken;
  for (const auto& node : plan.order()) {
    if (node->inputs().empty()) taken[names[node.get()] = input_name(*node)] = node.get();
  }
  int64_t next = 0;
  for (const auto& node : plan.order()) {
    if (node->inputs().empty()) continue;
    while (taken.contains("t" + std::to_string(next))) ++next;
    names[node.get()] = "t" + std::to_string(next++);
  }
  return names;
}

/// Prints one line per node, inputs first, then one per output.
template <class Level>
std::string print_plan(const Level& level, const typename Level::Plan& plan, PlanTypes types = PlanTypes::kShown) {
  using Node = typename Level::Node;
  const auto names = name_nodes<Node>(plan, [&](const Node& node) { return level.input_name(node); });
  std::string inputs;
  std::string operators;
  for (const auto& node : plan.order()) {
    const std::string& name = names.at(node.get());
    if (node->inputs().empty()) {
      inputs += "input " + name + ": " + level.type_text(node->type(), true) + "\n";
      continue;
    }
    operators += name + " = " + level.node_text(*node) + "(";
    for (size_t i = 0; i < node->inputs().size(); ++i) {
      operators += (i > 0 ? ", " : "") + names.at(node->input(i).get());
    }
    operators += types == PlanTypes::kShown ? "): " + level.type_text(node->type(), false) + "\n" : ")\n";
  }
  std::string out = level.header(plan) + "\n" + inputs + operators;
  for (const auto& output : plan.outputs()) {
    const std::string tie = output.tied_input ? " -> " + *output.tied_input : "";
    out += "output " + output.name + tie + " = " + names.at(output.node.get()) + "\n";
  }
  return out;
}

/// Whether two plans have equal operators over equal inputs, node by node, with equal sharing, names and ties.
template <class NodeT>
bool same_plan(const Plan<NodeT>& a, const Plan<NodeT>& b) {
  if (a.order().size() != b.order().size() || a.outputs().size() != b.outputs().size()) return false;
  std::unordered_map<const NodeT*, const NodeT*> counterpart;
  const auto match = [&](const typename NodeT::Pointer& left, const typename NodeT::Pointer& right) {
    return counterpart.at(left.get()) == right.get();
  };
  for (size_t i = 0; i < a.order().size(); ++i) {
    const NodeT& left = *a.order()[i];
    const NodeT& right = *b.order()[i];
    if (!(left.operation() == right.operation()) || left.inputs().size() != right.inputs().size()) return false;
    if (left.inputs().empty() && !(left.type() == right.type())) return false;
    for (size_t k = 0; k < left.inputs().size(); ++k) {
      if (!match(left.input(k), right.input(k))) return false;
    }
    counterpart[&left] = &right;
  }
  for (size_t i = 0; i < a.outputs().size(); ++i) {
    const auto& left = a.outputs()[i];
    const auto& right = b.outputs()[i];
    if (left.name != right.name || left.tied_input != right.tied_input || !match(left.node, right.node)) return false;
  }
  return true;
}

/// Reads a plan: statements `input X: type`, `name = expression[: type]` and `output Z [-> X] = expression`, where an
/// expression is a name or `operator[...](expression, ...)`. Every error names its line.
template <class Level>
class PlanParser {
  using Node = typename Level::Node;
  using Pointer = typename Node::Pointer;
  using Plan = typename Level::Plan;

 public:
  PlanParser(std::string_view text, Level level) : text_(text), scanner_(text), level_(std::move(level)) {}

  Plan parse() {
    level_.parse_header(scanner_);
    size_t start = 0;
    while (!scanner_.at_end()) {
      start = scanner_.offset();
      located(start, [&] { statement(start); });
    }
    if (outputs_.empty()) scanner_.fail("a plan needs an `output` line");
    return located(start, [&] { return Plan::make(std::move(outputs_)); });
  }

 private:
  static constexpr int64_t kMaxNesting = 200;

  void statement(size_t start) {
    const std::string word = scanner_.plan_name();
    if (word == "input" && scanner_.peek_plan_name()) return input();
    if (word == "output" && scanner_.peek_plan_name()) return output();
    scanner_.expect("=");
    const Pointer node = expression();
    if (scanner_.accept(":")) check_stated_type(node->type());
    define(start, word, node);
  }

  void input() {
    const size_t start = scanner_.offset();
    const std::string name = scanner_.plan_name();
    scanner_.expect(":");
    define(start, name, level_.make_input(name, level_.parse_type(scanner_)));
    inputs_[name] = true;
  }

  void output() {
    const size_t start = scanner_.offset();
    typename joinsum::Plan<Node>::Output output;
    output.name = scanner_.plan_name();
    for (const auto& other : outputs_) {
      if (other.name == output.name) fail_at(start, "output named twice: name=" + output.name);
    }
    if (scanner_.accept("->")) {
      scanner_.at_end();
      const size_t tie = scanner_.offset();
      output.tied_input = scanner_.plan_name();
      if (!inputs_.contains(*output.tied_input)) fail_at(tie, "no such input to tie to: name=" + *output.tied_input);
    }
    scanner_.expect("=");
    output.node = expression();
    outputs_.push_back(std::move(output));
  }

  Pointer expression() {
    scanner_.at_end();
    const size_t start = scanner_.offset();
    const std::string name = scanner_.plan_name();
    if (!scanner_.peek("[") && !scanner_.peek("(")) return named(start, name);
    if (++nesting_ > kMaxNesting) fail_at(start, concatenate("nested too deeply: limit=", kMaxNesting));
    const ResolveOperation<Node> resolve = located(start, [&] { return level_.parse_operation(scanner_, name); });
    std::vector<Pointer> inputs = operands();
    --nesting_;
    return located(start, [&] {
      auto operation = resolve(inputs);
      return level_.make(std::move(operation), std::move(inputs));
    });
  }

  std::vector<Pointer> operands() {
    std::vector<Pointer> inputs;
    scanner_.expect("(");
    if (scanner_.accept(")")) return inputs;
    do {
      inputs.push_back(expression());
    } while (scanner_.accept(","));
    scanner_.expect(")");
    return inputs;
  }

  Pointer named(size_t start, const std::string& name) {
    const auto found = nodes_.find(name);
    if (found == nodes_.end()) fail_at(start, "no such input or node so far: name=" + name);
    return found->second;
  }

  void define(size_t start, const std::string& name, const Pointer& node) {
    if (!nodes_.try_emplace(name, node).second) fail_at(start, "name used twice: name=" + name);
  }

  void check_stated_type(const typename Node::Type& type) {
    scanner_.at_end();
    const size_t start = scanner_.offset();
    const std::string stated = scanner_.raw_until("\n#");
    if (states(stated, type)) return;
    fail_at(start, "the stated type is not the inferred one: stated=" + stated +
                       ", inferred=" + level_.type_text(type, false));
  }

  bool states(const std::string& stated, const typename Node::Type& type) {
    for (const bool full : {false, true}) {
      if (without_blanks(stated) == without_blanks(level_.type_text(type, full))) return true;
    }
    try {
      Scanner scanner(stated);
      return level_.parse_type(scanner) == type && scanner.at_end();
    } catch (const PlanError&) {
      return false;
    }
  }

  [[noreturn]] void fail_at(size_t start, const std::string& what) {
    scanner_.seek(start);
    scanner_.fail(what);
  }

  /// Adds the line of `start` to errors that name none.
  template <class Build>
  auto located(size_t start, const Build& build) {
    try {
      return build();
    } catch (const PlanError& error) {
      throw PlanError(with_line(error.what(), text_, start));
    } catch (const KernelError& error) {
      throw KernelError(with_line(error.what(), text_, start));
    }
  }

  std::string_view text_;
  Scanner scanner_;
  Level level_;
  std::map<std::string, Pointer> nodes_;
  std::map<std::string, bool> inputs_;
  std::vector<typename joinsum::Plan<Node>::Output> outputs_;
  int64_t nesting_ = 0;
};

}  // namespace joinsum
