#include "kernels/torch_call/torch_call.h"

#include <gtest/gtest.h>

namespace joinsum::kernels::torch_call {
namespace {

call::Call parsed(const std::string& text) {
  Scanner scanner(text);
  return call::Call::parse(scanner);
}

std::vector<at::Tensor> results(const std::string& text, const std::vector<at::Tensor>& operands,
                                const Shard& shard = {}) {
  return run(parsed(text), operands, shard);
}

template <class Act>
std::string error_of(const Act& act) {
  try {
    act();
  } catch (const KernelError& error) {
    const std::string message = error.what();
    return message.substr(0, message.find(", call="));
  }
  return "no error";
}

at::Tensor count(at::IntArrayRef shape) { return at::arange(c10::multiply_integers(shape), at::kFloat).reshape(shape); }

TEST(TorchCall, RunsAnOperatorOfTorchOnAxesInItsOwnOrder) {
  const at::Tensor x = count({2, 3});
  const auto found = results("0; aten::_softmax; ab -> ba:f32; (%0{b,a}, 0, false) -> {b,a}; undivided=b", {x});
  ASSERT_EQ(found.size(), 1);
  EXPECT_TRUE(at::allclose(found[0], at::softmax(x, 1).t()));
  EXPECT_TRUE(found[0].is_contiguous());
}

TEST(TorchCall, LettersOfAGroupAreOneAxisOfTheOperator) {
  const at::Tensor x = count({2, 3, 4});
  const auto found = results("0; aten::sum.dim_IntList; abc -> a:f32; (%0{a,bc}, [1]) -> {a}; undivided=bc", {x});
  EXPECT_TRUE(at::equal(found[0], x.sum({1, 2})));
}

TEST(TorchCall, GivesEveryResultOfAnOperator) {
  const at::Tensor x = count({2, 3});
  const auto found = results("0; aten::max.dim; ab -> a:f32, a:i64; (%0{a,b}, 1) -> {a}, {a}; undivided=b", {x});
  ASSERT_EQ(found.size(), 2);
  EXPECT_TRUE(at::equal(found[0], x.amax({1})));
  EXPECT_TRUE(at::equal(found[1], x.argmax(1)));
}

TEST(TorchCall, ReadsExtentsAndTheBeginOfItsShard) {
  const auto found =
      results("0; aten::add.Scalar; a -> a:f32; (%0{a}, @a, |a|) -> {a}", {count({20})}, {{'a', {10, 14}}});
  EXPECT_TRUE(at::equal(found[0], count({20}).slice(0, 10, 14) + 10 * 4));
}

TEST(TorchCall, DividesALetterThatNoOperandHas) {
  const std::string text = "0; aten::full; -> a:f32; ([|a|], @a, dtype=f32) -> {a}; extents a=8";
  EXPECT_TRUE(at::equal(results(text, {}, {{'a', {3, 5}}})[0], at::full({2}, 3.0)));
}

TEST(TorchCall, RecordsNoGradient) {
  const at::Tensor x = count({3}).requires_grad_();
  EXPECT_FALSE(results("0; aten::exp; a -> a:f32; (%0{a}) -> {a}", {x})[0].requires_grad());
}

TEST(TorchCall, ComputesIntoArraysWhereTorchHasAKernelForThat) {
  const auto prepared_computes = [](const std::string& text) {
    const call::Call call = parsed(text);
    return PreparedCall(call).computes_into(at::kCPU);
  };
  EXPECT_TRUE(prepared_computes("0; aten::exp; ab -> ab:f32; (%0{a,b}) -> {a,b}"));
  EXPECT_TRUE(prepared_computes("0; aten::addcdiv; a,a,a -> a:f32; (%0{a}, %1{a}, %2{a}) -> {a}"));
  EXPECT_FALSE(prepared_computes("0; aten::exp; ab -> ba:f32; (%0{a,b}) -> {a,b}")) << "in another order";
  EXPECT_FALSE(prepared_computes("0; aten::embedding; ab,c -> cb:f32; (%0{a,b}, %1{c}) -> {c,b}; undivided=a"))
      << "torch derives this variant, which copies";
  EXPECT_TRUE(
      prepared_computes("0; aten::native_layer_norm; ab,b -> ab:f32, a:f32, a:f32; "
                        "(%0{a,b}, [|b|], %1{b}, none, 1e-05) -> {a,b}, {a,1}, {a,1}; undivided=b"))
      << "joinsum has one";
  const call::Call call = parsed("0; aten::silu; ab -> ab:f32; (%0{a,b}) -> {a,b}");
  const at::Tensor x = count({2, 3});
  const at::Tensor wanted = at::silu(x);
  const at::Tensor out = at::empty({2, 3});
  const auto found = PreparedCall(call).run({x}, {}, {out});
  EXPECT_TRUE(found[0].is_same(out));
  EXPECT_TRUE(at::equal(out, wanted));
  PreparedCall(call).run({x}, {}, {x});
  EXPECT_TRUE(at::equal(x, wanted));
}

TEST(TorchCall, TakesJoinsumsKernelBeforeTorchs) {
  const call::Call call = parsed("0; aten::gelu; ab -> ab:f32; (%0{a,b}) -> {a,b}");
  const at::Tensor x = count({2, 300}) / 100;
  const at::Tensor wanted = at::gelu(x);
  const at::Tensor own = c10::Dispatcher::singleton()
                             .findSchemaOrThrow("joinsum::gelu", "")
                             .typed<at::Tensor(const at::Tensor&, c10::string_view)>()
                             .call(x, "none");
  EXPECT_TRUE(at::allclose(own, wanted, 1e-6, 1e-6));
  PreparedCall(call).run({x}, {}, {x});
  EXPECT_TRUE(at::equal(x, own));
}

TEST(TorchCall, OverwritesOperandsOnlyElementByElement) {
  const auto overwrites = [](const std::string& text, size_t result, size_t operand) {
    const call::Call call = parsed(text);
    return PreparedCall(call).may_overwrite(result, operand);
  };
  const std::string product = "0; aten::mul.Tensor; ab,b -> ab:f32; (%0{a,b}, %1{b}) -> {a,b}";
  EXPECT_TRUE(overwrites(product, 0, 0));
  EXPECT_FALSE(overwrites(product, 0, 1)) << "an operand that is repeated";
  EXPECT_FALSE(overwrites("0; aten::scatter_add; a,b,b -> a:f32; (%0{a}, 0, %1{b}, %2{b}) -> {a}; undivided=ab", 0, 0));
  EXPECT_FALSE(overwrites("0; aten::_softmax; ab -> ab:f32; (%0{a,b}, 1, false) -> {a,b}; undivided=b", 0, 0));
  const std::string update =
      "0; joinsum::adam_update; a,a,a,a,,,,,, -> a:f32, a:f32, a:f32; (%0{a}, %1{a}, %2{a}, %3{a}, %4{}, %5{}, %6{}, "
      "%7{}, %8{}, %9{}, true, false) -> {a}, {a}, {a}";
  for (size_t result = 0; result < 3; ++result) {
    const size_t own = result == 0 ? 0 : result + 1;
    for (size_t operand = 0; operand < 4; ++operand) EXPECT_EQ(overwrites(update, result, operand), operand == own);
  }
}

TEST(TorchCall, ErrorsNameTheOperator) {
  const auto prepared = [](const std::string& text) {
    return error_of([&] {
      const call::Call call = parsed(text);
      const PreparedCall made(call);
    });
  };
  EXPECT_EQ(prepared("0; aten::no_such; a -> a:f32; (%0{a}) -> {a}"),
            "call: torch has no such operator: operator=aten::no_such");
  EXPECT_EQ(prepared("0; aten::add.Tensor; a -> a:f32; (%0{a}) -> {a}"),
            "call: an argument is missing: argument=other, operator=aten::add.Tensor");
  EXPECT_EQ(prepared("0; aten::exp; a -> a:f32; (%0{a}, 1) -> {a}"),
            "call: arguments that the operator does not take: taken=1, given=2, operator=aten::exp");
  const auto ran = [](const std::string& text) { return error_of([&] { results(text, {count({2, 3})}); }); };
  EXPECT_EQ(ran("0; aten::exp; ab -> a:f32; (%0{a,b}) -> {a}; undivided=b"),
            "call: a result has another shape: shape=[2, 3], expected=[2], operator=aten::exp");
  EXPECT_EQ(ran("0; aten::exp; ab -> ab:f64; (%0{a,b}) -> {a,b}"),
            "call: a result has another dtype: dtype=Float, expected=f64, operator=aten::exp");
}

}  // namespace
}  // namespace joinsum::kernels::torch_call
