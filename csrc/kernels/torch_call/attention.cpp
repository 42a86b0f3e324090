// Attention of queries [b, h, l, e] and keys and values [b, g, s, e], each head of which may serve several adjacent
// heads of queries, by the kernels of their device. `rows` and `columns` are the shards of l and s (axis_shard.h:
// offsets, local and global extents, one list after another); empty where they are whole, or where it does not matter.

#include <algorithm>
#include <limits>
#include <optional>
#include <tuple>
#include <vector>

#include <ATen/ATen.h>
#include <torch/library.h>

#include "kernels/torch_call/device_attention.h"

namespace joinsum::kernels::torch_call {
namespace {

/// Neighbouring elements of an axis that are neighbours in a shard of it.
struct Run {
  int64_t place = 0;  ///< of the first one in the shard
  int64_t begin = 0;  ///< its index in the axis
  int64_t length = 0;
  int64_t end() const { return begin + length; }
  int64_t place_of(int64_t index) const { return place + index - begin; }
};

/// The runs of a shard of `length` elements, in order.
std::vector<Run> runs_of(at::IntArrayRef shard, int64_t length) {
  if (shard.empty()) return {{0, 0, length}};
  const size_t count = shard.size() / 3;
  const at::IntArrayRef offsets = shard.slice(0, count);
  const at::IntArrayRef local = shard.slice(count, count);
  const at::IntArrayRef extents = shard.slice(2 * count, count);
  size_t outer = count;  // factors that runs do not go through
  int64_t step = 1;      // elements of the axis for one index of the last outer factor
  while (outer > 0 && offsets[outer - 1] == 0 && local[outer - 1] == extents[outer - 1]) step *= extents[--outer];
  std::vector<Run> runs{{0, 0, step}};
  if (outer > 0) {
    --outer;
    runs[0] = {0, offsets[outer] * step, local[outer] * step};
    step *= extents[outer];
  }
  while (outer-- > 0) {
    const std::vector<Run> inner = std::move(runs);
    const int64_t places = inner.back().place + inner.back().length;
    runs.clear();
    for (int64_t i = 0; i < local[outer]; ++i) {
      for (const Run& run : inner)
        runs.push_back({run.place + i * places, run.begin + (offsets[outer] + i) * step, run.length});
    }
    step *= extents[outer];
  }
  return runs;
}

/// Queries and the keys that they attend to, as places in their shards: all of these, or with `causal` the first query
/// the first key, and each further one a key more.
struct Block {
  int64_t row = 0;
  int64_t rows = 0;
  int64_t column = 0;
  int64_t columns = 0;
  bool causal = false;
  bool covers(int64_t all_rows, int64_t all_columns) const { return rows == all_rows && columns == all_columns; }
};

/// The blocks of two runs where each query attends to the keys up to its own index: those before the first query that
/// attends to any, then the diagonal.
void add_causal_blocks(const Run& rows, const Run& columns, std::vector<Block>& blocks) {
  const int64_t first = std::max(rows.begin, columns.begin);
  const int64_t count = rows.end() - first;
  if (count <= 0) return;
  const int64_t before = std::min(first, columns.end()) - columns.begin;
  const int64_t diagonal = std::min(rows.end(), columns.end()) - first;
  if (before > 0) blocks.push_back({rows.place_of(first), count, columns.place, before, false});
  if (diagonal > 0) blocks.push_back({rows.place_of(first), count, columns.place_of(first), diagonal, true});
}

/// What forward and backward pass share.
struct Options {
  std::optional<at::Tensor> mask;
  bool causal;
  std::optional<double> scale;
  at::IntArrayRef rows;
  at::IntArrayRef columns;

