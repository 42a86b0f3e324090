#include "kernels/table/kernel.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cctype>
#include <charconv>

#include "kernels/table/table.h"

namespace joinsum::kernels::table {
namespace {

constexpr const char* kIntegerCharacters = "+-0123456789";

/// Shortest text that reads back as `value`; never mistaken for an integer.
std::string real_text(double value) {
  std::array<char, 32> buffer{};
  const auto [end, error] = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value);
  JOINSUM_CHECK(error == std::errc());
  std::string text(buffer.data(), end);
  const bool like_integer = text.find_first_not_of(kIntegerCharacters) == std::string::npos;
  return like_integer ? text + ".0" : text;
}

struct ParameterText {
  std::string operator()(int64_t value) const { return std::to_string(value); }
  std::string operator()(double value) const { return real_text(value); }
  std::string operator()(const std::string& label) const { return label; }
  std::string operator()(const ScalarName& scalar) const { return "$" + scalar.name; }
};

struct ParameterHash {
  uint64_t operator()(int64_t value) const { return static_cast<uint64_t>(value); }
  /// Adding 0 makes one zero of the two, which are equal.
  uint64_t operator()(double value) const { return std::bit_cast<uint64_t>(value + 0.0); }
  uint64_t operator()(const std::string& label) const { return hash_text(label); }
  uint64_t operator()(const ScalarName& scalar) const { return hash_text(scalar.name); }
};

template <class T>
std::optional<T> number_from(const std::string& text) {
  const char* begin = text.data() + (text[0] == '+' ? 1 : 0);
  const char* end = text.data() + text.size();
  T value{};
  const auto [stop, error] = std::from_chars(begin, end, value);
  if (error != std::errc() || stop != end) return std::nullopt;
  return value;
}

bool is_scalar_name(const std::string& text) {
  const auto word = [](unsigned char c) { return std::isalnum(c) != 0 || c == '_' || c == '.'; };
  return text.size() > 1 && text[0] == '$' && std::isdigit(static_cast<unsigned char>(text[1])) == 0 &&
         text[1] != '.' && std::all_of(text.begin() + 1, text.end(), word);
}

/// A number or `$scalar`; nothing for any other text, which is a label.
std::optional<Parameter> plain_parameter(const std::string& text) {
  if (text.empty()) return std::nullopt;
  if (is_scalar_name(text)) return ScalarName{text.substr(1)};
  if (text.find_first_not_of(kIntegerCharacters) == std::string::npos) {
    if (const auto integer = number_from<int64_t>(text)) return *integer;
  }
  const bool word = std::isalpha(static_cast<unsigned char>(text.back())) != 0;
  if (word && text != "inf" && text != "-inf") return std::nullopt;
  if (const auto real = number_from<double>(text)) return *real;
  return std::nullopt;
}

/// Everything up to the closing bracket, without blanks: labels hold commas, and equal ones print alike.
std::string label_from(Scanner& scanner) {
  std::string label = scanner.raw_until("");
  std::erase_if(label, [](unsigned char c) { return std::isspace(c) != 0; });
  if (label.empty()) scanner.fail("expected a parameter");
  return label;
}

/// A kernel without what follows it.
Kernel parse_one(Scanner& scanner) {
  Kernel kernel{scanner.name(), {}};
  if (!scanner.accept("[")) return kernel;
  const Row* row = find_row(kernel.name);
  const std::string kinds = row == nullptr ? "" : row->parameters;
  do {
    const size_t index = kernel.parameters.size();
    const size_t begin = scanner.offset();
    const auto plain = plain_parameter(scanner.raw_until(","));
    if (plain && (index >= kinds.size() || kinds[index] != 'l')) {
      kernel.parameters.push_back(*plain);
    } else {
      scanner.seek(begin);
      kernel.parameters.emplace_back(label_from(scanner));
    }
  } while (scanner.accept(","));
  scanner.expect("]");
  return kernel;
}

}  // namespace

