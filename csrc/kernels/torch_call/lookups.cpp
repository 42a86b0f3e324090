// Lookups of rows of a table and of scores of classes, of which each site has a shard.

#include "kernels/torch_call/lookups.h"

#include <algorithm>
#include <cstring>

#include <ATen/ATen.h>
#include <ATen/Dispatch.h>
#include <torch/library.h>

#include "kernels/threads/parallel.h"
#include "kernels/torch_call/axis_shard.h"
#include "kernels/torch_call/processor_rows.h"

namespace joinsum::kernels::torch_call {
namespace {

using Optional = std::optional<at::Tensor>;
using Two = std::tuple<at::Tensor, at::Tensor>;

bool given(const Optional& tensor) { return tensor && tensor->defined(); }

// --- by torch's operators --------------------------------------------------------------------------------------------

at::Tensor composed_embedding(const at::Tensor& table, const at::Tensor& index, at::IntArrayRef offsets,
                              at::IntArrayRef local, at::IntArrayRef extents) {
  if (local == extents) return at::embedding(table, index);
  const auto [found, present] = local_index(index, AxisShard(offsets, local, extents));
  return at::embedding(table, found).masked_fill_(present.logical_not().unsqueeze(-1), 0);
}

at::Tensor composed_embedding_backward(const at::Tensor& grad, const at::Tensor& index, const at::Tensor& rows,
                                       int64_t padding, int64_t extent) {
  const int64_t count = rows.numel();
  if (count == extent) return at::embedding_dense_backward(grad, index, extent, padding, false);
  at::Tensor out = at::zeros({count, grad.size(-1)}, grad.options());
  if (count == 0) return out;
  const at::Tensor wanted = index.reshape(-1).to(rows.scalar_type());
  const at::Tensor found = at::searchsorted(rows, wanted).clamp_max_(count - 1);
  const at::Tensor present = rows.index_select(0, found).eq(wanted).logical_and_(wanted.ne(padding));
  const at::Tensor which = present.nonzero().squeeze(1);
  return out.index_add_(0, found.index_select(0, which), grad.reshape({-1, grad.size(-1)}).index_select(0, which));
}

Two composed_scores(const at::Tensor& input, const at::Tensor& target, const Optional& weight, int64_t ignored,
                    const AxisShard& shard) {
  const auto [found, present] = local_targets(target, ignored, shard);
  const at::Tensor absent = present.logical_not();
  at::Tensor scores = input.gather(1, found.unsqueeze(1)).squeeze(1);
  at::Tensor weights = given(weight) ? weight->take(found).to(scores.scalar_type()) : at::ones_like(scores);
  return {scores.masked_fill(absent, 0), weights.masked_fill(absent, 0)};
}

at::Tensor composed_nll_backward(const at::Tensor& score, const at::Tensor& grad, const at::Tensor& target,
                                 const Optional& weight, int64_t ignored, at::IntArrayRef offsets,
                                 at::IntArrayRef local, at::IntArrayRef extents) {
  const auto [found, present] = local_targets(target, ignored, AxisShard(offsets, local, extents));
  const at::Tensor slope = given(weight) ? (grad * weight->take(found)).to(grad.scalar_type()) : grad;
  const at::Tensor values = slope.neg().masked_fill_(present.logical_not(), 0);
  return at::zeros(score.sizes(), grad.options()).scatter_(1, found.unsqueeze(1), values.unsqueeze(1));
}

// --- indices on the processor ----------------------------------------------------------------------------------------

at::Tensor indices_of(const at::Tensor& index) { return index.to(at::kLong).contiguous(); }

// --- embeddings ------------------------------------------------------------------------------------------------------

at::Tensor& embedding_shard_out(const at::Tensor& table, const at::Tensor& index, at::IntArrayRef offsets,
                                at::IntArrayRef local, at::IntArrayRef extents, at::Tensor& out) {
  const AxisShard shard(offsets, local, extents);
  const at::Tensor source = table.contiguous();
  const at::Tensor wanted = indices_of(index);
  const int64_t* rows = wanted.const_data_ptr<int64_t>();
  const int64_t bytes = source.size(1) * static_cast<int64_t>(source.element_size());
  const auto* from = static_cast<const char*>(source.const_data_ptr());
  auto* to = static_cast<char*>(out.mutable_data_ptr());
  threads::for_each_range(wanted.numel(), rows_per_thread(source.size(1)), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t row = shard.find(rows[i]);
      if (row < 0) {
        std::memset(to + i * bytes, 0, bytes);
      } else {
        std::memcpy(to + i * bytes, from + row * bytes, bytes);
      }
    }
  });
  return out;
}

