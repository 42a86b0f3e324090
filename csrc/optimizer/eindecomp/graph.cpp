#include "optimizer/eindecomp/graph.h"

#include <algorithm>

namespace joinsum::optimizer::eindecomp {
namespace {

using einsum::Labels;
using einsum::json::JsonOperation;

/// The extents of the values of a graph so far, by name.
using Values = std::map<std::string, Dims>;

void add_value(const std::string& name, Dims extents, Values& values) {
  JOINSUM_USER_CHECK(!name.empty(), "partition: a name is empty");
  JOINSUM_USER_CHECK(values.emplace(name, std::move(extents)).second,
                     "partition: two values have one name: name=", name);
}

void check_operand(const JsonOperation& operation, size_t i, const Values& values) {
  const auto value = values.find(operation.inputs[i]);
  JOINSUM_USER_CHECK(value != values.end(),
                     "partition: an operand is no input or earlier operation: operation=", operation.name,
                     ", operand=", operation.inputs[i]);
  const Labels& labels = operation.in_labels[i];
  JOINSUM_USER_CHECK(value->second.size() == labels.size(),
                     "partition: an operand has another number of axes than labels: operation=", operation.name,
                     ", labels=", labels, ", extents=", value->second);
  for (size_t axis = 0; axis < labels.size(); ++axis) {
    const int64_t extent = operation.extents.at(labels[axis]);
    JOINSUM_USER_CHECK(extent == value->second[axis], "partition: a label has two extents: operation=", operation.name,
                       ", label=", labels[axis], ", extents=", Dims{extent, value->second[axis]});
  }
}

void check_operation(const JsonOperation& operation, const Values& values) {
  JOINSUM_USER_CHECK(
      !operation.inputs.empty() && operation.inputs.size() == operation.in_labels.size(),
      "partition: an operation has no operand, or not as many as lists of labels: operation=", operation.name);
  for (const std::string& label : einsum::json::all_labels(operation)) {
    JOINSUM_USER_CHECK(operation.extents.contains(label),
                       "partition: a label has no extent; give one to labels that no operand has: operation=",
                       operation.name, ", label=", label);
    JOINSUM_USER_CHECK(operation.extents.at(label) >= 0, "partition: an extent is negative: operation=", operation.name,
                       ", label=", label, ", extent=", operation.extents.at(label));
    JOINSUM_USER_CHECK(operation.aggregate || einsum::has(operation.out_labels, label),
                       "partition: a label vanishes but nothing aggregates it; keep it in the result, or name an "
                       "aggregation: operation=",
                       operation.name, ", label=", label);
  }
  for (size_t i = 0; i < operation.inputs.size(); ++i) check_operand(operation, i, values);
  JOINSUM_USER_CHECK(einsum::distinct(operation.out_labels),
                     "partition: a result has a label twice; write to one label: operation=", operation.name,
                     ", labels=", operation.out_labels);
}

Dims numbers_of(const Labels& all, const Labels& labels) {
  Dims out;
  for (const std::string& label : labels) out.push_back(einsum::axis_of(all, label));
  return out;
}

}  // namespace

EinsumShape shape_of(const JsonOperation& operation) {
  const Labels labels = einsum::json::all_labels(operation);
  EinsumShape out;
  for (const std::string& label : labels) out.extents.push_back(operation.extents.at(label));
  for (const Labels& operand : operation.in_labels) out.operands.push_back(numbers_of(labels, operand));
  out.result = numbers_of(labels, operation.out_labels);
  return out;
}

void check(const einsum::json::JsonGraph& graph) {
  Values values;
  for (const auto& [name, type] : graph.inputs) {
    JOINSUM_USER_CHECK(
        std::all_of(type.extents.begin(), type.extents.end(), [](int64_t extent) { return extent >= 0; }),
        "partition: an extent is negative: input=", name, ", extents=", type.extents);
    add_value(name, type.extents, values);
  }
  for (const JsonOperation& operation : graph.operations) {
    check_operation(operation, values);
    Dims extents;
    for (const std::string& label : operation.out_labels) extents.push_back(operation.extents.at(label));
    add_value(operation.name, std::move(extents), values);
  }
  for (const auto& [name, of] : graph.outputs) {
    JOINSUM_USER_CHECK(!name.empty() && values.contains(of),
                       "partition: an output has no name or no value: output=", name, ", of=", of);
    JOINSUM_USER_CHECK(name == of || !values.contains(name),
                       "partition: an output has the name of another value: output=", name, ", of=", of);
  }
}

}  // namespace joinsum::optimizer::eindecomp
