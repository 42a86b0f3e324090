#include "kernels/expression/expression.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <limits>
#include <set>

#include "base/scanner.h"

namespace joinsum::kernels::expression {

namespace {

/// How a function is written, what it costs and what it is defined on.
struct Written {
  const char* sign;  ///< between its arguments or before its only one; else the name of a call
  int precedence;    ///< of a sign; 0 of a call
  size_t arguments;
  int64_t flops;
  Domain domain = Domain::kAny;
};

constexpr int kAtom = 5;

constexpr std::array<Written, 20> kFunctions{{
    {"", 0, 0, 0},
    {"x", 0, 0, 0},
    {"+", 2, 2, 1},
    {"-", 2, 2, 1},
    {"*", 3, 2, 1},
    {"/", 3, 2, 1, Domain::kFloating},
    {"-", 4, 1, 1},
    {"pow", 0, 2, 1, Domain::kFloating},
    {"exp", 0, 1, 1, Domain::kFloating},
    {"log", 0, 1, 1, Domain::kFloating},
    {"sqrt", 0, 1, 1, Domain::kFloating},
    {"tanh", 0, 1, 1, Domain::kFloating},
    {"sigmoid", 0, 1, 4, Domain::kReal},
    {"<", 1, 2, 1, Domain::kOrdered},
    {"<=", 1, 2, 1, Domain::kOrdered},
    {">", 1, 2, 1, Domain::kOrdered},
    {">=", 1, 2, 1, Domain::kOrdered},
    {"==", 1, 2, 1},
    {"!=", 1, 2, 1},
    {"where", 0, 3, 1},
}};

const Written& written(Function function) { return kFunctions[static_cast<size_t>(function)]; }

std::string number_text(double value) {
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  if (value == std::trunc(value) && std::abs(value) < 1e15) return std::to_string(static_cast<int64_t>(value));
  std::array<char, 32> buffer{};
  return {buffer.data(), std::to_chars(buffer.data(), buffer.data() + buffer.size(), value).ptr};
}

int precedence(const Expression& e) {
  if (e.function == Function::kNumber) return std::signbit(e.number) ? 4 : kAtom;
  const int own = written(e.function).precedence;
  return own == 0 ? kAtom : own;
}

// --- reading ---------------------------------------------------------------------------------------------------------

class Reader {
 public:
  Reader(const std::string& text, int64_t operands) : scanner_(text), text_(text), operands_(operands) {}

  Expression read() {
    Expression out = level(1);
    if (!scanner_.at_end()) fail("expected the end of the expression");
    return out;
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    throw PlanError("expression: " + what + "\n  " + text_ + "\n  " + std::string(scanner_.offset(), ' ') + "^");
  }

  /// The two-operand function of `precedence` whose sign comes next; longer signs first.
  std::optional<Function> sign(int precedence) {
    std::optional<Function> found;
    for (size_t f = 0; f < kFunctions.size(); ++f) {
      const Written& each = kFunctions[f];
      if (each.precedence != precedence || each.arguments != 2 || !scanner_.peek(each.sign)) continue;
      const bool longer = !found || std::string(each.sign).size() > std::string(written(*found).sign).size();
      if (longer) found = static_cast<Function>(f);
    }
    if (found) scanner_.expect(written(*found).sign);
    return found;
  }

  Expression level(int precedence) {
    if (precedence > 3) return prefixed();
    Expression left = level(precedence + 1);
    for (auto next = sign(precedence); next; next = sign(precedence)) {
      if (precedence == 1 && written(left.function).precedence == 1 && !bracketed_) fail("compare two values at once");
      deeper();
      left = {*next, 0, 0, {std::move(left), level(precedence + 1)}};
      bracketed_ = false;
    }
    return left;
  }

  Expression prefixed() {
    if (scanner_.accept("-")) {
      enter();
      Expression of = prefixed();
      --nested_;
      if (of.function == Function::kNumber) return Expression::of_number(-of.number);
      return {Function::kNegate, 0, 0, {std::move(of)}};
    }
    scanner_.accept("+");
    return atom();
  }

  Expression atom() {
    bracketed_ = false;
    if (scanner_.accept("(")) {
      enter();
      Expression inside = level(1);
      --nested_;
      if (!scanner_.accept(")")) fail("expected `)`");
      bracketed_ = true;
      return inside;
    }
    if (scanner_.peek_number()) return Expression::of_number(scanner_.number());
    if (!scanner_.peek_name()) fail("expected a number, an operand, a function or `(`");
    const size_t begin = scanner_.offset();
    const std::string name = scanner_.name();
    if (name == "inf") return Expression::of_number(std::numeric_limits<double>::infinity());
    return scanner_.peek("(") ? call(name, begin) : operand(name, begin);
  }