Kernel Kernel::followed_by(const Kernel& next) const {
  const Kernel identity{"id", {}};
  if (next == identity) return *this;
  Kernel out = *this;
  if (next.first() == identity) {
    out.epilogue.insert(out.epilogue.end(), next.epilogue.begin(), next.epilogue.end());
    return out;
  }
  if (out == identity) return next;
  out.epilogue.push_back(next.first());
  out.epilogue.insert(out.epilogue.end(), next.epilogue.begin(), next.epilogue.end());
  return out;
}

std::string Kernel::text() const {
  std::string out = name;
  for (size_t i = 0; i < parameters.size(); ++i) {
    out += (i == 0 ? "[" : ", ") + std::visit(ParameterText{}, parameters[i]);
  }
  if (!parameters.empty()) out += "]";
  for (const Kernel& next : epilogue) out += " | " + next.text();
  return out;
}

Kernel Kernel::parse(Scanner& scanner) {
  Kernel kernel = parse_one(scanner);
  while (scanner.accept("|")) kernel.epilogue.push_back(parse_one(scanner));
  return kernel;
}

Kernel Kernel::parse(const std::string& text) {
  Scanner scanner(text);
  Kernel kernel = parse(scanner);
  if (!scanner.at_end()) scanner.fail("expected the end of the kernel");
  return kernel;
}

uint64_t Kernel::hash() const {
  uint64_t hash = hash_text(name);
  for (const Parameter& parameter : parameters) {
    hash = hash_mix(hash_mix(hash, parameter.index()), std::visit(ParameterHash{}, parameter));
  }
  for (const Kernel& next : epilogue) hash = hash_mix(hash, next.hash());
  return hash;
}

int64_t Kernel::integer(size_t index) const {
  const auto* value = index < parameters.size() ? std::get_if<int64_t>(&parameters[index]) : nullptr;
  JOINSUM_KERNEL_CHECK(value != nullptr, name, ": parameter is not an integer: kernel=", text(), ", index=", index);
  return *value;
}

const std::string& Kernel::label(size_t index) const {
  const auto* value = index < parameters.size() ? std::get_if<std::string>(&parameters[index]) : nullptr;
  JOINSUM_KERNEL_CHECK(value != nullptr, name, ": parameter is not a label: kernel=", text(), ", index=", index);
  return *value;
}

double Kernel::number(size_t index, const Scalars& scalars) const {
  JOINSUM_KERNEL_CHECK(index < parameters.size() && !std::holds_alternative<std::string>(parameters[index]), name,
                       ": parameter is not a number: kernel=", text(), ", index=", index);
  const Parameter& parameter = parameters[index];
  if (const auto* integer = std::get_if<int64_t>(&parameter)) return static_cast<double>(*integer);
  if (const auto* real = std::get_if<double>(&parameter)) return *real;
  const std::string& wanted = std::get<ScalarName>(parameter).name;
  const auto found = scalars.find(wanted);
  if (found != scalars.end()) return found->second;
  std::vector<std::string> bound;
  for (const auto& [known, value] : scalars) bound.push_back(known);
  throw PlanError(concatenate(name, ": scalar is not bound: kernel=", text(), ", scalar=", wanted, ", bound=", bound));
}

std::vector<std::string> Kernel::scalar_names() const {
  std::vector<std::string> names;
  for (const Parameter& parameter : parameters) {
    const auto* scalar = std::get_if<ScalarName>(&parameter);
    if (scalar == nullptr || std::find(names.begin(), names.end(), scalar->name) != names.end()) continue;
    names.push_back(scalar->name);
  }
  for (const Kernel& next : epilogue) {
    for (std::string& scalar : next.scalar_names()) {
      if (std::find(names.begin(), names.end(), scalar) == names.end()) names.push_back(std::move(scalar));
    }
  }
  return names;
}

}  // namespace joinsum::kernels::table