/// For each index its place in `rows`, which ascend; -1 of those that are not there, and of `padding`.
std::vector<int64_t> places(const at::Tensor& index, const at::Tensor& rows, int64_t padding) {
  const at::Tensor wanted = indices_of(index);
  const at::Tensor own = indices_of(rows);
  const int64_t* first = own.const_data_ptr<int64_t>();
  const int64_t* last = first + own.numel();
  std::vector<int64_t> out(wanted.numel(), -1);
  for (size_t i = 0; i < out.size(); ++i) {
    const int64_t row = wanted.const_data_ptr<int64_t>()[i];
    const int64_t* found = std::lower_bound(first, last, row);
    if (found != last && *found == row && row != padding) out[i] = found - first;
  }
  return out;
}

at::Tensor& embedding_backward_shard_out(const at::Tensor& grad, const at::Tensor& index, const at::Tensor& rows,
                                         int64_t padding, int64_t /*extent*/, at::Tensor& out) {
  const std::vector<int64_t> to = places(index, rows, padding);
  const at::Tensor source = grad.contiguous();
  const int64_t width = out.size(1);
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, out.scalar_type(), "embedding_backward_shard", [&] {
    const scalar_t* from = source.const_data_ptr<scalar_t>();
    scalar_t* result = out.mutable_data_ptr<scalar_t>();
    // Each thread has some rows of the table, so that sums are in the order of the batch.
    threads::for_each_range(out.size(0), rows_per_thread(width), [&](int64_t begin, int64_t end) {
      std::fill(result + begin * width, result + end * width, scalar_t(0));
      for (size_t i = 0; i < to.size(); ++i) {
        if (to[i] < begin || to[i] >= end) continue;
        const scalar_t* x = from + static_cast<int64_t>(i) * width;
        scalar_t* sum = result + to[i] * width;
        for (int64_t c = 0; c < width; ++c) sum[c] += x[c];
      }
    });
  });
  return out;
}

// --- scores of classes -----------------------------------------------------------------------------------------------

/// Scores [n, c, *s] and targets [n, *s], of which number `i` has the score `at(i, class)`.
struct Classes {
  at::Tensor target;
  int64_t classes;
  int64_t inner;  ///< elements of *s
  Classes(const at::Tensor& score, const at::Tensor& of_sample)
      : target(indices_of(of_sample)),
        classes(score.size(1)),
        inner(score.size(0) == 0 ? 0 : of_sample.numel() / score.size(0)) {}
  int64_t at(int64_t i, int64_t class_) const { return (i / inner * classes + class_) * inner + i % inner; }
};

/// Calls `visit` with the number of each target and its class in the shard, -1 of others and ignored ones.
template <class Visit>
void for_each_target(const Classes& all, int64_t ignored, const AxisShard& shard, Visit visit) {
  const int64_t* targets = all.target.const_data_ptr<int64_t>();
  for (int64_t i = 0; i < all.target.numel(); ++i) visit(i, targets[i] == ignored ? -1 : shard.find(targets[i]));
}

at::Tensor contiguous(const Optional& tensor, at::ScalarType type) {
  return given(tensor) ? tensor->to(type).contiguous() : at::Tensor();
}

void scores_into(const at::Tensor& input, const at::Tensor& target, const Optional& weight, int64_t ignored,
                 const AxisShard& shard, at::Tensor& score, at::Tensor& share) {
  const Classes all(input, target);
  const at::Tensor source = input.contiguous();
  const at::Tensor weights = contiguous(weight, input.scalar_type());
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, input.scalar_type(), "class_scores", [&] {
    const scalar_t* from = source.const_data_ptr<scalar_t>();
    const scalar_t* of_class = weights.defined() ? weights.const_data_ptr<scalar_t>() : nullptr;
    scalar_t* scores = score.mutable_data_ptr<scalar_t>();
    scalar_t* shares = share.mutable_data_ptr<scalar_t>();
    for_each_target(all, ignored, shard, [&](int64_t i, int64_t found) {
      scores[i] = found < 0 ? scalar_t(0) : from[all.at(i, found)];
      shares[i] = found < 0 ? scalar_t(0) : of_class == nullptr ? scalar_t(1) : of_class[found];
    });
  });
}

