#include "kernels/dense.h"

#include <random>
#include <set>

#include <gtest/gtest.h>

#include "kernels/reference.h"

namespace joinsum::kernels {
namespace {

using Tensors = std::vector<at::Tensor>;

const Scalars kScalars{{"rate", 0.5}, {"step", 3}};

at::Tensor tensor_of(const Array& array, at::ScalarType type = at::kDouble) {
  at::Tensor out = at::empty(array.shape, at::kDouble);
  std::copy(array.values.begin(), array.values.end(), out.mutable_data_ptr<double>());
  return out.to(type);
}

Array array_of(const at::Tensor& tensor) {
  const at::Tensor values = tensor.to(at::kDouble).contiguous();
  return {tensor.sizes().vec(), {values.const_data_ptr<double>(), values.const_data_ptr<double>() + values.numel()}};
}

/// |x - y| <= tolerance (1 + |y|), and both not numbers in the same places.
::testing::AssertionResult near(const at::Tensor& x, const at::Tensor& y, double tolerance) {
  if (x.sizes() != y.sizes()) return ::testing::AssertionFailure() << "shapes " << x.sizes() << " and " << y.sizes();
  const bool complex = x.is_complex() || y.is_complex();
  const auto wide = complex ? at::kComplexDouble : at::kDouble;
  if (at::allclose(x.to(wide), y.to(wide), tolerance, tolerance, true)) return ::testing::AssertionSuccess();
  if (x.numel() <= 100) return ::testing::AssertionFailure() << x << "\nis not near\n" << y;
  return ::testing::AssertionFailure() << "largest difference " << (x.to(wide) - y.to(wide)).abs().max();
}

/// One call of each kernel, and more where a kernel has cases.
struct Sample {
  std::string kernel;
  std::vector<Dims> shapes;
  int64_t output = 0;
};

const std::vector<Sample>& samples() {
  static const std::vector<Sample> list{
      {"id", {{2, 3}}},
      {"matmul", {{2, 3}, {3, 4}}},
      {"matmul_tn", {{3, 2}, {3, 4}}},
      {"matmul_nt", {{2, 3}, {4, 3}}},
      {"contract[ijk,lkj->il]", {{2, 3, 4}, {5, 4, 3}}},
      {"contract[bij,bjk->kbi]", {{2, 3, 4}, {2, 4, 5}}},
      {"contract[ij,ij->i]", {{2, 3}, {2, 3}}},
      {"contract[i,j->ji]", {{2}, {3}}},
      {"add", {{2, 3}, {2, 3}}},
      {"add", {{3}, {2, 1}}},
      {"sub", {{2, 3}, {3}}},
      {"mul", {{2, 3}, {}}},
      {"div", {{2, 3}, {2, 3}}},
      {"min", {{2, 3}, {2, 3}}},
      {"max", {{2, 3}, {3}}},
      {"squared_difference", {{4, 3}, {4, 3}}},
      {"squared_difference", {{3}, {2, 1}}},
      {"scale[3]", {{2, 3}}},
      {"scale[-2.0]", {{2, 3}}},
      {"negate", {{2, 3}}},
      {"square", {{2, 3}}},
      {"reciprocal", {{2, 3}}},
      {"abs", {{2, 3}}},
      {"sqrt", {{2, 3}}},
      {"relu", {{2, 3}}},
      {"relu_derivative", {{2, 3}}},
      {"sigmoid", {{2, 3}}},
      {"tanh", {{2, 3}}},
      {"exp", {{2, 3}}},
      {"log", {{2, 3}}},
      {"softplus", {{2, 3}}},
      {"row_sum", {{2, 3}}},
      {"row_sum", {{2, 0}}},
      {"total", {{2, 3}}},
      {"row_max", {{2, 3}}},
      {"transpose", {{2, 3}}},
      {"diag", {{3, 3}}},
      {"insert_dim[0]", {{2, 3}}},
      {"insert_dim[2]", {{2, 3}}},
      {"duplicate", {{2, 3}}, 4},
      {"tile[1, 2]", {{2, 5}}, 0},
      {"tile[1, 2]", {{2, 5}}, 2},
      {"concat[0]", {{2, 3}, {4, 3}}},
      {"concat[1]", {{2, 3}, {2, 0}}},
      {"cast[f32]", {{2, 3}}},
      {"cast[bf16]", {{2, 3}}},
      {"cast[f16]", {{2, 3}}},
      {"cast[i32]", {{2, 3}}},
      {"cast[bool]", {{2, 3}}},
      {"bce_with_logits", {{2, 3}, {2, 3}}},
      {"bce_with_logits", {{2, 3}, {3}}},
      {"sigmoid_difference", {{2, 3}, {2, 3}}},
      {"sigmoid_difference", {{3}, {2, 1}}},
      {"sgd_update[0.1]", {{2, 3}, {2, 3}}},
      {"sgd_update[$rate]", {{2, 3}, {3}}},
      {"adam_first[0.9]", {{2, 3}, {2, 3}}},
      {"adam_second[0.999]", {{2, 3}, {2, 3}}},
      {"adam_second[0.9]", {{2, 3}, {3}}},
      {"adam_direction[$rate, 0.9, 0.999, 1e-08, $step]", {{2, 3}, {2, 3}}},
      {"adam_direction[0.1, 0.5, 0.25, 0.125, 1]", {{2, 3}, {3}}},
  };
  return list;
}

/// Roots and logarithms need operands above zero, and so does the second moment.
bool needs_positive(const std::string& name) {
  return std::set<std::string>{"sqrt", "log", "adam_direction", "div", "reciprocal"}.contains(name);
}

Array random_array(const Dims& shape, std::mt19937_64& random, bool integers, bool positive) {
  Array out = Array::zeros(shape);
  for (double& value : out.values) {
    const auto draw = random();
    value = integers ? static_cast<double>(draw % 9) - 4 : (static_cast<double>(draw >> 11) * 0x1p-53 - 0.5) * 8;
    if (positive) value = std::abs(value) + 1;
  }
  return out;
}

struct Drawn {
  Kernel kernel;
  std::vector<Array> arrays;

