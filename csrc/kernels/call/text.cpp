#include <cctype>
#include <limits>

#include "kernels/call/call.h"
#include "kernels/table/kernel.h"

namespace joinsum::kernels::call {

using table::Kernel;

namespace {

using Kind = CallArgument::Kind;

std::string real_text(double value) {
  if (value != value) return "nan";
  const std::string text = Kernel{"", {value}}.text();  // `[0.5]`
  return text.substr(1, text.size() - 2);
}

template <class Each, class Print>
std::string joined(const Each& items, const Print& print, const char* between = ",") {
  std::string out;
  for (const auto& item : items) out += (out.empty() ? "" : between) + print(item);
  return out;
}

std::string groups_text(const std::vector<std::string>& groups) {
  return "{" + joined(groups, [](const std::string& group) { return group.empty() ? std::string("1") : group; }) + "}";
}

/// `ab`; nothing where no letter comes next.
std::string parse_letters(Scanner& scanner) {
  if (!scanner.peek_name()) return "";
  std::string letters = scanner.name();
  const bool plain = std::all_of(letters.begin(), letters.end(), [](unsigned char c) { return std::isalpha(c) != 0; });
  if (!plain) scanner.fail("letters are a-z and A-Z: letters=" + letters);
  return letters;
}

std::vector<std::string> parse_groups(Scanner& scanner) {
  std::vector<std::string> groups;
  scanner.expect("{");
  if (scanner.accept("}")) return groups;
  do {
    groups.push_back(scanner.accept("1") ? "" : parse_letters(scanner));
  } while (scanner.accept(","));
  scanner.expect("}");
  return groups;
}

CallArgument parse_argument(Scanner& scanner);

std::vector<CallArgument> parse_arguments(Scanner& scanner, const char* open, const char* close) {
  std::vector<CallArgument> out;
  scanner.expect(open);
  if (scanner.accept(close)) return out;
  do {
    out.push_back(parse_argument(scanner));
  } while (scanner.accept(","));
  scanner.expect(close);
  return out;
}

CallArgument parse_number(Scanner& scanner) {
  CallArgument out;
  const size_t begin = scanner.offset();
  const std::string raw = scanner.raw_until(",)]");
  scanner.seek(begin);
  const bool real = raw.find_first_of(".eE") != std::string::npos;
  out.kind = real ? Kind::kNumber : Kind::kInteger;
  if (real) {
    out.number = scanner.number();
  } else {
    out.integer = scanner.integer();
  }
  return out;
}

/// A word: none, true, a dtype, or the name of what follows.
CallArgument parse_word(Scanner& scanner) {
  CallArgument out;
  const std::string word = scanner.name();
  if (scanner.accept("=")) {
    out = parse_argument(scanner);
    out.name = word;
    return out;
  }
  const auto dtype = dtype_from_name(word);
  if (word == "true" || word == "false") {
    out.kind = Kind::kBool;
    out.integer = word == "true" ? 1 : 0;
  } else if (word == "inf" || word == "nan") {
    out.kind = Kind::kNumber;
    out.number = word == "inf" ? std::numeric_limits<double>::infinity() : std::numeric_limits<double>::quiet_NaN();
  } else if (dtype) {
    out.kind = Kind::kDType;
    out.text = word;
  } else if (word != "none") {
    scanner.fail("an argument is a number, 'text', a dtype, none, true, false, %0{..}, |..|, @.. or a list: word=" +
                 word);
  }
  return out;
}

CallArgument parse_argument(Scanner& scanner) {
  CallArgument out;
  if (scanner.accept("-inf")) {
    out.kind = Kind::kNumber;
    out.number = -std::numeric_limits<double>::infinity();
    return out;
  }
  if (scanner.accept("%")) {
    out.kind = Kind::kOperand;
    out.integer = scanner.integer();
    out.groups = parse_groups(scanner);
  } else if (scanner.accept("|")) {
    out.kind = Kind::kExtent;
    out.text = parse_letters(scanner);
    scanner.expect("|");
  } else if (scanner.accept("@")) {
    out.kind = Kind::kOffset;
    out.text = parse_letters(scanner);
  } else if (scanner.accept("'")) {
    out.kind = Kind::kText;
    out.text = scanner.raw_until("'");
    scanner.expect("'");
  } else if (scanner.peek("[")) {
    out.kind = Kind::kList;
    out.items = parse_arguments(scanner, "[", "]");
  } else if (scanner.peek_number()) {
    out = parse_number(scanner);
  } else {
    out = parse_word(scanner);
  }
  return out;
}

std::string parse_letter(Scanner& scanner) {
  std::string letter = parse_letters(scanner);
  if (letter.size() != 1) scanner.fail("expected one letter");
  return letter;
}

/// `8 ab + 2 b`.
std::vector<std::pair<double, std::string>> parse_flops(Scanner& scanner) {
  std::vector<std::pair<double, std::string>> out;
  do {
    const double factor = scanner.number();
    out.emplace_back(factor, parse_letters(scanner));
  } while (scanner.accept("+"));
  return out;
}

/// `(0,2) {0; aten::_softmax; ...}`.
void parse_undecomposed(Scanner& scanner, Call& call) {
  scanner.expect("(");
  do {
    call.undecomposed_operands.push_back(scanner.integer());
  } while (scanner.accept(","));
  scanner.expect(")");
  scanner.expect("{");
  call.undecomposed.push_back(Call::parse(scanner));
  scanner.expect("}");
}

/// `; undivided=cd; same=e; reduce v=add; extents a=5 b=7/4; flops=8 ab + 2 b; undecomposed ..`, each if it is there.
void parse_properties(Scanner& scanner, Call& call) {
  while (scanner.accept(";")) {
    if (scanner.accept("undivided")) {
      scanner.expect("=");
      call.undivided = parse_letters(scanner);
    } else if (scanner.accept("same")) {
      scanner.expect("=");
      call.same = parse_letters(scanner);
    } else if (scanner.accept("undecomposed")) {
      parse_undecomposed(scanner, call);
    } else if (scanner.accept("reduce")) {
      do {
        const char letter = parse_letter(scanner)[0];
        scanner.expect("=");
        call.reduce[letter] = scanner.name();
      } while (scanner.peek_name());
    } else if (scanner.accept("extents")) {
      do {
        const char letter = parse_letter(scanner)[0];
        scanner.expect("=");
        NewLetter fresh{scanner.integer(), 1};
        if (scanner.accept("/")) fresh.parts = scanner.integer();
        call.extents[letter] = fresh;
      } while (scanner.peek_name());
    } else {
      scanner.expect("flops");
      scanner.expect("=");
      call.flops = parse_flops(scanner);
    }
  }
}

}  // namespace

std::string CallArgument::print() const {
  const std::string before = name.empty() ? "" : name + "=";
  switch (kind) {
    case Kind::kNone:
      return before + "none";
    case Kind::kBool:
      return before + (integer != 0 ? "true" : "false");
    case Kind::kInteger:
      return before + std::to_string(integer);
    case Kind::kNumber:
      return before + real_text(number);
    case Kind::kText:
      return before + "'" + text + "'";
    case Kind::kDType:
      return before + text;
    case Kind::kOperand:
      return before + "%" + std::to_string(integer) + groups_text(groups);
    case Kind::kExtent:
      return before + "|" + text + "|";
    case Kind::kOffset:
      return before + "@" + text;
    case Kind::kList:
      return before + "[" + joined(items, [](const CallArgument& item) { return item.print(); }, ", ") + "]";
  }
  return before;
}

std::string Call::text() const {
  std::string out = std::to_string(output) + "; " + function + "; ";
  for (size_t i = 0; i < operands.size(); ++i) out += (i > 0 ? "," : "") + operands[i];
  const auto result = [](const CallResult& each) {
    const std::string type = each.letters + ":" + name_of(each.dtype);
    return each.entries ? type + " sparse{" + std::to_string(*each.entries) + "}" : type;
  };
  out += " -> " + joined(results, result, ", ");
  out += "; (" + joined(arguments, [](const CallArgument& each) { return each.print(); }, ", ") + ") -> ";
  out += joined(results, [](const CallResult& each) { return groups_text(each.groups); }, ", ");
  if (!undivided.empty()) out += "; undivided=" + undivided;
  if (!same.empty()) out += "; same=" + same;
  const auto property = [&](const char* name, const auto& items, const auto& value) {
    if (items.empty()) return;
    out += std::string("; ") + name;
    for (const auto& [letter, each] : items) out += std::string(" ") + letter + "=" + value(each);
  };
  property("reduce", reduce, [](const std::string& kernel) { return kernel; });
  property("extents", extents, [](const NewLetter& fresh) {
    return std::to_string(fresh.extent) + (fresh.parts > 1 ? "/" + std::to_string(fresh.parts) : "");
  });
  const auto term = [](const auto& each) {
    return real_text(each.first) + (each.second.empty() ? "" : " " + each.second);
  };
  if (!flops.empty()) out += "; flops=" + joined(flops, term, " + ");
  if (undecomposed.empty()) return out;
  const auto number = [](int64_t each) { return std::to_string(each); };
  return out + "; undecomposed (" + joined(undecomposed_operands, number) + ") {" + undecomposed.front().text() + "}";
}

namespace {

bool has_operand(const std::vector<CallArgument>& arguments) {
  return std::any_of(arguments.begin(), arguments.end(), [](const CallArgument& each) {
    return each.kind == CallArgument::Kind::kOperand || has_operand(each.items);
  });
}

}  // namespace

Call Call::parse(Scanner& scanner) {
  Call call;
  call.output = scanner.integer();
  scanner.expect(";");
  call.function = scanner.name();
  scanner.expect("::");
  call.function += "::" + scanner.name();
  scanner.expect(";");
  if (!scanner.peek("->")) {
    do {
      call.operands.push_back(parse_letters(scanner));
    } while (scanner.accept(","));
  }
  scanner.expect("->");
  do {
    CallResult result;
    result.letters = parse_letters(scanner);
    scanner.expect(":");
    const std::string name = scanner.name();
    const auto dtype = dtype_from_name(name);
    if (!dtype) scanner.fail("no such dtype: dtype=" + name);
    result.dtype = *dtype;
    if (scanner.accept("sparse")) {
      scanner.expect("{");
      result.entries = scanner.integer();
      scanner.expect("}");
    }
    call.results.push_back(std::move(result));
  } while (scanner.accept(","));
  scanner.expect(";");
  call.arguments = parse_arguments(scanner, "(", ")");
  // No letters before the arrow are no operand, or one without axes, which an argument names then.
  if (call.operands.empty() && has_operand(call.arguments)) call.operands.emplace_back();
  scanner.expect("->");
  for (size_t i = 0; i < call.results.size(); ++i) {
    if (i > 0) scanner.expect(",");
    call.results[i].groups = parse_groups(scanner);
  }
  parse_properties(scanner, call);
  check(call);
  return call;
}

}  // namespace joinsum::kernels::call
