#include "einsum/json/json.h"

#include <algorithm>
#include <set>

#include <nlohmann/json.hpp>

#include "einsum/json/place.h"
#include "einsum/notation/named_vertex.h"

namespace joinsum::einsum::json {
namespace {

using Json = nlohmann::ordered_json;

// The form has six levels; a text with more is no graph, and is refused before it is stored.
constexpr size_t kMostLevels = 32;
constexpr size_t kLongestShown = 80;

// --- showing values --------------------------------------------------------------------------------------------------

/// Bytes of a character of UTF-8 that begins with `first`.
size_t character_bytes(char first) {
  const auto byte = static_cast<unsigned char>(first);
  return byte < 0x80 ? 1 : byte < 0xe0 ? 2 : byte < 0xf0 ? 3 : 4;
}

/// Writes a value as messages show it, `['i', 3, null]`, and stops where `out` is long enough.
void append_shown(std::string& out, const Json& value) {
  if (out.size() > kLongestShown) return;
  if (value.is_string()) {
    out += "'" + escaped(value.get_ref<const std::string&>()) + "'";
    return;
  }
  if (!value.is_structured()) {
    out += value.dump();
    return;
  }
  out += value.is_object() ? "{" : "[";
  bool first = true;
  for (const auto& [name, each] : value.items()) {
    if (!first) out += ", ";
    first = false;
    if (value.is_object()) out += "'" + escaped(name) + "': ";
    append_shown(out, each);
    if (out.size() > kLongestShown) return;
  }
  out += value.is_object() ? "}" : "]";
}

/// A value on one short line.
std::string show(const Json& value) {
  std::string out;
  append_shown(out, value);
  return out.size() <= kLongestShown ? out : out.substr(0, kLongestShown - 3) + "...";
}

std::string joined(const std::vector<std::string>& names) {
  std::string out;
  for (const std::string& name : names) out += (out.empty() ? "" : ", ") + name;
  return out;
}

// --- text ------------------------------------------------------------------------------------------------------------

/// What a parser's message says is wrong, without its own code and place, in printable letters.
std::string fault_of(const std::string& message) {
  std::string fault = message;
  for (const std::string mark : {" - ", ": ", "] "}) {
    const size_t at = message.find(mark);
    if (at == std::string::npos) continue;
    fault = message.substr(at + mark.size());
    break;
  }
  if (fault.size() > 2 * kLongestShown) fault = fault.substr(0, 2 * kLongestShown - 3) + "...";
  std::replace_if(fault.begin(), fault.end(), [](char c) { return c < ' ' || c > '~'; }, '?');
  return fault;
}

/// Where the number that a parser's message shows last stands in the text.
size_t place_of_number(const std::string& text, const std::string& message) {
  const size_t end = message.rfind('\''), begin = end == 0 ? end : message.rfind('\'', end - 1);
  if (end == std::string::npos || begin == std::string::npos) return text.size();
  return std::min(text.find(message.substr(begin + 1, end - begin - 1)), text.size());
}

/// A JSON value of few levels, whose objects have each name once.
Json parse(const std::string& text, const Reading& reading) {
  Place place;
  const auto check = [&](int level, Json::parse_event_t event, Json& value) {
    using Event = Json::parse_event_t;
    const bool opens = event == Event::object_start || event == Event::array_start;
    JOINSUM_USER_CHECK(!opens || static_cast<size_t>(level) < kMostLevels, reading.who,
                       ": lists and objects lie too deep: ", reading.where, "at=", place.path(),
                       ", most=", kMostLevels);
    if (opens) place.open(event == Event::array_start);
    if (event == Event::object_end || event == Event::array_end) place.close();
    if (event == Event::value) place.begin_value();
    if (event == Event::key) {
      JOINSUM_USER_CHECK(place.name(value.get<std::string>()), reading.who,
                         ": an object has one name twice: ", reading.where, "at=", place.path());
    }
    return true;
  };
  try {
    return Json::parse(text, check);
  } catch (const Json::parse_error& error) {
    throw PlanError(concatenate(reading.who, ": not JSON, ", fault_of(error.what()), ": ", reading.where,
                                place_of(text, error.byte > 0 ? error.byte - 1 : 0)));
  } catch (const Json::out_of_range& error) {  // a number that no double holds
    throw PlanError(concatenate(reading.who, ": not JSON, ", fault_of(error.what()), ": ", reading.where,
                                place_of(text, place_of_number(text, error.what()))));
  }
}

// --- reading ---------------------------------------------------------------------------------------------------------

/// Reads and checks a graph; every error names its JSON path.
class Reader {
 public:
  explicit Reader(const Reading& reading) : who_(reading.who), diagonals_(reading.diagonals) {}