  Drawn(const Sample& sample, std::mt19937_64& random, bool integers, const std::vector<Dims>& shapes)
      : kernel(Kernel::parse(sample.kernel)) {
    for (const Dims& shape : shapes) {
      arrays.push_back(random_array(shape, random, integers, needs_positive(kernel.name)));
    }
  }

  Tensors tensors(at::ScalarType type) const {
    Tensors out;
    for (const Array& array : arrays) out.push_back(tensor_of(array, type));
    return out;
  }
};

Drawn draw(const Sample& sample, std::mt19937_64& random, bool integers = false) {
  return {sample, random, integers, sample.shapes};
}

bool accepts(const Kernel& kernel, size_t operands, DType dtype) {
  try {
    result_dtype(kernel, std::vector<DType>(operands, dtype));
    return true;
  } catch (const KernelError&) {
    return false;
  }
}

template <class Error, class Function>
std::string message_of(Function function) {
  try {
    function();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
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
  for (const Row* row : all_rows()) EXPECT_TRUE(row->user || sampled.contains(row->name)) << row->name;
}

TEST(Dense, AgreesWithTheReferenceOnDoubles) {
  std::mt19937_64 random(1);
  for (int round = 0; round < 5; ++round) {
    for (const Sample& sample : samples()) {
      const Drawn drawn = draw(sample, random);
      const Array wanted = reference(drawn.kernel, drawn.arrays, kScalars, sample.output);
      const at::Tensor result = dense(drawn.kernel, drawn.tensors(at::kDouble), kScalars, 0, sample.output);
      EXPECT_TRUE(near(result, tensor_of(wanted), 1e-12)) << sample.kernel;
      EXPECT_EQ(dtype_of(result.scalar_type()),
                result_dtype(drawn.kernel, std::vector<DType>(drawn.arrays.size(), DType::kFloat64)));
    }
  }
}

TEST(Dense, AgreesExactlyWithTheReferenceOnIntegers) {
  std::mt19937_64 random(2);
  for (const auto dtype : {DType::kInt64, DType::kInt32, DType::kInt16, DType::kInt8}) {
    for (const Sample& sample : samples()) {
      const Drawn drawn = draw(sample, random, true);
      if (!accepts(drawn.kernel, drawn.arrays.size(), dtype)) continue;
      const Array wanted = reference(drawn.kernel, drawn.arrays, kScalars, sample.output);
      const at::Tensor result = dense(drawn.kernel, drawn.tensors(scalar_type(dtype)), kScalars, 0, sample.output);
      EXPECT_EQ(array_of(result), wanted) << sample.kernel << " on " << name_of(dtype);
    }
  }
}

TEST(Dense, AgreesWithTheReferenceOnFloatsOfEveryWidth) {
  std::mt19937_64 random(3);
  const std::vector<std::pair<DType, double>> widths{
      {DType::kFloat32, 1e-5}, {DType::kFloat16, 6e-3}, {DType::kBFloat16, 5e-2}};
  for (const auto& [dtype, tolerance] : widths) {
    for (const Sample& sample : samples()) {
      Drawn drawn = draw(sample, random);
      const Tensors operands = drawn.tensors(scalar_type(dtype));
      for (size_t i = 0; i < operands.size(); ++i) drawn.arrays[i] = array_of(operands[i]);
      const Array wanted = reference(drawn.kernel, drawn.arrays, kScalars, sample.output);
      const at::Tensor result = dense(drawn.kernel, operands, kScalars, 0, sample.output);
      EXPECT_TRUE(near(result, tensor_of(wanted), tolerance)) << sample.kernel << " on " << name_of(dtype);
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
    EXPECT_TRUE(near(dense(Kernel::parse(text), operands), function(wide), 1e-5)) << text;
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
      const at::Tensor result = dense(drawn.kernel, operands, kScalars, 2, sample.output);
      for (int64_t p = 0; p < result.size(0); ++p) {
        for (int64_t q = 0; q < result.size(1); ++q) {
          Tensors each;
          for (const at::Tensor& x : operands) {
            each.push_back(x.select(0, std::min(p, x.size(0) - 1)).select(0, std::min(q, x.size(1) - 1)));
          }
          const at::Tensor wanted = dense(drawn.kernel, each, kScalars, 0, sample.output);
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
    EXPECT_EQ(dense(kernel, operands, kScalars, 1, sample.output).sizes().vec(), wanted) << sample.kernel;
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
      const at::Tensor wanted = dense(drawn.kernel, operands, kScalars, 0, sample.output);
      for (at::Tensor& operand : operands) {
        if (operand.dim() > 0) operand = restrided(operand, random());
      }
      EXPECT_TRUE(near(dense(drawn.kernel, operands, kScalars, 0, sample.output), wanted, 1e-13)) << sample.kernel;
    }
  }
}

TEST(DenseStrides, KernelsThatMoveElementsGiveViews) {
  const at::Tensor x = at::arange(9).view({3, 3});
  for (const std::string text : {"id", "transpose", "diag", "insert_dim[0]", "duplicate", "tile[0, 2]"}) {
    EXPECT_TRUE(dense(Kernel::parse(text), {x}).is_alias_of(x)) << text;
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
        const at::Tensor wanted = dense(kernel, drawn.tensors(type), kScalars);
        at::Tensor out = at::empty(shape, wanted.options());
        EXPECT_TRUE(dense(kernel, drawn.tensors(type), kScalars, 0, 0, out).is_same(out));
        EXPECT_TRUE(at::equal(out, wanted)) << sample.kernel;
        if (wanted.scalar_type() != type) continue;
        for (size_t i = 0; i < drawn.arrays.size(); ++i) {
          const Tensors operands = drawn.tensors(type);
          dense(kernel, operands, kScalars, 0, 0, operands[i]);
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
    const at::Tensor wanted = dense(kernel, drawn.tensors(at::kFloat), kScalars);
    for (uint64_t way = 0; way < 3; ++way) {
      const at::Tensor out = restrided(at::zeros_like(wanted), way);
      dense(kernel, drawn.tensors(at::kFloat), kScalars, 0, 0, out);
      EXPECT_TRUE(near(out, wanted, 1e-6)) << sample.kernel;
      Tensors operands = drawn.tensors(at::kFloat);
      operands[0] = restrided(operands[0], way);
      if (wanted.scalar_type() != at::kFloat) continue;
      dense(kernel, operands, kScalars, 0, 0, operands[0]);
      EXPECT_TRUE(near(operands[0], wanted, 1e-6)) << sample.kernel;
    }
  }
}

TEST(DenseOut, MustFit) {
  const at::Tensor x = at::ones({2, 3});
  EXPECT_EQ(message_of<KernelError>([&] { dense(Kernel::parse("relu"), {x}, {}, 0, 0, at::empty({3, 2})); }),
            "relu: result does not fit: wanted shape=[2, 3], dtype=Float, given shape=[3, 2], dtype=Float");
  EXPECT_THROW(dense(Kernel::parse("relu"), {x}, {}, 0, 0, at::empty({2, 3}, at::kDouble)), KernelError);
  EXPECT_EQ(message_of<KernelError>([&] { dense(Kernel::parse("row_sum"), {x}, {}, 0, 0, at::empty({2})); }),
            "row_sum: only an elementwise kernel writes to `out`: kernel=row_sum");
}

TEST(DenseErrors, NameWhatIsWrong) {
  const at::Tensor x = at::ones({2, 3});
  const auto error = [](const std::string& text, const Tensors& operands, int64_t batch = 0) {
    return message_of<KernelError>([&] { dense(Kernel::parse(text), operands, {}, batch); });
  };
  EXPECT_EQ(error("add", {x, x.to(at::kDouble)}), "add: dtypes of the operands differ; cast one: dtypes=[f32, f64]");
  EXPECT_EQ(error("add", {x, x}, 3), "add: operand lacks the batch axes: batch=3, rank=2");
  EXPECT_EQ(error("add", {x, at::ones({4, 3})}, 1), "add: extents of a batch axis differ: axis=0, extents=2 and 4");
  EXPECT_EQ(error("matmul", {x, x}),
            "matmul: extents of a letter differ: letter=j, labels=ij,jk->ik, shapes=[[2, 3], [2, 3]]");
  EXPECT_EQ(error("exp", {x.to(at::kLong)}), "exp: not defined on this dtype; cast the operand: dtype=i64");
  EXPECT_EQ(message_of<PlanError>([&] { dense(Kernel::parse("scale[$rate]"), {x}); }),
            "scale: scalar is not bound: kernel=scale[$rate], scalar=rate, bound=[]");
  EXPECT_EQ(message_of<KernelError>([&] { dense(Kernel::parse("scale[$rate]"), {x.to(at::kLong)}, {{"rate", 0.5}}); }),
            "scale: integers take whole parameters; cast the operand: parameter=0.5");
}

TEST(Dense, LossesAreExactFarFromZero) {
  const at::Tensor z = at::tensor({1e4, -1e4, 50.0, -50.0, 0.0}, at::kDouble);
  const at::Tensor y = at::tensor({1.0, 0.0, 1.0, 0.0, 1.0}, at::kDouble);
  const at::Tensor loss = at::tensor({0.0, 0.0, std::exp(-50.0), std::exp(-50.0), std::log(2.0)}, at::kDouble);
  EXPECT_TRUE(at::allclose(dense(Kernel::parse("bce_with_logits"), {z, y}), loss, 1e-14, 0));
  const at::Tensor wanted = at::tensor({1e4, 0.0, 50.0, std::exp(-50.0), std::log(2.0)}, at::kDouble);
  EXPECT_TRUE(at::allclose(dense(Kernel::parse("softplus"), {z}), wanted, 1e-14, 0));
}

TEST(Dense, MinMaxAndReluKeepNan) {
  const at::Tensor nan = at::tensor({std::nan(""), 1.0});
  const at::Tensor one = at::tensor({1.0, std::nan("")});
  for (const std::string text : {"min", "max"}) {
    EXPECT_TRUE(at::isnan(dense(Kernel::parse(text), {nan, one})).all().item<bool>()) << text;
  }
  EXPECT_TRUE(std::isnan(dense(Kernel::parse("relu"), {nan})[0].item<double>()));
}

TEST(Dense, TheLargestOfAnEmptyRowIsTheLeastValue) {
  const auto row_max = [](at::ScalarType type) {
    return dense(Kernel::parse("row_max"), {at::empty({1, 0}, type)}).item<double>();
  };
  EXPECT_EQ(row_max(at::kFloat), -std::numeric_limits<double>::infinity());
  EXPECT_EQ(row_max(at::kInt), std::numeric_limits<int32_t>::min());
  EXPECT_EQ(row_max(at::kLong), static_cast<double>(std::numeric_limits<int64_t>::min()));
  EXPECT_EQ(row_max(at::kByte), 0);
}

TEST(Dense, RecordsNoGradient) {
  const at::Tensor x = at::ones({2, 2}).requires_grad_();
  EXPECT_FALSE(dense(Kernel::parse("exp"), {x}).requires_grad());
  EXPECT_FALSE(contract(Labels::parse("ij,jk->ik"), x, x).requires_grad());
}

/// Five steps of Adam on parameters of several pieces, against torch's fused one.
TEST(DenseUpdates, AreTheStepsOfTorchsAdam) {
  at::manual_seed(9);
  at::Tensor w = at::randn({3, 40000}), m = at::zeros_like(w), v = at::zeros_like(w);
  at::Tensor w2 = w.clone(), m2 = m.clone(), v2 = v.clone(), step2 = at::zeros({});
  const Kernel direction = Kernel::parse("adam_direction[0.01, 0.9, 0.999, 1e-08, $step]");
  for (int step = 1; step <= 5; ++step) {
    const at::Tensor g = at::randn_like(w);
    dense(Kernel::parse("adam_first[0.9]"), {m, g}, {}, 0, 0, m);
    dense(Kernel::parse("adam_second[0.999]"), {v, g}, {}, 0, 0, v);
    const at::Tensor update = dense(direction, {m, v}, {{"step", step}});
    dense(Kernel::parse("sub"), {w, update}, {}, 0, 0, w);
    step2 += 1;
    at::_fused_adam_({w2}, {g}, {m2}, {v2}, {}, {step2}, 0.01, 0.9, 0.999, 0.0, 1e-8, false, false);
    EXPECT_TRUE(near(w, w2, 1e-6)) << step;
    EXPECT_TRUE(near(m, m2, 1e-6)) << step;
    EXPECT_TRUE(near(v, v2, 1e-6)) << step;
  }
}

/// Random letters with random extents, 0 and 1 among them, and operands in random stride orders.
struct RandomContraction {
  Labels labels;
  Tensors operands;
  at::Tensor wanted;

  RandomContraction(std::mt19937_64& random, at::ScalarType type) {
    const std::string alphabet = "abcXYZ";
    Dims extents;
    const Dims choices{2, 3, 1, 4, 2, 3, 1, 0};
    const bool may_be_empty = random() % 3 == 0;
    for (size_t i = 0; i < alphabet.size(); ++i) extents.push_back(choices[random() % (may_be_empty ? 8 : 7)]);
    std::string given;
    std::vector<Array> arrays;
    for (int i = 0; i < 2; ++i) {
      labels.operands.push_back(random_letters(alphabet, random));
      given += labels.operands.back();
      Dims shape;
      for (const char letter : labels.operands.back()) shape.push_back(extents[alphabet.find(letter)]);
      arrays.push_back(random_array(shape, random, true, false));
      operands.push_back(reordered(tensor_of(arrays.back(), type), random));
    }
    for (const char letter : random_letters(alphabet, random)) {
      if (given.find(letter) != std::string::npos) labels.result += letter;
    }
    const Kernel kernel{"contract", {labels.text()}};
    wanted = tensor_of(reference(kernel, arrays), type);
  }

  static std::string random_letters(std::string alphabet, std::mt19937_64& random) {
    std::shuffle(alphabet.begin(), alphabet.end(), random);
    return alphabet.substr(0, random() % 5);
  }

  /// The same values, the axes lying in another order.
  static at::Tensor reordered(const at::Tensor& x, std::mt19937_64& random) {
    Dims order = all_dims(x.dim());
    std::shuffle(order.begin(), order.end(), random);
    Dims inverse(order.size());
    for (size_t i = 0; i < order.size(); ++i) inverse[order[i]] = static_cast<int64_t>(i);
    return x.permute(order).contiguous().permute(inverse);
  }
};

TEST(Contract, AgreesWithTheReferenceOnRandomLabels) {
  std::mt19937_64 random(10);
  for (int i = 0; i < 2000; ++i) {
    const auto type = i % 3 == 0 ? at::kLong : i % 3 == 1 ? at::kDouble : at::kFloat;
    const RandomContraction c(random, type);
    const at::Tensor result = contract(c.labels, c.operands[0], c.operands[1]);
    ASSERT_EQ(result.scalar_type(), type);
    ASSERT_TRUE(result.sizes() == c.wanted.sizes() && at::equal(result, c.wanted))
        << c.labels.text() << c.operands[0].sizes() << c.operands[1].sizes();
  }
}

TEST(Contract, WritesToOutOrIncreasesIt) {
  std::mt19937_64 random(11);
  for (int i = 0; i < 1000; ++i) {
    const RandomContraction c(random, i % 2 == 0 ? at::kLong : at::kFloat);
    const at::Tensor before = at::randint(-3, 4, c.wanted.sizes(), c.wanted.options());
    const bool accumulate = i % 4 < 2;
    const at::Tensor out = RandomContraction::reordered(before.clone(), random);
    EXPECT_TRUE(contract(c.labels, c.operands[0], c.operands[1], out, accumulate).is_same(out));
    ASSERT_TRUE(at::equal(out, accumulate ? before + c.wanted : c.wanted)) << c.labels.text();
  }
}

TEST(Contract, TakesNarrowFloats) {
  std::mt19937_64 random(12);
  for (int i = 0; i < 300; ++i) {
    const RandomContraction c(random, i % 2 == 0 ? at::kBFloat16 : at::kHalf);
    ASSERT_TRUE(near(contract(c.labels, c.operands[0], c.operands[1]), c.wanted, 2e-2)) << c.labels.text();
  }
}

TEST(Contract, LeavesTheResultContiguousInTheUsualCases) {
  const at::Tensor a = at::ones({4, 5}), b = at::ones({5, 6}), x = at::ones({3, 4, 5}), w = at::ones({3, 5, 6});
  EXPECT_TRUE(contract(Labels::parse("ij,jk->ik"), a, b).is_contiguous());
  EXPECT_TRUE(contract(Labels::parse("ij,jk->ki"), a, b).is_contiguous());
  EXPECT_TRUE(contract(Labels::parse("ji,jk->ik"), b, b).is_contiguous());
  EXPECT_TRUE(contract(Labels::parse("bij,bjk->bik"), x, w).is_contiguous());
  EXPECT_TRUE(contract(Labels::parse("bij,jk->bik"), x, b).is_contiguous());
  EXPECT_TRUE(contract(Labels::parse("i,j->ij"), a[0], b[0]).is_contiguous());
}

TEST(Contract, NamesWhatIsWrong) {
  const at::Tensor a = at::ones({2, 3});
  const auto error = [&](const std::string& labels, const at::Tensor& b, at::Tensor out = {}) {
    return message_of<KernelError>([&] { contract(Labels::parse(labels), a, b, out); });
  };
  EXPECT_EQ(error("ij,jk->ik", at::ones({4, 2})),
            "contract: extents of a letter differ: letter=j, labels=ij,jk->ik, shapes=[[2, 3], [4, 2]]");
  EXPECT_EQ(error("ij,jk->ik", at::ones({3, 2}, at::kDouble)),
            "contract: dtypes of the operands differ: left=Float, right=Double");
  EXPECT_EQ(error("ij,jj->i", at::ones({3, 3})),
            "contract: letter occurs twice in one operand: labels=ij,jj->i, letter=j");
  EXPECT_EQ(error("ij,jk->ik", at::ones({3, 2}), at::ones({2, 3})),
            "contract: out does not fit: labels=ij,jk->ik, shape=[2, 2]");
}

TEST(DenseCalls, AreCountedOnceEach) {
  reset_kernel_calls();
  const at::Tensor a = at::ones({2, 2});
  dense(Kernel::parse("matmul"), {a, a});
  contract(Labels::parse("ij,jk->ik"), a, a);
  dense(Kernel::parse("relu"), {a});
  EXPECT_EQ(kernel_calls(), 3);
}

/// A row and a function that are taken back at the end of the test.
struct UserKernel {
  UserKernel(Row row, DenseFunction function) : name(row.name) {
    register_row(std::move(row));
    register_dense(name, std::move(function));
  }
  ~UserKernel() {
    register_dense(name, {});
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
  EXPECT_TRUE(at::equal(dense(Kernel::parse("my_hypot"), {a, b}, {}, 1), at::full({4, 2, 3}, 5.0)));
  EXPECT_EQ(times, 1);
  dense(Kernel::parse("my_hypot"), {a, a}, {}, 0, 0, a);
  EXPECT_TRUE(near(a, at::full({4, 2, 3}, std::sqrt(18.0)), 1e-6));
}

TEST(UserDense, AnotherFunctionGetsEachTupleOfTheBatch) {
  Row row{.name = "my_trace", .summary = "a test's", .parameters = "n", .form = Form::kLabelled};
  row.labels = [](const Kernel&) { return Labels::parse("ii->"); };
  const UserKernel user(row, [](const Kernel& kernel, const Tensors& x, const Scalars& scalars) {
    return x[0].trace() * kernel.number(0, scalars);
  });
  const at::Tensor a = at::arange(24, at::kDouble).view({2, 3, 2, 2});
  const at::Tensor wanted = (a.select(2, 0).select(2, 0) + a.select(2, 1).select(2, 1)) * 0.5;
  EXPECT_TRUE(at::equal(dense(Kernel::parse("my_trace[$rate]"), {a}, kScalars, 2), wanted));
  EXPECT_EQ(dense(Kernel::parse("my_trace[2]"), {a[0][0]}).item<double>(), 6);
  EXPECT_EQ(dense(Kernel::parse("my_trace[2]"), {a.narrow(0, 0, 0)}, {}, 2).sizes(), (Dims{0, 3}));
}

TEST(UserDense, AResultThatDoesNotFitIsRefused) {
  const UserKernel user({.name = "my_sum", .summary = "a test's"},
                        [](const Kernel&, const Tensors& x, const Scalars&) { return x[0].sum(); });
  EXPECT_EQ(message_of<KernelError>([] { dense(Kernel::parse("my_sum"), {at::ones({2})}); }),
            "my_sum: result does not fit: wanted shape=[2], dtype=Float, given shape=[], dtype=Float");
  register_dense("my_sum", {});
  EXPECT_EQ(message_of<KernelError>([] { dense(Kernel::parse("my_sum"), {at::ones({2})}); }),
            "my_sum: user's kernel without a function: name=my_sum");
}

}  // namespace
}  // namespace joinsum::kernels
