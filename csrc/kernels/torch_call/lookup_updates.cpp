// The operators `joinsum::sgd_lookup_update`, `adagrad_lookup_update` and `sparse_adam_lookup_update`: updates of the
// rows of a table that a lookup has read, by the gradient of what it found; other rows, and those of `padding`, stay as
// they are. An entry of `index` is a row of the whole table, of which `param` is the shard that `offsets`, `local` and
// `extents` say, all of it where they are empty. Sources: torch.optim.SGD, Adagrad and SparseAdam with sparse
// gradients.

#include <array>
#include <cmath>
#include <tuple>
#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/Dispatch.h>
#include <ATen/OpMathType.h>
#include <torch/library.h>

#include "kernels/torch_call/axis_shard.h"
#include "kernels/torch_call/lookups.h"
#include "kernels/torch_call/touched_rows.h"

namespace joinsum::kernels::torch_call {
namespace {

/// The gradient [*b, d] of what a lookup found by `index` [*b]; it is of what is maximised if `maximize`.
struct Lookup {
  const at::Tensor& grad;
  const at::Tensor& index;
  int64_t padding;
  bool maximize;
  AxisShard shard;
};

AxisShard shard_of(const at::Tensor& param, at::IntArrayRef offsets, at::IntArrayRef local, at::IntArrayRef extents) {
  return extents.empty() ? AxisShard(param.size(0)) : AxisShard(offsets, local, extents);
}

// --- updates ---------------------------------------------------------------------------------------------------------

/// Moments of elements, of which an update has up to two.
template <class T>
using Moments = std::array<T*, 2>;

template <class T>
T root(const T& x) {
  using at::sqrt;
  using std::sqrt;
  return sqrt(x);
}

// Updates change elements and their moments by the gradient. `T` is a number or a tensor, `N` that number or double.

template <class N>
struct Sgd {
  static constexpr size_t kMoments = 0;
  N descent;

  template <class T>
  void operator()(T& param, const Moments<T>& /*moments*/, const T& grad) const {
    param = param + grad * descent;
  }
};

template <class N>
struct Adagrad {
  static constexpr size_t kMoments = 1;
  N rate;
  N epsilon;

  template <class T>
  void operator()(T& param, const Moments<T>& moments, const T& grad) const {
    T& sum = *moments[0];
    sum = sum + grad * grad;
    param = param - grad / (root(sum) + epsilon) * rate;
  }
};

template <class N>
struct SparseAdam {
  static constexpr size_t kMoments = 2;
  N rate;
  N take1;
  N take2;
  N epsilon;

