#include "kernels/torch_call/device_attention.h"

#include <limits>
#include <optional>
#include <tuple>

#include <ATen/ATen.h>
#include <ATen/SDPBackend.h>

#include "kernels/torch_call/tiled_attention.h"

namespace joinsum::kernels::torch_call {
namespace {

using Two = std::tuple<at::Tensor, at::Tensor>;
using Three = std::tuple<at::Tensor, at::Tensor, at::Tensor>;

constexpr double kNone = -std::numeric_limits<double>::infinity();
constexpr double kAll = std::numeric_limits<double>::infinity();

/// Torch's kernels read heads as if their elements were adjacent.
at::Tensor rows_adjacent(const at::Tensor& tensor) { return tensor.stride(-1) == 1 ? tensor : tensor.contiguous(); }

/// The same in memory as the CPU's kernels store it, one position after another, which views rely on.
at::Tensor by_positions(const at::Tensor& tensor) { return tensor.transpose(1, 2).contiguous().transpose(1, 2); }

Two by_positions(const Two& results) { return {by_positions(std::get<0>(results)), std::get<1>(results)}; }

Three by_positions(const Three& gradients) {
  const auto& [of_query, of_key, of_value] = gradients;
  return {by_positions(of_query), by_positions(of_key), by_positions(of_value)};
}

bool suits_tiles(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                 const std::optional<at::Tensor>& mask, std::optional<double> scale) {
  return !mask && torch_call::suits_tiles(query, key, value, factor_of(query, scale));
}

// --- GPUs ---------------------------------------------------------------------------------------------------------

constexpr int64_t kAlignment = 8;      // of heads and masks, in elements
constexpr int64_t kLseAlignment = 32;  // of the logarithms that the memory-efficient kernel reads

int64_t up_to_multiple(int64_t extent, int64_t of) { return (extent + of - 1) / of * of; }

/// Each head of the keys as often as heads of queries share it.
at::Tensor for_each_query(const at::Tensor& of_keys, const at::Tensor& query) {
  const int64_t times = query.size(1) / of_keys.size(1);
  return times == 1 ? of_keys : of_keys.repeat_interleave(times, 1);
}

/// Operands as torch's kernels for GPUs take them.
struct OnGpu {
  at::Tensor query, key, value, bias;  // `bias` is undefined without a mask

  OnGpu(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const std::optional<at::Tensor>& mask)
      : query(rows_adjacent(q)), key(rows_adjacent(for_each_query(k, q))), value(rows_adjacent(for_each_query(v, q))) {
    if (!mask) return;
    const int64_t columns = k.size(2);
    const at::Tensor added = at::constant_pad_nd(rows_adjacent(added_mask(mask, q)->to(q.scalar_type())),
                                                 {0, up_to_multiple(columns, kAlignment) - columns});
    bias = added.expand({q.size(0), q.size(1), q.size(2), added.size(-1)}).narrow(-1, 0, columns);
  }

