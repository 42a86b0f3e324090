#pragma once

#include <cstdint>

namespace joinsum::kernels::rows {

/// How a row is normed: (x - mean) rstd, times `weight` if there is one.
template <class T>
struct Normed {
  const T* x;
  T mean;
  T rstd;
  const T* weight;
};

/// Loops over a row of `count` elements, for which operators of softmaxes and norms have a call each. Results may be
/// written over operands.
template <class T>
struct RowLoops {
  /// The largest element, of those that are numbers; minus infinity where there is none.
  T (*maximum)(const T* x, int64_t count) = nullptr;
  /// Σ exp(x - most), where no element exceeds `most`.
  T (*sum_of_exponentials)(const T* x, int64_t count, T most) = nullptr;
  /// factor · exp(x - high - low), where no element exceeds high + low but by rounding. Two numbers are more exact than
  /// their sum.
  void (*scaled_exponentials)(const T* x, int64_t count, T high, T low, T factor, T* out) = nullptr;
  /// (x - high) - low.
  void (*lowered)(const T* x, int64_t count, T high, T low, T* out) = nullptr;
  /// grad - total · exp(x), where no element of x exceeds zero but by rounding: the gradient by what a log softmax is
  /// of.
  void (*log_softmax_slopes)(const T* grad, const T* x, int64_t count, T total, T* out) = nullptr;

  /// x = exp(factor · x - most), where no element of factor · x exceeds `most` but by rounding; gives their sum.
  T (*exponentials)(T* x, int64_t count, T factor, T most) = nullptr;
  /// factor · x.
  void (*scaled)(const T* x, int64_t count, T factor, T* out) = nullptr;
  /// slopes = factor · weights · (slopes - mean): the gradient by what a softmax with these weights is of.
  void (*softmax_slopes)(const T* weights, int64_t count, T mean, T factor, T* slopes) = nullptr;

  T (*sum)(const T* x, int64_t count) = nullptr;
  /// Σ x y.
  T (*sum_of_products)(const T* x, const T* y, int64_t count) = nullptr;
  /// Σ (x - mean)².
  T (*sum_of_squares)(const T* x, int64_t count, T mean) = nullptr;
  /// The normed row, plus `bias` if there is one.
  void (*normed)(const Normed<T>& row, int64_t count, const T* bias, T* out) = nullptr;
  /// Σ g and Σ g (x - mean) rstd, where g is grad · weight.
  void (*slopes)(const Normed<T>& row, int64_t count, const T* grad, T* first, T* second) = nullptr;
  /// The gradient of the row: rstd (g - first - (x - mean) rstd second).
  void (*normed_gradient)(const Normed<T>& row, int64_t count, const T* grad, T first, T second, T* out) = nullptr;
  /// Adds grad (x - mean) rstd to `weight`, and grad to `bias` if there is one, for each of `rows` rows of `stride`.
  void (*add_affine)(const T* x, const T* grad, int64_t rows, int64_t stride, int64_t count, const T* mean,
                     const T* rstd, T* weight, T* bias) = nullptr;

  // In single precision alone.
  /// x Φ(x), where Φ is the normal distribution's function, within 5e-7 of |x|.
  void (*gelu)(const T* x, int64_t count, T* out) = nullptr;
  /// grad (Φ(x) + x φ(x)), where φ is Φ's derivative.
  void (*gelu_slopes)(const T* grad, const T* x, int64_t count, T* out) = nullptr;
};

/// Loops for a set of instructions, which run only where it exists. Null functions where they are not compiled.
template <class T>
RowLoops<T> portable_row_loops();
template <class T>
RowLoops<T> avx2_row_loops();
template <class T>
RowLoops<T> avx512_row_loops();

}  // namespace joinsum::kernels::rows
