#include "einsum/json/graph.h"

#include <algorithm>
#include <set>

#include "einsum/json/place.h"
#include "einsum/notation/named_vertex.h"
#include "einsum/text.h"

namespace joinsum::einsum::json {
namespace {

using Values = std::map<std::string, NodePtr>;

const NodePtr& value_of(const Values& values, const std::string& name) {
  const auto found = values.find(name);
  JOINSUM_USER_CHECK(found != values.end(), "no such input or earlier operation: name='", name, "'");
  return found->second;
}

/// A message with a JSON path: before the lines that show the place in a text.
std::string with_path(const std::string& who, const std::string& message, const std::string& at) {
  const size_t end = std::min(message.find('\n'), message.size());
  return concatenate(who, ": ", message.substr(0, end), ": at=", at, message.substr(end));
}

/// What `make` makes; its errors name a JSON path, the innermost one.
template <class Make>
auto located(const std::string& who, const std::string& at, const Make& make) {
  const auto has_path = [](const Error& error) {
    return std::string(error.what()).find(": at=$") != std::string::npos;
  };
  try {
    return make();
  } catch (const PlanError& error) {
    if (has_path(error)) throw;
    throw PlanError(with_path(who, error.what(), at));
  } catch (const KernelError& error) {
    if (has_path(error)) throw;
    throw KernelError(with_path(who, error.what(), at));
  }
}

/// The labels are such as plans can have, and the join is a kernel of so many operands.
void check_parts(const std::string& who, const JsonOperation& operation, const std::string& at) {
  const auto check = [&](const Labels& labels, const std::string& place) {
    for (size_t i = 0; i < labels.size(); ++i) {
      located(who, concatenate(place, "[", i, "]"), [&] { check_label(labels[i]); });
    }
  };
  for (size_t i = 0; i < operation.in_labels.size(); ++i) {
    check(operation.in_labels[i], concatenate(at, ".in_labels[", i, "]"));
  }
  check(operation.out_labels, at + ".out_labels");
  located(who, at + ".join", [&] { notation::check_named_join(operation.join, operation.inputs.size()); });
}

/// Names that become those of inputs and outputs.
void check_name(const std::string& who, const std::string& name, const std::string& at) {
  located(who, at, [&] { check_plan_name("graph", name); });
}

/// Where the value is named that stands for an output of its own name.
std::string place_of_name(const JsonGraph& graph, const std::string& name) {
  for (size_t i = 0; i < graph.operations.size(); ++i) {
    if (graph.operations[i].name == name) return concatenate("$.ops[", i, "].name");
  }
  return "$.inputs" + path_step(name);
}

NodePtr make_operation(const JsonOperation& operation, const Values& values) {
  std::vector<NodePtr> inputs;
  for (const std::string& name : operation.inputs) inputs.push_back(value_of(values, name));
  notation::NamedVertex vertex{operation.join, operation.aggregate.value_or("sum"), operation.in_labels,
                               operation.out_labels, new_extents(operation)};
  return notation::make_named("einsum", inputs, std::move(vertex), operation.name + ".positions");
}

JsonOperation operation_of(const Node& node, const std::unordered_map<const Node*, std::string>& names) {
  const auto* call = node.as<Call>();
  JOINSUM_USER_CHECK(call == nullptr,
                     "json: a call of a torch operator has no JSON; its text has: vertex=", names.at(&node),
                     ", call=", call == nullptr ? "" : call->text());
  const auto& op = *node.as<Einsum>();
  JsonOperation out{
      names.at(&node), {}, op.operands, op.result, {}, op.join.text(), notation::aggregation_name(op.aggregate)};
  JOINSUM_USER_CHECK(out.aggregate, "json: an aggregation without a name in JSON: vertex=", out.name,
                     ", aggregate=", op.aggregate.text());
  std::vector<TensorType> types;
  for (const NodePtr& input : node.inputs()) {
    out.inputs.push_back(names.at(input.get()));
    types.push_back(input->type());
  }
  out.extents = extents_of(op, types);
  return out;
}

}  // namespace

Labels all_labels(const JsonOperation& operation) {
  std::vector<Labels> lists = operation.in_labels;
  lists.push_back(operation.out_labels);
  return labels_of(lists);
}

Extents new_extents(const JsonOperation& operation) {
  const Labels given = labels_of(operation.in_labels);
  Extents out;
  for (const std::string& label : operation.out_labels) {
    if (has(given, label)) continue;
    const auto found = operation.extents.find(label);
    JOINSUM_USER_CHECK(found != operation.extents.end(),
                       "einsum: a label that only the result has needs an extent: label=", label);
    out.insert(*found);
  }
  return out;
}

Plan plan_of(const JsonGraph& graph, const std::string& who) { return named_plan_of(graph, who).plan; }

NamedPlan named_plan_of(const JsonGraph& graph, const std::string& who) {
  Values values;
  const auto add = [&](const std::string& name, const std::string& at, const auto& make) {
    values[name] = located(who, at, [&] {
      JOINSUM_USER_CHECK(!values.contains(name), "two values have one name: name='", name, "'");
      return make();
    });
  };
  for (const auto& [name, type] : graph.inputs) {
    add(name, "$.inputs" + path_step(name), [&, &name = name, &type = type] { return make_input(name, type); });
  }
  std::set<std::string> read;  // inputs that vertices of argmax and argmin add
  for (size_t i = 0; i < graph.operations.size(); ++i) {
    const JsonOperation& operation = graph.operations[i];
    const std::string at = concatenate("$.ops[", i, "]");
    check_parts(who, operation, at);
    if (notation::is_position(operation.aggregate.value_or("sum"))) {
      check_name(who, operation.name, at + ".name");
      read.insert(operation.name + ".positions");
    }
    add(operation.name, at, [&] { return make_operation(operation, values); });
  }
  for (const std::string& name : read) {
    located(who, place_of_name(graph, name), [&] {
      JOINSUM_USER_CHECK(!values.contains(name), "the name of the positions of an operation: name='", name, "'");
    });
  }
  std::vector<Plan::Output> outputs;
  for (const auto& [name, of] : graph.outputs) {
    check_name(who, name, name == of ? place_of_name(graph, name) : "$.outputs" + path_step(name));
    located(who, "$.outputs", [&, &name = name, &of = of] { outputs.push_back({name, value_of(values, of), {}}); });
  }
  Plan plan = located(who, "$.outputs", [&] { return Plan::make(std::move(outputs)); });
  return {std::move(plan), std::move(values)};
}

JsonGraph graph_of(const Plan& plan) {
  const auto names = node_names(plan);
  JsonGraph graph;
  for (const NodePtr& node : plan.order()) {
    if (node->as<Input>() != nullptr) {
      graph.inputs.emplace_back(names.at(node.get()), node->type());
    } else {
      graph.operations.push_back(operation_of(*node, names));
    }
  }
  for (const auto& output : plan.outputs()) graph.outputs.emplace_back(output.name, names.at(output.node.get()));
  return graph;
}

}  // namespace joinsum::einsum::json