  /// Blocks of queries and keys of these numbers; those of one query in the order of the keys.
  std::vector<Block> blocks(int64_t all_rows, int64_t all_columns) const {
    if (!causal) return {{0, all_rows, 0, all_columns, false}};
    TORCH_CHECK(!mask.has_value(), "attention: it has a mask or is causal, not both");
    std::vector<Block> out;
    for (const Run& row : runs_of(rows, all_rows)) {
      for (const Run& column : runs_of(columns, all_columns)) add_causal_blocks(row, column, out);
    }
    return out;
  }
};

at::Tensor rows_of(const at::Tensor& tensor, const Block& block) { return tensor.narrow(2, block.row, block.rows); }

at::Tensor columns_of(const at::Tensor& tensor, const Block& block) {
  return tensor.narrow(2, block.column, block.columns);
}

using Two = std::tuple<at::Tensor, at::Tensor>;
using Three = std::tuple<at::Tensor, at::Tensor, at::Tensor>;

/// Attention to two sets of keys; `lse` are the logarithms of the softmax's denominators.
Two merged(const Two& first, const Two& second) {
  const auto& [out, lse] = first;
  const auto& [other, other_lse] = second;
  at::Tensor all = at::logaddexp(lse, other_lse);
  at::Tensor sum = out * (lse - all).exp_().unsqueeze(-1);
  sum.addcmul_(other.to(sum.scalar_type()), (other_lse - all).exp_().unsqueeze(-1));
  return {std::move(sum), std::move(all)};
}

/// Each part of the queries attends to the keys before it, then to those on the diagonal.
Two attention(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
              const std::optional<at::Tensor>& mask, bool causal, std::optional<double> scale, at::IntArrayRef rows) {
  const Options options{mask, causal, scale, rows, {}};
  const std::vector<Block> blocks = options.blocks(query.size(2), key.size(2));
  std::vector<at::Tensor> outs;
  std::vector<at::Tensor> sums;
  for (size_t i = 0; i < blocks.size(); ++i) {
    const Block& block = blocks[i];
    Two result = device_attention(rows_of(query, block), columns_of(key, block), columns_of(value, block), mask,
                                  block.causal, scale);
    if (i > 0 && blocks[i - 1].row == block.row) {
      result = merged({outs.back(), sums.back()}, result);
      outs.pop_back();
      sums.pop_back();
    }
    outs.push_back(std::get<0>(result).to(query.scalar_type()));
    sums.push_back(std::get<1>(result));
  }
  return outs.size() == 1 ? Two(outs[0], sums[0]) : Two(at::cat(outs, 2), at::cat(sums, 2));
}

/// Attention to a shard of the keys, as if there were no others, in single precision at least; queries that attend to
/// none of them have zeros and a denominator of 0.
Two attention_to_shard(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                       const Options& options) {
  const std::vector<Block> blocks = options.blocks(query.size(2), key.size(2));
  const auto wide = query.options().dtype(query.scalar_type() == at::kDouble ? at::kDouble : at::kFloat);
  at::Tensor out = at::zeros({query.size(0), query.size(1), query.size(2), value.size(3)}, wide);
  at::Tensor lse = at::full(out.sizes().slice(0, 3), -std::numeric_limits<double>::infinity(), wide);
  if (key.size(2) == 0) return {out, lse};
  constexpr double kNone = -std::numeric_limits<double>::infinity();
  for (const Block& block : blocks) {
    auto [some, some_lse] = device_attention(rows_of(query, block), columns_of(key, block), columns_of(value, block),
                                             options.mask, block.causal, options.scale);
    if (options.mask) {
      const at::Tensor empty = (*options.mask == kNone).all(-1).expand_as(some_lse);
      some_lse = some_lse.masked_fill(empty, kNone);
      some = some.masked_fill(empty.unsqueeze(-1), 0);
    }
    const at::Tensor own = rows_of(lse, block);
    const at::Tensor all = at::logaddexp(own, some_lse.to(wide));
    const at::Tensor shift = all.masked_fill(all == kNone, 0);
    const at::Tensor sum = rows_of(out, block);
    sum.mul_((own - shift).exp_().unsqueeze(-1));
    sum.addcmul_(some.to(wide), (some_lse - shift).exp_().unsqueeze(-1));
    own.copy_(all);
  }
  return {out, lse};
}

/// log Σ exp(score) for each query [b, h, l]; the results of shards of the keys are reduced by logaddexp.
at::Tensor attention_lse(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                         const std::optional<at::Tensor>& mask, bool causal, std::optional<double> scale,
                         at::IntArrayRef rows, at::IntArrayRef columns, at::ScalarType dtype) {
  const Options options{added_mask(mask, query), causal, scale, rows, columns};
  return std::get<1>(attention_to_shard(query, key, value, options)).to(dtype);
}

/// The attention, where `lse` is that of all keys; the results of shards of the keys are summed.
at::Tensor attention_of(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value, const at::Tensor& lse,
                        const std::optional<at::Tensor>& mask, bool causal, std::optional<double> scale,
                        at::IntArrayRef rows, at::IntArrayRef columns) {
  const Options options{added_mask(mask, query), causal, scale, rows, columns};
  auto [out, own] = attention_to_shard(query, key, value, options);
  const at::Tensor all = lse.to(own.scalar_type());
  const at::Tensor shift = all.masked_fill(all == -std::numeric_limits<double>::infinity(), 0);
  return out.mul_((own - shift).exp_().unsqueeze(-1)).to(query.scalar_type());
}

/// The gradients of queries, keys and values that come from these queries and keys, where `out` and `lse` are those of
/// attention to all keys.
Three attention_backward(const at::Tensor& grad, const at::Tensor& query, const at::Tensor& key,
                         const at::Tensor& value, const at::Tensor& out, const at::Tensor& lse,
                         const std::optional<at::Tensor>& mask, bool causal, std::optional<double> scale,
                         at::IntArrayRef rows, at::IntArrayRef columns) {
  const Options options{mask, causal, scale, rows, columns};
  const auto run = [&](const Block& block) {
    return device_attention_backward(rows_of(grad, block), rows_of(query, block), columns_of(key, block),
                                     columns_of(value, block), rows_of(out, block), rows_of(lse, block), mask,
                                     block.causal, scale);
  };
  const std::vector<Block> blocks = options.blocks(query.size(2), key.size(2));
  if (blocks.size() == 1 && blocks[0].covers(query.size(2), key.size(2))) return run(blocks[0]);
  const auto zeros = [&](const at::Tensor& like) {
    const auto of_sums = like.options().dtype(lse.scalar_type());
    return at::zeros({like.size(0), like.size(2), like.size(1), like.size(3)}, of_sums).transpose(1, 2);
  };
  at::Tensor of_query = zeros(query);
  at::Tensor of_key = zeros(key);
  at::Tensor of_value = zeros(value);
  for (const Block& block : blocks) {
    const auto [to_query, to_key, to_value] = run(block);
    rows_of(of_query, block).add_(to_query);
    columns_of(of_key, block).add_(to_key);
    columns_of(of_value, block).add_(to_value);
  }
  const auto type = query.scalar_type();
  return {of_query.to(type), of_key.to(type), of_value.to(type)};
}

TORCH_LIBRARY_FRAGMENT(joinsum, library) {
  library.def(
      "attention(Tensor query, Tensor key, Tensor value, Tensor? mask=None, bool causal=False, float? scale=None, "
      "int[] rows=[]) -> (Tensor, Tensor)");
  library.def(
      "attention_backward(Tensor grad, Tensor query, Tensor key, Tensor value, Tensor out, Tensor lse, "
      "Tensor? mask=None, bool causal=False, float? scale=None, int[] rows=[], int[] columns=[]) "
      "-> (Tensor, Tensor, Tensor)");
  library.def(
      "attention_lse(Tensor query, Tensor key, Tensor value, Tensor? mask, bool causal, float? scale, int[] rows, "
      "int[] columns, ScalarType dtype) -> Tensor");
  library.def(
      "attention_of(Tensor query, Tensor key, Tensor value, Tensor lse, Tensor? mask, bool causal, float? scale, "
      "int[] rows, int[] columns) -> Tensor");
}

void register_attention(torch::Library& library) {
  library.impl("attention", &attention);
  library.impl("attention_backward", &attention_backward);
  library.impl("attention_lse", &attention_lse);
  library.impl("attention_of", &attention_of);
}

TORCH_LIBRARY_IMPL(joinsum, CPU, library) { register_attention(library); }
TORCH_LIBRARY_IMPL(joinsum, CUDA, library) { register_attention(library); }

}  // namespace
}  // namespace joinsum::kernels::torch_call
