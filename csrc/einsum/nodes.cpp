#include "einsum/nodes.h"

#include <algorithm>
#include <array>
#include <set>

#include "einsum/infer.h"
#include "einsum/text.h"

namespace joinsum::einsum {

std::string TensorType::text() const {
  std::string out = name_of(dtype) + "[";
  for (size_t i = 0; i < extents.size(); ++i) out += (i > 0 ? "," : "") + std::to_string(extents[i]);
  out += "]";
  return entries ? out + " sparse{" + std::to_string(*entries) + "}" : out;
}

TensorType TensorType::parse(Scanner& scanner) {
  TensorType type;
  const std::string name = scanner.name();
  const auto dtype = dtype_from_name(name);
  if (!dtype) scanner.fail("no such dtype: dtype=" + name);
  type.dtype = *dtype;
  scanner.expect("[");
  type.extents = scanner.integers();
  scanner.expect("]");
  if (!scanner.accept("sparse")) return type;
  scanner.expect("{");
  type.entries = scanner.integer();
  if (*type.entries < 0) scanner.fail("a negative number of entries");
  scanner.expect("}");
  return type;
}

NodePtr make_input(std::string name, TensorType type) {
  check_plan_name("input", name);
  for (const int64_t extent : type.extents) {
    JOINSUM_USER_CHECK(extent >= 0, "input: a tensor has no negative extent: name=", name, ", type=", type.text());
  }
  checked_product("input", type.extents);
  return std::make_shared<const Node>(Input{std::move(name)}, std::vector<NodePtr>{}, std::move(type));
}

NodePtr make(Operation operation, std::vector<NodePtr> inputs) {
  TensorType type = infer(operation, types_of<Node>(inputs));
  return std::make_shared<const Node>(std::move(operation), std::move(inputs), std::move(type));
}

std::string operator_name(const Operation& operation) {
  static constexpr std::array<const char*, 3> kNames{"input", "einsum", "call"};
  return kNames[operation.index()];
}

Plan Plan::make(std::vector<Output> outputs) {
  Plan plan(std::move(outputs));
  check_plan<Input>(plan);
  return plan;
}

std::vector<NodePtr> Plan::inputs() const { return plan_inputs<Input>(*this); }

std::string Plan::text() const { return print(*this); }

// --- labels ----------------------------------------------------------------------------------------------------------

bool has(const Labels& labels, const std::string& label) {
  return std::find(labels.begin(), labels.end(), label) != labels.end();
}

int64_t axis_of(const Labels& labels, const std::string& label) {
  const auto at = std::find(labels.begin(), labels.end(), label);
  JOINSUM_CHECK(at != labels.end(), "label=", label);
  return at - labels.begin();
}

Labels labels_of(const std::vector<Labels>& operands) {
  Labels out;
  for (const Labels& operand : operands) {
    for (const std::string& label : operand) {
      if (!has(out, label)) out.push_back(label);
    }
  }
  return out;
}

Labels common(const Labels& labels, const Labels& other) {
  Labels out;
  std::copy_if(labels.begin(), labels.end(), std::back_inserter(out),
               [&](const auto& each) { return has(other, each); });
  return out;
}

Labels without(const Labels& labels, const Labels& other) {
  Labels out;
  std::copy_if(labels.begin(), labels.end(), std::back_inserter(out),
               [&](const auto& each) { return !has(other, each); });
  return out;
}

bool distinct(const Labels& labels) {
  return std::set<std::string>(labels.begin(), labels.end()).size() == labels.size();
}

Extents extents_of(const Einsum& op, const std::vector<TensorType>& operands) {
  Extents extents;
  std::map<std::string, size_t> first;
  for (size_t i = 0; i < operands.size(); ++i) {
    const Labels& labels = op.operands[i];
    JOINSUM_USER_CHECK(labels.size() == operands[i].extents.size(),
                       "einsum: labels and axes of an operand differ in number: operand=", i,
                       ", labels=", labels_text(labels), ", type=", operands[i].text());
    for (size_t a = 0; a < labels.size(); ++a) {
      const int64_t extent = operands[i].extents[a];
      const auto [known, fresh] = extents.try_emplace(labels[a], extent);
      if (fresh) first[labels[a]] = i;
      JOINSUM_USER_CHECK(known->second == extent, "einsum: extents of a label differ: label=", labels[a], ", operand ",
                         first[labels[a]], "=", known->second, ", operand ", i, "=", extent);
    }
  }
  for (const auto& [label, extent] : op.extents) {
    JOINSUM_USER_CHECK(extents.try_emplace(label, extent).second && has(op.result, label),
                       "einsum: an extent is given for a label that only the result has: label=", label);
    JOINSUM_USER_CHECK(extent >= 0, "einsum: a label has no negative extent: label=", label, ", extent=", extent);
  }
  for (const std::string& label : op.result) {
    JOINSUM_USER_CHECK(extents.contains(label),
                       "einsum: a label that only the result has needs an extent: label=", label,
                       ", labels=", labels_text(op.operands, op.result));
  }
  return extents;
}

}  // namespace joinsum::einsum
