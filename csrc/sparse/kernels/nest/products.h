#pragma once

#include <cstdint>
#include <type_traits>

#include "sparse/kernels/nest/arithmetic.h"
#include "sparse/kernels/nest/workspace.h"

/// Innermost loops compiled for a body that is a product: scale · a, scale · a · b.
namespace joinsum::sparse::kernels::nest {

/// Which values a loop multiplies and which coordinates it visits.
enum class ProductShape : uint8_t {
  kNone,       ///< another loop: it goes by blocks
  kRange,      ///< a[i] along a range
  kRangePair,  ///< a[i] · b[i] along a range
  kList,       ///< a[i] along a list of coordinates
  kListPair    ///< a[i] · b[coordinate of i] along a list
};

template <class T>
struct ProductTerms {
  ProductShape shape = ProductShape::kNone;
  int64_t count = 0;
  T scale{};
  const T* a = nullptr;
  const T* b = nullptr;
  const int64_t* coordinates = nullptr;  ///< of a list
  int64_t first = 0;                     ///< coordinate of a range
};

/// Calls `sink(coordinate, value)` for each term.
template <ProductShape kShape, class T, class Sink>
void each_term(const ProductTerms<T>& terms, Sink&& sink) {
  const T scale = terms.scale;
  const T* __restrict a = terms.a;
  const T* __restrict b = terms.b;
  const int64_t* __restrict coordinates = terms.coordinates;
  constexpr Operator kTimes = Operator::kMultiply;
  for (int64_t i = 0; i < terms.count; ++i) {
    const T first = applied(kTimes, scale, a[i]);
    if constexpr (kShape == ProductShape::kRange) {
      sink(terms.first + i, first);
    } else if constexpr (kShape == ProductShape::kRangePair) {
      sink(terms.first + i, applied(kTimes, first, b[i]));
    } else if constexpr (kShape == ProductShape::kList) {
      sink(coordinates[i], first);
    } else {
      sink(coordinates[i], applied(kTimes, first, b[coordinates[i]]));
    }
  }
}

/// Calls `visit` with the shape as a constant.
template <class Visit>
decltype(auto) with_shape(ProductShape shape, Visit&& visit) {
  switch (shape) {
    case ProductShape::kRange:
      return visit(std::integral_constant<ProductShape, ProductShape::kRange>{});
    case ProductShape::kRangePair:
      return visit(std::integral_constant<ProductShape, ProductShape::kRangePair>{});
    case ProductShape::kList:
      return visit(std::integral_constant<ProductShape, ProductShape::kList>{});
    default:
      return visit(std::integral_constant<ProductShape, ProductShape::kListPair>{});
  }
}

template <class R, class T>
T reduced_terms(const ProductTerms<T>& terms, T start) {
  return with_shape(terms.shape, [&](auto shape) {
    T reduced = start;
    each_term<decltype(shape)::value>(terms, [&](int64_t, T value) { reduced = R::reduced(reduced, value); });
    return reduced;
  });
}

/// Reduces each term into out[stride · coordinate].
template <class R, class T>
void scatter_terms(const ProductTerms<T>& terms, T* __restrict out, int64_t stride) {
  with_shape(terms.shape, [&](auto shape) {
    constexpr ProductShape kShape = decltype(shape)::value;
    if (stride == 1) {
      each_term<kShape>(terms, [out](int64_t c, T value) { out[c] = R::reduced(out[c], value); });
      return;
    }
    each_term<kShape>(terms, [out, stride](int64_t c, T value) {
      T& at = out[stride * c];
      at = R::reduced(at, value);
    });
  });
}

template <class R, class T>
void scatter_terms(const ProductTerms<T>& terms, Workspace<T>& workspace, int64_t base, int64_t stride) {
  with_shape(terms.shape, [&](auto shape) {
    each_term<decltype(shape)::value>(
        terms, [&](int64_t c, T value) { workspace.template add_to_array<R>(base + stride * c, value); });
  });
}

}  // namespace joinsum::sparse::kernels::nest
