#pragma once

#include <cstdint>

#include "sparse/kernels/nest/arithmetic.h"

/// Operators on columns of values: the visits of a block.
namespace joinsum::sparse::kernels::nest {

/// A value for each visit of a block, or one for all.
template <class T>
struct Column {
  const T* data = nullptr;  ///< null: `value` holds for all
  T value{};

  bool is_scalar() const { return data == nullptr; }
};

/// op(a, b) for each visit, written to `out` unless both are one value for all.
template <class T>
Column<T> combined(Operator op, const Column<T>& a, const Column<T>& b, T* out, int64_t count) {
  if (a.is_scalar() && b.is_scalar()) return {nullptr, applied(op, a.value, b.value)};
  with_operator(op, [&](auto constant) {
    constexpr Operator kOp = decltype(constant)::value;
    if (a.is_scalar()) {
      for (int64_t i = 0; i < count; ++i) out[i] = applied(kOp, a.value, b.data[i]);
    } else if (b.is_scalar()) {
      for (int64_t i = 0; i < count; ++i) out[i] = applied(kOp, a.data[i], b.value);
    } else {
      for (int64_t i = 0; i < count; ++i) out[i] = applied(kOp, a.data[i], b.data[i]);
    }
  });
  return {out, T{}};
}

/// op(a) for each visit.
template <class T>
Column<T> mapped(Operator op, const Column<T>& a, T* out, int64_t count) {
  if (a.is_scalar()) return {nullptr, apply(op, a.value)};
  if constexpr (std::is_floating_point_v<T>) {
    if (op == Operator::kExp) return operators::exponentials(a.data, count, out), Column<T>{out, T{}};
    if (op == Operator::kSigmoid) return operators::sigmoids(a.data, count, out), Column<T>{out, T{}};
  }
  with_operator(op, [&](auto constant) {
    constexpr Operator kOp = decltype(constant)::value;
    for (int64_t i = 0; i < count; ++i) out[i] = apply(kOp, a.data[i]);
  });
  return {out, T{}};
}

/// `values` at `entries`, `fill` where an entry is -1, which `may_be_absent` says.
template <class T>
void gather(const T* values, const int64_t* entries, bool may_be_absent, T fill, T* out, int64_t count) {
  if (may_be_absent) {
    for (int64_t i = 0; i < count; ++i) out[i] = entries[i] < 0 ? fill : values[entries[i]];
  } else {
    for (int64_t i = 0; i < count; ++i) out[i] = values[entries[i]];
  }
}

}  // namespace joinsum::sparse::kernels::nest
