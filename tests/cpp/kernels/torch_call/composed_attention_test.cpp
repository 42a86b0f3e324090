#include <limits>
#include <optional>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "kernels/torch_call/device_attention.h"

namespace joinsum::kernels::torch_call {
namespace {

constexpr double kNone = -std::numeric_limits<double>::infinity();

at::Tensor random(at::IntArrayRef shape) { return at::randn(shape, at::kDouble); }

void expect_close(const at::Tensor& found, const at::Tensor& expected) {
  EXPECT_TRUE(at::allclose(found, expected, 1e-10, 1e-10)) << found << '\n' << expected;
}

/// Attention of four heads of queries to two of keys, beside the softmax that autograd differentiates.
void expect_attention(int64_t queries, int64_t keys, const std::optional<at::Tensor>& mask, bool causal) {
  const at::Tensor query = random({2, 4, queries, 5}).requires_grad_();
  const at::Tensor key = random({2, 2, keys, 5}).requires_grad_();
  const at::Tensor value = random({2, 2, keys, 3}).requires_grad_();
  const at::Tensor grad = random({2, 4, queries, 3});

  at::Tensor scores = query.matmul(key.repeat_interleave(2, 1).mT()) * 0.3;
  if (causal) scores = scores.masked_fill(at::ones({queries, keys}, at::kBool).triu(1), kNone);
  if (mask) scores = mask->scalar_type() == at::kBool ? scores.masked_fill(mask->logical_not(), kNone) : scores + *mask;
  const at::Tensor expected = scores.softmax(-1).matmul(value.repeat_interleave(2, 1));
  expected.backward(grad);

  const at::NoGradGuard no_grad;
  const auto [out, lse] = composed_attention(query, key, value, mask, causal, 0.3);
  expect_close(out, expected);
  expect_close(lse, scores.logsumexp(-1));
  const auto [to_query, to_key, to_value] =
      composed_attention_backward(grad, query, key, value, out, lse, mask, causal, 0.3);
  expect_close(to_query, query.grad());
  expect_close(to_key, key.grad());
  expect_close(to_value, value.grad());
}

TEST(ComposedAttention, IsTheSoftmaxThatIsWrittenOut) {
  for (const int64_t keys : {1, 6, 9}) {
    expect_attention(6, keys, std::nullopt, false);
    expect_attention(6, keys, std::nullopt, true);
    expect_attention(6, keys, random({6, keys}), false);
    expect_attention(6, keys, random({2, 1, 6, keys}), false);
    at::Tensor some = at::rand({6, keys}) > 0.5;
    some.select(1, 0).fill_(true);
    expect_attention(6, keys, some, false);
  }
}

TEST(ComposedAttention, OfAQueryWithoutKeysIsZero) {
  const at::Tensor query = random({1, 1, 2, 4}), key = random({1, 1, 3, 4}), value = random({1, 1, 3, 4});
  const at::Tensor mask = at::tensor({0, 0, 0, 1, 1, 0}).view({2, 3}).to(at::kBool);
  const auto [out, lse] = composed_attention(query, key, value, mask, false, std::nullopt);
  EXPECT_EQ(out.select(2, 0).abs().sum().item<double>(), 0);
  EXPECT_EQ(lse.flatten()[0].item<double>(), kNone);
  const auto gradients =
      composed_attention_backward(at::ones_like(out), query, key, value, out, lse, mask, false, std::nullopt);
  EXPECT_EQ(std::get<0>(gradients).select(2, 0).abs().sum().item<double>(), 0);
  EXPECT_TRUE(at::isfinite(std::get<1>(gradients)).all().item<bool>());
}

TEST(ComposedAttention, HasTheTypeOfItsOperands) {
  const at::Tensor half = random({1, 2, 3, 8}).to(at::kBFloat16);
  const auto [out, lse] = composed_attention(half, half, half, std::nullopt, true, std::nullopt);
  EXPECT_EQ(out.scalar_type(), at::kBFloat16);
  EXPECT_EQ(lse.scalar_type(), at::kFloat);
}

}  // namespace
}  // namespace joinsum::kernels::torch_call
