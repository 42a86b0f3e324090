#pragma once

#include <cstdint>

namespace joinsum::sparse::operators {

/// `exponential_of(double)`, which is compiled here and is part of generated kernels' text, so that both give the same.
/// Beyond -746 and 710 the result is 0 or infinite; what is no number stays that. A sum with 0x1.8p52 is rounded to
/// whole numbers. The remainder of x by log 2, in two parts, is raised by a Taylor polynomial, and scaled by a power of
/// two in two steps, as the whole one may be no number where the result is.
#define JOINSUM_EXPONENTIAL(as)                                                 \
  as(                                                                           \
      inline double power_of_two(double rounded) {                              \
        uint64_t bits = 0;                                                      \
        __builtin_memcpy(&bits, &rounded, sizeof bits);                         \
        bits = (bits + 1023) << 52;                                             \
        __builtin_memcpy(&rounded, &bits, sizeof bits);                         \
        return rounded;                                                         \
      }                                                                         \
                                                                                \
      inline double exponential_of(double x) {                                  \
        double y = x < -746 ? -746 : x;                                         \
        y = y > 710 ? 710 : y;                                                  \
        const double n = (y * 0x1.71547652b82fep+0 + 0x1.8p52) - 0x1.8p52;      \
        const double r = (y - n * 0x1.62e42feep-1) - n * 0x1.a39ef35793c76p-33; \
        double p = 1.0 / 6227020800;                                            \
        p = p * r + 1.0 / 479001600;                                            \
        p = p * r + 1.0 / 39916800;                                             \
        p = p * r + 1.0 / 3628800;                                              \
        p = p * r + 1.0 / 362880;                                               \
        p = p * r + 1.0 / 40320;                                                \
        p = p * r + 1.0 / 5040;                                                 \
        p = p * r + 1.0 / 720;                                                  \
        p = p * r + 1.0 / 120;                                                  \
        p = p * r + 1.0 / 24;                                                   \
        p = p * r + 1.0 / 6;                                                    \
        p = p * r + 0.5;                                                        \
        p = (p * r * r + r) + 1;                                                \
        const double half = n * 0.5 + 0x1.8p52;                                 \
        const double rest = (n - (half - 0x1.8p52)) + 0x1.8p52;                 \
        return p * power_of_two(half) * power_of_two(rest);                     \
      })
#define JOINSUM_CODE(...) __VA_ARGS__
#define JOINSUM_TEXT(...) #__VA_ARGS__

JOINSUM_EXPONENTIAL(JOINSUM_CODE)

/// e^x within one unit in the last place, without branches, so that loops over it become vector instructions.
inline double exponential(double x) { return exponential_of(x); }

inline float exponential(float x) { return static_cast<float>(exponential(static_cast<double>(x))); }

/// 1 / (1 + e^-x).
template <class T>
T sigmoid(T x) {
  return T(1) / (T(1) + exponential(-x));
}

/// The same of each of `count` values, by the widest instructions that there are.
void exponentials(const double* x, int64_t count, double* out);
void exponentials(const float* x, int64_t count, float* out);
void sigmoids(const double* x, int64_t count, double* out);
void sigmoids(const float* x, int64_t count, float* out);

}  // namespace joinsum::sparse::operators
