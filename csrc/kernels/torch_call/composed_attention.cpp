#include <limits>
#include <optional>
#include <tuple>

#include <ATen/ATen.h>

#include "kernels/torch_call/device_attention.h"
#include "kernels/torch_call/normed_rows.h"

namespace joinsum::kernels::torch_call {
namespace {

constexpr double kNone = -std::numeric_limits<double>::infinity();

/// Products [b, h, ...] of matrices [b, h, ...] and [b, g, ...], head by head.
at::Tensor times(const at::Tensor& of_queries, const at::Tensor& of_keys) {
  const int64_t groups = of_keys.size(1);
  if (of_queries.size(1) == groups) return of_queries.matmul(of_keys);
  return of_queries.unflatten(1, {groups, -1}).matmul(of_keys.unsqueeze(2)).flatten(1, 2);
}

/// The operand of the softmax.
at::Tensor scores(const at::Tensor& query, const at::Tensor& key, const std::optional<at::Tensor>& mask, bool causal,
                  std::optional<double> scale) {
  at::Tensor out = times(wide(query) * factor_of(query, scale), wide(key).mT());
  if (causal)
    out.masked_fill_(at::ones({query.size(2), key.size(2)}, query.options().dtype(at::kBool)).triu_(1), kNone);
  if (!mask) return out;
  return mask->scalar_type() == at::kBool ? out.masked_fill_(mask->logical_not(), kNone) : out.add_(*mask);
}

/// The weights; a row without keys has weights of zero.
at::Tensor weights(const at::Tensor& scores, const at::Tensor& lse) {
  const at::Tensor shift = lse.to(scores.scalar_type()).masked_fill(lse.eq(kNone), 0).unsqueeze(-1);
  return (scores - shift).exp_();
}

}  // namespace

std::tuple<at::Tensor, at::Tensor> composed_attention(const at::Tensor& query, const at::Tensor& key,
                                                      const at::Tensor& value, const std::optional<at::Tensor>& mask,
                                                      bool causal, std::optional<double> scale) {
  const at::Tensor operand = scores(query, key, mask, causal, scale);
  at::Tensor lse = operand.logsumexp(-1);
  return {times(weights(operand, lse), wide(value)).to(query.scalar_type()), lse};
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> composed_attention_backward(
    const at::Tensor& grad, const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
    const at::Tensor& out, const at::Tensor& lse, const std::optional<at::Tensor>& mask, bool causal,
    std::optional<double> scale) {
  const int64_t groups = key.size(1);
  const at::Tensor above = wide(grad);
  const at::Tensor weight = weights(scores(query, key, mask, causal, scale), lse);
  const at::Tensor of_value = sum_of_shared(weight.mT().matmul(above), groups);
  at::Tensor of_scores = times(above, wide(value).mT());
  of_scores.sub_((above * wide(out)).sum(-1, true)).mul_(weight).mul_(factor_of(query, scale));
  const at::Tensor of_query = times(of_scores, wide(key));
  const at::Tensor of_key = sum_of_shared(of_scores.mT().matmul(wide(query)), groups);
  const auto type = query.scalar_type();
  return {of_query.to(type), of_key.to(type), of_value.to(type)};
}

}  // namespace joinsum::kernels::torch_call
