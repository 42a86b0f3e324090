#pragma once

#include <bit>
#include <cstdint>

namespace joinsum::sparse::operators {

/// e^x within two units in the last place, without branches, so that loops over it become vector instructions. The
/// remainder of x by log 2 is raised by a Taylor polynomial, and scaled by a power of two in two steps, as the whole
/// one may be no number where the result is.
inline double exponential(double x) {
  constexpr double kLog2E = 0x1.71547652b82fep+0, kHigh = 0x1.62e42feep-1, kLow = 0x1.a39ef35793c76p-33;
  constexpr double kRound = 0x1.8p52;  // a sum with it is rounded to whole numbers
  // Beyond these the result is 0 or infinite. What is no number stays that.
  double y = x < -746 ? -746 : x;
  y = y > 710 ? 710 : y;
  const double n = (y * kLog2E + kRound) - kRound;
  const double r = (y - n * kHigh) - n * kLow;
  double p = 1.0 / 6227020800;
  p = p * r + 1.0 / 479001600;
  p = p * r + 1.0 / 39916800;
  p = p * r + 1.0 / 3628800;
  p = p * r + 1.0 / 362880;
  p = p * r + 1.0 / 40320;
  p = p * r + 1.0 / 5040;
  p = p * r + 1.0 / 720;
  p = p * r + 1.0 / 120;
  p = p * r + 1.0 / 24;
  p = p * r + 1.0 / 6;
  p = p * r + 0.5;
  p = (p * r * r + r) + 1;
  const double half = n * 0.5 + kRound;
  const double rest = (n - (half - kRound)) + kRound;
  const auto power = [](double rounded) {
    return std::bit_cast<double>((std::bit_cast<uint64_t>(rounded) + 1023) << 52);
  };
  return p * power(half) * power(rest);
}

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
