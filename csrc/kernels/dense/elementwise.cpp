#include <cmath>
#include <type_traits>
#include <unordered_map>

#include <ATen/ATen.h>
#include <ATen/ScalarOps.h>

#include "kernels/dense/loops.h"
#include "kernels/table/expression_kernel.h"
#include "kernels/threads/parallel.h"

#if defined(__SSE2__)
#include <immintrin.h>
#endif

// Tells the compiler that no element depends on another one, although the result may be an operand.
#if defined(__clang__)
#define JOINSUM_INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#elif defined(__GNUC__)
#define JOINSUM_INDEPENDENT _Pragma("GCC ivdep")
#else
#define JOINSUM_INDEPENDENT
#endif

namespace joinsum::kernels::dense {

using table::is_expression;
using table::Kernel;
using table::Scalars;
using threads::for_each_range;

namespace {

using Tensors = std::vector<at::Tensor>;
using Numbers = std::vector<double>;

/// Writes the result to `out`, which may be one of the operands `x`.
using Whole = void (*)(const Tensors& x, const Numbers& n, at::Tensor& out);

/// The same in several passes, which may use `scratch`, a tensor like `out`.
using Pieced = void (*)(const Tensors& x, const Numbers& n, at::Tensor& out, at::Tensor& scratch);

/// Above it log(1 + exp(x)) is x in double precision, and exp(x) is far from overflow in single precision.
constexpr double kSoftplusThreshold = 40;

/// A number as an operand of the tensor's kind, so that integers stay integers. Only operators that take it as a tensor
/// write to `out` in one pass.
at::Tensor operand_of(double number, const at::Tensor& like) {
  if (!at::isIntegralType(like.scalar_type(), false)) return at::native::wrapped_scalar_tensor(number);
  JOINSUM_KERNEL_CHECK(number == std::trunc(number) && std::abs(number) < 0x1p63,
                       "scale: integers take whole parameters; cast the operand: parameter=", number);
  return at::native::wrapped_scalar_tensor(static_cast<int64_t>(number));
}

const std::unordered_map<std::string, Whole>& whole_kernels() {
  static const std::unordered_map<std::string, Whole> table{
      {"id", [](const Tensors& x, const Numbers&, at::Tensor& out) { out.copy_(x[0]); }},
      {"cast", [](const Tensors& x, const Numbers&, at::Tensor& out) { out.copy_(x[0]); }},
      {"add", [](const Tensors& x, const Numbers&, at::Tensor& out) { at::add_out(out, x[0], x[1]); }},
      {"sub", [](const Tensors& x, const Numbers&, at::Tensor& out) { at::sub_out(out, x[0], x[1]); }},
      {"mul", [](const Tensors& x, const Numbers&, at::Tensor& out) { at::mul_out(out, x[0], x[1]); }},
      {"div", [](const Tensors& x, const Numbers&, at::Tensor& out) { at::div_out(out, x[0], x[1]); }},
      {"min", [](const Tensors& x, const Numbers&, at::Tensor& out) { at::minimum_out(out, x[0], x[1]); }},
      {"max", [](const Tensors& x, const Numbers&, at::Tensor& out) { at::maximum_out(out, x[0], x[1]); }},
      {"logaddexp", [](const Tensors& x, const Numbers&, at::Tensor& out) { at::logaddexp_out(out, x[0], x[1]); }},
      {"equal", [](const Tensors& x, const Numbers&, at::Tensor& out) { at::eq_out(out, x[0], x[1]); }},
      {"conjugate", [](const Tensors& x, const Numbers&, at::Tensor& out) { out.copy_(x[0].conj()); }},
      {"detach", [](const Tensors& x, const Numbers&, at::Tensor& out) { out.copy_(x[0]); }},
      {"sign", [](const Tensors& x, const Numbers&, at::Tensor& out) { at::sgn_out(out, x[0]); }},
      {"is_zero", [](const Tensors& x, const Numbers&, at::Tensor& out) { at::eq_out(out, x[0], 0); }},
      {"scale",
       [](const Tensors& x, const Numbers& n, at::Tensor& out) { at::mul_out(out, x[0], operand_of(n[0], x[0])); }},
      {"negate", [](const Tensors& x, const Numbers&, at::Tensor& out) { at::neg_out(out, x[0]); }},
      {"square", [](const Tensors& x, const Numbers&, at::Tensor& out) { at::mul_out(out, x[0], x[0]); }},
      {"reciprocal", [](const Tensors& x, const Numbers&, at::Tensor& out) { at::reciprocal_out(out, x[0]); }},
      {"abs", [](const Tensors& x, const Numbers&, at::Tensor& out) { at::abs_out(out, x[0]); }},
      {"sqrt", [](const Tensors& x, const Numbers&, at::Tensor& out) { at::sqrt_out(out, x[0]); }},
      {"relu", [](const Tensors& x, const Numbers&, at::Tensor& out) { at::clamp_min_out(out, x[0], 0); }},
      {"relu_derivative", [](const Tensors& x, const Numbers&, at::Tensor& out) { at::gt_out(out, x[0], 0); }},
      {"sigmoid", [](const Tensors& x, const Numbers&, at::Tensor& out) { at::sigmoid_out(out, x[0]); }},
      {"tanh", [](const Tensors& x, const Numbers&, at::Tensor& out) { at::tanh_out(out, x[0]); }},
      {"exp", [](const Tensors& x, const Numbers&, at::Tensor& out) { at::exp_out(out, x[0]); }},
      {"log", [](const Tensors& x, const Numbers&, at::Tensor& out) { at::log_out(out, x[0]); }},
      {"softplus",
       [](const Tensors& x, const Numbers&, at::Tensor& out) { at::softplus_out(out, x[0], 1, kSoftplusThreshold); }},
      {"sgd_update", [](const Tensors& x, const Numbers& n, at::Tensor& out) { at::sub_out(out, x[0], x[1], n[0]); }},
      {"adam_first",
       [](const Tensors& x, const Numbers& n, at::Tensor& out) { at::lerp_out(out, x[0], x[1], 1 - n[0]); }},
  };
  return table;
}

/// Calls `loop(T{})` where plain loops over elements of T serve: contiguous float or double of the CPU.
template <class Loop>
bool with_loop(const at::Tensor& out, const Tensors& x, Loop loop) {
  const auto plain = [&](const at::Tensor& t) {
    return t.is_cpu() && t.is_contiguous() && !t.is_neg() && t.sizes() == out.sizes() &&
           t.scalar_type() == out.scalar_type();
  };
  if (!plain(out) || !std::all_of(x.begin(), x.end(), plain)) return false;
  if (out.scalar_type() == at::kFloat) {
    loop(float{});
  } else if (out.scalar_type() == at::kDouble) {
    loop(double{});
  } else {
    return false;
  }
  return true;
}

/// out[i] = f(x[i], ...)
template <class T, class F, class... Operands>
void loop_over(const at::Tensor& out, F f, const Operands&... x) {
  const auto loop = [&f, to = out.mutable_data_ptr<T>(), count = out.numel()](const auto*... from) {
    JOINSUM_INDEPENDENT
    for (int64_t i = 0; i < count; ++i) to[i] = f(from[i]...);
  };
  loop(x.template const_data_ptr<T>()...);
}

void squared_difference(const Tensors& x, const Numbers&, at::Tensor& out, at::Tensor&) {
  at::sub_out(out, x[0], x[1]);
  at::mul_out(out, out, out);
}

void abs_difference(const Tensors& x, const Numbers&, at::Tensor& out, at::Tensor& scratch) {
  if (out.scalar_type() == at::kByte) {  // a difference of unsigned integers wraps around
    at::maximum_out(scratch, x[0], x[1]);
    at::minimum_out(out, x[0], x[1]);
    at::sub_out(out, scratch, out);
    return;
  }
  at::sub_out(out, x[0], x[1]);
  at::abs_out(out, out);
}

void above(const Tensors& x, const Numbers&, at::Tensor& out, at::Tensor& scratch) {
  // Neither holds where one is not a number: both operands of an extreme then count, as torch's.
  at::le_out(scratch, x[0], x[1]);
  at::lt_out(out, x[0], x[1]);
  out.add_(scratch).mul_(-0.5).add_(1);
}

void sigmoid_difference(const Tensors& x, const Numbers&, at::Tensor& out, at::Tensor& scratch) {
  at::Tensor& sigmoid = out.is_alias_of(x[1]) ? scratch : out;
  at::sigmoid_out(sigmoid, x[0]);
  at::sub_out(out, sigmoid, x[1]);
}

/// log(1 + a) of 0 < a <= 1, by the series of 2 atanh(a / (2 + a)), without numbers below the least normal one, which
/// processors compute slowly; so torch's log1p is 10 times as slow for many small a. Zero where a is hardly above it.
template <class T>
T log_of_one_and(T a) {
  constexpr int kTerms = sizeof(T) == sizeof(float) ? 8 : 17;
  constexpr T kNone = sizeof(T) == sizeof(float) ? T(4.6e-38) : T(9.1e-308);
  const T s = a / (2 + a);
  const T factor = s > T(1e-12) ? s : T(1e-12);
  const T square = factor * factor;
  T sum = T(1) / (2 * kTerms - 1);
  for (int term = kTerms - 2; term >= 0; --term) sum = sum * square + T(1) / (2 * term + 1);
  return a < kNone ? T(0) : 2 * s * sum;
}

void bce_with_logits(const Tensors& x, const Numbers&, at::Tensor& out, at::Tensor& scratch) {
  at::abs_out(scratch, x[0]);
  const bool single = scratch.scalar_type() == at::kFloat;
  if (single || scratch.scalar_type() == at::kDouble) {
    scratch.neg_().clamp_min_(single ? -86 : -707).exp_();
    const bool done = with_loop(out, {x[0], x[1], scratch}, [&](auto zero) {
      using T = decltype(zero);
      loop_over<T>(
          out, [](T z, T y, T a) { return ((z < 0 ? 0 : z) - z * y) + log_of_one_and<T>(a); }, x[0], x[1], scratch);
    });
    if (done) return;
    scratch.log1p_();
  } else {
    scratch.neg_().exp_().log1p_();
  }
  const at::Tensor linear = at::clamp_min(x[0], 0).addcmul_(x[0], x[1], -1);
  at::add_out(out, linear, scratch);
}

void adam_second(const Tensors& x, const Numbers& n, at::Tensor& out, at::Tensor& scratch) {
  const bool done = with_loop(out, x, [&](auto zero) {
    using T = decltype(zero);
    const T keep = static_cast<T>(n[0]), take = static_cast<T>(1 - n[0]);
    loop_over<T>(out, [=](T v, T g) { return keep * v + take * g * g; }, x[0], x[1]);
  });
  if (done) return;
  at::mul_out(scratch, x[1], x[1]);
  scratch.mul_(1 - n[0]);
  at::add_out(out, scratch, x[0], n[0]);
}

#if defined(__SSE2__)
// Compilers leave loops with sqrt alone, since it may set errno; and in a pass of its own it costs a third more.
__m128 all(float x) { return _mm_set1_ps(x); }
__m128d all(double x) { return _mm_set1_pd(x); }
__m128 load(const float* from) { return _mm_loadu_ps(from); }
__m128d load(const double* from) { return _mm_loadu_pd(from); }
void store(float* to, __m128 x) { _mm_storeu_ps(to, x); }
void store(double* to, __m128d x) { _mm_storeu_pd(to, x); }
__m128 root(__m128 x) { return _mm_sqrt_ps(x); }
__m128d root(__m128d x) { return _mm_sqrt_pd(x); }

/// out[i] = size m[i] / (factor √v[i] + epsilon)
template <class T>
void direction_loop(const at::Tensor& out, const Tensors& x, T size, T factor, T epsilon) {
  T* to = out.mutable_data_ptr<T>();
  const T* m = x[0].const_data_ptr<T>();
  const T* v = x[1].const_data_ptr<T>();
  const auto lanes = static_cast<int64_t>(sizeof(__m128) / sizeof(T));
  const int64_t count = out.numel();
  int64_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    store(to + i, all(size) * load(m + i) / (all(factor) * root(load(v + i)) + all(epsilon)));
  }
  for (; i < count; ++i) to[i] = size * m[i] / (factor * std::sqrt(v[i]) + epsilon);
}
#endif

void adam_direction(const Tensors& x, const Numbers& n, at::Tensor& out, at::Tensor& scratch) {
  const double size = n[0] / (1 - std::pow(n[1], n[4]));
  const double factor = 1 / std::sqrt(1 - std::pow(n[2], n[4]));
#if defined(__SSE2__)
  const bool done = with_loop(out, x, [&](auto zero) {
    using T = decltype(zero);
    direction_loop<T>(out, x, static_cast<T>(size), static_cast<T>(factor), static_cast<T>(n[3]));
  });
  if (done) return;
#endif
  at::sqrt_out(scratch, x[1]);
  scratch.mul_(factor).add_(n[3]);
  at::div_out(out, x[0], scratch);
  out.mul_(size);
}

const std::unordered_map<std::string, Pieced>& pieced_kernels() {
  static const std::unordered_map<std::string, Pieced> table{
      {"squared_difference", squared_difference}, {"abs_difference", abs_difference},   {"above", above},
      {"sigmoid_difference", sigmoid_difference}, {"bce_with_logits", bce_with_logits}, {"adam_second", adam_second},
      {"adam_direction", adam_direction}};
  return table;
}

/// Elements of a piece: some pieces of doubles fit in a core's second-level cache. Below torch's grain size, so that a
/// pass over a piece stays on its thread.
constexpr int64_t kPiece = 16384;
static_assert(kPiece < at::internal::GRAIN_SIZE);

/// One axis over the elements as they lie; nothing where they have holes or lie in another order than `like`.
at::Tensor flat(const at::Tensor& tensor, const at::Tensor& like) {
  const bool fits = tensor.is_cpu() && tensor.sizes() == like.sizes() && tensor.strides() == like.strides() &&
                    tensor.is_non_overlapping_and_dense() && tensor.scalar_type() == like.scalar_type();
  return fits ? at::as_strided(tensor, {tensor.numel()}, {1}) : at::Tensor();
}

/// Runs the passes of `kernel` on a few rows at a time, operands that do not lie like the result copied row by row.
bool run_in_rows(Pieced kernel, const Tensors& x, const Numbers& n, at::Tensor& out) {
  if (!out.is_cpu() || !out.is_contiguous() || out.dim() < 2 || out.numel() == 0) return false;
  const int64_t rows = out.size(0);
  const int64_t each = std::max<int64_t>(1, kPiece / (out.numel() / rows));
  threads::for_each_range(ceil_div(rows, each), [&](int64_t begin, int64_t end) {
    const at::AutoDispatchBelowADInplaceOrView without_autograd;
    for (int64_t start = begin * each; start < std::min(end * each, rows); start += each) {
      const int64_t length = std::min(each, rows - start);
      Tensors pieces;
      for (const at::Tensor& operand : x) pieces.push_back(operand.narrow(0, start, length).contiguous());
      at::Tensor piece = out.narrow(0, start, length);
      at::Tensor scratch = at::empty_like(piece);
      kernel(pieces, n, piece, scratch);
    }
  });
  return true;
}

/// Runs the passes of `kernel` piece by piece where the elements of all tensors lie alike, so that what one pass writes
/// is in cache for the next one; else on whole tensors.
void run_in_pieces(Pieced kernel, const Tensors& x, const Numbers& n, at::Tensor& out) {
  Tensors operands;
  for (const at::Tensor& operand : x) operands.push_back(flat(operand, out));
  const at::Tensor result = flat(out, out);
  const bool alike = result.defined() && std::all_of(operands.begin(), operands.end(),
                                                     [](const at::Tensor& operand) { return operand.defined(); });
  if (!alike) {
    Tensors expanded;
    for (const at::Tensor& operand : x) expanded.push_back(operand.expand(out.sizes()));
    if (run_in_rows(kernel, expanded, n, out)) return;
    at::Tensor scratch = at::empty_like(out);
    kernel(expanded, n, out, scratch);
    return;
  }
  const int64_t count = result.numel();
  threads::for_each_range(ceil_div(count, kPiece), [&](int64_t begin, int64_t end) {
    const at::AutoDispatchBelowADInplaceOrView without_autograd;
    const at::Tensor scratch = at::empty({std::min(kPiece, count)}, result.options());
    for (int64_t start = begin * kPiece; start < std::min(end * kPiece, count); start += kPiece) {
      const int64_t length = std::min(kPiece, count - start);
      Tensors pieces;
      for (const at::Tensor& operand : operands) pieces.push_back(operand.narrow(0, start, length));
      at::Tensor piece = result.narrow(0, start, length);
      at::Tensor own = scratch.narrow(0, 0, length);
      kernel(pieces, n, piece, own);
    }
  });
}

}  // namespace

void elementwise(const Kernel& kernel, const std::vector<at::Tensor>& operands, const Scalars& scalars,
                 at::Tensor& out) {
  if (is_expression(kernel)) return expression(kernel, operands, out);
  Numbers numbers;
  for (size_t i = 0; i < kernel.parameters.size(); ++i) {
    if (!std::holds_alternative<std::string>(kernel.parameters[i])) numbers.push_back(kernel.number(i, scalars));
  }
  if (const auto pieced = pieced_kernels().find(kernel.name); pieced != pieced_kernels().end()) {
    run_in_pieces(pieced->second, operands, numbers, out);
    return;
  }
  const auto whole = whole_kernels().find(kernel.name);
  JOINSUM_CHECK(whole != whole_kernels().end(), "no function in kernels/dense/elementwise.cpp: kernel=", kernel.text());
  whole->second(operands, numbers, out);
}

}  // namespace joinsum::kernels::dense