std::tuple<at::Tensor&, at::Tensor&> class_scores_out(const at::Tensor& input, const at::Tensor& target,
                                                      const Optional& weight, int64_t ignored, at::IntArrayRef offsets,
                                                      at::IntArrayRef local, at::IntArrayRef extents, at::Tensor& score,
                                                      at::Tensor& share) {
  scores_into(input, target, weight, ignored, AxisShard(offsets, local, extents), score, share);
  return {score, share};
}

at::Tensor& nll_backward_shard_out(const at::Tensor& score, const at::Tensor& grad, const at::Tensor& target,
                                   const Optional& weight, int64_t ignored, at::IntArrayRef offsets,
                                   at::IntArrayRef local, at::IntArrayRef extents, at::Tensor& out) {
  const AxisShard shard(offsets, local, extents);
  const Classes all(score, target);
  const at::Tensor slope = grad.contiguous();
  const at::Tensor weights = contiguous(weight, grad.scalar_type());
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, out.scalar_type(), "nll_backward_shard", [&] {
    const scalar_t* slopes = slope.const_data_ptr<scalar_t>();
    const scalar_t* of_class = weights.defined() ? weights.const_data_ptr<scalar_t>() : nullptr;
    scalar_t* to = out.zero_().mutable_data_ptr<scalar_t>();
    for_each_target(all, ignored, shard, [&](int64_t i, int64_t found) {
      if (found < 0) return;
      to[all.at(i, found)] = -slopes[i] * (of_class == nullptr ? scalar_t(1) : of_class[found]);
    });
  });
  return out;
}

// --- new results -----------------------------------------------------------------------------------------------------

/// Rows of a shard of `table` [v, d] at `index`, zeros for rows of other shards; the results of all are summed.
at::Tensor embedding_shard(const at::Tensor& table, const at::Tensor& index, at::IntArrayRef offsets,
                           at::IntArrayRef local, at::IntArrayRef extents) {
  std::vector<int64_t> sizes = index.sizes().vec();
  sizes.push_back(table.size(1));
  at::Tensor out = at::empty(sizes, table.options());
  return embedding_shard_out(table, index, offsets, local, extents, out);
}

/// The gradient [v, d] of a shard of a table with `extent` rows; `rows` [v] has the numbers of its rows, ascending.
/// `grad` [*b, d] and `index` [*b] may be shards of the batch, whose results are summed.
at::Tensor embedding_backward_shard(const at::Tensor& grad, const at::Tensor& index, const at::Tensor& rows,
                                    int64_t padding, int64_t extent) {
  at::Tensor out = at::empty({rows.numel(), grad.size(-1)}, grad.options());
  return embedding_backward_shard_out(grad, index, rows, padding, extent, out);
}

template <bool composed>
Two class_scores_of(const at::Tensor& input, const at::Tensor& target, const Optional& weight, int64_t ignored,
                    at::IntArrayRef offsets, at::IntArrayRef local, at::IntArrayRef extents) {
  if constexpr (composed) return composed_scores(input, target, weight, ignored, AxisShard(offsets, local, extents));
  return class_scores(input, target, weight, ignored, AxisShard(offsets, local, extents));
}

/// The gradient [n, c, *s] of a shard of the scores, of which only the shape is read; `grad` [n, *s] is the gradient of
/// each target's loss.
at::Tensor nll_backward_shard(const at::Tensor& score, const at::Tensor& grad, const at::Tensor& target,
                              const Optional& weight, int64_t ignored, at::IntArrayRef offsets, at::IntArrayRef local,
                              at::IntArrayRef extents) {
  at::Tensor out = at::empty(score.sizes(), grad.options());
  return nll_backward_shard_out(score, grad, target, weight, ignored, offsets, local, extents, out);
}