  template <class T>
  void operator()(T& param, const Moments<T>& moments, const T& grad) const {
    T& mean = *moments[0];
    T& square = *moments[1];
    mean = mean + (grad - mean) * take1;
    square = square + (grad * grad - square) * take2;
    param = param - mean / (root(square) + epsilon) * rate;
  }
};

/// An update by numbers of type N, which are given as tensors of one element.
template <template <class> class Kind, class N>
Kind<N> update_by(const std::vector<at::Tensor>& numbers) {
  const auto number = [&](size_t i) { return static_cast<N>(numbers[i].item<double>()); };
  if constexpr (Kind<N>::kMoments == 0) return {number(0)};
  if constexpr (Kind<N>::kMoments == 1) return {number(0), number(1)};
  if constexpr (Kind<N>::kMoments == 2) return {number(0), number(1), number(2), number(3)};
}

// --- on the processor ------------------------------------------------------------------------------------------------

/// The rows of a shard that are looked up; the entries of padding and of other shards are in a row behind the last one.
TouchedRows touched_by(const Lookup& lookup, int64_t rows) {
  const at::Tensor index = lookup.index.to(at::kLong).contiguous();
  const auto* from = index.const_data_ptr<int64_t>();
  std::vector<int64_t> row_of(index.numel(), rows);
  for (size_t i = 0; i < row_of.size(); ++i) {
    const int64_t found = from[i] == lookup.padding ? -1 : lookup.shard.find(from[i]);
    if (found >= 0) row_of[i] = found;
  }
  return {std::move(row_of), rows + 1};
}

/// `values` are the table [v, d] and its moments, which the update changes. Gradients of a row are added up in the
/// order of the index, so that results do not depend on threads.
template <template <class> class Kind>
void update_rows(const Lookup& lookup, const std::vector<at::Tensor>& values, const std::vector<at::Tensor>& numbers) {
  const int64_t rows = values[0].size(0), width = values[0].size(1);
  for (const at::Tensor& each : values) {
    TORCH_CHECK(each.is_contiguous() && each.dim() == 2 && each.sizes() == values[0].sizes() &&
                    each.scalar_type() == values[0].scalar_type(),
                "lookup_update: a table and its moments are contiguous matrices of one shape and dtype");
  }
  const TouchedRows touched = touched_by(lookup, rows);
  const at::Tensor grad = lookup.grad.to(values[0].scalar_type()).contiguous();
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, values[0].scalar_type(), "lookup_update", [&] {
    using N = at::opmath_type<scalar_t>;
    const auto update = update_by<Kind, N>(numbers);
    constexpr size_t kMoments = Kind<N>::kMoments;
    const N sign = lookup.maximize ? N(-1) : N(1);
    const auto* slopes = grad.const_data_ptr<scalar_t>();
    std::array<scalar_t*, kMoments + 1> arrays;
    for (size_t i = 0; i <= kMoments; ++i) arrays[i] = values[i].mutable_data_ptr<scalar_t>();
    touched.for_each(width, [&](int64_t place) {
      const int64_t row = touched.row(place);
      if (row == rows) return;
      thread_local std::vector<N> sum;
      sum.assign(width, N(0));
      touched.for_each_entry(place, [&](int64_t e) {
        const scalar_t* slope = slopes + e * width;
        for (int64_t c = 0; c < width; ++c) sum[c] += sign * static_cast<N>(slope[c]);
      });
      for (int64_t c = 0; c < width; ++c) {
        std::array<N, 3> x{};
        for (size_t i = 0; i <= kMoments; ++i) x[i] = static_cast<N>(arrays[i][row * width + c]);
        update(x[0], Moments<N>{&x[1], &x[2]}, sum[c]);
        for (size_t i = 0; i <= kMoments; ++i) arrays[i][row * width + c] = static_cast<scalar_t>(x[i]);
      }
    });
  });
}

// --- by torch's operators --------------------------------------------------------------------------------------------

template <template <class> class Kind>
void update_rows_composed(const Lookup& lookup, const std::vector<at::Tensor>& values,
                          const std::vector<at::Tensor>& numbers) {
  const at::ScalarType dtype = values[0].scalar_type(), wide = at::toOpMathType(dtype);
  const at::Tensor index = lookup.index.reshape(-1).to(at::kLong);
  const auto [found, present] = local_index(index, lookup.shard);
  const at::Tensor which = present.logical_and(index.ne(lookup.padding)).nonzero().squeeze(1);
  const auto [rows, place, counts] = at::_unique2(found.index_select(0, which), true, true);
  const at::Tensor grad = lookup.grad.reshape({index.numel(), values[0].size(1)}).index_select(0, which).to(wide);
  const at::Tensor sum =
      at::zeros({rows.numel(), grad.size(1)}, grad.options()).index_add_(0, place, grad, lookup.maximize ? -1 : 1);
  std::vector<at::Tensor> changed;
  for (const at::Tensor& each : values) changed.push_back(each.index_select(0, rows).to(wide));
  changed.resize(3);
  update_by<Kind, double>(numbers)(changed[0], Moments<at::Tensor>{&changed[1], &changed[2]}, sum);
  for (size_t i = 0; i < values.size(); ++i) values[i].index_copy_(0, rows, changed[i].to(dtype));
}

// --- operators -------------------------------------------------------------------------------------------------------

enum class By { kLoops, kTorch };

template <template <class> class Kind, By by>
void update(const Lookup& lookup, const std::vector<at::Tensor>& values, const std::vector<at::Tensor>& numbers) {
  if constexpr (by == By::kLoops) {
    update_rows<Kind>(lookup, values, numbers);
  } else {
    update_rows_composed<Kind>(lookup, values, numbers);
  }
}

/// New values; on the meta device they are not computed.
template <template <class> class Kind, By by>
std::vector<at::Tensor> updated(const Lookup& lookup, const std::vector<at::Tensor>& values,
                                const std::vector<at::Tensor>& numbers) {
  std::vector<at::Tensor> out;
  for (const at::Tensor& each : values) {
    out.push_back(each.is_meta() ? at::empty_like(each) : each.clone(at::MemoryFormat::Contiguous));
  }
  if (!values[0].is_meta()) update<Kind, by>(lookup, out, numbers);
  return out;
}

/// New values into `out`, which may be `values`.
template <template <class> class Kind, By by>
void update_into(const Lookup& lookup, const std::vector<at::Tensor>& values, const std::vector<at::Tensor>& numbers,
                 const std::vector<at::Tensor>& out) {
  for (size_t i = 0; i < out.size(); ++i) {
    if (out[i].const_data_ptr() != values[i].const_data_ptr()) out[i].copy_(values[i]);
  }
  update<Kind, by>(lookup, out, numbers);
}

using Two = std::tuple<at::Tensor, at::Tensor>;
using Three = std::tuple<at::Tensor, at::Tensor, at::Tensor>;

template <By by>
at::Tensor sgd(const at::Tensor& param, const at::Tensor& grad, const at::Tensor& index, const at::Tensor& descent,
               int64_t padding, bool maximize, at::IntArrayRef offsets, at::IntArrayRef local,
               at::IntArrayRef extents) {
  return updated<Sgd, by>({grad, index, padding, maximize, shard_of(param, offsets, local, extents)}, {param},
                          {descent})[0];
}

template <By by>
at::Tensor& sgd_out(const at::Tensor& param, const at::Tensor& grad, const at::Tensor& index, const at::Tensor& descent,
                    int64_t padding, bool maximize, at::IntArrayRef offsets, at::IntArrayRef local,
                    at::IntArrayRef extents, at::Tensor& param_out) {
  update_into<Sgd, by>({grad, index, padding, maximize, shard_of(param, offsets, local, extents)}, {param}, {descent},
                       {param_out});
  return param_out;
}

template <By by>
Two adagrad(const at::Tensor& param, const at::Tensor& sum, const at::Tensor& grad, const at::Tensor& index,
            const at::Tensor& lr, const at::Tensor& eps, int64_t padding, bool maximize, at::IntArrayRef offsets,
            at::IntArrayRef local, at::IntArrayRef extents) {
  const auto out = updated<Adagrad, by>({grad, index, padding, maximize, shard_of(param, offsets, local, extents)},
                                        {param, sum}, {lr, eps});
  return {out[0], out[1]};
}

template <By by>
Two adagrad_out(const at::Tensor& param, const at::Tensor& sum, const at::Tensor& grad, const at::Tensor& index,
                const at::Tensor& lr, const at::Tensor& eps, int64_t padding, bool maximize, at::IntArrayRef offsets,
                at::IntArrayRef local, at::IntArrayRef extents, at::Tensor param_out, at::Tensor sum_out) {
  update_into<Adagrad, by>({grad, index, padding, maximize, shard_of(param, offsets, local, extents)}, {param, sum},
                           {lr, eps}, {param_out, sum_out});
  return {param_out, sum_out};
}

template <By by>
Three sparse_adam(const at::Tensor& param, const at::Tensor& exp_avg, const at::Tensor& exp_avg_sq,
                  const at::Tensor& grad, const at::Tensor& index, const at::Tensor& rate, const at::Tensor& take1,
                  const at::Tensor& take2, const at::Tensor& eps, int64_t padding, bool maximize,
                  at::IntArrayRef offsets, at::IntArrayRef local, at::IntArrayRef extents) {
  const auto out = updated<SparseAdam, by>({grad, index, padding, maximize, shard_of(param, offsets, local, extents)},
                                           {param, exp_avg, exp_avg_sq}, {rate, take1, take2, eps});
  return {out[0], out[1], out[2]};
}

template <By by>
Three sparse_adam_out(const at::Tensor& param, const at::Tensor& exp_avg, const at::Tensor& exp_avg_sq,
                      const at::Tensor& grad, const at::Tensor& index, const at::Tensor& rate, const at::Tensor& take1,
                      const at::Tensor& take2, const at::Tensor& eps, int64_t padding, bool maximize,
                      at::IntArrayRef offsets, at::IntArrayRef local, at::IntArrayRef extents, at::Tensor param_out,
                      at::Tensor exp_avg_out, at::Tensor exp_avg_sq_out) {
  update_into<SparseAdam, by>({grad, index, padding, maximize, shard_of(param, offsets, local, extents)},
                              {param, exp_avg, exp_avg_sq}, {rate, take1, take2, eps},
                              {param_out, exp_avg_out, exp_avg_sq_out});
  return {param_out, exp_avg_out, exp_avg_sq_out};
}

TORCH_LIBRARY_FRAGMENT(joinsum, library) {
  library.def(
      "sgd_lookup_update(Tensor param, Tensor grad, Tensor index, Tensor descent, SymInt padding, bool maximize, "
      "SymInt[] offsets=[], SymInt[] local=[], SymInt[] extents=[]) -> Tensor");
  library.def(
      "sgd_lookup_update.out(Tensor param, Tensor grad, Tensor index, Tensor descent, SymInt padding, bool maximize, "
      "SymInt[] offsets=[], SymInt[] local=[], SymInt[] extents=[], *, Tensor(a!) param_out) -> Tensor(a!)");
  library.def(
      "adagrad_lookup_update(Tensor param, Tensor sum, Tensor grad, Tensor index, Tensor lr, Tensor eps, SymInt "
      "padding, bool maximize, SymInt[] offsets=[], SymInt[] local=[], SymInt[] extents=[]) -> (Tensor, Tensor)");
  library.def(
      "adagrad_lookup_update.out(Tensor param, Tensor sum, Tensor grad, Tensor index, Tensor lr, Tensor eps, SymInt "
      "padding, bool maximize, SymInt[] offsets=[], SymInt[] local=[], SymInt[] extents=[], *, Tensor(a!) param_out, "
      "Tensor(b!) sum_out) -> (Tensor(a!), Tensor(b!))");
  library.def(
      "sparse_adam_lookup_update(Tensor param, Tensor exp_avg, Tensor exp_avg_sq, Tensor grad, Tensor index, Tensor "
      "rate, Tensor take1, Tensor take2, Tensor eps, SymInt padding, bool maximize, SymInt[] offsets=[], SymInt[] "
      "local=[], SymInt[] extents=[]) -> (Tensor, Tensor, Tensor)");
  library.def(
      "sparse_adam_lookup_update.out(Tensor param, Tensor exp_avg, Tensor exp_avg_sq, Tensor grad, Tensor index, "
      "Tensor rate, Tensor take1, Tensor take2, Tensor eps, SymInt padding, bool maximize, SymInt[] offsets=[], "
      "SymInt[] local=[], SymInt[] extents=[], *, Tensor(a!) param_out, Tensor(b!) exp_avg_out, Tensor(c!) "
      "exp_avg_sq_out) -> (Tensor(a!), Tensor(b!), Tensor(c!))");
}

template <By by>
void register_updates(torch::Library& library) {
  library.impl("sgd_lookup_update", &sgd<by>);
  library.impl("adagrad_lookup_update", &adagrad<by>);
  library.impl("sparse_adam_lookup_update", &sparse_adam<by>);
}

template <By by>
void register_updates_in_place(torch::Library& library) {
  library.impl("sgd_lookup_update.out", &sgd_out<by>);
  library.impl("adagrad_lookup_update.out", &adagrad_out<by>);
  library.impl("sparse_adam_lookup_update.out", &sparse_adam_out<by>);
}

TORCH_LIBRARY_IMPL(joinsum, CompositeExplicitAutograd, library) { register_updates<By::kTorch>(library); }
TORCH_LIBRARY_IMPL(joinsum, CUDA, library) { register_updates_in_place<By::kTorch>(library); }
TORCH_LIBRARY_IMPL(joinsum, CPU, library) {
  register_updates<By::kLoops>(library);
  register_updates_in_place<By::kLoops>(library);
}

}  // namespace
}  // namespace joinsum::kernels::torch_call