  Expression call(const std::string& name, size_t begin) {
    const auto known = std::find_if(kFunctions.begin(), kFunctions.end(), [&](const Written& each) {
      return each.precedence == 0 && each.arguments > 0 && each.sign == name;
    });
    if (known == kFunctions.end()) fail_at(begin, "no such function: name=" + name + ", there are " + names());
    scanner_.expect("(");
    Expression out{static_cast<Function>(known - kFunctions.begin())};
    do {
      enter();
      out.arguments.push_back(level(1));
      --nested_;
    } while (scanner_.accept(","));
    if (!scanner_.accept(")")) fail("expected `)`");
    if (out.arguments.size() != known->arguments) {
      fail_at(begin, concatenate("a function has another number of arguments: name=", name,
                                 ", given=", out.arguments.size(), ", wanted=", known->arguments));
    }
    return out;
  }

  Expression operand(const std::string& name, size_t begin) {
    const size_t letter = std::string("xyz").find(name);
    int64_t number = name.size() == 1 && letter != std::string::npos ? static_cast<int64_t>(letter) : -1;
    const bool digits = name.size() > 1 && name.size() < 6 && name[0] == 'x' &&
                        name.find_first_not_of("0123456789", 1) == std::string::npos;
    if (digits) number = std::stoll(name.substr(1));
    if (number < 0) fail_at(begin, "no such operand; they are x0, x1, ... or x, y, z: name=" + name);
    if (number >= operands_) {
      fail_at(begin, concatenate("no such operand: name=", name, ", operands=", operands_));
    }
    return Expression::of_operand(number);
  }

  static std::string names() {
    std::string out;
    for (const Written& each : kFunctions) {
      if (each.precedence == 0 && each.arguments > 0) out += (out.empty() ? "" : ", ") + std::string(each.sign);
    }
    return out;
  }

  [[noreturn]] void fail_at(size_t offset, const std::string& what) {
    scanner_.seek(offset);
    fail(what);
  }

  /// Walks over expressions recurse, so their size is bounded.
  void deeper() {
    constexpr int kMost = 2000;
    if (++size_ > kMost) fail(concatenate("an expression of too many functions: most=", kMost));
  }

  /// The reader recurses with brackets, through several functions for each.
  void enter() {
    constexpr int kMost = 200;
    deeper();
    if (++nested_ > kMost) fail(concatenate("an expression of too many brackets in brackets: most=", kMost));
  }

