// Layer norms and RMS norms of rows that are divided: sums over a shard of each row, and results of the sums over all
// shards. Rows of adjacent elements go through memory once.

#include <tuple>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/Dispatch.h>
#include <torch/library.h>

#include "kernels/torch_call/row_pieces.h"

namespace joinsum::kernels::torch_call {
namespace {

using Weight = std::optional<at::Tensor>;
using Two = std::tuple<at::Tensor, at::Tensor>;
using Three = std::tuple<at::Tensor, at::Tensor, at::Tensor>;
using TwoOut = std::tuple<at::Tensor&, at::Tensor&>;
using ThreeOut = std::tuple<at::Tensor&, at::Tensor&, at::Tensor&>;

// --- by torch's operators --------------------------------------------------------------------------------------------

at::Tensor times(const at::Tensor& x, const Weight& weight) { return weight && weight->defined() ? x.mul(*weight) : x; }

/// One over the deviation.
at::Tensor rstd_of(const at::Tensor& squares, int64_t count, double eps) {
  return squares.div(count).add_(eps).rsqrt_();
}

/// Σ (input - total / count)² along `dims`, which remain with one element; `total` is the sum of all `count` elements
/// along `dims`, over all shards.
at::Tensor composed_squares(const at::Tensor& input, const at::Tensor& total, int64_t count, at::IntArrayRef dims) {
  return at::sub(input.to(total.scalar_type()), total.div(count)).square_().sum(dims, true);
}

/// A layer norm, its mean, and one over its deviation, these in the dtype `statistics`.
Three composed_norm(const at::Tensor& input, const at::Tensor& total, const at::Tensor& squares, const Weight& weight,
                    const Weight& bias, int64_t count, double eps, at::ScalarType statistics) {
  const at::Tensor mean = total.div(count);
  const at::Tensor rstd = rstd_of(squares, count, eps);
  at::Tensor result = times(at::sub(input.to(total.scalar_type()), mean).mul_(rstd), weight);
  if (bias && bias->defined()) result = result + *bias;
  return {result.to(input.scalar_type()), mean.to(statistics), rstd.to(statistics)};
}

/// Σ g and Σ g · normed along `dims`, for the gradient g of the normed input.
Two composed_slopes(const at::Tensor& grad, const at::Tensor& input, const at::Tensor& mean, const at::Tensor& rstd,
                    const Weight& weight, at::IntArrayRef dims) {
  const at::Tensor own = times(wide(grad), weight);
  const at::Tensor normed = (input.to(own.scalar_type()) - mean) * rstd;
  return {own.sum(dims, true), (own * normed).sum(dims, true)};
}

/// The gradient of a layer norm's input, of the two slopes.
at::Tensor composed_grad(const at::Tensor& grad, const at::Tensor& input, const at::Tensor& mean,
                         const at::Tensor& rstd, const Weight& weight, const at::Tensor& first,
                         const at::Tensor& second, int64_t count) {
  const at::Tensor own = times(grad.to(first.scalar_type()), weight);
  const at::Tensor normed = (input.to(first.scalar_type()) - mean) * rstd;
  return ((own - (first + normed * second) / count) * rstd).to(input.scalar_type());
}

/// Σ input² along `dims`, which remain with one element.
at::Tensor composed_rms_squares(const at::Tensor& input, at::IntArrayRef dims) {
  return wide(input).square().sum(dims, true);
}

/// An RMS norm, and one over the root of the mean square; `squares` is the sum of all `count` squares.
Two composed_rms_norm(const at::Tensor& input, const at::Tensor& squares, const Weight& weight, int64_t count,
                      double eps) {
  const at::Tensor rstd = rstd_of(squares, count, eps);
  return {times(input.to(squares.scalar_type()) * rstd, weight).to(input.scalar_type()), rstd};
}

/// Σ g · normed along `dims`, for the gradient g of the normed input.
at::Tensor composed_rms_slope(const at::Tensor& grad, const at::Tensor& input, const at::Tensor& rstd,
                              const Weight& weight, at::IntArrayRef dims) {
  return (times(grad.to(rstd.scalar_type()), weight) * (input * rstd)).sum(dims, true);
}

/// The gradient of an RMS norm's input, of the slope.
at::Tensor composed_rms_grad(const at::Tensor& grad, const at::Tensor& input, const at::Tensor& rstd,
                             const Weight& weight, const at::Tensor& slope, int64_t count) {
  const at::Tensor own = times(grad.to(rstd.scalar_type()), weight);
  return ((own - input * rstd * (slope / count)) * rstd).to(input.scalar_type());
}

// --- by loops over rows ----------------------------------------------------------------------------------------------

/// Rows with a mean each, which is zero of an RMS norm, and one over its deviation.
struct NormedRows {
  Rows all;
  at::Tensor x;
  at::Tensor mean;  ///< undefined of an RMS norm
  at::Tensor rstd;
  at::Tensor weight;

