#include "sparse/operators/operators.h"

#include <algorithm>
#include <array>

#include "base/check.h"

namespace joinsum::sparse::operators {
namespace {

/// What the rest of the sparse programs asks of an operator by its name.
struct Row {
  Operator op;
  std::string name;
  size_t fewest = 1;
  size_t most = 1;
  bool associative = false;
  bool commutative = false;
  bool idempotent = false;
  std::optional<double> identity = {};  ///< of those that aggregate
};

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr size_t kAny = std::numeric_limits<size_t>::max();

const std::vector<Row>& rows() {
  using enum Operator;
  static const std::vector<Row> table = {
      {kAdd, "+", 1, kAny, true, true, false, 0.0},
      {kMultiply, "*", 1, kAny, true, true, false, 1.0},
      {kSubtract, "-", 2, 2},
      {kDivide, "/", 2, 2},
      {kMin, "min", 1, kAny, true, true, true, kInfinity},
      {kMax, "max", 1, kAny, true, true, true, -kInfinity},
      {kAnd, "and", 1, kAny, true, true, true, 1.0},
      {kOr, "or", 1, kAny, true, true, true, 0.0},
      {kEqual, "eq", 2, 2, false, true},
      {kGreater, "gt", 2, 2},
      {kPower, "pow", 2, 2},
      {kLogAddExp, "logaddexp", 1, kAny, true, true, false, -kInfinity},
      {kExp, "exp"},
      {kNegate, "neg"},
      {kSquare, "sq"},
      {kSqrt, "sqrt"},
      {kSigmoid, "sigmoid"},
      {kRelu, "relu"},
      {kAbs, "abs"},
      {kLog, "log"},
  };
  return table;
}

const Row& row(Operator op) { return rows()[static_cast<size_t>(op)]; }

}  // namespace

const std::vector<Operator>& all_operators() {
  static const std::vector<Operator> all = [] {
    std::vector<Operator> out;
    for (const Row& each : rows()) out.push_back(each.op);
    return out;
  }();
  return all;
}

const std::string& name_of(Operator op) { return row(op).name; }

std::optional<Operator> operator_from_name(const std::string& name) {
  const auto found = std::ranges::find(rows(), name, &Row::name);
  if (found == rows().end()) return {};
  return found->op;
}

bool takes(Operator op, size_t count) { return count >= row(op).fewest && count <= row(op).most; }

bool aggregates(Operator op) { return row(op).identity.has_value(); }

bool is_associative(Operator op) { return row(op).associative; }

bool is_commutative(Operator op) { return row(op).commutative; }

bool is_idempotent(Operator op) { return row(op).idempotent; }

double identity_of(Operator op) {
  JOINSUM_CHECK(aggregates(op), name_of(op));
  return *row(op).identity;
}

bool annihilates(Operator op, double value) {
  switch (op) {
    case Operator::kMultiply:
    case Operator::kAnd:
      return value == 0;
    case Operator::kAdd:
      return std::isinf(value);
    case Operator::kMin:
      return value == -kInfinity;
    case Operator::kMax:
    case Operator::kLogAddExp:
      return value == kInfinity;
    case Operator::kOr:
      return value == 1;
    default:
      return false;
  }
}

bool distributes(Operator map, Operator over, bool factors_not_negative) {
  using enum Operator;
  switch (map) {
    case kMultiply:
      return over == kAdd || (factors_not_negative && (over == kMin || over == kMax));
    case kAdd:
      return over == kMin || over == kMax || over == kLogAddExp;
    case kLogAddExp:
      return over == kMin || over == kMax;
    case kMin:
      return over == kMax;
    case kMax:
      return over == kMin;
    case kAnd:
      return over == kOr;
    case kOr:
      return over == kAnd;
    default:
      return false;
  }
}

}  // namespace joinsum::sparse::operators
