#pragma once

#include <optional>
#include <utility>

#include "sparse/operators/arithmetic.h"

/// Operators as constants, so that loops are compiled for each.
namespace joinsum::sparse::kernels::nest {

using operators::applied;
using operators::fill_from;
using operators::identity_in;
using operators::Operator;
using operators::repeated_in;
using operators::value_of;

/// Calls `visit` with the operator as a constant, so that its loops are compiled apart.
template <class Visit>
decltype(auto) with_operator(Operator op, Visit&& visit) {
  using enum Operator;
  switch (op) {
#define JOINSUM_OPERATOR(name) \
  case name:                   \
    return visit(std::integral_constant<Operator, name>{});
    JOINSUM_OPERATOR(kSubtract)
    JOINSUM_OPERATOR(kMultiply)
    JOINSUM_OPERATOR(kDivide)
    JOINSUM_OPERATOR(kMin)
    JOINSUM_OPERATOR(kMax)
    JOINSUM_OPERATOR(kAnd)
    JOINSUM_OPERATOR(kOr)
    JOINSUM_OPERATOR(kEqual)
    JOINSUM_OPERATOR(kGreater)
    JOINSUM_OPERATOR(kPower)
    JOINSUM_OPERATOR(kLogAddExp)
    JOINSUM_OPERATOR(kExp)
    JOINSUM_OPERATOR(kNegate)
    JOINSUM_OPERATOR(kSquare)
    JOINSUM_OPERATOR(kSqrt)
    JOINSUM_OPERATOR(kSigmoid)
    JOINSUM_OPERATOR(kRelu)
    JOINSUM_OPERATOR(kAbs)
    JOINSUM_OPERATOR(kLog)
#undef JOINSUM_OPERATOR
    default:
      return visit(std::integral_constant<Operator, kAdd>{});
  }
}

/// Takes the only value, where nothing is aggregated.
struct Assign {
  template <class T>
  static T reduced(T, T value) {
    return value;
  }
};

template <Operator kOp>
struct Reduce {
  template <class T>
  static T reduced(T a, T b) {
    return applied(kOp, a, b);
  }
};

/// The same by an operator that is known at run time.
struct ReduceBy {
  std::optional<Operator> op;

  template <class T>
  T reduced(T a, T b) const {
    return op ? applied(*op, a, b) : b;
  }
};

/// Calls `visit` with `Reduce<op>` of an operator that aggregates, or with `Assign`.
template <class Visit>
decltype(auto) with_reduction(const std::optional<Operator>& op, Visit&& visit) {
  using enum Operator;
  if (!op) return visit(Assign{});
  switch (*op) {
    case kMultiply:
      return visit(Reduce<kMultiply>{});
    case kMin:
      return visit(Reduce<kMin>{});
    case kMax:
      return visit(Reduce<kMax>{});
    case kAnd:
      return visit(Reduce<kAnd>{});
    case kOr:
      return visit(Reduce<kOr>{});
    case kLogAddExp:
      return visit(Reduce<kLogAddExp>{});
    default:
      return visit(Reduce<kAdd>{});
  }
}

}  // namespace joinsum::sparse::kernels::nest
