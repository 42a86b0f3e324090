#include "kernels/torch_call/tiled_attention.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include <ATen/Parallel.h>

#include "base/dims.h"
#include "kernels/products/products.h"
#include "kernels/threads/parallel.h"
#include "kernels/torch_call/processor_rows.h"

namespace joinsum::kernels::torch_call {
namespace {

/// Elements of the tiles of scores that a thread works on, 2 MiB: with fewer, products are too small for their calls.
constexpr int64_t kTileElements = 524'288;
constexpr int64_t kMostQueries = 512;
constexpr int64_t kMostKeys = 512;

/// Products of fewer numbers take less time than their calls.
constexpr int64_t kFewestMultiplications = 524'288;

/// The score of a key that a query does not attend to.
constexpr float kNone = -std::numeric_limits<float>::infinity();

/// How the work is divided: heads of one batch, queries and keys that are multiplied at once.
struct Division {
  int64_t heads;
  int64_t queries;
  int64_t keys;

  /// `tiles` of scores are in use at a time.
  Division(const at::Tensor& query, const at::Tensor& key, int64_t tiles)
      : queries(std::min(query.size(2), kMostQueries)), keys(std::min(key.size(2), kMostKeys)) {
    const int64_t for_each_thread = ceil_div(query.size(0) * query.size(1), at::get_num_threads());
    heads = std::clamp<int64_t>(kTileElements / (tiles * queries * keys), 1, std::min(query.size(1), for_each_thread));
  }

  int64_t groups_of_heads(const at::Tensor& query) const { return ceil_div(query.size(1), heads); }
};

/// Some heads of a batch.
struct Heads {
  int64_t batch;
  int64_t begin;
  int64_t count;

  Heads(const Division& division, const at::Tensor& query, int64_t group)
      : batch(group / division.groups_of_heads(query)),
        begin(group % division.groups_of_heads(query) * division.heads),
        count(std::min(division.heads, query.size(1) - begin)) {}

  /// These heads and rows [first, first + rows) of a tensor [b, h, rows, e].
  at::Tensor of(const at::Tensor& x, int64_t first, int64_t rows) const {
    return x.as_strided({count, rows, x.size(3)}, {x.stride(1), x.stride(2), x.stride(3)},
                        x.storage_offset() + batch * x.stride(0) + begin * x.stride(1) + first * x.stride(2));
  }
};

/// Rows [begin, begin + count) of queries or of keys.
struct Range {
  int64_t begin;
  int64_t count;
  int64_t end() const { return begin + count; }
};

/// Tiles of `each` rows of [0, end).
std::vector<Range> ranges(int64_t end, int64_t each) {
  std::vector<Range> out;
  for (int64_t begin = 0; begin < end; begin += each) out.push_back({begin, std::min(each, end - begin)});
  return out;
}

/// The keys that some of the queries attend to.
int64_t keys_of(const Range& queries, const at::Tensor& key, bool causal) {
  return causal ? std::min(key.size(2), queries.end()) : key.size(2);
}

/// A row of a tensor [heads, rows, e] whose last axis is dense.
float* row_of(const at::Tensor& x, int64_t head, int64_t row) {
  return static_cast<float*>(x.data_ptr()) + head * x.stride(0) + row * x.stride(1);
}

/// A tile of scores [heads, queries, keys] in given memory.
class Tile {
 public:
  Tile(const at::Tensor& memory, int64_t place, const Heads& heads, Range queries, Range keys, bool causal)
      : heads_(heads.count),
        queries_(queries),
        keys_(keys),
        causal_(causal),
        scores_(memory.as_strided({heads_, queries.count, keys.count}, {queries.count * keys.count, keys.count, 1},
                                  place * memory.stride(0))) {}

  const at::Tensor& scores() const { return scores_; }

  /// Calls `visit(head, row, scores, count)` for all queries: the first `count` scores are those of the keys that the
  /// query attends to, and of some more in whose place is `rest`. Then sets scores of further keys to 0.
  template <class Visit>
  void for_each(float rest, Visit visit) const {
    constexpr int64_t kLanes = 16;
    for (int64_t head = 0; head < heads_; ++head) {
      for (int64_t row = 0; row < queries_.count; ++row) {
        float* const scores = row_of(scores_, head, row);
        const int64_t last = queries_.begin + row + 1 - keys_.begin;
        const int64_t attended = causal_ ? std::clamp<int64_t>(last, 0, keys_.count) : keys_.count;
        const int64_t count = std::min(ceil_div(attended, kLanes) * kLanes, keys_.count);
        std::fill(scores + attended, scores + count, rest);
        visit(head, row, scores, count);
        std::fill(scores + count, scores + keys_.count, 0.0F);
      }
    }
  }

