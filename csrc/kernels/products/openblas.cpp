#include "kernels/products/openblas.h"

#include <algorithm>
#include <dlfcn.h>
#include <limits>

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/Version.h>

#include "kernels/threads/parallel.h"

namespace joinsum::kernels::products {
namespace {

// Of OpenBLAS's cblas.h, in the names and with the integers of scipy_openblas32.
enum Order : int { kRowMajor = 101 };
enum Transpose : int { kAsItIs = 111, kTransposed = 112 };
template <class T>
using Gemm = void (*)(Order, Transpose, Transpose, int rows, int columns, int inner, T alpha, const T* left,
                      int left_stride, const T* right, int right_stride, T beta, T* out, int out_stride);

struct OpenBlas {
  Gemm<float> sgemm = nullptr;
  Gemm<double> dgemm = nullptr;

  explicit operator bool() const { return sgemm != nullptr && dgemm != nullptr; }
};

std::string& path() {
  static std::string value;
  return value;
}

OpenBlas opened() {
  void* library = dlopen(path().c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return {};
  // Torch's threads call it, each for a part of a product.
  auto* const set_threads = reinterpret_cast<void (*)(int)>(dlsym(library, "scipy_openblas_set_num_threads"));
  if (set_threads == nullptr) return {};
  set_threads(1);
  return {reinterpret_cast<Gemm<float>>(dlsym(library, "scipy_cblas_sgemm")),
          reinterpret_cast<Gemm<double>>(dlsym(library, "scipy_cblas_dgemm"))};
}

const OpenBlas& openblas() {
  static const OpenBlas none;
  if (path().empty()) return none;
  static const OpenBlas library = opened();
  return library;
}

Gemm<float> gemm_of(float) { return openblas().sgemm; }
Gemm<double> gemm_of(double) { return openblas().dgemm; }

/// A matrix, the last two axes of a tensor, as cblas takes it.
struct Matrix {
  Transpose transpose;
  int stride;

  explicit Matrix(const at::Tensor& x)
      : transpose(x.stride(-1) == 1 && x.stride(-2) >= x.size(-1) ? kAsItIs : kTransposed),
        stride(static_cast<int>(transpose == kAsItIs ? x.stride(-2) : x.stride(-1))) {}
};

/// out = beta · out + alpha · left @ right, of matrices of which the rows of `out` are each in one stretch.
template <class T>
void multiply(const at::Tensor& out, const at::Tensor& left, const at::Tensor& right, double beta, double alpha) {
  const Matrix a(left), b(right);
  gemm_of(T{})(kRowMajor, a.transpose, b.transpose, static_cast<int>(out.size(0)), static_cast<int>(out.size(1)),
               static_cast<int>(left.size(1)), static_cast<T>(alpha), left.const_data_ptr<T>(), a.stride,
               right.const_data_ptr<T>(), b.stride, static_cast<T>(beta), out.mutable_data_ptr<T>(),
               static_cast<int>(out.stride(0)));
}

void multiply_any(const at::Tensor& out, const at::Tensor& left, const at::Tensor& right, double beta, double alpha) {
  const bool by_rows = out.stride(1) == 1 && out.stride(0) >= out.size(1);
  if (!by_rows) return multiply_any(out.t(), right.t(), left.t(), beta, alpha);
  const bool single = out.scalar_type() == at::kFloat;
  single ? multiply<float>(out, left, right, beta, alpha) : multiply<double>(out, left, right, beta, alpha);
}

bool fits_cblas(const at::Tensor& x) {
  constexpr int64_t kGreatest = std::numeric_limits<int>::max();
  const auto below = [](int64_t number) { return number <= kGreatest; };
  return std::ranges::all_of(x.sizes(), below) && std::ranges::all_of(x.strides(), below);
}

double multiplications(const at::Tensor& left, const at::Tensor& right) {
  return static_cast<double>(left.numel()) * static_cast<double>(right.size(-1));
}

}  // namespace

void set_openblas(const std::string& library) { path() = library; }

bool openblas_suits_processor() {
#if defined(__x86_64__)
  __builtin_cpu_init();
  return at::hasMKL() && at::get_cpu_capability() == "AVX2" && !__builtin_cpu_is("intel");
#else
  return false;
#endif
}

bool openblas_is_faster() {
  static const bool may_be = openblas_suits_processor();
  return may_be && openblas();
}

bool fits_openblas(const at::Tensor& left, const at::Tensor& right) {
  constexpr double kMultiplications = 4e6;
  constexpr int64_t kExtent = 16;
  return (left.scalar_type() == at::kFloat || left.scalar_type() == at::kDouble) && fits_cblas(left) &&
         fits_cblas(right) && std::min({left.size(-2), left.size(-1), right.size(-1)}) >= kExtent &&
         multiplications(left, right) >= kMultiplications;
}

void openblas_product(const at::Tensor& out, const at::Tensor& left, const at::Tensor& right, double beta,
                      double alpha) {
  constexpr double kOfAThread = 2e6;
  constexpr int64_t kMultiple = 16;
  const int64_t batches = out.dim() == 3 ? out.size(0) : 1;
  const bool by_rows = out.size(-2) >= out.size(-1);
  const int64_t extent = by_rows ? out.size(-2) : out.size(-1);
  const auto of_batch = static_cast<int64_t>(multiplications(left, right) / static_cast<double>(batches) / kOfAThread);
  const int64_t threads = at::in_parallel_region() ? 1 : at::get_num_threads();
  // Of each product as many parts as threads would otherwise have no product.
  const int64_t wanted = std::clamp<int64_t>((threads + batches - 1) / batches, 1, std::max<int64_t>(of_batch, 1));
  const int64_t chunk = ((extent + wanted - 1) / wanted + kMultiple - 1) / kMultiple * kMultiple;
  const int64_t parts = (extent + chunk - 1) / chunk;
  threads::for_each_range(batches * parts, [&](int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i) {
      const auto of = [&](const at::Tensor& x) { return x.dim() == 3 ? x.select(0, i / parts) : x; };
      const int64_t begin = i % parts * chunk;
      const int64_t count = std::min(chunk, extent - begin);
      const at::Tensor a = by_rows ? of(left).narrow(0, begin, count) : of(left);
      const at::Tensor b = by_rows ? of(right) : of(right).narrow(1, begin, count);
      multiply_any(of(out).narrow(by_rows ? 0 : 1, begin, count), a, b, beta, alpha);
    }
  });
}

}  // namespace joinsum::kernels::products