TORCH_LIBRARY_FRAGMENT(joinsum, library) {
  library.def(
      "embedding_shard(Tensor table, Tensor index, SymInt[] offsets, SymInt[] local, SymInt[] extents) -> Tensor");
  library.def(
      "embedding_backward_shard(Tensor grad, Tensor index, Tensor rows, SymInt padding, SymInt extent) -> Tensor");
  library.def(
      "class_scores(Tensor input, Tensor target, Tensor? weight, SymInt ignored, SymInt[] offsets, SymInt[] local, "
      "SymInt[] extents) -> (Tensor, Tensor)");
  library.def(
      "nll_backward_shard(Tensor score, Tensor grad, Tensor target, Tensor? weight, SymInt ignored, SymInt[] offsets, "
      "SymInt[] local, SymInt[] extents) -> Tensor");
  library.def(
      "embedding_shard.out(Tensor table, Tensor index, SymInt[] offsets, SymInt[] local, SymInt[] extents, *, "
      "Tensor(a!) result_out) -> Tensor(a!)");
  library.def(
      "embedding_backward_shard.out(Tensor grad, Tensor index, Tensor rows, SymInt padding, SymInt extent, *, "
      "Tensor(a!) result_out) -> Tensor(a!)");
  library.def(
      "class_scores.out(Tensor input, Tensor target, Tensor? weight, SymInt ignored, SymInt[] offsets, SymInt[] local, "
      "SymInt[] extents, *, Tensor(a!) score_out, Tensor(b!) share_out) -> (Tensor(a!), Tensor(b!))");
  library.def(
      "nll_backward_shard.out(Tensor score, Tensor grad, Tensor target, Tensor? weight, SymInt ignored, SymInt[] "
      "offsets, SymInt[] local, SymInt[] extents, *, Tensor(a!) result_out) -> Tensor(a!)");
}

TORCH_LIBRARY_IMPL(joinsum, CompositeExplicitAutograd, library) {
  library.impl("embedding_shard", &composed_embedding);
  library.impl("embedding_backward_shard", &composed_embedding_backward);
  library.impl("class_scores", &class_scores_of<true>);
  library.impl("nll_backward_shard", &composed_nll_backward);
}

TORCH_LIBRARY_IMPL(joinsum, CPU, library) {
  library.impl("embedding_shard", &embedding_shard);
  library.impl("embedding_backward_shard", &embedding_backward_shard);
  library.impl("class_scores", &class_scores_of<false>);
  library.impl("nll_backward_shard", &nll_backward_shard);
  library.impl("embedding_shard.out", &embedding_shard_out);
  library.impl("embedding_backward_shard.out", &embedding_backward_shard_out);
  library.impl("class_scores.out", &class_scores_out);
  library.impl("nll_backward_shard.out", &nll_backward_shard_out);
}

}  // namespace

Two local_index(const at::Tensor& index, const AxisShard& shard) {
  at::Tensor rest = index;
  at::Tensor found = at::zeros_like(index);
  at::Tensor present = at::ones_like(index, index.options().dtype(at::kBool));
  int64_t step = 1;
  for (size_t i = shard.factors().size(); i-- > 0;) {
    const auto& [offset, local, extent] = shard.factors()[i];
    const at::Tensor coordinate = rest.remainder(extent).sub_(offset);
    rest = rest.div(extent, "floor");
    present.logical_and_(coordinate.ge(0)).logical_and_(coordinate.lt(local));
    found.add_(coordinate, step);
    step *= local;
  }
  // What remains is zero of an index in range; without waiting for the device.
  at::_assert_async(rest.eq(0).all(), "index out of range");
  return {found.masked_fill_(present.logical_not(), 0), present};
}

Two local_targets(const at::Tensor& target, int64_t ignored, const AxisShard& shard) {
  const at::Tensor skipped = target.eq(ignored);
  auto [found, present] = local_index(target.masked_fill(skipped, 0), shard);
  return {found, present.logical_and_(skipped.logical_not())};
}

Two class_scores(const at::Tensor& input, const at::Tensor& target, const Optional& weight, int64_t ignored,
                 const AxisShard& shard) {
  if (!input.is_cpu()) return composed_scores(input, target, weight, ignored, shard);
  at::Tensor score = at::empty(target.sizes(), input.options());
  at::Tensor share = at::empty(target.sizes(), input.options());
  scores_into(input, target, weight, ignored, shard, score, share);
  return {score, share};
}

}  // namespace joinsum::kernels::torch_call