 private:
  int64_t heads_;
  Range queries_;
  Range keys_;
  bool causal_;
  at::Tensor scores_;
};

/// Memory for `tiles` tiles of each thread.
at::Tensor tiles_of_threads(const Division& division, const at::Tensor& query, int64_t tiles) {
  return at::empty({tiles * at::get_num_threads(), division.heads * division.queries * division.keys}, query.options());
}

/// Memory in the order [b, l, h, e], as layers around attention read it.
at::Tensor empty_like_heads(const at::Tensor& x, int64_t extent) {
  return at::empty({x.size(0), x.size(2), x.size(1), extent}, x.options()).transpose(1, 2);
}

/// As torch's kernel, with the axes of the queries in memory.
at::Tensor empty_result(const at::Tensor& query, int64_t extent) {
  const at::Tensor like = at::empty_like(query.detach());
  return query.size(3) == extent && like.stride(3) == 1 ? like : empty_like_heads(query, extent);
}

/// Products read columns of dense matrices faster than of others.
at::Tensor dense(const at::Tensor& x) { return x.detach().contiguous(); }

/// Keys or values with a head for each head of the queries.
at::Tensor for_all_heads(const at::Tensor& x, int64_t heads) {
  return x.size(1) == heads ? x : x.repeat_interleave(heads / x.size(1), 1);
}

/// The gradient of keys or values that serve several heads.
at::Tensor for_own_heads(const at::Tensor& grad, int64_t heads) {
  if (grad.size(1) == heads) return grad;
  return grad.transpose(1, 2).unflatten(2, {heads, grad.size(1) / heads}).sum(3).transpose(1, 2);
}

/// What is known of the softmax of each row of a tile [heads, queries] from the keys read so far.
struct Softmax {
  float most = kNone;
  float total = 0;
};

/// The attention of some queries to all keys.
class Forward {
 public:
  Forward(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value, bool causal, double scale)
      : query_(dense(query)),
        key_(dense(for_all_heads(key, query.size(1)))),
        value_(dense(for_all_heads(value, query.size(1)))),
        causal_(causal),
        scale_(static_cast<float>(scale)),
        division_(query_, key_, 1),
        memory_(tiles_of_threads(division_, query_, 1)),
        out_(empty_result(query, value.size(3))),
        lse_(empty_like_heads(query_, 1)) {}

  std::tuple<at::Tensor, at::Tensor> run() const {
    const std::vector<Range> tiles = ranges(query_.size(2), division_.queries);
    const auto count = static_cast<int64_t>(tiles.size());
    const int64_t groups = query_.size(0) * division_.groups_of_heads(query_);
    threads::for_each_range(groups * count, [&](int64_t begin, int64_t end) {
      const at::AutoDispatchBelowADInplaceOrView without_autograd;
      for (int64_t i = begin; i < end; ++i) {
        attend(Heads(division_, query_, i / count), tiles[static_cast<size_t>(i % count)]);
      }
    });
    return {out_, lse_.squeeze(3)};
  }

 private:
  void attend(const Heads& heads, const Range& queries) const {
    const at::Tensor some_queries = heads.of(query_, queries.begin, queries.count);
    const at::Tensor results = heads.of(out_, queries.begin, queries.count);
    std::vector<Softmax> softmaxes(static_cast<size_t>(heads.count * queries.count));
    for (const Range& keys : ranges(keys_of(queries, key_, causal_), division_.keys)) {
      const Tile tile(memory_, at::get_thread_num(), heads, queries, keys, causal_);
      products::matrix_product_into(tile.scores(), some_queries,
                                    heads.of(key_, keys.begin, keys.count).transpose(1, 2));
      tile.for_each(kNone, [&](int64_t head, int64_t row, float* scores, int64_t count) {
        Softmax& softmax = softmaxes[static_cast<size_t>(head * queries.count + row)];
        const float most = std::max(softmax.most, loops_.maximum(scores, count) * scale_);
        const float shift = most == kNone ? 0 : most;
        const float total = loops_.exponentials(scores, count, scale_, shift);
        if (keys.begin == 0) {
          softmax = {most, total};
        } else {
          const float factor = std::exp(softmax.most - shift);
          loops_.scaled(row_of(results, head, row), results.size(2), factor, row_of(results, head, row));
          softmax = {most, softmax.total * factor + total};
        }
      });
      products::matrix_product_into(results, tile.scores(), heads.of(value_, keys.begin, keys.count),
                                    keys.begin == 0 ? 0 : 1);
    }
    finish(softmaxes, results, heads.of(lse_, queries.begin, queries.count));
  }

  void finish(const std::vector<Softmax>& softmaxes, const at::Tensor& results, const at::Tensor& lse) const {
    for (int64_t head = 0; head < results.size(0); ++head) {
      for (int64_t row = 0; row < results.size(1); ++row) {
        const Softmax& softmax = softmaxes[static_cast<size_t>(head * results.size(1) + row)];
        loops_.scaled(row_of(results, head, row), results.size(2), 1 / softmax.total, row_of(results, head, row));
        *row_of(lse, head, row) = softmax.most + std::log(softmax.total);
      }
    }
  }

