#pragma once

#include <optional>
#include <tuple>

#include <ATen/ATen.h>

#include "kernels/torch_call/axis_shard.h"

namespace joinsum::kernels::torch_call {

/// By torch's operators, on any device: indices in a shard of an axis for global ones, 0 for indices of other shards;
/// and which are in this shard. Of an index out of range an assertion of the device fails.
std::tuple<at::Tensor, at::Tensor> local_index(const at::Tensor& index, const AxisShard& shard);

/// By torch's operators, on any device: the places in a shard of the classes of targets, 0 for other ones; and which
/// targets are in it and not ignored. Of a class out of range an assertion of the device fails, as in torch's own
/// kernels.
std::tuple<at::Tensor, at::Tensor> local_targets(const at::Tensor& target, int64_t ignored, const AxisShard& shard);

/// The score of each target, and its weight; zeros for ignored targets and classes of other shards. `input` [n, c] or
/// [n, c, *s], `target` [n, *s], `weight` [c].
std::tuple<at::Tensor, at::Tensor> class_scores(const at::Tensor& input, const at::Tensor& target,
                                                const std::optional<at::Tensor>& weight, int64_t ignored,
                                                const AxisShard& shard);

}  // namespace joinsum::kernels::torch_call
