#include "kernels/fusion/program.h"

#include <cmath>
#include <limits>
#include <vector>

#include <ATen/Functions.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include "base/check.h"

namespace joinsum::kernels::fusion {
namespace {

/// The loops that run on this processor.
template <class T>
std::vector<Loops<T>> all_loops() {
  std::vector<Loops<T>> out{portable_loops<T>()};
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) out.push_back(avx2_loops<T>());
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq")) out.push_back(avx512_loops<T>());
#endif
  std::erase_if(out, [](const Loops<T>& each) { return each.front() == nullptr; });
  return out;
}

double expected(Function function, double a, double b, double c) {
  switch (function) {
    case Function::kUnit:
      return a;
    case Function::kNeg:
      return -a;
    case Function::kAbs:
      return std::abs(a);
    case Function::kSign:
      return a > 0 ? 1 : a < 0 ? -1 : 0;
    case Function::kFloor:
      return std::floor(a);
    case Function::kCeil:
      return std::ceil(a);
    case Function::kRound:
      return std::nearbyint(a);
    case Function::kTrunc:
      return std::trunc(a);
    case Function::kExp:
      return std::exp(a);
    case Function::kExp2:
      return std::exp2(a);
    case Function::kExpm1:
      return std::expm1(a);
    case Function::kLog:
      return std::log(a);
    case Function::kLog2:
      return std::log2(a);
    case Function::kLog10:
      return std::log10(a);
    case Function::kLog1p:
      return std::log1p(a);
    case Function::kSqrt:
      return std::sqrt(a);
    case Function::kReciprocal:
      return 1 / a;
    case Function::kSin:
      return std::sin(a);
    case Function::kCos:
      return std::cos(a);
    case Function::kTan:
      return std::tan(a);
    case Function::kAsin:
      return std::asin(a);
    case Function::kAcos:
      return std::acos(a);
    case Function::kAtan:
      return std::atan(a);
    case Function::kSinh:
      return std::sinh(a);
    case Function::kCosh:
      return std::cosh(a);
    case Function::kTanh:
      return std::tanh(a);
    case Function::kErf:
      return std::erf(a);
    case Function::kErfc:
      return std::erfc(a);
    case Function::kNdtr:
      return std::erfc(-a / std::sqrt(2)) / 2;
    case Function::kSigmoid:
      return 1 / (1 + std::exp(-a));
    case Function::kAdd:
      return a + b;
    case Function::kSub:
      return a - b;
    case Function::kMul:
      return a * b;
    case Function::kDiv:
      return a / b;
    case Function::kPow:
      return std::pow(a, b);
    case Function::kMax:
      return std::isnan(a) || std::isnan(b) ? std::nan("") : std::max(a, b);
    case Function::kMin:
      return std::isnan(a) || std::isnan(b) ? std::nan("") : std::min(a, b);
    case Function::kEq:
      return a == b ? 1 : 0;
    case Function::kNe:
      return a != b ? 1 : 0;
    case Function::kLt:
      return a < b ? 1 : 0;
    case Function::kLe:
      return a <= b ? 1 : 0;
    case Function::kGt:
      return a > b ? 1 : 0;
    case Function::kGe:
      return a >= b ? 1 : 0;
    case Function::kAtan2:
      return std::atan2(a, b);
    case Function::kFmod:
      return std::fmod(a, b);
    case Function::kWhere:
      return a != 0 ? b : c;
  }
  return 0;
}

template <class T>
class LoopsOfFunctions : public testing::Test {};
using Types = testing::Types<float, double>;
TYPED_TEST_SUITE(LoopsOfFunctions, Types);

TYPED_TEST(LoopsOfFunctions, AreTheFunctionsTheyAreNamedAfter) {
  using T = TypeParam;
  const T infinity = std::numeric_limits<T>::infinity();
  const T nan = std::numeric_limits<T>::quiet_NaN();
  std::vector<T> a{0, T(-0.0), 1, -1, infinity, -infinity, nan, T(0.5), T(1.5), T(2.5), T(-2.5), T(1e-30), 40, -40};
  for (int i = 0; i < 60; ++i) a.push_back(static_cast<T>(std::sin(1.7 * i) * 3));
  std::vector<T> b(a.rbegin(), a.rend());
  std::vector<T> c(a.size(), T(7));
  const double tolerance = sizeof(T) == 4 ? 1e-6 : 1e-14;
  for (const Loops<T>& loops : all_loops<T>()) {
    for (size_t f = 0; f < kFunctions; ++f) {
      for (const size_t count : {a.size(), size_t{3}, size_t{17}}) {
        std::vector<T> out(count + 1, T(-77));
        loops[f](a.data(), b.data(), c.data(), out.data(), static_cast<int64_t>(count));
        EXPECT_EQ(out[count], T(-77)) << kFunctionRows[f].name << " writes beyond the end";
        for (size_t i = 0; i < count; ++i) {
          const double wanted =
              static_cast<double>(static_cast<T>(expected(static_cast<Function>(f), a[i], b[i], c[i])));
          const auto where = std::string(kFunctionRows[f].name) + " of " + std::to_string(a[i]);
          if (std::isnan(wanted)) {
            EXPECT_TRUE(std::isnan(out[i])) << where;
          } else if (std::isinf(wanted)) {
            EXPECT_EQ(out[i], wanted) << where;
          } else {
            EXPECT_NEAR(out[i], wanted, tolerance * std::max(1.0, std::abs(wanted))) << where;
          }
        }
      }
    }
  }
}

at::Tensor sample(at::IntArrayRef shape, at::ScalarType dtype = at::kFloat) {
  int64_t count = 1;
  for (const int64_t extent : shape) count *= extent;
  return (at::arange(count, dtype) * 0.7).sin().reshape(shape);
}

std::vector<at::Tensor> run(const std::string& text, std::vector<at::Tensor> operands, bool channels_last = false,
                            at::IntArrayRef overwritten = {}) {
  return Program::of(text)->run(operands, channels_last, overwritten);
}

TEST(Programs, ReadOperandsThatBroadcast) {
  const at::Tensor x = sample({5, 1, 77}), y = sample({3, 1}), z = sample({77, 3}).t(),
                   n = at::scalar_tensor(2.0, at::kDouble);
  const at::Tensor mask = sample({5, 3, 1}).gt(0);
  const auto out =
      run("mul x0 x1; add t0 x2; where x3 t1 -1.5; mul t2 x4; gt t3 0.25 -> t3 t4:bool t1", {x, y, z, mask, n});
  const at::Tensor sum = x * y + z, each = at::where(mask, sum, -1.5) * 2;
  EXPECT_TRUE(at::allclose(out[0], each));
  EXPECT_TRUE(at::equal(out[1], out[0].gt(0.25)));
  EXPECT_TRUE(at::allclose(out[2], sum));
  EXPECT_EQ(out[0].scalar_type(), at::kFloat);
}

TEST(Programs, GoThroughAllTiles) {
  for (const int64_t extent : {1, 63, 64, 65, 1023, 1025, 200'003}) {
    const at::Tensor x = sample({extent}, at::kDouble), y = sample({1}, at::kDouble);
    const auto out = run("mul x0 x0; add t0 x1; sub x0 t1 -> t2 t1:sum t0:mean", {x, y});
    EXPECT_TRUE(at::allclose(out[0], x - (x * x + y), 1e-12, 1e-12)) << extent;
    EXPECT_TRUE(at::allclose(out[1], (x * x + y).sum(), 1e-11)) << extent;
    EXPECT_TRUE(at::allclose(out[2], (x * x).mean(), 1e-11)) << extent;
    EXPECT_EQ(out[1].dim(), 0);
  }
}

TEST(Programs, AreTheSameForAnyNumberOfThreads) {
  const at::Tensor x = sample({301, 1009}), row = sample({1009});
  const int before = at::get_num_threads();
  std::vector<std::vector<at::Tensor>> all;
  for (const int threads : {1, 2, 3}) {
    at::set_num_threads(threads);
    all.push_back(run("mul x0 x1; tanh t0; exp t1 -> t1 t2:sum", {x, row}));
  }
  at::set_num_threads(before);
  for (const auto& each : all) {
    EXPECT_TRUE(at::equal(each[0], all[0][0]));
    EXPECT_TRUE(at::equal(each[1], all[0][1]));
  }
}

TEST(Programs, OverwriteOperandsThatAreReadLater) {
  const at::Tensor x = sample({4, 999}), y = sample({4, 999}) + 1, sum = x + y, difference = x - y;
  const auto version = x._version();
  const auto out = run("add x0 x1; sub x0 x1 -> t0 t1", {x, y}, false, {0, 1});
  EXPECT_TRUE(at::allclose(x, sum));
  EXPECT_TRUE(at::allclose(y, difference));
  EXPECT_TRUE(out[0].is_same(x) && out[1].is_same(y));
  EXPECT_GT(x._version(), version);
}

TEST(Programs, ComputeIntoGivenArraysWhichMayBeOperands) {
  const at::Tensor x = sample({4, 999}), y = sample({4, 999}), row = sample({999}).abs();
  const at::Tensor sum = x + y, quotient = (x - y) / row, positive = quotient.gt(0), fresh = at::empty_like(x);
  const at::Tensor truth = at::empty({4, 999}, at::kBool);
  const auto text = "add x0 x1; sub x0 x1; div t1 x2; gt t2 0 -> t0 t2 t3:bool";
  Program::of(text)->run_into({x.clone(), y.clone(), row}, {fresh, at::empty_like(x), truth});
  EXPECT_TRUE(at::equal(fresh, sum));
  Program::of(text)->run_into({x, y, row}, {y, x, truth});
  EXPECT_TRUE(at::equal(y, sum));
  EXPECT_TRUE(at::allclose(x, quotient, 1e-5, 1e-8, /*equal_nan=*/true));
  EXPECT_TRUE(at::equal(truth, positive));
  const at::Tensor z = sample({32, 32}), wanted = z * 2 + z.t();
  Program::of("mul x0 2; add t0 x1 -> t1")->run_into({z, z.t()}, {z});
  EXPECT_TRUE(at::allclose(z, wanted));
  const at::Tensor square = sample({64, 64}), by_row = square + square.slice(0, 40, 41);
  Program::of("add x0 x1 -> t0")->run_into({square, square.slice(0, 40, 41)}, {square});
  EXPECT_TRUE(at::equal(square, by_row));
  const at::Tensor one = sample({1, 1}), product = one * one;
  Program::of("mul x0 x1 -> t0")->run_into({one.squeeze(), at::clone(one)}, {one});
  EXPECT_TRUE(at::equal(one, product));
  EXPECT_THROW(Program::of(text)->run_into({x, y, row}, {x, y}), KernelError);
  EXPECT_THROW(Program::of(text)->run_into({x, y, row}, {fresh, row, truth}), KernelError);
}

TEST(Programs, OverwriteWhatLiesOtherwiseInMemory) {
  const at::Tensor x = sample({4, 3, 5, 7}).contiguous(at::MemoryFormat::ChannelsLast), twice = x * 2;
  const auto out = run("mul x0 2 -> t0", {x}, false, {0});
  EXPECT_TRUE(at::allclose(x, twice));
  EXPECT_TRUE(out[0].is_same(x) && x.is_contiguous(at::MemoryFormat::ChannelsLast));
}

TEST(Programs, ReadShortRows) {
  for (const int64_t width : {1, 2, 3, 7, 64, 100}) {
    const at::Tensor x = sample({1'001, width}), row = sample({width}), column = sample({1'001, 1}), even = row.gt(0);
    const auto out = run("mul x0 x1; add t0 x2; where x3 t1 0 -> t2 t1:sum", {x, row, column, even});
    EXPECT_TRUE(at::allclose(out[0], at::where(even, x * row + column, 0))) << width;
  }
}

TEST(Programs, LeaveChannelsLast) {
  const at::Tensor x = sample({2, 3, 5, 7}).contiguous(at::MemoryFormat::ChannelsLast), bias = sample({3, 1, 1});
  const at::Tensor y = sample({2, 3, 5, 7});
  const auto out = run("add x0 x1; mul t0 x2 -> t1 t0", {x, bias, y}, true);
  EXPECT_TRUE(at::allclose(out[0], (x + bias) * y));
  EXPECT_TRUE(out[0].is_contiguous(at::MemoryFormat::ChannelsLast));
}

TEST(Programs, OfNoElements) {
  const auto out = run("mul x0 x0 -> t0 t0:sum t0:mean", {sample({0, 3})});
  EXPECT_EQ(out[0].sizes(), (std::vector<int64_t>{0, 3}));
  EXPECT_EQ(out[1].item<float>(), 0);
  EXPECT_TRUE(std::isnan(out[2].item<float>()));
}

TEST(Programs, AreRefusedWithTheirText) {
  const auto refused = [](const std::string& text, const std::string& what) {
    try {
      Program::of(text);
      ADD_FAILURE() << text;
    } catch (const KernelError& error) {
      EXPECT_NE(std::string(error.what()).find(what), std::string::npos) << error.what();
    }
  };
  refused("mul x0 x1", "expected `->`");
  refused("mull x0 x1 -> t0", "no such function: mull");
  refused("mul x0 -> t0", "too few arguments");
  refused("neg x0 x1 -> t0", "too many arguments");
  refused("mul x0 t0 -> t0", "no result yet: t0");
  refused("mul x0 2,5 -> t0", "no number: 2,5");
  refused("mul x0 x1 -> t1", "no such result: t1");
  refused("mul x0 x1 -> t0:max", "no such result: t0:max");
  refused("mul x0 x1 ->", "no results");
}

TEST(Programs, RefuseOperandsThatDoNotFit) {
  const at::Tensor x = sample({3}), wide = sample({3}, at::kDouble);
  EXPECT_THROW(run("mul x0 x1 -> t0", {x}), KernelError);
  EXPECT_THROW(run("mul x0 x1 -> t0", {x, wide}), KernelError);
  EXPECT_THROW(run("neg x0 -> t0", {x.to(at::kHalf)}), KernelError);
  EXPECT_THROW(run("mul x0 x1 -> t0", {x, sample({2, 3})}, false, {0}), KernelError);
  EXPECT_THROW(run("gt x0 0 -> t0:bool", {x}, false, {0}), KernelError);
  EXPECT_THROW(run("unit x0; log t0 -> t1:sum", {x - 1}), c10::Error);
  EXPECT_THROW(run("neg x0 -> t0", {x}, false, {1}), KernelError);
}

}  // namespace
}  // namespace joinsum::kernels::fusion
