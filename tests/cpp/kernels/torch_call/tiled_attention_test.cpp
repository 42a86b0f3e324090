#include "kernels/torch_call/tiled_attention.h"

#include <limits>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "kernels/products/products.h"

namespace joinsum::kernels::torch_call {
namespace {

struct Sizes {
  int64_t batches, heads, heads_of_keys, queries, keys, extent, extent_of_values;
};

/// One tile and several, full and not, heads that share keys, more keys than queries and fewer.
constexpr Sizes kSizes[] = {{1, 1, 1, 1, 1, 1, 1},      {2, 3, 3, 7, 7, 4, 4},      {2, 4, 2, 65, 65, 24, 24},
                            {1, 2, 1, 40, 90, 16, 20},  {1, 3, 3, 90, 40, 16, 8},   {2, 5, 1, 130, 33, 8, 8},
                            {1, 2, 2, 700, 1100, 8, 8}, {1, 1, 1, 1100, 700, 8, 8}, {3, 16, 16, 128, 128, 32, 32}};

struct Operands {
  at::Tensor query, key, value, grad;
};

/// `transposed`: [b, l, h, e] in memory, as the results of layers.
Operands operands(const Sizes& sizes, bool transposed) {
  const auto random = [&](int64_t heads, int64_t rows, int64_t extent) {
    if (transposed) return at::randn({sizes.batches, rows, heads, extent}).transpose(1, 2);
    return at::randn({sizes.batches, heads, rows, extent});
  };
  return {random(sizes.heads, sizes.queries, sizes.extent), random(sizes.heads_of_keys, sizes.keys, sizes.extent),
          random(sizes.heads_of_keys, sizes.keys, sizes.extent_of_values),
          random(sizes.heads, sizes.queries, sizes.extent_of_values)};
}

/// The scores in double precision, minus infinity for keys after a query.
at::Tensor scores_of(const at::Tensor& query, const at::Tensor& key, bool causal, double scale) {
  at::Tensor scores = at::matmul(query, key.transpose(2, 3)) * scale;
  if (!causal) return scores;
  const at::Tensor later = at::ones({query.size(2), key.size(2)}, at::kBool).triu(1);
  return scores.masked_fill(later, -std::numeric_limits<double>::infinity());
}

void expect_close(const at::Tensor& found, const at::Tensor& expected) {
  ASSERT_EQ(found.sizes(), expected.sizes());
  const double most = expected.abs().max().item<double>() + 1e-3;
  EXPECT_LE((found.to(at::kDouble) - expected).abs().max().item<double>(), 5e-6 * most);
}

TEST(TiledAttention, IsTheSoftmaxThatIsWrittenOut) {
  for (const Sizes& sizes : kSizes) {
    for (const bool causal : {false, true}) {
      for (const bool transposed : {false, true}) {
        SCOPED_TRACE(::testing::Message() << sizes.queries << " queries, " << sizes.keys << " keys, causal " << causal
                                          << ", transposed " << transposed);
        const Operands x = operands(sizes, transposed);
        const double scale = 0.3;
        const auto [out, lse] = tiled_attention(x.query, x.key, x.value, causal, scale);

        const int64_t shared = sizes.heads / sizes.heads_of_keys;
        at::Tensor query = x.query.to(at::kDouble).set_requires_grad(true);
        at::Tensor key = x.key.to(at::kDouble).set_requires_grad(true);
        at::Tensor value = x.value.to(at::kDouble).set_requires_grad(true);
        const at::Tensor scores = scores_of(query, key.repeat_interleave(shared, 1), causal, scale);
        const at::Tensor expected = at::matmul(scores.softmax(-1), value.repeat_interleave(shared, 1));
        expect_close(out, expected.detach());
        expect_close(lse, scores.logsumexp(-1).detach());

        expected.backward(x.grad.to(at::kDouble));
        const auto [to_query, to_key, to_value] =
            tiled_attention_backward(x.grad, x.query, x.key, x.value, out, lse, causal, scale);
        expect_close(to_query, query.grad());
        expect_close(to_key, key.grad());
        expect_close(to_value, value.grad());
      }
    }
  }
}

TEST(TiledAttention, OfLargeScoresStaysFinite) {
  const Operands x = operands({1, 2, 2, 300, 1300, 16, 16}, false);
  const at::Tensor query = x.query * 100;
  const auto [out, lse] = tiled_attention(query, x.key, x.value, false, 1);
  EXPECT_TRUE(at::isfinite(out).all().item<bool>());
  expect_close(lse, at::matmul(query, x.key.transpose(2, 3)).to(at::kDouble).logsumexp(-1));
}

TEST(TiledAttention, OfATileWithoutFiniteScoresIsThatOfTheOthers) {
  const Operands x = operands({1, 2, 2, 40, 1024, 16, 16}, false);
  const at::Tensor query = x.query.abs() + 0.1;
  x.key.narrow(2, 0, 512).fill_(-std::numeric_limits<float>::infinity());
  const auto [out, lse] = tiled_attention(query, x.key, x.value, false, 1);
  const auto [wanted, logs] = tiled_attention(query, x.key.narrow(2, 512, 512), x.value.narrow(2, 512, 512), false, 1);
  EXPECT_TRUE(out.equal(wanted));
  EXPECT_TRUE(lse.equal(logs));
}

TEST(TiledAttention, RunsInInferenceModeOnSeveralThreads) {
  const c10::InferenceMode inference;
  const Operands x = operands({2, 2, 2, 513, 513, 8, 8}, true);
  const auto [out, lse] = tiled_attention(x.query, x.key, x.value, true, 1);
  EXPECT_TRUE(at::isfinite(out).all().item<bool>());
  const auto [to_query, to_key, to_value] =
      tiled_attention_backward(x.grad, x.query, x.key, x.value, out, lse, true, 1);
  EXPECT_TRUE(at::isfinite(to_key).all().item<bool>());
}

TEST(TiledAttention, OfWhatIsNoNumberIsNone) {
  const Operands x = operands({1, 2, 2, 40, 40, 16, 16}, false);
  x.query.select(2, 3).fill_(std::numeric_limits<float>::quiet_NaN());
  const auto [out, lse] = tiled_attention(x.query, x.key, x.value, true, 1);
  EXPECT_TRUE(at::isnan(out.select(2, 3)).all().item<bool>());
  EXPECT_TRUE(at::isfinite(out.narrow(2, 0, 3)).all().item<bool>());
  EXPECT_TRUE(at::isfinite(out.narrow(2, 4, 36)).all().item<bool>());
}

TEST(TiledAttention, SuitsSinglePrecisionOnProcessors) {
  const at::Tensor x = at::randn({1, 2, 128, 64});
  EXPECT_FALSE(suits_tiles(x.to(at::kDouble), x.to(at::kDouble), x.to(at::kDouble), 1));
  EXPECT_FALSE(suits_tiles(x, x, x, -1));
  EXPECT_FALSE(suits_tiles(x.narrow(2, 0, 2), x, x, 1));
  EXPECT_FALSE(suits_tiles(x.narrow(1, 0, 0), x.narrow(1, 0, 0), x.narrow(1, 0, 0), 1));
  EXPECT_EQ(suits_tiles(x, x, x, 1), products::onednn_is_faster());
}

}  // namespace
}  // namespace joinsum::kernels::torch_call
