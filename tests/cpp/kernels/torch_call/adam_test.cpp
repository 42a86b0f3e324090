#include <cmath>

#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <gtest/gtest.h>

namespace joinsum::kernels::torch_call {
namespace {

struct Options {
  bool decoupled = true;
  bool maximize = false;
  bool amsgrad = false;
};

constexpr double kLr = 0.1;
constexpr double kBeta1 = 0.9;
constexpr double kBeta2 = 0.99;
constexpr double kEps = 1e-3;
constexpr double kDecay = 0.2;
constexpr int kStep = 3;

std::vector<double> numbers(const at::Tensor& tensor) {
  const at::Tensor flat = tensor.contiguous().to(at::kDouble);
  return {flat.const_data_ptr<double>(), flat.const_data_ptr<double>() + flat.numel()};
}

/// New parameter and state of one element, as Loshchilov and Hutter write AdamW, and Kingma and Ba Adam.
std::vector<double> expected(double p, double g, std::vector<double> state, const Options& options) {
  if (options.maximize) g = -g;
  if (options.decoupled) {
    p -= kLr * kDecay * p;
  } else {
    g += kDecay * p;
  }
  const double mean = kBeta1 * state[0] + (1 - kBeta1) * g;
  const double square = kBeta2 * state[1] + (1 - kBeta2) * g * g;
  const double most = options.amsgrad ? std::max(state[2], square) : square;
  const double first = mean / (1 - std::pow(kBeta1, kStep));
  const double second = most / (1 - std::pow(kBeta2, kStep));
  return {p - kLr * first / (std::sqrt(second) + kEps), mean, square, most};
}

/// Calls an overload of joinsum::adam_update or amsgrad_update.
std::vector<at::Tensor> call(const std::string& overload, const std::vector<at::Tensor>& tensors,
                             const Options& options, const std::vector<at::Tensor>& out = {}) {
  torch::jit::Stack stack(tensors.begin(), tensors.end());
  for (const double number : {kLr, 1 - kBeta1, 1 - kBeta2, kEps, kDecay, double{kStep}}) {
    stack.emplace_back(at::scalar_tensor(number, tensors[0].options()));
  }
  stack.emplace_back(options.decoupled);
  stack.emplace_back(options.maximize);
  for (const at::Tensor& each : out) stack.emplace_back(each);
  const std::string name = options.amsgrad ? "joinsum::amsgrad_update" : "joinsum::adam_update";
  c10::Dispatcher::singleton().findSchemaOrThrow(name.c_str(), overload.c_str()).callBoxed(stack);
  std::vector<at::Tensor> results;
  for (const c10::IValue& value : stack) results.push_back(value.toTensor());
  return results;
}

std::vector<at::Tensor> samples(at::ScalarType dtype, bool amsgrad) {
  const auto options = at::TensorOptions().dtype(dtype);
  std::vector<at::Tensor> out{at::randn({5, 7}, options), at::randn({5, 7}, options), at::randn({5, 7}, options),
                              at::rand({5, 7}, options)};
  if (amsgrad) out.push_back(at::rand({5, 7}, options));
  return out;
}

void expect_update(const std::vector<at::Tensor>& before, const std::vector<at::Tensor>& after,
                   const Options& options) {
  std::vector<std::vector<double>> from;
  std::vector<std::vector<double>> to;
  for (const at::Tensor& each : before) from.push_back(numbers(each));
  for (const at::Tensor& each : after) to.push_back(numbers(each));
  const double tolerance = before[0].scalar_type() == at::kDouble ? 1e-12 : 1e-5;
  for (size_t i = 0; i < from[0].size(); ++i) {
    const double most = options.amsgrad ? from[4][i] : 0;
    const std::vector<double> wanted = expected(from[0][i], from[1][i], {from[2][i], from[3][i], most}, options);
    for (size_t result = 0; result < to.size(); ++result) {
      EXPECT_NEAR(to[result][i], wanted[result], tolerance) << "result " << result << ", element " << i;
    }
  }
}

TEST(Adam, UpdatesAsThePapersSay) {
  for (const at::ScalarType dtype : {at::kFloat, at::kDouble}) {
    for (const Options options : {Options{}, Options{.decoupled = false}, Options{.maximize = true},
                                  Options{.amsgrad = true}, Options{.decoupled = false, .amsgrad = true}}) {
      const auto before = samples(dtype, options.amsgrad);
      std::vector<at::Tensor> copies;
      for (const at::Tensor& each : before) copies.push_back(each.clone());
      const auto after = call("", before, options);
      ASSERT_EQ(after.size(), options.amsgrad ? 4 : 3);
      for (size_t i = 0; i < before.size(); ++i) EXPECT_TRUE(at::equal(before[i], copies[i])) << "operand " << i;
      expect_update(before, after, options);
    }
  }
}

TEST(Adam, WritesIntoItsOperandsOrIntoOtherArrays) {
  const auto before = samples(at::kFloat, false);
  const std::vector<at::Tensor> other{at::empty({5, 7}), at::empty({5, 7}), at::empty({5, 7})};
  call("out", before, {}, other);
  expect_update(before, other, {});
  std::vector<at::Tensor> operands;
  for (const at::Tensor& each : before) operands.push_back(each.clone());
  const std::vector<at::Tensor> in_place{operands[0], operands[2], operands[3]};
  call("out", operands, {}, in_place);
  expect_update(before, in_place, {});
}

TEST(Adam, HasNoValuesOnTheMetaDevice) {
  std::vector<at::Tensor> meta;
  for (const at::Tensor& each : samples(at::kFloat, false)) meta.push_back(each.to(at::kMeta));
  const auto after = call("", meta, {});
  ASSERT_EQ(after.size(), 3);
  EXPECT_EQ(after[0].sizes(), at::IntArrayRef({5, 7}));
}

}  // namespace
}  // namespace joinsum::kernels::torch_call