  at::Tensor query_, key_, value_;
  bool causal_;
  float scale_;
  Division division_;
  at::Tensor memory_, out_, lse_;
  const rows::RowLoops<float>& loops_ = row_loops<float>();
};

/// The gradients of some heads.
class Backward {
 public:
  Backward(const at::Tensor& grad, const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
           const at::Tensor& out, const at::Tensor& lse, bool causal, double scale)
      : grad_(dense(grad)),
        query_(dense(query)),
        key_(dense(for_all_heads(key, query.size(1)))),
        value_(dense(for_all_heads(value, query.size(1)))),
        out_(out.stride(3) == 1 ? out.detach() : dense(out)),
        lse_(lse.detach().unsqueeze(3)),
        causal_(causal),
        scale_(static_cast<float>(scale)),
        division_(query_, key_, 2),
        memory_(tiles_of_threads(division_, query_, 2)),
        to_query_(empty_like_heads(query_, query_.size(3))),
        to_key_(empty_like_heads(key_, key_.size(3)).zero_()),
        to_value_(empty_like_heads(value_, value_.size(3)).zero_()) {}

  std::tuple<at::Tensor, at::Tensor, at::Tensor> run(int64_t heads_of_keys) const {
    const int64_t groups = query_.size(0) * division_.groups_of_heads(query_);
    // With fewer groups than threads, these share each product.
    if (groups < at::get_num_threads()) {
      differentiate(0, groups);
    } else {
      threads::for_each_range(groups, [&](int64_t begin, int64_t end) { differentiate(begin, end); });
    }
    return {to_query_, for_own_heads(to_key_, heads_of_keys), for_own_heads(to_value_, heads_of_keys)};
  }

 private:
  void differentiate(int64_t begin, int64_t end) const {
    const at::AutoDispatchBelowADInplaceOrView without_autograd;
    for (int64_t group = begin; group < end; ++group) {
      const Heads heads(division_, query_, group);
      for (const Range& queries : ranges(query_.size(2), division_.queries)) {
        for (const Range& keys : ranges(keys_of(queries, key_, causal_), division_.keys)) {
          differentiate(heads, queries, keys);
        }
      }
    }
  }

  void differentiate(const Heads& heads, const Range& queries, const Range& keys) const {
    const int64_t place = 2 * at::get_thread_num();
    const Tile weights(memory_, place, heads, queries, keys, causal_);
    const Tile slopes(memory_, place + 1, heads, queries, keys, causal_);
    const at::Tensor grad = heads.of(grad_, queries.begin, queries.count);
    const at::Tensor query = heads.of(query_, queries.begin, queries.count);
    const at::Tensor key = heads.of(key_, keys.begin, keys.count);
    const at::Tensor value = heads.of(value_, keys.begin, keys.count);
    const at::Tensor out = heads.of(out_, queries.begin, queries.count);
    const at::Tensor lse = heads.of(lse_, queries.begin, queries.count);
    products::matrix_product_into(weights.scores(), query, key.transpose(1, 2));
    weights.for_each(kNone, [&](int64_t head, int64_t row, float* scores, int64_t count) {
      loops_.exponentials(scores, count, scale_, *row_of(lse, head, row));
    });
    products::matrix_product_into(heads.of(to_value_, keys.begin, keys.count), weights.scores().transpose(1, 2), grad,
                                  1);
    products::matrix_product_into(slopes.scores(), grad, value.transpose(1, 2));
    slopes.for_each(0, [&](int64_t head, int64_t row, float* scores, int64_t count) {
      const float mean = loops_.sum_of_products(row_of(grad, head, row), row_of(out, head, row), grad.size(2));
      loops_.softmax_slopes(row_of(weights.scores(), head, row), count, mean, scale_, scores);
    });
    products::matrix_product_into(heads.of(to_query_, queries.begin, queries.count), slopes.scores(), key,
                                  keys.begin == 0 ? 0 : 1);
    products::matrix_product_into(heads.of(to_key_, keys.begin, keys.count), slopes.scores().transpose(1, 2), query, 1);
  }

  at::Tensor grad_, query_, key_, value_, out_, lse_;
  bool causal_;
  float scale_;
  Division division_;
  at::Tensor memory_, to_query_, to_key_, to_value_;
  const rows::RowLoops<float>& loops_ = row_loops<float>();
};

}  // namespace

bool suits_tiles(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value, double scale) {
  const auto is_float = [](const at::Tensor& x) { return x.is_cpu() && x.scalar_type() == at::kFloat; };
  return products::onednn_is_faster() && is_float(query) && is_float(key) && is_float(value) && scale > 0 &&
         query.numel() > 0 && key.numel() > 0 && value.numel() > 0 &&
         query.size(2) * key.size(2) * query.size(3) >= kFewestMultiplications;
}

std::tuple<at::Tensor, at::Tensor> tiled_attention(const at::Tensor& query, const at::Tensor& key,
                                                   const at::Tensor& value, bool causal, double scale) {
  return Forward(query, key, value, causal, scale).run();
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> tiled_attention_backward(const at::Tensor& grad, const at::Tensor& query,
                                                                        const at::Tensor& key, const at::Tensor& value,
                                                                        const at::Tensor& out, const at::Tensor& lse,
                                                                        bool causal, double scale) {
  return Backward(grad, query, key, value, out, lse, causal, scale).run(key.size(1));
}

}  // namespace joinsum::kernels::torch_call
