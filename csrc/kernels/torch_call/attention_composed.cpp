// Attention to shards of the keys by torch's operators, for devices that attention.cpp has no kernels for. Scores are
// computed in single precision at least.

#include <cmath>
#include <limits>
#include <optional>

#include <ATen/ATen.h>
#include <torch/library.h>

#include "kernels/torch_call/normed_rows.h"

namespace joinsum::kernels::torch_call {
namespace {

constexpr double kNone = -std::numeric_limits<double>::infinity();

/// Global indices of the elements of a shard of an axis: offsets, local and global extents of its factors, one list
/// after another.
at::Tensor indices_of(at::IntArrayRef shard, at::Device device) {
  const size_t count = shard.size() / 3;
  at::Tensor out = at::zeros({1}, at::TensorOptions(device).dtype(at::kLong));
  for (size_t i = 0; i < count; ++i) {
    const at::Tensor along = at::arange(shard[count + i], out.options()).add_(shard[i]);
    out = (out.mul(shard[2 * count + i]).unsqueeze(-1) + along).flatten();
  }
  return out;
}

/// Products [b, h, ...] of matrices [b, h, ...] and [b, g, ...], head by head.
at::Tensor times(const at::Tensor& of_queries, const at::Tensor& of_keys) {
  const int64_t groups = of_keys.size(1);
  if (of_queries.size(1) == groups) return of_queries.matmul(of_keys);
  return of_queries.unflatten(1, {groups, -1}).matmul(of_keys.unsqueeze(2)).flatten(1, 2);
}

/// Which scores there are.
struct Options {
  std::optional<at::Tensor> mask;
  bool causal;
  std::optional<double> scale;
  at::IntArrayRef rows;
  at::IntArrayRef columns;

  /// The operand of the softmax.
  at::Tensor scores(const at::Tensor& query, const at::Tensor& key) const {
    const double factor = scale.value_or(1 / std::sqrt(static_cast<double>(query.size(3))));
    at::Tensor out = times(wide(query) * factor, wide(key).mT());
    if (causal) {
      const at::Tensor of_rows = indices_of(rows, query.device()).unsqueeze(-1);
      out.masked_fill_(indices_of(columns, query.device()).gt(of_rows), kNone);
    }
    if (!mask) return out;
    return mask->scalar_type() == at::kBool ? out.masked_fill_(mask->logical_not(), kNone) : out.add_(*mask);
  }
};

/// log Σ exp(score) for each query [b, h, l]; the results of shards of the keys are reduced by logaddexp.
at::Tensor attention_lse(const at::Tensor& query, const at::Tensor& key, const at::Tensor& /*value*/,
                         const std::optional<at::Tensor>& mask, bool causal, std::optional<double> scale,
                         at::IntArrayRef rows, at::IntArrayRef columns, at::ScalarType dtype) {
  return Options{mask, causal, scale, rows, columns}.scores(query, key).logsumexp(-1).to(dtype);
}

/// The attention, where `lse` is that of all keys; the results of shards of the keys are summed. A row without keys has
/// weights of zero.
at::Tensor attention_of(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value, const at::Tensor& lse,
                        const std::optional<at::Tensor>& mask, bool causal, std::optional<double> scale,
                        at::IntArrayRef rows, at::IntArrayRef columns) {
  const at::Tensor scores = Options{mask, causal, scale, rows, columns}.scores(query, key);
  const at::Tensor shift = lse.masked_fill(lse.eq(kNone), 0).to(scores.scalar_type()).unsqueeze(-1);
  return times((scores - shift).exp_(), value.to(scores.scalar_type())).to(query.scalar_type());
}

TORCH_LIBRARY_IMPL(joinsum, CompositeExplicitAutograd, library) {
  library.impl("attention_lse", &attention_lse);
  library.impl("attention_of", &attention_of);
}

}  // namespace
}  // namespace joinsum::kernels::torch_call
