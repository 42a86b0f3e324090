#pragma once

#include <cmath>
#include <limits>
#include <optional>
#include <tuple>

#include <ATen/ATen.h>

namespace joinsum::kernels::torch_call {

/// Attention of queries [b, h, l, e] to keys and values [b, g, s, e], each head of which may serve several adjacent
/// heads of queries, by the fastest kernel of their device: tiles or torch's flash kernel on the CPU, what torch would
/// choose on a GPU, and composed of products where there is none. `mask` is Boolean or added to the scores; with
/// `causal` the first query attends to the first key, and each further one to a key more.

/// The result, and the logarithms [b, h, l] of the softmax's denominators: -inf for a query without keys.
std::tuple<at::Tensor, at::Tensor> device_attention(const at::Tensor& query, const at::Tensor& key,
                                                    const at::Tensor& value, const std::optional<at::Tensor>& mask,
                                                    bool causal, std::optional<double> scale);

/// The gradients of queries, keys and values, where `out` and `lse` are those of attention to all keys.
std::tuple<at::Tensor, at::Tensor, at::Tensor> device_attention_backward(const at::Tensor& grad,
                                                                         const at::Tensor& query, const at::Tensor& key,
                                                                         const at::Tensor& value, const at::Tensor& out,
                                                                         const at::Tensor& lse,
                                                                         const std::optional<at::Tensor>& mask,
                                                                         bool causal, std::optional<double> scale);

/// Both, composed of products in single precision at least, on any device.
std::tuple<at::Tensor, at::Tensor> composed_attention(const at::Tensor& query, const at::Tensor& key,
                                                      const at::Tensor& value, const std::optional<at::Tensor>& mask,
                                                      bool causal, std::optional<double> scale);
std::tuple<at::Tensor, at::Tensor, at::Tensor> composed_attention_backward(
    const at::Tensor& grad, const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
    const at::Tensor& out, const at::Tensor& lse, const std::optional<at::Tensor>& mask, bool causal,
    std::optional<double> scale);

/// What scores are multiplied by.
inline double factor_of(const at::Tensor& query, std::optional<double> scale) {
  return scale.value_or(1 / std::sqrt(static_cast<double>(query.size(3))));
}

/// The sums [b, g, ...] over the heads that share one of the keys.
inline at::Tensor sum_of_shared(const at::Tensor& of_queries, int64_t groups) {
  return of_queries.size(1) == groups ? of_queries : of_queries.unflatten(1, {groups, -1}).sum(2);
}

/// The mask as numbers that are added to scores.
inline std::optional<at::Tensor> added_mask(const std::optional<at::Tensor>& mask, const at::Tensor& query) {
  if (!mask || mask->scalar_type() != at::kBool) return mask;
  return at::zeros(mask->sizes(), query.options())
      .masked_fill_(mask->logical_not(), -std::numeric_limits<double>::infinity());
}

}  // namespace joinsum::kernels::torch_call
