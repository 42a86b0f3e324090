#pragma once

#include <tuple>

#include <ATen/ATen.h>

namespace joinsum::kernels::torch_call {

/// Attention of queries [b, h, l, e] and keys and values [b, g, s, e], each head of which may serve several adjacent
/// heads of queries, in single precision and without a mask, by products of tiles of queries and keys. Results lie in
/// memory as those of `_scaled_dot_product_flash_attention_for_cpu`. The source: FlashAttention-2, arXiv:2307.08691.

/// Whether tiles are faster than torch's kernel, which multiplies by MKL.
bool suits_tiles(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value, double scale);

/// The result, and the logarithms [b, h, l] of the softmax's denominators.
std::tuple<at::Tensor, at::Tensor> tiled_attention(const at::Tensor& query, const at::Tensor& key,
                                                   const at::Tensor& value, bool causal, double scale);

/// The gradients of queries, keys and values, where `out` and `lse` are those of attention to all keys.
std::tuple<at::Tensor, at::Tensor, at::Tensor> tiled_attention_backward(const at::Tensor& grad, const at::Tensor& query,
                                                                        const at::Tensor& key, const at::Tensor& value,
                                                                        const at::Tensor& out, const at::Tensor& lse,
                                                                        bool causal, double scale);

}  // namespace joinsum::kernels::torch_call
