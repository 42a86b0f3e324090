#include "kernels/dense/dense.h"

#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include "kernels/dense/samples.h"

namespace joinsum::kernels::dense {

using reference::Array;
using table::all_rows;
using table::Form;
using table::Kernel;
using table::register_row;
using table::result_dtype;
using table::result_shape;
using table::Row;
using table::row_of;
using table::Scalars;
using table::Subscripts;
using table::unregister_row;

namespace {

bool accepts(const Kernel& kernel, size_t operands, DType dtype) {
  try {
    result_dtype(kernel, std::vector<DType>(operands, dtype));
    return true;
  } catch (const KernelError&) {
    return false;
  }
}

TEST(Bytes, AreThoseOfOneElementWhateverItsStrides) {
  const at::Tensor column = at::arange(12, at::kFloat).view({4, 3}).slice(0, 2, 3).select(1, 1);
  ASSERT_EQ(column.strides(), at::IntArrayRef({3}));
  EXPECT_TRUE(at::equal(bytes_of(column), at::scalar_tensor(7, at::kFloat).view({1}).view(at::kByte)));
  EXPECT_EQ(bytes_of(at::ones({2, 3})).numel(), 24);
}

TEST(DenseDtype, EachHasItsCounterpart) {
  for (int i = 0; i < 12; ++i) {
    const auto dtype = static_cast<DType>(i);
    EXPECT_EQ(dtype_of(scalar_type(dtype)), dtype);
    EXPECT_EQ(static_cast<int64_t>(at::elementSize(scalar_type(dtype))), byte_size(dtype));
  }
  EXPECT_EQ(message_of<PlanError>([] { dtype_of(at::kQInt8); }), "dtype: joinsum has no such dtype: dtype=QInt8");
}

TEST(Dense, HasASampleOfEveryRow) {
  std::set<std::string> sampled;
  for (const Sample& sample : samples()) sampled.insert(Kernel::parse(sample.kernel).name);
  for (const Row* row : all_rows()) {
    EXPECT_TRUE(row->user || sampled.contains(row->name))
        << row->name << " needs a sample in tests/cpp/kernels/dense/samples.h";
  }
}

TEST(Dense, AgreesWithTheReferenceOnDoubles) {
  std::mt19937_64 random(1);
  for (int round = 0; round < 5; ++round) {
    for (const Sample& sample : samples()) {
      const Drawn drawn = draw(sample, random);
      const Array wanted = reference::run(drawn.kernel, drawn.arrays, kScalars, sample.output);
      const at::Tensor result = run(drawn.kernel, drawn.tensors(at::kDouble), kScalars, 0, sample.output);
      EXPECT_TRUE(near(result, tensor_of(wanted), 1e-12)) << sample.kernel;
      EXPECT_EQ(dtype_of(result.scalar_type()),
                result_dtype(drawn.kernel, std::vector<DType>(drawn.arrays.size(), DType::kFloat64)));
    }
  }
}

/// `array` as integers of that type hold it: they wrap around, and stop where doubles are infinite.
Array held_as(DType dtype, Array array) {
  const int64_t bits = 8 * byte_size(dtype);
  const double half = std::ldexp(1.0, static_cast<int>(bits) - 1);
  for (double& value : array.values) {
    if (std::isinf(value)) {
      value = value < 0 ? -half : static_cast<double>(std::numeric_limits<int64_t>::max() >> (64 - bits));
    } else {
      value -= 2 * half * std::floor((value + half) / (2 * half));
    }
  }
  return array;
}

TEST(Dense, AgreesExactlyWithTheReferenceOnIntegers) {
  std::mt19937_64 random(2);
  for (const auto dtype : {DType::kInt64, DType::kInt32, DType::kInt16, DType::kInt8}) {
    for (const Sample& sample : samples()) {
      const Drawn drawn = draw(sample, random, true);
      if (!accepts(drawn.kernel, drawn.arrays.size(), dtype)) continue;
      const Array wanted = reference::run(drawn.kernel, drawn.arrays, kScalars, sample.output);
      const at::Tensor result = run(drawn.kernel, drawn.tensors(scalar_type(dtype)), kScalars, 0, sample.output);
      EXPECT_EQ(array_of(result), held_as(dtype, wanted)) << sample.kernel << " on " << name_of(dtype);
    }
  }
}

TEST(Dense, AgreesWithTheReferenceOnFloatsOfEveryWidth) {
  std::mt19937_64 random(3);
  constexpr int kRoundings = 6;  // at most, of intermediate results that are held in the narrow type
  const std::vector<std::pair<DType, double>> widths{
      {DType::kFloat32, 1e-5},
      {DType::kFloat16, kRoundings * static_cast<double>(std::numeric_limits<at::Half>::epsilon())},
      {DType::kBFloat16, kRoundings * static_cast<double>(std::numeric_limits<at::BFloat16>::epsilon())}};
  for (const auto& [dtype, tolerance] : widths) {
    for (const Sample& sample : samples()) {
      Drawn drawn = draw(sample, random);
      const Tensors operands = drawn.tensors(scalar_type(dtype));
      for (size_t i = 0; i < operands.size(); ++i) drawn.arrays[i] = array_of(operands[i]);
      const Array wanted = reference::run(drawn.kernel, drawn.arrays, kScalars, sample.output);
      const at::Tensor result = run(drawn.kernel, operands, kScalars, 0, sample.output);
      // What is too large for the narrow type is infinite in both.
      const at::Tensor narrow = tensor_of(wanted).to(result.scalar_type());
      EXPECT_TRUE(near(result, narrow, tolerance)) << sample.kernel << " on " << name_of(dtype);
    }
  }
}

TEST(Dense, AgreesWithAtenOnComplexNumbers) {
  using Function = std::function<at::Tensor(const Tensors&)>;
  const std::vector<std::tuple<std::string, std::vector<Dims>, Function>> cases{
      {"id", {{2, 3}}, [](const Tensors& x) { return x[0]; }},
      {"matmul", {{2, 3}, {3, 4}}, [](const Tensors& x) { return at::matmul(x[0], x[1]); }},
      {"matmul_tn", {{3, 2}, {3, 4}}, [](const Tensors& x) { return at::matmul(x[0].t(), x[1]); }},
      {"matmul_nt", {{2, 3}, {4, 3}}, [](const Tensors& x) { return at::matmul(x[0], x[1].t()); }},
      {"contract[bij,bjk->kbi]",
       {{2, 3, 4}, {2, 4, 5}},
       [](const Tensors& x) { return at::einsum("bij,bjk->kbi", x); }},
      {"contract[i,i->]", {{3}, {3}}, [](const Tensors& x) { return at::einsum("i,i->", x); }},
      {"add", {{2, 3}, {3}}, [](const Tensors& x) { return at::add(x[0], x[1]); }},
      {"sub", {{2, 3}, {3}}, [](const Tensors& x) { return at::sub(x[0], x[1]); }},
      {"mul", {{2, 3}, {3}}, [](const Tensors& x) { return at::mul(x[0], x[1]); }},
      {"div", {{2, 3}, {3}}, [](const Tensors& x) { return at::div(x[0], x[1]); }},
      {"squared_difference", {{2, 3}, {2, 3}}, [](const Tensors& x) { return at::square(x[0] - x[1]); }},
      {"scale[0.5]", {{2, 3}}, [](const Tensors& x) { return x[0] * 0.5; }},
      {"negate", {{2, 3}}, [](const Tensors& x) { return at::neg(x[0]); }},
      {"square", {{2, 3}}, [](const Tensors& x) { return at::square(x[0]); }},
      {"reciprocal", {{2, 3}}, [](const Tensors& x) { return at::reciprocal(x[0]); }},
      {"sqrt", {{2, 3}}, [](const Tensors& x) { return at::sqrt(x[0]); }},
      {"tanh", {{2, 3}}, [](const Tensors& x) { return at::tanh(x[0]); }},
      {"exp", {{2, 3}}, [](const Tensors& x) { return at::exp(x[0]); }},
      {"log", {{2, 3}}, [](const Tensors& x) { return at::log(x[0]); }},
      {"row_sum", {{2, 3}}, [](const Tensors& x) { return x[0].sum(1); }},
      {"transpose", {{2, 3}}, [](const Tensors& x) { return x[0].t(); }},
      {"diag", {{3, 3}}, [](const Tensors& x) { return x[0].diag(); }},
      {"concat[0]", {{2, 3}, {1, 3}}, [](const Tensors& x) { return at::cat(x, 0); }},
      {"cast[c128]", {{2, 3}}, [](const Tensors& x) { return x[0]; }},
      {"sgd_update[0.1]", {{2, 3}, {2, 3}}, [](const Tensors& x) { return x[0] - 0.1 * x[1]; }},
  };
  at::manual_seed(4);
  for (const auto& [text, shapes, function] : cases) {
    Tensors operands, wide;
    for (const Dims& shape : shapes) {
      operands.push_back(at::randn(shape, at::kComplexFloat));
      wide.push_back(operands.back().to(at::kComplexDouble));
    }
    EXPECT_TRUE(near(run(Kernel::parse(text), operands), function(wide), 1e-5)) << text;
  }
}

/// Every combination of a full and a broadcast batch axis, against a loop over the batch.
TEST(DenseBatch, IsALoopOverTheLeadingAxes) {
  std::mt19937_64 random(5);
  const Dims full{2, 3};
  for (const Sample& sample : samples()) {
    for (int mask = 0; mask < 16; ++mask) {
      std::vector<Dims> shapes = sample.shapes;
      for (size_t i = 0; i < shapes.size(); ++i) {
        const Dims batch{(mask >> (2 * i) & 1) != 0 ? 1 : full[0], (mask >> (2 * i + 1) & 1) != 0 ? 1 : full[1]};
        shapes[i].insert(shapes[i].begin(), batch.begin(), batch.end());
      }
      if (shapes.size() == 1 && mask >= 4) continue;
      const Drawn drawn(sample, random, false, shapes);
      const Tensors operands = drawn.tensors(at::kDouble);
      const at::Tensor result = run(drawn.kernel, operands, kScalars, 2, sample.output);
      for (int64_t p = 0; p < result.size(0); ++p) {
        for (int64_t q = 0; q < result.size(1); ++q) {
          Tensors each;
          for (const at::Tensor& x : operands) {
            each.push_back(x.select(0, std::min(p, x.size(0) - 1)).select(0, std::min(q, x.size(1) - 1)));
          }
          const at::Tensor wanted = run(drawn.kernel, each, kScalars, 0, sample.output);
          ASSERT_TRUE(near(result.select(0, p).select(0, q), wanted, 1e-12)) << sample.kernel << ", mask " << mask;
        }
      }
    }
  }
}

TEST(DenseBatch, MayBeEmpty) {
  for (const Sample& sample : samples()) {
    Tensors operands;
    for (Dims shape : sample.shapes) {
      shape.insert(shape.begin(), 0);
      operands.push_back(at::zeros(shape));
    }
    const Kernel kernel = Kernel::parse(sample.kernel);
    Dims wanted = result_shape(kernel, sample.shapes, sample.output);
    wanted.insert(wanted.begin(), 0);
    EXPECT_EQ(run(kernel, operands, kScalars, 1, sample.output).sizes().vec(), wanted) << sample.kernel;
  }
}

/// The same values with other strides.
at::Tensor restrided(const at::Tensor& x, uint64_t way) {
  switch (way % 4) {
    case 0:
      return x.transpose(0, -1).contiguous().transpose(0, -1);
    case 1: {
      Dims wide = x.sizes().vec();
      wide.back() *= 2;
      const at::Tensor spread = at::full(wide, 99, x.options());
      spread.slice(-1, 0, wide.back(), 2).copy_(x);
      return spread.slice(-1, 0, wide.back(), 2);
    }
    case 2: {
      Dims padded = x.sizes().vec();
      padded[0] += 2;
      const at::Tensor inner = at::full(padded, 99, x.options()).narrow(0, 1, x.size(0));
      inner.copy_(x);
      return inner;
    }
    default:
      return x;
  }
}

TEST(DenseStrides, DoNotChangeTheResult) {
  std::mt19937_64 random(6);
  for (int round = 0; round < 8; ++round) {
    for (const Sample& sample : samples()) {
      const Drawn drawn = draw(sample, random);
      Tensors operands = drawn.tensors(at::kDouble);
      const at::Tensor wanted = run(drawn.kernel, operands, kScalars, 0, sample.output);
      for (at::Tensor& operand : operands) {
        if (operand.dim() > 0) operand = restrided(operand, random());
      }
      EXPECT_TRUE(near(run(drawn.kernel, operands, kScalars, 0, sample.output), wanted, 1e-13)) << sample.kernel;
    }
  }
}

TEST(DenseStrides, KernelsThatMoveElementsGiveViews) {
  const at::Tensor x = at::arange(9).view({3, 3});
  for (const std::string text : {"id", "transpose", "diag", "insert_dim[0]", "duplicate", "tile[0, 2]"}) {
    EXPECT_TRUE(run(Kernel::parse(text), {x}).is_alias_of(x)) << text;
  }
}

TEST(DenseOut, ReceivesEveryElementwiseResultAndMayBeAnOperand) {
  std::mt19937_64 random(7);
  const Dims small{3, 5}, large{7, 10001};
  for (const Sample& sample : samples()) {
    const Kernel kernel = Kernel::parse(sample.kernel);
    if (row_of(kernel).form != Form::kElementwise) continue;
    for (const Dims& shape : {small, large}) {
      for (const auto type : {at::kDouble, at::kFloat, at::kBFloat16}) {
        const Drawn drawn(sample, random, false, std::vector<Dims>(sample.shapes.size(), shape));
        const at::Tensor wanted = run(kernel, drawn.tensors(type), kScalars);
        at::Tensor out = at::empty(shape, wanted.options());
        EXPECT_TRUE(run(kernel, drawn.tensors(type), kScalars, 0, 0, out).is_same(out));
        EXPECT_TRUE(at::equal(out, wanted)) << sample.kernel;
        if (wanted.scalar_type() != type) continue;
        for (size_t i = 0; i < drawn.arrays.size(); ++i) {
          const Tensors operands = drawn.tensors(type);
          run(kernel, operands, kScalars, 0, 0, operands[i]);
          EXPECT_TRUE(at::equal(operands[i], wanted)) << sample.kernel << " into operand " << i;
        }
      }
    }
  }
}

TEST(DenseOut, MayHaveOtherStrides) {
  std::mt19937_64 random(8);
  for (const Sample& sample : samples()) {
    const Kernel kernel = Kernel::parse(sample.kernel);
    if (row_of(kernel).form != Form::kElementwise) continue;
    const Drawn drawn(sample, random, false, std::vector<Dims>(sample.shapes.size(), {40, 60}));
    const at::Tensor wanted = run(kernel, drawn.tensors(at::kFloat), kScalars);
    for (uint64_t way = 0; way < 3; ++way) {
      const at::Tensor out = restrided(at::zeros_like(wanted), way);
      run(kernel, drawn.tensors(at::kFloat), kScalars, 0, 0, out);
      EXPECT_TRUE(near(out, wanted, 1e-6)) << sample.kernel;
      Tensors operands = drawn.tensors(at::kFloat);
      operands[0] = restrided(operands[0], way);
      if (wanted.scalar_type() != at::kFloat) continue;
      run(kernel, operands, kScalars, 0, 0, operands[0]);
      EXPECT_TRUE(near(operands[0], wanted, 1e-6)) << sample.kernel;
    }
  }
}

TEST(DenseOut, MustFit) {
  const at::Tensor x = at::ones({2, 3});
  EXPECT_EQ(message_of<KernelError>([&] { run(Kernel::parse("relu"), {x}, {}, 0, 0, at::empty({3, 2})); }),
            "relu: result does not fit: wanted shape=[2, 3], dtype=Float, given shape=[3, 2], dtype=Float");
  EXPECT_THROW(run(Kernel::parse("relu"), {x}, {}, 0, 0, at::empty({2, 3}, at::kDouble)), KernelError);
  EXPECT_EQ(message_of<KernelError>([&] { run(Kernel::parse("row_sum"), {x}, {}, 0, 0, at::empty({2})); }),
            "row_sum: only an elementwise kernel writes to `out`: kernel=row_sum");
}

TEST(DenseErrors, NameWhatIsWrong) {
  const at::Tensor x = at::ones({2, 3});
  const auto error = [](const std::string& text, const Tensors& operands, int64_t batch = 0) {
    return message_of<KernelError>([&] { run(Kernel::parse(text), operands, {}, batch); });
  };
  EXPECT_EQ(error("add", {x, x.to(at::kDouble)}), "add: dtypes of the operands differ; cast one: dtypes=[f32, f64]");
  EXPECT_EQ(error("add", {x, x}, 3), "add: operand lacks the batch axes: batch=3, rank=2");
  EXPECT_EQ(error("add", {x, at::ones({4, 3})}, 1), "add: extents of a batch axis differ: axis=0, extents=2 and 4");
  EXPECT_EQ(error("matmul", {x, x}),
            "matmul: extents of a letter differ: letter=j, labels=ij,jk->ik, shapes=[[2, 3], [2, 3]]");
  EXPECT_EQ(error("exp", {x.to(at::kLong)}), "exp: not defined on this dtype; cast the operand: dtype=i64");
  EXPECT_EQ(message_of<PlanError>([&] { run(Kernel::parse("scale[$rate]"), {x}); }),
            "scale: scalar is not bound: kernel=scale[$rate], scalar=rate, bound=[]");
  EXPECT_EQ(message_of<KernelError>([&] { run(Kernel::parse("scale[$rate]"), {x.to(at::kLong)}, {{"rate", 0.5}}); }),
            "scale: integers take whole parameters; cast the operand: parameter=0.5");
}

TEST(Dense, LossesAreExactFarFromZero) {
  const at::Tensor z = at::tensor({1e4, -1e4, 50.0, -50.0, 0.0}, at::kDouble);
  const at::Tensor y = at::tensor({1.0, 0.0, 1.0, 0.0, 1.0}, at::kDouble);
  const at::Tensor loss = at::tensor({0.0, 0.0, std::exp(-50.0), std::exp(-50.0), std::log(2.0)}, at::kDouble);
  EXPECT_TRUE(at::allclose(run(Kernel::parse("bce_with_logits"), {z, y}), loss, 1e-14, 0));
  const at::Tensor wanted = at::tensor({1e4, 0.0, 50.0, std::exp(-50.0), std::log(2.0)}, at::kDouble);
  EXPECT_TRUE(at::allclose(run(Kernel::parse("softplus"), {z}), wanted, 1e-14, 0));
}

TEST(Dense, MinMaxAndReluKeepNan) {
  const at::Tensor nan = at::tensor({std::nan(""), 1.0});
  const at::Tensor one = at::tensor({1.0, std::nan("")});
  for (const std::string text : {"min", "max"}) {
    EXPECT_TRUE(at::isnan(run(Kernel::parse(text), {nan, one})).all().item<bool>()) << text;
  }
  EXPECT_TRUE(std::isnan(run(Kernel::parse("relu"), {nan})[0].item<double>()));
}

TEST(Dense, TheLargestOfAnEmptyRowIsTheLeastValue) {
  const auto row_max = [](at::ScalarType type) {
    return run(Kernel::parse("row_max"), {at::empty({1, 0}, type)}).item<double>();
  };
  EXPECT_EQ(row_max(at::kFloat), -std::numeric_limits<double>::infinity());
  EXPECT_EQ(row_max(at::kInt), std::numeric_limits<int32_t>::min());
  EXPECT_EQ(row_max(at::kLong), static_cast<double>(std::numeric_limits<int64_t>::min()));
  EXPECT_EQ(row_max(at::kByte), 0);
}

TEST(Dense, RecordsNoGradient) {
  const at::Tensor x = at::ones({2, 2}).requires_grad_();
  EXPECT_FALSE(run(Kernel::parse("exp"), {x}).requires_grad());
  EXPECT_FALSE(contract(Subscripts::parse("ij,jk->ik"), x, x).requires_grad());
}

/// Five steps of Adam on parameters of several pieces, against torch's fused one.
TEST(DenseUpdates, AreTheStepsOfTorchsAdam) {
  at::manual_seed(9);
  at::Tensor w = at::randn({3, 40000}), m = at::zeros_like(w), v = at::zeros_like(w);
  at::Tensor w2 = w.clone(), m2 = m.clone(), v2 = v.clone(), step2 = at::zeros({});
  const Kernel direction = Kernel::parse("adam_direction[0.01, 0.9, 0.999, 1e-08, $step]");
  for (int step = 1; step <= 5; ++step) {
    const at::Tensor g = at::randn_like(w);
    run(Kernel::parse("adam_first[0.9]"), {m, g}, {}, 0, 0, m);
    run(Kernel::parse("adam_second[0.999]"), {v, g}, {}, 0, 0, v);
    const at::Tensor update = run(direction, {m, v}, {{"step", step}});
    run(Kernel::parse("sub"), {w, update}, {}, 0, 0, w);
    step2 += 1;
    at::_fused_adam_({w2}, {g}, {m2}, {v2}, {}, {step2}, 0.01, 0.9, 0.999, 0.0, 1e-8, false, false);
    EXPECT_TRUE(near(w, w2, 1e-6)) << step;
    EXPECT_TRUE(near(m, m2, 1e-6)) << step;
    EXPECT_TRUE(near(v, v2, 1e-6)) << step;
  }
}

TEST(DenseCalls, AreCountedOnceEach) {
  reset_kernel_calls();
  const at::Tensor a = at::ones({2, 2});
  run(Kernel::parse("matmul"), {a, a});
  contract(Subscripts::parse("ij,jk->ik"), a, a);
  run(Kernel::parse("relu"), {a});
  EXPECT_EQ(kernel_calls(), 3);
}

/// A row and a function that are taken back at the end of the test.
struct UserKernel {
  UserKernel(Row row, DenseFunction function) : name(row.name) {
    register_row(std::move(row));
    register_function(name, std::move(function));
  }
  ~UserKernel() {
    register_function(name, {});
    unregister_row(name);
  }
  std::string name;
};

TEST(UserDense, AnElementwiseFunctionGetsTheWholeBatch) {
  int times = 0;
  const UserKernel user({.name = "my_hypot", .summary = "a test's", .operands = 2},
                        [&](const Kernel&, const Tensors& x, const Scalars&) {
                          ++times;
                          return at::hypot(x[0], x[1]);
                        });
  const at::Tensor a = at::full({4, 2, 3}, 3.0), b = at::full({4, 3}, 4.0);
  EXPECT_TRUE(at::equal(run(Kernel::parse("my_hypot"), {a, b}, {}, 1), at::full({4, 2, 3}, 5.0)));
  EXPECT_EQ(times, 1);
  run(Kernel::parse("my_hypot"), {a, a}, {}, 0, 0, a);
  EXPECT_TRUE(near(a, at::full({4, 2, 3}, std::sqrt(18.0)), 1e-6));
}

TEST(UserDense, AnotherFunctionGetsEachTupleOfTheBatch) {
  Row row{.name = "my_trace", .summary = "a test's", .parameters = "n", .form = Form::kLabelled};
  row.labels = [](const Kernel&) { return Subscripts::parse("ii->"); };
  const UserKernel user(row, [](const Kernel& kernel, const Tensors& x, const Scalars& scalars) {
    return x[0].trace() * kernel.number(0, scalars);
  });
  const at::Tensor a = at::arange(24, at::kDouble).view({2, 3, 2, 2});
  const at::Tensor wanted = (a.select(2, 0).select(2, 0) + a.select(2, 1).select(2, 1)) * 0.5;
  EXPECT_TRUE(at::equal(run(Kernel::parse("my_trace[$rate]"), {a}, kScalars, 2), wanted));
  EXPECT_EQ(run(Kernel::parse("my_trace[2]"), {a[0][0]}).item<double>(), 6);
  EXPECT_EQ(run(Kernel::parse("my_trace[2]"), {a.narrow(0, 0, 0)}, {}, 2).sizes(), (Dims{0, 3}));
}

TEST(UserDense, AResultThatDoesNotFitIsRefused) {
  const UserKernel user({.name = "my_sum", .summary = "a test's"},
                        [](const Kernel&, const Tensors& x, const Scalars&) { return x[0].sum(); });
  EXPECT_EQ(message_of<KernelError>([] { run(Kernel::parse("my_sum"), {at::ones({2})}); }),
            "my_sum: result does not fit: wanted shape=[2], dtype=Float, given shape=[], dtype=Float");
  register_function("my_sum", {});
  EXPECT_EQ(message_of<KernelError>([] { run(Kernel::parse("my_sum"), {at::ones({2})}); }),
            "my_sum: user's kernel without a function: name=my_sum");
}

}  // namespace
}  // namespace joinsum::kernels::dense
