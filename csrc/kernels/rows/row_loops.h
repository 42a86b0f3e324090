#pragma once

#include <type_traits>
#include <utility>

#include "kernels/rows/rows.h"
#include "kernels/semiring/pair_exponential.h"

/// Included once by each source that compiles these loops for a set of instructions, as pair_tile_loops.h is.
namespace joinsum::kernels::rows {
namespace {

template <class T, int bytes>
struct Loops {
  using V = semiring::Vectors<T, bytes>;
  using Vector = typename V::Aligned;
  static constexpr int64_t kLanes = V::kLanes;
  static constexpr int64_t kWide = 4;  ///< vectors at a time, so that no operation waits for the one before
  static constexpr T kLeast = -std::numeric_limits<T>::infinity();

  static JOINSUM_INLINE Vector load(const T* from) { return *reinterpret_cast<const typename V::Unaligned*>(from); }
  static JOINSUM_INLINE void store(T* to, Vector x) { *reinterpret_cast<typename V::Unaligned*>(to) = x; }
  /// The first `count` elements, and `rest` in the place of others.
  static JOINSUM_INLINE Vector load_some(const T* from, int64_t count, T rest) {
    Vector x = Vector{} + rest;
    for (int64_t i = 0; i < count; ++i) x[i] = from[i];
    return x;
  }

  static JOINSUM_INLINE void store_some(T* to, int64_t count, Vector x) {
    for (int64_t i = 0; i < count; ++i) to[i] = x[i];
  }
  static JOINSUM_INLINE T added(Vector x) {
    T result = 0;
    for (int64_t i = 0; i < kLanes; ++i) result += x[i];
    return result;
  }

  /// `step(total, x)` for all vectors of a row, in `kWide` totals that start as `first`; `merge` joins these. What the
  /// last vector lacks is `rest`.
  template <class Step, class Merge>
  static JOINSUM_INLINE Vector over(const T* x, int64_t count, T first, T rest, Step step, Merge merge) {
    Vector totals[kWide];
    for (auto& total : totals) total = Vector{} + first;
    int64_t at = 0;
    for (; at + kWide * kLanes <= count; at += kWide * kLanes) {
      for (int64_t w = 0; w < kWide; ++w) totals[w] = step(totals[w], load(x + at + w * kLanes));
    }
    for (; at + kLanes <= count; at += kLanes) totals[0] = step(totals[0], load(x + at));
    if (at < count) totals[0] = step(totals[0], load_some(x + at, count - at, rest));
    return merge(merge(totals[0], totals[1]), merge(totals[2], totals[3]));
  }

  static T maximum(const T* x, int64_t count) {
    const auto larger = [](Vector most, Vector y) __attribute__((always_inline)) { return y > most ? y : most; };
    const Vector most = over(x, count, kLeast, kLeast, larger, larger);
    T result = most[0];
    for (int64_t i = 1; i < kLanes; ++i) result = most[i] > result ? most[i] : result;
    return result;
  }

  static T sum_of_exponentials(const T* x, int64_t count, T most) {
    const auto add = [](Vector a, Vector b) __attribute__((always_inline)) { return a + b; };
    const auto with = [most](Vector total, Vector y)
                          __attribute__((always_inline)) { return total + semiring::exponential<T, bytes>(y - most); };
    const Vector total = over(x, count, T(0), kLeast, with, add);
    return added(total);
  }

  static void scaled_exponentials(const T* x, int64_t count, T high, T low, T factor, T* out) {
    const auto scaled = [&](Vector y) __attribute__((always_inline)) {
      return semiring::exponential<T, bytes>((y - high) - low) * factor;
    };
    int64_t at = 0;
    for (; at + kLanes <= count; at += kLanes) store(out + at, scaled(load(x + at)));
    if (at < count) store_some(out + at, count - at, scaled(load_some(x + at, count - at, kLeast)));
  }