  /// None where rows are not adjacent elements, or they or `others` are of a type that the loops do not take.
  static std::optional<NormedRows> of(const at::Tensor& input, const at::Tensor& mean, const at::Tensor& rstd,
                                      const Weight& weight, std::initializer_list<at::Tensor> others) {
    const auto all = rows_of(input, rstd);
    const at::Tensor scale = contiguous(weight);
    const bool fits = all && (!scale.defined() || scale.numel() == all->length) && single_type(input, others) &&
                      single_type(input, {mean, rstd, scale});
    if (!fits) return {};
    return NormedRows{*all, input.contiguous(), contiguous(mean), rstd.contiguous(), scale};
  }

  template <class T>
  rows::Normed<T> operator()(const Piece& p) const {
    return {data_of<T>(x) + p.at, mean.defined() ? data_of<T>(mean)[p.row] : T(0), data_of<T>(rstd)[p.row],
            weight.defined() ? data_of<T>(weight) + p.begin : nullptr};
  }
};

/// Σ (x - mean)² of each row, and of rows of one channel each, of which result number `row` modulo `outputs` is.
void squares_into(const Rows& all, const at::Tensor& input, const at::Tensor& mean, at::Tensor& out) {
  const at::Tensor own = input.contiguous();
  const int64_t outputs = out.numel();
  AT_DISPATCH_FLOATING_TYPES(input.scalar_type(), "centred_squares", [&] {
    const scalar_t* x = data_of<scalar_t>(own);
    const scalar_t* means = data_of<scalar_t>(mean);
    scalar_t* to = out.mutable_data_ptr<scalar_t>();
    const auto of_piece = [&](const Piece& p) -> Sums<1> {
      const scalar_t centre = means == nullptr ? scalar_t(0) : means[p.row % outputs];
      return {static_cast<double>(row_loops<scalar_t>().sum_of_squares(x + p.at, p.count, centre))};
    };
    sum_rows<1>(all, outputs, of_piece,
                [&](int64_t at, const Sums<1>& sums) { to[at] = static_cast<scalar_t>(sums[0]); });
  });
}

at::Tensor& centred_squares_out(const at::Tensor& input, const at::Tensor& total, int64_t count, at::IntArrayRef dims,
                                at::Tensor& out) {
  auto all = rows_of(input, out);
  if (!all) all = rows_of_channels(input, out);
  if (!all || total.sizes() != out.sizes() || !single_type(input, {total, out}))
    return out.copy_(composed_squares(input, total, count, dims));
  squares_into(*all, input, total.div(count).contiguous(), out);
  return out;
}

at::Tensor& rms_norm_squares_out(const at::Tensor& input, at::IntArrayRef dims, at::Tensor& out) {
  const auto all = rows_of(input, out);
  if (!all || !single_type(input, {out})) return out.copy_(composed_rms_squares(input, dims));
  squares_into(*all, input, {}, out);
  return out;
}

void norm_into(const NormedRows& given, const at::Tensor& bias, at::Tensor& out) {
  AT_DISPATCH_FLOATING_TYPES(out.scalar_type(), "norm", [&] {
    const scalar_t* shift = data_of<scalar_t>(bias);
    scalar_t* to = out.mutable_data_ptr<scalar_t>();
    for_each_piece(given.all, [&](const Piece& p) {
      row_loops<scalar_t>().normed(given.operator()<scalar_t>(p), p.count, shift == nullptr ? nullptr : shift + p.begin,
                                   to + p.at);
    });
  });
}

ThreeOut layer_norm_of_out(const at::Tensor& input, const at::Tensor& total, const at::Tensor& squares,
                           const Weight& weight, const Weight& bias, int64_t count, double eps,
                           at::ScalarType statistics, at::Tensor& out, at::Tensor& mean, at::Tensor& rstd) {
  const at::Tensor shift = contiguous(bias);
  const at::Tensor means = total.div(count);
  const at::Tensor rstds = rstd_of(squares, count, eps);
  const auto given = NormedRows::of(input, means, rstds, weight, {shift, out});
  if (given && means.sizes() == rstds.sizes() && (!shift.defined() || shift.numel() == given->all.length)) {
    norm_into(*given, shift, out);
  } else {
    out.copy_(std::get<0>(composed_norm(input, total, squares, weight, bias, count, eps, statistics)));
  }
  mean.copy_(means);
  rstd.copy_(rstds);
  return {out, mean, rstd};
}

TwoOut rms_norm_of_out(const at::Tensor& input, const at::Tensor& squares, const Weight& weight, int64_t count,
                       double eps, at::Tensor& out, at::Tensor& rstd) {
  const at::Tensor rstds = rstd_of(squares, count, eps);
  if (const auto given = NormedRows::of(input, {}, rstds, weight, {out})) {
    norm_into(*given, {}, out);
  } else {
    out.copy_(std::get<0>(composed_rms_norm(input, squares, weight, count, eps)));
  }
  rstd.copy_(rstds);
  return {out, rstd};
}

/// Σ g, where it is wanted, and Σ g (x - mean) rstd of each row.
void slopes_into(const NormedRows& given, const at::Tensor& grad, at::Tensor first, at::Tensor second) {
  const at::Tensor own = grad.contiguous();
  AT_DISPATCH_FLOATING_TYPES(own.scalar_type(), "slopes", [&] {
    const scalar_t* g = data_of<scalar_t>(own);
    scalar_t* to_first = first.defined() ? first.mutable_data_ptr<scalar_t>() : nullptr;
    scalar_t* to_second = second.mutable_data_ptr<scalar_t>();
    const auto of_piece = [&](const Piece& p) -> Sums<2> {
      scalar_t sum;
      scalar_t product;
      row_loops<scalar_t>().slopes(given.operator()<scalar_t>(p), p.count, g + p.at, &sum, &product);
      return {static_cast<double>(sum), static_cast<double>(product)};
    };
    sum_rows<2>(given.all, given.all.count, of_piece, [&](int64_t row, const Sums<2>& sums) {
      if (to_first != nullptr) to_first[row] = static_cast<scalar_t>(sums[0]);
      to_second[row] = static_cast<scalar_t>(sums[1]);
    });
  });
}

TwoOut layer_norm_slopes_out(const at::Tensor& grad, const at::Tensor& input, const at::Tensor& mean,
                             const at::Tensor& rstd, const Weight& weight, at::IntArrayRef dims, at::Tensor& first,
                             at::Tensor& second) {
  const auto given = NormedRows::of(input, mean, rstd, weight, {grad, first, second});
  if (given && first.sizes() == rstd.sizes()) {
    slopes_into(*given, grad, first, second);
  } else {
    const auto [sum, product] = composed_slopes(grad, input, mean, rstd, weight, dims);
    first.copy_(sum);
    second.copy_(product);
  }
  return {first, second};
}

at::Tensor& rms_norm_slope_out(const at::Tensor& grad, const at::Tensor& input, const at::Tensor& rstd,
                               const Weight& weight, at::IntArrayRef dims, at::Tensor& out) {
  const auto given = NormedRows::of(input, {}, rstd, weight, {grad, out});
  if (!given || out.sizes() != rstd.sizes()) return out.copy_(composed_rms_slope(grad, input, rstd, weight, dims));
  slopes_into(*given, grad, {}, out);
  return out;
}

/// The gradient of the rows, of slopes over the count.
void gradient_into(const NormedRows& given, const at::Tensor& grad, const at::Tensor& first, const at::Tensor& second,
                   at::Tensor& out) {
  const at::Tensor own = grad.contiguous();
  AT_DISPATCH_FLOATING_TYPES(own.scalar_type(), "norm_grad", [&] {
    const scalar_t* g = data_of<scalar_t>(own);
    const scalar_t* sums = data_of<scalar_t>(first);
    const scalar_t* products = data_of<scalar_t>(second);
    scalar_t* to = out.mutable_data_ptr<scalar_t>();
    for_each_piece(given.all, [&](const Piece& p) {
      row_loops<scalar_t>().normed_gradient(given.operator()<scalar_t>(p), p.count, g + p.at,
                                            sums == nullptr ? scalar_t(0) : sums[p.row], products[p.row], to + p.at);
    });
  });
}

at::Tensor& layer_norm_grad_of_out(const at::Tensor& grad, const at::Tensor& input, const at::Tensor& mean,
                                   const at::Tensor& rstd, const Weight& weight, const at::Tensor& first,
                                   const at::Tensor& second, int64_t count, at::Tensor& out) {
  const auto given = NormedRows::of(input, mean, rstd, weight, {grad, first, second, out});
  if (!given || first.sizes() != rstd.sizes() || second.sizes() != rstd.sizes())
    return out.copy_(composed_grad(grad, input, mean, rstd, weight, first, second, count));
  gradient_into(*given, grad, first.div(count).contiguous(), second.div(count).contiguous(), out);
  return out;
}

at::Tensor& rms_norm_grad_of_out(const at::Tensor& grad, const at::Tensor& input, const at::Tensor& rstd,
                                 const Weight& weight, const at::Tensor& slope, int64_t count, at::Tensor& out) {
  const auto given = NormedRows::of(input, {}, rstd, weight, {grad, slope, out});
  if (!given || slope.sizes() != rstd.sizes())
    return out.copy_(composed_rms_grad(grad, input, rstd, weight, slope, count));
  gradient_into(*given, grad, {}, slope.div(count).contiguous(), out);
  return out;
}

// --- new results -----------------------------------------------------------------------------------------------------

at::Tensor like(const at::Tensor& x, at::ScalarType type) { return at::empty(x.sizes(), x.options().dtype(type)); }

at::Tensor like(const at::Tensor& x) { return like(x, x.scalar_type()); }

at::Tensor new_sums(const at::Tensor& x, at::IntArrayRef dims, at::ScalarType type) {
  std::vector<int64_t> extents = x.sizes().vec();
  for (const int64_t dim : dims) extents[static_cast<size_t>(at::maybe_wrap_dim(dim, x.dim()))] = 1;
  return at::empty(extents, x.options().dtype(type));
}

at::Tensor centred_squares(const at::Tensor& input, const at::Tensor& total, int64_t count, at::IntArrayRef dims) {
  at::Tensor out = new_sums(input, dims, total.scalar_type());
  return centred_squares_out(input, total, count, dims, out);
}

Three layer_norm_of(const at::Tensor& input, const at::Tensor& total, const at::Tensor& squares, const Weight& weight,
                    const Weight& bias, int64_t count, double eps, at::ScalarType statistics) {
  at::Tensor out = like(input);
  at::Tensor mean = like(total, statistics);
  at::Tensor rstd = like(squares, statistics);
  return layer_norm_of_out(input, total, squares, weight, bias, count, eps, statistics, out, mean, rstd);
}

Two layer_norm_slopes(const at::Tensor& grad, const at::Tensor& input, const at::Tensor& mean, const at::Tensor& rstd,
                      const Weight& weight, at::IntArrayRef dims) {
  at::ScalarType type = at::toOpMathType(grad.scalar_type());
  if (weight && weight->defined()) type = at::promote_types(type, weight->scalar_type());
  at::Tensor first = new_sums(grad, dims, type);
  at::Tensor second = like(first);
  return layer_norm_slopes_out(grad, input, mean, rstd, weight, dims, first, second);
}

at::Tensor layer_norm_grad_of(const at::Tensor& grad, const at::Tensor& input, const at::Tensor& mean,
                              const at::Tensor& rstd, const Weight& weight, const at::Tensor& first,
                              const at::Tensor& second, int64_t count) {
  at::Tensor out = like(input);
  return layer_norm_grad_of_out(grad, input, mean, rstd, weight, first, second, count, out);
}

at::Tensor rms_norm_squares(const at::Tensor& input, at::IntArrayRef dims) {
  at::Tensor out = new_sums(input, dims, at::toOpMathType(input.scalar_type()));
  return rms_norm_squares_out(input, dims, out);
}

Two rms_norm_of(const at::Tensor& input, const at::Tensor& squares, const Weight& weight, int64_t count, double eps) {
  at::Tensor out = like(input);
  at::Tensor rstd = like(squares);
  return rms_norm_of_out(input, squares, weight, count, eps, out, rstd);
}

at::Tensor rms_norm_slope(const at::Tensor& grad, const at::Tensor& input, const at::Tensor& rstd, const Weight& weight,
                          at::IntArrayRef dims) {
  at::Tensor out = new_sums(input, dims, rstd.scalar_type());
  return rms_norm_slope_out(grad, input, rstd, weight, dims, out);
}

at::Tensor rms_norm_grad_of(const at::Tensor& grad, const at::Tensor& input, const at::Tensor& rstd,
                            const Weight& weight, const at::Tensor& slope, int64_t count) {
  at::Tensor out = like(input);
  return rms_norm_grad_of_out(grad, input, rstd, weight, slope, count, out);
}

TORCH_LIBRARY_FRAGMENT(joinsum, library) {
  library.def("centred_squares(Tensor input, Tensor total, SymInt count, SymInt[] dims) -> Tensor");
  library.def(
      "centred_squares.out(Tensor input, Tensor total, SymInt count, SymInt[] dims, *, Tensor(a!) squares_out) "
      "-> Tensor(a!)");
  library.def(
      "layer_norm_of(Tensor input, Tensor total, Tensor squares, Tensor? weight, Tensor? bias, SymInt count, float "
      "eps, ScalarType statistics) -> (Tensor, Tensor, Tensor)");
  library.def(
      "layer_norm_of.out(Tensor input, Tensor total, Tensor squares, Tensor? weight, Tensor? bias, SymInt count, float "
      "eps, ScalarType statistics, *, Tensor(a!) input_out, Tensor(b!) mean_out, Tensor(c!) rstd_out) -> (Tensor(a!), "
      "Tensor(b!), Tensor(c!))");
  library.def(
      "layer_norm_slopes(Tensor grad, Tensor input, Tensor mean, Tensor rstd, Tensor? weight, SymInt[] dims) "
      "-> (Tensor, Tensor)");
  library.def(
      "layer_norm_slopes.out(Tensor grad, Tensor input, Tensor mean, Tensor rstd, Tensor? weight, SymInt[] dims, *, "
      "Tensor(a!) first_out, Tensor(b!) second_out) -> (Tensor(a!), Tensor(b!))");
  library.def(
      "layer_norm_grad_of(Tensor grad, Tensor input, Tensor mean, Tensor rstd, Tensor? weight, Tensor first, Tensor "
      "second, SymInt count) -> Tensor");
  library.def(
      "layer_norm_grad_of.out(Tensor grad, Tensor input, Tensor mean, Tensor rstd, Tensor? weight, Tensor first, "
      "Tensor second, SymInt count, *, Tensor(a!) grad_out) -> Tensor(a!)");
  library.def("rms_norm_squares(Tensor input, SymInt[] dims) -> Tensor");
  library.def("rms_norm_squares.out(Tensor input, SymInt[] dims, *, Tensor(a!) squares_out) -> Tensor(a!)");
  library.def("rms_norm_of(Tensor input, Tensor squares, Tensor? weight, SymInt count, float eps) -> (Tensor, Tensor)");
  library.def(
      "rms_norm_of.out(Tensor input, Tensor squares, Tensor? weight, SymInt count, float eps, *, Tensor(a!) input_out, "
      "Tensor(b!) rstd_out) -> (Tensor(a!), Tensor(b!))");
  library.def("rms_norm_slope(Tensor grad, Tensor input, Tensor rstd, Tensor? weight, SymInt[] dims) -> Tensor");
  library.def(
      "rms_norm_slope.out(Tensor grad, Tensor input, Tensor rstd, Tensor? weight, SymInt[] dims, *, "
      "Tensor(a!) slope_out) -> Tensor(a!)");
  library.def(
      "rms_norm_grad_of(Tensor grad, Tensor input, Tensor rstd, Tensor? weight, Tensor slope, SymInt count) "
      "-> Tensor");
  library.def(
      "rms_norm_grad_of.out(Tensor grad, Tensor input, Tensor rstd, Tensor? weight, Tensor slope, SymInt count, *, "
      "Tensor(a!) grad_out) -> Tensor(a!)");
}

TORCH_LIBRARY_IMPL(joinsum, CompositeExplicitAutograd, library) {
  library.impl("centred_squares", &composed_squares);
  library.impl("layer_norm_of", &composed_norm);
  library.impl("layer_norm_slopes", &composed_slopes);
  library.impl("layer_norm_grad_of", &composed_grad);
  library.impl("rms_norm_squares", &composed_rms_squares);
  library.impl("rms_norm_of", &composed_rms_norm);
  library.impl("rms_norm_slope", &composed_rms_slope);
  library.impl("rms_norm_grad_of", &composed_rms_grad);
}

TORCH_LIBRARY_IMPL(joinsum, CPU, library) {
  library.impl("centred_squares", &centred_squares);
  library.impl("centred_squares.out", &centred_squares_out);
  library.impl("layer_norm_of", &layer_norm_of);
  library.impl("layer_norm_of.out", &layer_norm_of_out);
  library.impl("layer_norm_slopes", &layer_norm_slopes);
  library.impl("layer_norm_slopes.out", &layer_norm_slopes_out);
  library.impl("layer_norm_grad_of", &layer_norm_grad_of);
  library.impl("layer_norm_grad_of.out", &layer_norm_grad_of_out);
  library.impl("rms_norm_squares", &rms_norm_squares);
  library.impl("rms_norm_squares.out", &rms_norm_squares_out);
  library.impl("rms_norm_of", &rms_norm_of);
  library.impl("rms_norm_of.out", &rms_norm_of_out);
  library.impl("rms_norm_slope", &rms_norm_slope);
  library.impl("rms_norm_slope.out", &rms_norm_slope_out);
  library.impl("rms_norm_grad_of", &rms_norm_grad_of);
  library.impl("rms_norm_grad_of.out", &rms_norm_grad_of_out);
}

}  // namespace
}  // namespace joinsum::kernels::torch_call