  Scanner scanner_;
  const std::string& text_;
  int64_t operands_;
  int size_ = 0;
  int nested_ = 0;
  bool bracketed_ = false;  ///< whether the last atom stood in brackets
};

void collect_reads(const Expression& e, std::set<int64_t>& out) {
  if (e.function == Function::kOperand) out.insert(e.operand);
  for (const Expression& each : e.arguments) collect_reads(each, out);
}

// --- values ----------------------------------------------------------------------------------------------------------

double sigmoid(double x) { return x >= 0 ? 1 / (1 + std::exp(-x)) : std::exp(x) / (1 + std::exp(x)); }

double applied(Function function, const std::vector<double>& a) {
  switch (function) {
    case Function::kAdd:
      return a[0] + a[1];
    case Function::kSubtract:
      return a[0] - a[1];
    case Function::kMultiply:
      return a[0] * a[1];
    case Function::kDivide:
      return a[0] / a[1];
    case Function::kNegate:
      return -a[0];
    case Function::kPower:
      return std::pow(a[0], a[1]);
    case Function::kExp:
      return std::exp(a[0]);
    case Function::kLog:
      return std::log(a[0]);
    case Function::kSqrt:
      return std::sqrt(a[0]);
    case Function::kTanh:
      return std::tanh(a[0]);
    case Function::kSigmoid:
      return sigmoid(a[0]);
    case Function::kLess:
      return a[0] < a[1] ? 1 : 0;
    case Function::kLessEqual:
      return a[0] <= a[1] ? 1 : 0;
    case Function::kGreater:
      return a[0] > a[1] ? 1 : 0;
    case Function::kGreaterEqual:
      return a[0] >= a[1] ? 1 : 0;
    case Function::kEqual:
      return a[0] == a[1] ? 1 : 0;
    case Function::kNotEqual:
      return a[0] != a[1] ? 1 : 0;
    case Function::kWhere:
      return a[0] != 0 ? a[1] : a[2];
    case Function::kNumber:
    case Function::kOperand:
      break;
  }
  JOINSUM_CHECK(false, "function=", static_cast<int>(function));
}

}  // namespace

bool compares(Function function) { return written(function).precedence == 1; }

Expression Expression::parse(const std::string& text, int64_t operands) { return Reader(text, operands).read(); }

std::string Expression::text() const {
  if (function == Function::kNumber) return number_text(number);
  if (function == Function::kOperand) return "x" + std::to_string(operand);
  const Written& as = written(function);
  const auto inside = [&](size_t i, int least) {
    const std::string text = arguments[i].text();
    return precedence(arguments[i]) < least ? "(" + text + ")" : text;
  };
  if (as.precedence == 0) {
    std::string out = std::string(as.sign) + "(";
    for (size_t i = 0; i < arguments.size(); ++i) out += (i > 0 ? "," : "") + arguments[i].text();
    return out + ")";
  }
  // A number with a sign after a minus would read as a negative number.
  if (arguments.size() == 1) return as.sign + inside(0, arguments[0].function == Function::kNumber ? kAtom + 1 : 4);
  const bool comparison = as.precedence == 1;
  return inside(0, as.precedence + (comparison ? 1 : 0)) + as.sign + inside(1, as.precedence + 1);
}

std::vector<int64_t> Expression::reads() const {
  std::set<int64_t> out;
  collect_reads(*this, out);
  return {out.begin(), out.end()};
}

Expression Expression::substituted(const std::vector<Expression>& with) const {
  if (function == Function::kOperand) return with[static_cast<size_t>(operand)];
  Expression out = *this;
  for (Expression& each : out.arguments) each = each.substituted(with);
  return out;
}

double Expression::value(const double* x) const {
  if (function == Function::kNumber) return number;
  if (function == Function::kOperand) return x[operand];
  std::vector<double> values;
  for (const Expression& each : arguments) values.push_back(each.value(x));
  return applied(function, values);
}

int64_t Expression::flops() const {
  int64_t count = written(function).flops;
  for (const Expression& each : arguments) count += each.flops();
  return count;
}

DType Expression::result_dtype(DType dtype) const {
  const Written& as = written(function);
  JOINSUM_KERNEL_CHECK(dtype != DType::kBool,
                       "expression: not defined on truth values; cast the operand: expression=", text());
  JOINSUM_KERNEL_CHECK(contains(as.domain, dtype),
                       "expression: a function is not defined on this dtype; cast the operand: function=", as.sign,
                       ", dtype=", name_of(dtype), ", expression=", text());
  const bool whole = number == std::trunc(number) && std::abs(number) < 0x1p63;
  JOINSUM_KERNEL_CHECK(!is_integer(dtype) || function != Function::kNumber || whole,
                       "expression: integers take whole numbers; cast the operand: number=", number,
                       ", dtype=", name_of(dtype));
  for (const Expression& each : arguments) each.result_dtype(dtype);
  return dtype;
}

Expression Expression::of(Function function, std::vector<Expression> arguments) {
  const Expression& a = arguments[0];
  const auto is_number = [](const Expression& each) { return each.function == Function::kNumber; };
  if (std::all_of(arguments.begin(), arguments.end(), is_number)) {
    std::vector<double> values;
    for (const Expression& each : arguments) values.push_back(each.number);
    return of_number(applied(function, values));
  }
  if (function == Function::kAdd && a.is(0)) return arguments[1];
  if ((function == Function::kAdd || function == Function::kSubtract) && arguments[1].is(0)) return a;
  if (function == Function::kSubtract && a.is(0)) return of(Function::kNegate, {arguments[1]});
  if (function == Function::kMultiply && (a.is(0) || arguments[1].is(0))) return of_number(0);
  if (function == Function::kMultiply && a.is(1)) return arguments[1];
  if ((function == Function::kMultiply || function == Function::kDivide) && arguments[1].is(1)) return a;
  if (function == Function::kDivide && a.is(0)) return of_number(0);
  if (function == Function::kPower && arguments[1].is(1)) return a;
  if (function == Function::kWhere && arguments[1] == arguments[2]) return arguments[1];
  return {function, 0, 0, std::move(arguments)};
}

}  // namespace joinsum::kernels::expression