  JsonGraph graph(const Json& value) {
    const std::vector<std::string> names{"inputs", "ops", "outputs"};
    const Json& found = fields(value, "$", names, names);
    for (const auto& [name, entry] : object(found.at("inputs"), "$.inputs").items()) {
      const std::string at = "$.inputs" + path_step(name);
      TensorType type = input_type(entry, at);
      add(name, at, type.extents);
      graph_.inputs.emplace_back(name, std::move(type));
    }
    const Json& operations = list(found.at("ops"), "$.ops");
    for (size_t i = 0; i < operations.size(); ++i) {
      graph_.operations.push_back(operation(operations[i], concatenate("$.ops[", i, "]")));
    }
    outputs(found.at("outputs"));
    return std::move(graph_);
  }

 private:
  /// Raises `who: what: at=path`, and values by name.
  [[noreturn]] void fail(const std::string& what, const std::string& at, const Json& values = Json::object()) const {
    std::string message = who_ + ": " + what + ": at=" + at;
    for (const auto& [name, value] : values.items()) message += ", " + name + "=" + show(value);
    throw PlanError(message);
  }

  static std::string at_index(const std::string& at, size_t index) { return concatenate(at, "[", index, "]"); }

  // --- JSON's kinds of values ---

  const Json& object(const Json& value, const std::string& at) const {
    if (!value.is_object()) fail("not an object", at, {{"got", value}});
    return value;
  }

  const Json& fields(const Json& value, const std::string& at, const std::vector<std::string>& known,
                     const std::vector<std::string>& needed) const {
    for (const auto& [name, inner] : object(value, at).items()) {
      if (!has(known, name)) fail("no such field; there are " + joined(known), at + path_step(name));
    }
    for (const std::string& name : needed) {
      if (!value.contains(name)) fail("a field is missing", at, {{"field", name}});
    }
    return value;
  }

  const Json& list(const Json& value, const std::string& at) const {
    if (!value.is_array()) fail("not a list", at, {{"got", value}});
    return value;
  }

  std::string text(const Json& value, const std::string& at) const {
    if (!value.is_string() || value.get_ref<const std::string&>().empty()) {
      fail("not a text of at least one letter", at, {{"got", value}});
    }
    return value.get<std::string>();
  }

  int64_t extent(const Json& value, const std::string& at) const {
    const bool fits = value.is_number_integer() &&
                      (value.is_number_unsigned() ? value.get<uint64_t>() >> 63 == 0 : value.get<int64_t>() >= 0);
    if (!fits) fail("not a number of elements", at, {{"got", value}});
    return value.get<int64_t>();
  }

  Labels labels(const Json& value, const std::string& at) const {
    Labels out;
    if (value.is_string()) {
      const auto& letters = value.get_ref<const std::string&>();
      for (size_t i = 0; i < letters.size(); ++i) {
        if (!is_letter(letters[i])) {
          fail("a text of labels has letters only; give longer labels as a list", at_index(at, i),
               {{"got", letters.substr(i, character_bytes(letters[i]))}});
        }
        out.push_back(letters.substr(i, 1));
      }
      return out;
    }
    const Json& texts = list(value, at);
    for (size_t i = 0; i < texts.size(); ++i) out.push_back(text(texts[i], at_index(at, i)));
    return out;
  }

  // --- parts of a graph ---

  TensorType input_type(const Json& value, const std::string& at) const {
    if (!value.is_object()) return {DType::kFloat32, extents(value, at)};
    const Json& found = fields(value, at, {"dtype", "extents", "entries"}, {"dtype", "extents"});
    const Json& name = found.at("dtype");
    const auto dtype = name.is_string() ? dtype_from_name(name.get<std::string>()) : std::nullopt;
    if (!dtype) fail("no such dtype; there are " + joined(dtype_names()), at + ".dtype", {{"dtype", name}});
    TensorType type{*dtype, extents(found.at("extents"), at + ".extents")};
    if (found.contains("entries")) type.entries = extent(found.at("entries"), at + ".entries");
    return type;
  }

  Dims extents(const Json& value, const std::string& at) const {
    Dims out;
    const Json& found = list(value, at);
    for (size_t i = 0; i < found.size(); ++i) out.push_back(extent(found[i], at_index(at, i)));
    return out;
  }

  void add(const std::string& name, const std::string& at, const Dims& extents) {
    text(name, at);
    if (!extents_.try_emplace(name, extents).second) fail("two values have one name", at, {{"name", name}});
  }

  std::string known(const Json& value, const std::string& at) const {
    std::string name = text(value, at);
    if (!extents_.contains(name)) fail("no such input or earlier operation", at, {{"name", name}});
    return name;
  }