  static T sum(const T* x, int64_t count) {
    const auto add = [](Vector a, Vector b) __attribute__((always_inline)) { return a + b; };
    return added(over(x, count, T(0), T(0), add, add));
  }

  static T sum_of_squares(const T* x, int64_t count, T mean) {
    const auto add = [](Vector a, Vector b) __attribute__((always_inline)) { return a + b; };
    const auto with = [mean](Vector total, Vector y)
                          __attribute__((always_inline)) { return total + (y - mean) * (y - mean); };
    return added(over(x, count, T(0), mean, with, add));
  }

  /// Calls `visit(at, get, put)` for all vectors of a row: `get(from)` has the elements of a row there, `put(to, x)`
  /// writes them.
  template <class Visit>
  static JOINSUM_INLINE void for_each(int64_t count, Visit visit) {
    int64_t at = 0;
    for (; at + kLanes <= count; at += kLanes) {
      visit([at](const T* from) __attribute__((always_inline)) { return load(from + at); },
            [at](T* to, Vector x) __attribute__((always_inline)) { store(to + at, x); });
    }
    if (at == count) return;
    visit([=](const T* from) __attribute__((always_inline)) { return load_some(from + at, count - at, T(0)); },
          [=](T* to, Vector x) __attribute__((always_inline)) { store_some(to + at, count - at, x); });
  }

  static T exponentials(T* x, int64_t count, T factor, T most) {
    Vector total = {};
    const auto each = [&](Vector y)
                          __attribute__((always_inline)) { return semiring::exponential<T, bytes>(y * factor - most); };
    int64_t at = 0;
    for (; at + kLanes <= count; at += kLanes) {
      const Vector y = each(load(x + at));
      total += y;
      store(x + at, y);
    }
    if (at < count) {
      const Vector y = each(load_some(x + at, count - at, kLeast));
      total += y;
      store_some(x + at, count - at, y);
    }
    return added(total);
  }

  static void scaled(const T* x, int64_t count, T factor, T* out) {
    for_each(count, [=](auto get, auto put) __attribute__((always_inline)) { put(out, get(x) * factor); });
  }

  static void lowered(const T* x, int64_t count, T high, T low, T* out) {
    for_each(count, [=](auto get, auto put) __attribute__((always_inline)) { put(out, (get(x) - high) - low); });
  }

  static void log_softmax_slopes(const T* grad, const T* x, int64_t count, T total, T* out) {
    for_each(count, [=](auto get, auto put) __attribute__((always_inline)) {
      put(out, get(grad) - semiring::exponential<T, bytes>(get(x)) * total);
    });
  }

  static void softmax_slopes(const T* weights, int64_t count, T mean, T factor, T* slopes) {
    for_each(count, [=](auto get, auto put) __attribute__((always_inline)) {
      put(slopes, get(weights) * ((get(slopes) - mean) * factor));
    });
  }

  static T sum_of_products(const T* x, const T* y, int64_t count) {
    Vector products = {};
    for_each(count, [&](auto get, auto) __attribute__((always_inline)) { products += get(x) * get(y); });
    return added(products);
  }

  static void normed(const Normed<T>& row, int64_t count, const T* bias, T* out) {
    const auto [x, mean, rstd, weight] = row;
    for_each(count, [=](auto get, auto put) __attribute__((always_inline)) {
      Vector y = (get(x) - mean) * rstd;
      if (weight != nullptr) y *= get(weight);
      put(out, bias == nullptr ? y : y + get(bias));
    });
  }

  static void slopes(const Normed<T>& row, int64_t count, const T* grad, T* first, T* second) {
    const auto [x, mean, rstd, weight] = row;
    Vector sum = {};
    Vector products = {};
    for_each(count, [&, x = x, mean = mean, weight = weight](auto get, auto) __attribute__((always_inline)) {
      const Vector g = weight == nullptr ? get(grad) : get(grad) * get(weight);
      sum += g;
      products += g * (get(x) - mean);
    });
    *first = added(sum);
    *second = added(products) * rstd;
  }