  /// The kernel: what torch would choose, which knows the GPU's generation; products where heads are not aligned.
  at::SDPBackend kernel(bool causal, std::optional<double> scale) const {
    const bool aligned = query.size(3) % kAlignment == 0 && value.size(3) % kAlignment == 0;
    if (!aligned || query.numel() == 0 || key.numel() == 0) return at::SDPBackend::math;
    const auto mask = bias.defined() ? std::optional<at::Tensor>(bias) : std::nullopt;
    const auto chosen = static_cast<at::SDPBackend>(at::_fused_sdp_choice(query, key, value, mask, 0.0, causal, scale));
    if (chosen == at::SDPBackend::math || chosen == at::SDPBackend::error) return at::SDPBackend::math;
    // Flash attends from the last query to the last key; the memory-efficient kernel from the first to the first.
    const bool flash = chosen != at::SDPBackend::efficient_attention && !mask &&
                       (!causal || query.size(2) == key.size(2)) && query.size(3) == value.size(3);
    return flash ? at::SDPBackend::flash_attention : at::SDPBackend::efficient_attention;
  }
};

Two gpu_attention(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                  const std::optional<at::Tensor>& mask, bool causal, std::optional<double> scale) {
  const OnGpu given(query, key, value, mask);
  const auto kernel = given.kernel(causal, scale);
  if (kernel == at::SDPBackend::math) return composed_attention(query, key, value, mask, causal, scale);
  if (kernel == at::SDPBackend::flash_attention) {
    auto results =
        at::_scaled_dot_product_flash_attention(given.query, given.key, given.value, 0.0, causal, false, scale);
    return {std::get<0>(results), std::get<1>(results)};
  }
  const auto bias = given.bias.defined() ? std::optional<at::Tensor>(given.bias) : std::nullopt;
  const auto results =
      at::_scaled_dot_product_efficient_attention(given.query, given.key, given.value, bias, true, 0.0, causal, scale);
  at::Tensor lse = std::get<1>(results).narrow(2, 0, query.size(2));
  if (mask) lse = lse.masked_fill(lse.eq(kAll), kNone);
  return {std::get<0>(results), std::move(lse)};
}

Three gpu_attention_backward(const at::Tensor& grad, const at::Tensor& query, const at::Tensor& key,
                             const at::Tensor& value, const at::Tensor& out, const at::Tensor& lse,
                             const std::optional<at::Tensor>& mask, bool causal, std::optional<double> scale) {
  const OnGpu given(query, key, value, mask);
  const auto kernel = given.kernel(causal, scale);
  if (kernel == at::SDPBackend::math) {
    return composed_attention_backward(grad, query, key, value, out, lse, mask, causal, scale);
  }
  const at::Tensor none;
  const at::Tensor state = at::empty({0}, query.options().dtype(at::kLong));  // of random numbers: none are drawn
  const at::Tensor above = rows_adjacent(grad);
  Three gradients;
  if (kernel == at::SDPBackend::flash_attention) {
    gradients = at::_scaled_dot_product_flash_attention_backward(
        above, given.query, given.key, given.value, rows_adjacent(out), lse.contiguous(), none, none, query.size(2),
        key.size(2), 0.0, causal, state, state, scale);
  } else {
    const int64_t rows = query.size(2);
    const at::Tensor sums = at::constant_pad_nd(lse.masked_fill(lse.eq(kNone), kAll),
                                                {0, up_to_multiple(rows, kLseAlignment) - rows}, kAll);
    const auto four = at::_scaled_dot_product_efficient_attention_backward(
        above, given.query, given.key, given.value, given.bias, rows_adjacent(out), sums.contiguous(), state, state,
        0.0, {true, true, true, false}, causal, scale);
    gradients = {std::get<0>(four), std::get<1>(four), std::get<2>(four)};
  }
  const auto& [of_query, of_key, of_value] = gradients;
  return {of_query, sum_of_shared(of_key, key.size(1)), sum_of_shared(of_value, key.size(1))};
}

}  // namespace

Two device_attention(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                     const std::optional<at::Tensor>& mask, bool causal, std::optional<double> scale) {
  if (query.is_cuda()) return by_positions(gpu_attention(query, key, value, mask, causal, scale));
  if (!query.is_cpu()) return by_positions(composed_attention(query, key, value, mask, causal, scale));
  if (suits_tiles(query, key, value, mask, scale)) {
    return tiled_attention(query, key, value, causal, factor_of(query, scale));
  }
  return at::_scaled_dot_product_flash_attention_for_cpu(rows_adjacent(query), rows_adjacent(key), rows_adjacent(value),
                                                         0.0, causal, mask, scale);
}

Three device_attention_backward(const at::Tensor& grad, const at::Tensor& query, const at::Tensor& key,
                                const at::Tensor& value, const at::Tensor& out, const at::Tensor& lse,
                                const std::optional<at::Tensor>& mask, bool causal, std::optional<double> scale) {
  if (query.is_cuda()) {
    return by_positions(gpu_attention_backward(grad, query, key, value, out, lse, mask, causal, scale));
  }
  if (!query.is_cpu()) {
    return by_positions(composed_attention_backward(grad, query, key, value, out, lse, mask, causal, scale));
  }
  // A row that the mask leaves without keys has weights of zero.
  const at::Tensor sums = mask ? lse.masked_fill(lse.eq(kNone), 0) : lse;
  if (suits_tiles(query, key, value, mask, scale)) {
    return tiled_attention_backward(grad, query, key, value, out, sums, causal, factor_of(query, scale));
  }
  return at::_scaled_dot_product_flash_attention_for_cpu_backward(rows_adjacent(grad), rows_adjacent(query),
                                                                  rows_adjacent(key), rows_adjacent(value),
                                                                  rows_adjacent(out), sums, 0.0, causal, mask, scale);
}

}  // namespace joinsum::kernels::torch_call
