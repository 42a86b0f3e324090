#include "einsum/graph.h"

#include "einsum/json.h"
#include "einsum/named_vertex.h"
#include "einsum/text.h"

namespace joinsum::einsum {
namespace {

using Values = std::map<std::string, NodePtr>;

const NodePtr& value_of(const Values& values, const std::string& name) {
  const auto found = values.find(name);
  JOINSUM_USER_CHECK(found != values.end(), "no such input or earlier operation: name='", name, "'");
  return found->second;
}

/// What `make` makes; its errors name a JSON path.
template <class Make>
auto located(const std::string& at, const Make& make) {
  try {
    return make();
  } catch (const PlanError& error) {
    throw PlanError(concatenate("json: ", error.what(), ": at=", at));
  } catch (const KernelError& error) {
    throw KernelError(concatenate("json: ", error.what(), ": at=", at));
  }
}

NodePtr make_operation(const GraphOperation& operation, const Values& values) {
  std::vector<NodePtr> inputs;
  for (const std::string& name : operation.inputs) inputs.push_back(value_of(values, name));
  NamedVertex vertex{operation.join, operation.aggregate.value_or("sum"), operation.in_labels, operation.out_labels,
                     new_extents(operation)};
  return make_named("einsum", inputs, std::move(vertex), operation.name + ".positions");
}

GraphOperation operation_of(const Node& node, const std::unordered_map<const Node*, std::string>& names) {
  const auto* call = node.as<Call>();
  JOINSUM_USER_CHECK(call == nullptr,
                     "json: a call of a torch operator has no JSON; its text has: vertex=", names.at(&node),
                     ", call=", call == nullptr ? "" : call->text());
  const auto& op = *node.as<Einsum>();
  GraphOperation out{names.at(&node), {}, op.operands, op.result, {}, op.join.text(), aggregation_name(op.aggregate)};
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

Extents new_extents(const GraphOperation& operation) {
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

Plan plan_of(const Graph& graph) {
  Values values;
  for (const auto& [name, type] : graph.inputs) {
    values[name] = located("$.inputs" + path_step(name), [&, &name = name, &type = type] {
      JOINSUM_USER_CHECK(!values.contains(name), "two values have one name: name='", name, "'");
      return make_input(name, type);
    });
  }
  for (size_t i = 0; i < graph.operations.size(); ++i) {
    const GraphOperation& operation = graph.operations[i];
    NodePtr node = located(concatenate("$.ops[", i, "]"), [&] {
      JOINSUM_USER_CHECK(!values.contains(operation.name), "two values have one name: name='", operation.name, "'");
      return make_operation(operation, values);
    });
    values[operation.name] = std::move(node);
  }
  return located("$.outputs", [&] {
    std::vector<Plan::Output> outputs;
    for (const auto& [name, of] : graph.outputs) outputs.push_back({name, value_of(values, of), std::nullopt});
    return Plan::make(std::move(outputs));
  });
}

Graph graph_of(const Plan& plan) {
  const auto names = node_names(plan);
  Graph graph;
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

}  // namespace joinsum::einsum