  static void normed_gradient(const Normed<T>& row, int64_t count, const T* grad, T first, T second, T* out) {
    const auto [x, mean, rstd, weight] = row;
    const T slope = second * rstd;
    for_each(count,
             [=, x = x, mean = mean, rstd = rstd, weight = weight](auto get, auto put) __attribute__((always_inline)) {
               const Vector g = weight == nullptr ? get(grad) : get(grad) * get(weight);
               put(out, (g - first - (get(x) - mean) * slope) * rstd);
             });
  }

  static void add_affine(const T* x, const T* grad, int64_t rows, int64_t stride, int64_t count, const T* mean,
                         const T* rstd, T* weight, T* bias) {
    constexpr int64_t kRows = 8;  // whose terms are added before the sums are written
    for (int64_t begin = 0; begin < rows; begin += kRows) {
      const int64_t end = begin + kRows < rows ? begin + kRows : rows;
      for_each(count, [=](auto get, auto put) __attribute__((always_inline)) {
        Vector for_weight = get(weight);
        Vector for_bias = {};
        for (int64_t row = begin; row < end; ++row) {
          const Vector g = get(grad + row * stride);
          for_weight += g * ((get(x + row * stride) - mean[row]) * rstd[row]);
          for_bias += g;
        }
        put(weight, for_weight);
        if (bias != nullptr) put(bias, get(bias) + for_bias);
      });
    }
  }

  /// Φ(x), and exp(-x² / 2). Source: Abramowitz and Stegun, 7.1.26: 1 - erf(z) by a polynomial of 1 / (1 + p z), within
  /// 1.5e-7, for z >= 0.
  static JOINSUM_INLINE std::pair<Vector, Vector> normal(Vector x) {
    constexpr T kRootOfHalf = T(0.70710678118654752440);
    constexpr T kFactors[] = {T(1.061405429), T(-1.453152027), T(1.421413741), T(-0.284496736), T(0.254829592)};
    const Vector size = x < 0 ? -x : x;
    const Vector t = 1 / (1 + size * (T(0.3275911) * kRootOfHalf));
    const Vector exponential = semiring::exponential<T, bytes>(size * size * T(-0.5));
    Vector sum = Vector{} + kFactors[0];
    for (int i = 1; i < 5; ++i) sum = sum * t + kFactors[i];
    const Vector beyond = sum * t * exponential * T(0.5);
    return {x < 0 ? beyond : 1 - beyond, exponential};
  }

  static void gelu(const T* x, int64_t count, T* out) {
    for_each(count, [=](auto get, auto put) __attribute__((always_inline)) {
      const Vector y = get(x);
      put(out, y * normal(y).first);
    });
  }

  static void gelu_slopes(const T* grad, const T* x, int64_t count, T* out) {
    constexpr T kDensity = T(0.39894228040143267794);  // of the normal distribution at 0
    for_each(count, [=](auto get, auto put) __attribute__((always_inline)) {
      const Vector y = get(x);
      const auto [below, exponential] = normal(y);
      put(out, get(grad) * (below + y * exponential * kDensity));
    });
  }
};

template <class T, int bytes>
RowLoops<T> row_loops() {
  using L = Loops<T, bytes>;
  RowLoops<T> out{L::maximum,         L::sum_of_exponentials, L::scaled_exponentials,
                  L::lowered,         L::log_softmax_slopes,  L::exponentials,
                  L::scaled,          L::softmax_slopes,      L::sum,
                  L::sum_of_products, L::sum_of_squares,      L::normed,
                  L::slopes,          L::normed_gradient,     L::add_affine};
  if constexpr (std::is_same_v<T, float>) {
    out.gelu = L::gelu;
    out.gelu_slopes = L::gelu_slopes;
  }
  return out;
}

}  // namespace
}  // namespace joinsum::kernels::rows