  JsonOperation operation(const Json& value, const std::string& at) {
    const Json& found = fields(value, at, {"name", "inputs", "in_labels", "out_labels", "join", "agg", "extents"},
                               {"name", "inputs", "in_labels", "out_labels"});
    JsonOperation out;
    out.name = text(found.at("name"), at + ".name");
    operands(found, at, out);
    out.extents = operand_extents(out, at + ".in_labels");
    out.out_labels = labels(found.at("out_labels"), at + ".out_labels");
    if (found.contains("extents")) add_new_extents(found.at("extents"), at + ".extents", out);
    check_result(out, at + ".out_labels");
    if (found.contains("agg")) out.aggregate = aggregation(found.at("agg"), at + ".agg");
    check_aggregated(out, at + ".agg");
    if (found.contains("join")) out.join = text(found.at("join"), at + ".join");
    Dims result;
    for (const std::string& label : out.out_labels) result.push_back(out.extents.at(label));
    add(out.name, at + ".name", result);
    return out;
  }

  void operands(const Json& found, const std::string& at, JsonOperation& out) const {
    const Json& names = list(found.at("inputs"), at + ".inputs");
    for (size_t i = 0; i < names.size(); ++i) out.inputs.push_back(known(names[i], at_index(at + ".inputs", i)));
    if (names.empty()) fail("an operation has no operand", at + ".inputs");
    const Json& lists = list(found.at("in_labels"), at + ".in_labels");
    if (lists.size() != names.size()) {
      fail(concatenate(names.size(), " operands need as many lists of labels"), at + ".in_labels",
           {{"in_labels", lists}});
    }
    for (size_t i = 0; i < lists.size(); ++i) {
      out.in_labels.push_back(labels(lists[i], at_index(at + ".in_labels", i)));
    }
  }

  Extents operand_extents(const JsonOperation& op, const std::string& at) const {
    Extents out;
    for (size_t i = 0; i < op.inputs.size(); ++i) {
      const Dims& axes = extents_.at(op.inputs[i]);
      const Labels& labels = op.in_labels[i];
      if (axes.size() != labels.size()) {
        fail(concatenate("an operand has ", axes.size(), " axes but ", labels.size(), " labels"), at_index(at, i),
             {{"labels", labels}});
      }
      for (size_t axis = 0; axis < axes.size(); ++axis) {
        const int64_t known = out.try_emplace(labels[axis], axes[axis]).first->second;
        if (known == axes[axis]) continue;
        fail("a label has two extents", at_index(at_index(at, i), axis),
             {{"label", labels[axis]}, {"extents", {known, axes[axis]}}});
      }
    }
    return out;
  }

  void add_new_extents(const Json& value, const std::string& at, JsonOperation& op) const {
    for (const auto& [label, entry] : object(value, at).items()) {
      const std::string here = at + path_step(label);
      const int64_t given = extent(entry, here);
      const auto [known, fresh] = op.extents.try_emplace(label, given);
      if (known->second != given) fail("a label has two extents", here, {{"extents", {known->second, given}}});
      if (fresh && !has(op.out_labels, label)) fail("an extent of a label that no axis has", here, {{"label", label}});
    }
  }

  void check_result(const JsonOperation& op, const std::string& at) const {
    std::set<std::string> met;
    for (size_t i = 0; i < op.out_labels.size(); ++i) {
      const std::string& label = op.out_labels[i];
      if (!op.extents.contains(label)) {
        fail("a label has no extent; no operand has it, so name it in extents", at_index(at, i), {{"label", label}});
      }
      if (!met.insert(label).second && !diagonals_) {
        fail("a result has a label twice", at_index(at, i), {{"label", label}});
      }
    }
  }

  std::string aggregation(const Json& value, const std::string& at) const {
    if (!value.is_string() || !has(notation::aggregation_names(), value.get<std::string>())) {
      fail("no such aggregation; there are " + joined(notation::aggregation_names()), at, {{"agg", value}});
    }
    return value.get<std::string>();
  }

  void check_aggregated(const JsonOperation& op, const std::string& at) const {
    Labels aggregated = without(labels_of(op.in_labels), op.out_labels);
    std::sort(aggregated.begin(), aggregated.end());
    if (op.aggregate || aggregated.empty()) return;
    fail("labels vanish but nothing aggregates them", at, {{"labels", aggregated}});
  }

  void outputs(const Json& value) {
    if (!value.is_object()) {
      std::set<std::string> met;
      const Json& names = list(value, "$.outputs");
      for (size_t i = 0; i < names.size(); ++i) {
        const std::string name = known(names[i], at_index("$.outputs", i));
        if (met.insert(name).second) graph_.outputs.emplace_back(name, name);
      }
      return;
    }
    for (const auto& [name, of] : value.items()) {
      const std::string at = "$.outputs" + path_step(name);
      const std::string value_name = known(of, at);
      if (name.empty() || (extents_.contains(name) && name != value_name)) {
        fail("an output has no name, or that of another value", at, {{"of", of}});
      }
      graph_.outputs.emplace_back(name, value_name);
    }
  }

  std::string who_;
  bool diagonals_;
  JsonGraph graph_;
  std::map<std::string, Dims> extents_;  // of all values so far
};

}  // namespace

JsonGraph read(const std::string& text, const Reading& reading) { return Reader(reading).graph(parse(text, reading)); }

}  // namespace joinsum::einsum::json
