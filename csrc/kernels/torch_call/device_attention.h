#pragma once

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

}  // namespace joinsum::kernels::torch_call
