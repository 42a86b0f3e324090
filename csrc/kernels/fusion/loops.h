#pragma once

#include <type_traits>

#include <ATen/cpu/vec/vec.h>

#include "kernels/fusion/functions.h"
#include "kernels/semiring/pair_exponential.h"

/// Included once by each source that compiles these loops for a set of instructions, which it names by torch's macros.
namespace joinsum::kernels::fusion {
namespace {

template <class T>
struct LoopsOf {
  using V = at::vec::Vectorized<T>;
  static constexpr int64_t kLanes = V::size();

  /// `f` of the vectors of as many arguments as it has.
  template <int arguments, class F>
  static inline void over(const T* a, const T* b, const T* c, T* out, int64_t count, F f) {
    const auto step = [&](int64_t at, int64_t lanes) {
      const V x = V::loadu(a + at, lanes);
      if constexpr (arguments == 1) f(x).store(out + at, lanes);
      if constexpr (arguments == 2) f(x, V::loadu(b + at, lanes)).store(out + at, lanes);
      if constexpr (arguments == 3) f(x, V::loadu(b + at, lanes), V::loadu(c + at, lanes)).store(out + at, lanes);
    };
    int64_t at = 0;
    for (; at + kLanes <= count; at += kLanes) step(at, kLanes);
    if (at < count) step(at, count - at);
  }

  /// Within a unit in the last place, as torch's own, which is a call of a function for each vector.
  static V exp(const V& x) {
#if defined(__AVX512DQ__)
    return V(semiring::wide_exponential(x));
#else
    return x.exp();
#endif
  }

  static V ndtr(const V& x) {
    if constexpr (std::is_same_v<T, double>) return (V(1) + (x * V(0.70710678118654752440)).erf()) * V(0.5);
    // Source: Abramowitz and Stegun, 7.1.26: 1 - erf(z) by a polynomial of 1 / (1 + p z), within 1.5e-7, for z >= 0.
    constexpr float kFactors[] = {1.061405429F, -1.453152027F, 1.421413741F, -0.284496736F, 0.254829592F};
    const V size = x.abs();
    const V t = V(1) / (V(1) + size * V(static_cast<T>(0.3275911 * 0.70710678118654752440)));
    V sum(static_cast<T>(kFactors[0]));
    for (int i = 1; i < 5; ++i) sum = at::vec::fmadd(sum, t, V(static_cast<T>(kFactors[i])));
    const V beyond = sum * t * (size * size * V(T(-0.5))).exp_u20() * V(T(0.5));
    return V::blendv(V(1) - beyond, beyond, x < V(0));
  }

  static V tanh(const V& x) {
    if constexpr (std::is_same_v<T, double>) return x.tanh();
    // Source: Moshier's Cephes, tanhf: a polynomial where 1 - 2 / (1 + exp(2 x)) would cancel.
    constexpr float kFactors[] = {-5.70498872745e-3F, 2.06390887954e-2F, -5.37397155531e-2F, 1.33314422036e-1F,
                                  -3.33332819422e-1F};
    const V size = x.abs();
    const V square = x * x;
    V sum(static_cast<T>(kFactors[0]));
    for (int i = 1; i < 5; ++i) sum = at::vec::fmadd(sum, square, V(static_cast<T>(kFactors[i])));
    const V near = at::vec::fmadd(sum, square, V(1)) * x;
    const V far = V(1) - V(2) / (V(1) + exp(size + size));
    return V::blendv(V::blendv(far, far.neg(), x < V(0)), near, size < V(T(0.625)));
  }

  template <int arguments, auto f>
  static void loop(const T* a, const T* b, const T* c, T* out, int64_t count) {
    over<arguments>(a, b, c, out, count, f);
  }

  static Loops<T> all() {
    return {
        loop<1, [](const V& x) { return x; }>,
        loop<1, [](const V& x) { return x.neg(); }>,
        loop<1, [](const V& x) { return x.abs(); }>,
        loop<1, [](const V& x) { return x.gt(V(0)) - x.lt(V(0)); }>,
        loop<1, [](const V& x) { return x.floor(); }>,
        loop<1, [](const V& x) { return x.ceil(); }>,
        loop<1, [](const V& x) { return x.round(); }>,
        loop<1, [](const V& x) { return x.trunc(); }>,
        loop<1, [](const V& x) { return exp(x); }>,
        loop<1, [](const V& x) { return x.exp2(); }>,
        loop<1, [](const V& x) { return x.expm1(); }>,
        loop<1, [](const V& x) { return x.log(); }>,
        loop<1, [](const V& x) { return x.log2(); }>,
        loop<1, [](const V& x) { return x.log10(); }>,
        loop<1, [](const V& x) { return x.log1p(); }>,
        loop<1, [](const V& x) { return x.sqrt(); }>,
        loop<1, [](const V& x) { return x.reciprocal(); }>,
        loop<1, [](const V& x) { return x.sin(); }>,
        loop<1, [](const V& x) { return x.cos(); }>,
        loop<1, [](const V& x) { return x.tan(); }>,
        loop<1, [](const V& x) { return x.asin(); }>,
        loop<1, [](const V& x) { return x.acos(); }>,
        loop<1, [](const V& x) { return x.atan(); }>,
        loop<1, [](const V& x) { return x.sinh(); }>,
        loop<1, [](const V& x) { return x.cosh(); }>,
        loop<1, [](const V& x) { return tanh(x); }>,
        loop<1, [](const V& x) { return x.erf(); }>,
        loop<1, [](const V& x) { return x.erfc(); }>,
        loop<1, [](const V& x) { return ndtr(x); }>,
        loop<1, [](const V& x) { return (V(1) + exp(x.neg())).reciprocal(); }>,
        loop<2, [](const V& x, const V& y) { return x + y; }>,
        loop<2, [](const V& x, const V& y) { return x - y; }>,
        loop<2, [](const V& x, const V& y) { return x * y; }>,
        loop<2, [](const V& x, const V& y) { return x / y; }>,
        loop<2, [](const V& x, const V& y) { return x.pow(y); }>,
        loop<2, [](const V& x, const V& y) { return at::vec::maximum(x, y); }>,
        loop<2, [](const V& x, const V& y) { return at::vec::minimum(x, y); }>,
        loop<2, [](const V& x, const V& y) { return x.eq(y); }>,
        loop<2, [](const V& x, const V& y) { return x.ne(y); }>,
        loop<2, [](const V& x, const V& y) { return x.lt(y); }>,
        loop<2, [](const V& x, const V& y) { return x.le(y); }>,
        loop<2, [](const V& x, const V& y) { return x.gt(y); }>,
        loop<2, [](const V& x, const V& y) { return x.ge(y); }>,
        loop<2, [](const V& x, const V& y) { return x.atan2(y); }>,
        loop<2, [](const V& x, const V& y) { return x.fmod(y); }>,
        loop<3, [](const V& x, const V& y, const V& z) { return V::blendv(z, y, x != V(0)); }>,
    };
  }
};

}  // namespace
}  // namespace joinsum::kernels::fusion
