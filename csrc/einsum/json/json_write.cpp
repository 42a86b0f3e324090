#include <nlohmann/json.hpp>

#include "einsum/json/json.h"
#include "einsum/json/place.h"

namespace joinsum::einsum::json {
namespace {

using Json = nlohmann::ordered_json;

/// On one line, with a blank after each comma and colon, in ASCII.
std::string line_of(const Json& value) {
  if (!value.is_structured()) return value.dump(-1, ' ', true);
  std::string out;
  for (const auto& [name, each] : value.items()) {
    if (!out.empty()) out += ", ";
    if (value.is_object()) out += Json(name).dump(-1, ' ', true) + ": ";
    out += line_of(each);
  }
  return value.is_object() ? "{" + out + "}" : "[" + out + "]";
}

Json labels_value(const Labels& labels) {
  std::string letters;
  for (const std::string& label : labels) {
    if (label.size() != 1 || !is_letter(label[0])) return labels;
    letters += label;
  }
  return letters;
}

Json entry_of(const JsonOperation& operation) {
  Json entry{{"name", operation.name}, {"inputs", operation.inputs}, {"in_labels", Json::array()}};
  for (const Labels& labels : operation.in_labels) entry["in_labels"].push_back(labels_value(labels));
  entry["out_labels"] = labels_value(operation.out_labels);
  entry["join"] = operation.join;
  if (operation.aggregate) entry["agg"] = *operation.aggregate;
  if (const Extents extents = new_extents(operation); !extents.empty()) entry["extents"] = extents;
  return entry;
}

Json type_value(const TensorType& type) {
  if (type.dtype == DType::kFloat32 && !type.entries) return type.extents;
  Json value{{"dtype", name_of(type.dtype)}, {"extents", type.extents}};
  if (type.entries) value["entries"] = *type.entries;
  return value;
}

}  // namespace

std::string write(const JsonGraph& graph) {
  try {
    Json inputs = Json::object(), outputs = Json::object();
    for (const auto& [name, type] : graph.inputs) inputs[name] = type_value(type);
    for (const auto& [name, of] : graph.outputs) outputs[name] = of;
    std::string operations;
    for (const JsonOperation& operation : graph.operations) {
      operations += (operations.empty() ? "\n    " : ",\n    ") + line_of(entry_of(operation));
    }
    if (!operations.empty()) operations += "\n  ";
    return "{\n  \"inputs\": " + line_of(inputs) + ",\n  \"ops\": [" + operations +
           "],\n  \"outputs\": " + line_of(outputs) + "\n}";
  } catch (const Json::type_error& error) {
    throw PlanError(concatenate("json: a name, label or join is not UTF-8: ", error.what()));
  }
}

}  // namespace joinsum::einsum::json
