#pragma once

#include <cmath>
#include <cstdint>

namespace joinsum::kernels::torch_call {

struct AdamConstants {
  double rate;
  double first;
  double second;
  double epsilon;

  bool operator==(const AdamConstants&) const = default;
};

/// What is the same for all elements in one step of Adam, which count from 1.
struct AdamStep {
  float keep1, take1, keep2, take2, rate, root, epsilon;

  /// `power1` and `power2`: first and second constant to the power of the step's number.
  AdamStep(const AdamConstants& c, double power1, double power2)
      : keep1(static_cast<float>(c.first)),
        take1(static_cast<float>(1 - c.first)),
        keep2(static_cast<float>(c.second)),
        take2(static_cast<float>(1 - c.second)),
        rate(static_cast<float>(c.rate / (1 - power1))),
        root(static_cast<float>(1 / std::sqrt(1 - power2))),
        epsilon(static_cast<float>(c.epsilon)) {}
  AdamStep(const AdamConstants& c, int64_t number)
      : AdamStep(c, std::pow(c.first, static_cast<double>(number)), std::pow(c.second, static_cast<double>(number))) {}
};

/// One row of a weight with its moments in one step, by its gradient, and without one.
void adam_row(float* param, float* first, float* second, const float* grad, int64_t width, const AdamStep& step);
void adam_resting_row(float* param, float* first, float* second, int64_t width, const AdamStep& step);

/// sum += value x
void add_multiple(float* sum, const float* x, float value, int64_t width);

}  // namespace joinsum::kernels::torch_call
