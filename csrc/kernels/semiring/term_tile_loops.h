#pragma once

#include "kernels/semiring/pair_exponential.h"
#include "kernels/semiring/term_tiles.h"

/// Loops over tiles of terms; included as pair_tile_loops.h is.
namespace joinsum::kernels::semiring {
namespace {

template <int size>
struct WholeOf {
  using Type = int32_t;
};
template <>
struct WholeOf<8> {
  using Type = int64_t;
};

/// e^x for any x: infinite beyond what T holds.
template <class T, int bytes>
JOINSUM_INLINE typename Vectors<T, bytes>::Aligned any_exponential(typename Vectors<T, bytes>::Aligned x) {
#if defined(__AVX512DQ__)
  if constexpr (bytes == 64) return exponential<T, bytes>(x);
#endif
  // Beyond it 2^n has the bits of infinity.
  constexpr T kMost = sizeof(T) == 4 ? T(88.8) : T(709.8);
  const auto most = typename Vectors<T, bytes>::Aligned{} + kMost;
  return exponential<T, bytes>(x > most ? most : x);
}

/// Whether a join's derivative is 1, or -1.
constexpr bool is_sum(Join join) { return join == Join::kAdd || join == Join::kSub || join == Join::kReversedSub; }

/// `weight` times the derivative of the join with respect to `own`.
template <Join join, bool tame, class V>
JOINSUM_INLINE V sloped(V weight, V own, V other) {
  const V one = V{} + 1;
  if constexpr (is_sum(join)) return weight;
  if constexpr (join == Join::kMul) return weight * other;
  if constexpr (join == Join::kSquaredDifference) return weight * (own - other);
  if constexpr (join == Join::kAbsDifference && tame) return own > other ? weight : (own < other ? -weight : V{});
  if constexpr (join == Join::kAbsDifference) return weight * (own > other ? one : (own < other ? -one : V{}));
  // As the kernel `above`: one half at ties, 1 where one is not a number.
  const V half = V{} + decltype(one[0] + 0)(0.5);
  if constexpr (join == Join::kMax) return weight * (own < other ? V{} : (own == other ? half : one));
  if constexpr (join == Join::kMin) return weight * (other < own ? V{} : (own == other ? half : one));
}

/// Whether terms of signs are twice as large as they should be until they are complete.
template <class T, Term term, Join join, bool tame, int bytes>
constexpr bool doubles() {
#if defined(__AVX2__)
  return term == Term::kSlope && join == Join::kAbsDifference && tame && sizeof(T) == 4 && bytes == 32;
#else
  return false;
#endif
}

/// `total` with one more term.
template <class T, Term term, Join join, bool tame, int bytes, class V>
JOINSUM_INLINE V with_term(V total, V own, V left, V weight, V right) {
  const V one = V{} + 1;
  if constexpr (term == Term::kCount) return combine<join, tame>(left, right) == own ? total + one : total;
#if defined(__AVX2__)
  if constexpr (doubles<T, term, join, tame, bytes>()) {
    // The bits of -2 are the opposite of those of 2, as an integer. Differences of tame numbers are no -0, as `own` is
    // none.
    const __m256i two = _mm256_castps_si256(_mm256_set1_ps(2));
    return total + weight * (V)_mm256_sign_epi32(two, (__m256i)(own - right));
  }
#endif
  if constexpr (term == Term::kSlope && join == Join::kAbsDifference && tame) {
    const V more = own > right ? total + weight : total;
    return own < right ? more - weight : more;
  }
  if constexpr (term == Term::kSlope) return total + sloped<join, tame>(weight, own, right);
  const V x = combine<join, tame>(own, right);
  if constexpr (term == Term::kTied && tame) return x == left ? total + sloped<join, tame>(weight, own, right) : total;
  if constexpr (term == Term::kTied) return total + sloped<join, tame>(weight * (x == left ? one : V{}), own, right);
  if constexpr (term == Term::kShare)
    return total + sloped<join, tame>(weight * any_exponential<T, bytes>(x - left), own, right);
}

/// A tile of `kRows` rows, two vectors wide. The panels are added up by themselves first.
template <class T, Term term, Join join, bool tame, int kRows, int bytes>
void term_tile(const TermPanels& panels) {
  using V = Vectors<T, bytes>;
  using Vector = typename V::Aligned;
  using Place = typename V::Unaligned;
  const T* left = static_cast<const T*>(panels.left);
  const T* weight = static_cast<const T*>(panels.weight);
  const T* right = static_cast<const T*>(panels.right);
  const auto* from = static_cast<const T*>(panels.own);
  constexpr bool kDoubles = doubles<T, term, join, tame, bytes>();
  Vector own[kRows][2], total[kRows][2];
  for (int r = 0; r < kRows; ++r) {
    for (int half = 0; half < 2; ++half) {
      own[r][half] = *reinterpret_cast<const Place*>(from + (2 * r + half) * V::kLanes);
      if constexpr (kDoubles) own[r][half] += T(0);  // 0 for -0
      total[r][half] = Vector{};
    }
  }
  for (int64_t k = 0; k < panels.depth; ++k) {
    const Vector b[2] = {*reinterpret_cast<const Place*>(right), *reinterpret_cast<const Place*>(right + V::kLanes)};
#if defined(__clang__)
#pragma clang loop unroll(full)
#else
#pragma GCC unroll 16
#endif
    for (int r = 0; r < kRows; ++r) {
      const Vector x = term == Term::kSlope ? Vector{} : left[r] - Vector{};
      const Vector w = term == Term::kCount ? Vector{} : weight[r] - Vector{};
      total[r][0] = with_term<T, term, join, tame, bytes>(total[r][0], own[r][0], x, w, b[0]);
      total[r][1] = with_term<T, term, join, tame, bytes>(total[r][1], own[r][1], x, w, b[1]);
    }
    left += kRows;
    weight += kRows;
    right += 2 * V::kLanes;
  }
  for (int r = 0; r < kRows; ++r) {
    for (int half = 0; half < 2; ++half) {
      auto* to = reinterpret_cast<Place*>(static_cast<T*>(panels.out) + (2 * r + half) * V::kLanes);
      *to = static_cast<Vector>(*to) + (kDoubles ? total[r][half] * T(0.5) : total[r][half]);
    }
  }
}

/// From the last index to the first, so that the first one stays.
template <class T, Join join, bool tame, int kRows, int bytes>
void position_tile(const TermPanels& panels) {
  using V = Vectors<T, bytes>;
  using Vector = typename V::Aligned;
  using Whole = Vectors<typename WholeOf<sizeof(T)>::Type, bytes>;
  const auto* from = static_cast<const T*>(panels.own);
  const auto at = [](const T* place) -> Vector { return *reinterpret_cast<const typename V::Unaligned*>(place); };
  typename Whole::Aligned found[kRows][2];
  for (auto& row : found) row[0] = row[1] = typename Whole::Aligned{} - 1;
  for (int64_t k = panels.depth; k-- > 0;) {
    const T* left = static_cast<const T*>(panels.left) + k * kRows;
    const T* right = static_cast<const T*>(panels.right) + k * 2 * V::kLanes;
    const typename Whole::Aligned index = typename Whole::Aligned{} + static_cast<typename WholeOf<sizeof(T)>::Type>(k);
#if defined(__clang__)
#pragma clang loop unroll(full)
#else
#pragma GCC unroll 16
#endif
    for (int r = 0; r < kRows; ++r) {
      for (int half = 0; half < 2; ++half) {
        const Vector x = combine<join, tame>(left[r] - Vector{}, at(right + half * V::kLanes));
        auto hit = x == at(from + (2 * r + half) * V::kLanes);
        if constexpr (!tame) hit |= x != x;
        found[r][half] = hit ? index : found[r][half];
      }
    }
  }
  for (int r = 0; r < kRows; ++r) {
    for (int half = 0; half < 2; ++half) {
      auto* to = static_cast<typename WholeOf<sizeof(T)>::Type*>(panels.out) + (2 * r + half) * V::kLanes;
      *reinterpret_cast<typename Whole::Unaligned*>(to) = found[r][half];
    }
  }
}

template <class T, Term term, Join join, int kRows, int bytes>
constexpr TermTiles term_tiles() {
  constexpr bool kFloats = std::is_floating_point_v<T>;
  constexpr bool kDivides = join == Join::kDiv || join == Join::kReversedDiv;
  constexpr bool kSearches = term == Term::kPosition;
  constexpr bool kSloped = join == Join::kAbsDifference || join == Join::kMax || join == Join::kMin;
  constexpr int64_t kColumns = 2 * Vectors<T, bytes>::kLanes;
  if constexpr (join == Join::kUnsignedDifference || (!kFloats && (!kSearches || kDivides)) ||
                (kDivides && !kSearches && term != Term::kCount) || (term == Term::kSlope && !kSloped)) {
    return {};
  } else if constexpr (kSearches) {
    return {kRows, kColumns, position_tile<T, join, !kFloats, kRows, bytes>,
            position_tile<T, join, true, kRows, bytes>};
  } else {
    return {kRows, kColumns, term_tile<T, term, join, false, kRows, bytes>,
            term_tile<T, term, join, true, kRows, bytes>};
  }
}

template <class T, int kRows, int bytes>
TermTiles term_tiles_of(Term term, Join given_join) {
  return with_constant(given_join, [&](auto join) -> TermTiles {
    switch (term) {
      case Term::kPosition:
        return term_tiles<T, Term::kPosition, join.value, kRows, bytes>();
      case Term::kCount:
        return term_tiles<T, Term::kCount, join.value, kRows, bytes>();
      case Term::kTied:
        return term_tiles<T, Term::kTied, join.value, kRows, bytes>();
      case Term::kShare:
        return term_tiles<T, Term::kShare, join.value, kRows, bytes>();
      case Term::kSlope:
        break;
    }
    return term_tiles<T, Term::kSlope, join.value, kRows, bytes>();
  });
}

template <int kRows, int bytes>
TermTiles all_term_tiles(Term term, Join join, Type type) {
  switch (type) {
    case Type::kFloat:
      return term_tiles_of<float, kRows, bytes>(term, join);
    case Type::kDouble:
      return term_tiles_of<double, kRows, bytes>(term, join);
    case Type::kInt64:
      return term_tiles_of<int64_t, kRows, bytes>(term, join);
    case Type::kInt32:
      return term_tiles_of<int32_t, kRows, bytes>(term, join);
    default:
      return {};
  }
}

// --- extremes, and where they are ------------------------------------------------------------------------------------

template <class T, Join join, bool least, int kRows, int bytes>
void extreme_tile(const ExtremePanels& panels) {
  using V = Vectors<T, bytes>;
  using Vector = typename V::Aligned;
  using Place = typename V::Unaligned;
  using Whole = Vectors<typename WholeOf<sizeof(T)>::Type, bytes>;
  using Index = typename WholeOf<sizeof(T)>::Type;
  constexpr Reduction kReduction = least ? Reduction::kMin : Reduction::kMax;
  const T* a = static_cast<const T*>(panels.left);
  const T* b = static_cast<const T*>(panels.right);
  Index chunk = panels.first;
  for (int64_t begin = 0; begin < panels.depth; begin += kChunk, ++chunk) {
    const int64_t count = panels.depth - begin < kChunk ? panels.depth - begin : kChunk;
    Vector total[kRows][2];
    for (auto& row : total) row[0] = row[1] = Vector{} + nothing<kReduction, T>();
    for (int64_t k = 0; k < count; ++k) {
      const Vector b0 = *reinterpret_cast<const Place*>(b);
      const Vector b1 = *reinterpret_cast<const Place*>(b + V::kLanes);
#if defined(__clang__)
#pragma clang loop unroll(full)
#else
#pragma GCC unroll 16
#endif
      for (int r = 0; r < kRows; ++r) {
        const Vector x = a[r] - Vector{};
        total[r][0] = reduced<kReduction, true>(total[r][0], combine<join, true>(x, b0));
        total[r][1] = reduced<kReduction, true>(total[r][1], combine<join, true>(x, b1));
      }
      a += kRows;
      b += 2 * V::kLanes;
    }
    for (int r = 0; r < kRows; ++r) {
      for (int half = 0; half < 2; ++half) {
        auto* extreme = reinterpret_cast<Place*>(static_cast<T*>(panels.extreme) + (2 * r + half) * V::kLanes);
        auto* place = reinterpret_cast<typename Whole::Unaligned*>(static_cast<Index*>(panels.chunk) +
                                                                   (2 * r + half) * V::kLanes);
        const Vector value = total[r][half], before = *extreme;
        const typename Whole::Aligned old = *place, now = typename Whole::Aligned{} + chunk;
        const auto better = least ? value < before : value > before;
        *place = better ? now : (value == before ? (old | Index{kSeveral}) : old);
        *extreme = better ? value : before;
      }
    }
  }
}

/// A bit for each element of a comparison's result.
template <int lanes, class Hit>
JOINSUM_INLINE uint32_t bits_of(Hit hit) {
#if defined(__AVX512DQ__)
  if constexpr (sizeof(hit) == 64 && lanes == 16) return _mm512_movepi32_mask((__m512i)hit);
  if constexpr (sizeof(hit) == 64 && lanes == 8) return _mm512_movepi64_mask((__m512i)hit);
#endif
#if defined(__AVX2__)
  if constexpr (sizeof(hit) == 32 && lanes == 8) return static_cast<uint32_t>(_mm256_movemask_ps((__m256)hit));
  if constexpr (sizeof(hit) == 32 && lanes == 4) return static_cast<uint32_t>(_mm256_movemask_pd((__m256d)hit));
#endif
  uint32_t bits = 0;
  for (int lane = 0; lane < lanes; ++lane) bits |= static_cast<uint32_t>(hit[lane] != 0) << lane;
  return bits;
}

template <class T, Join join, int bytes>
uint32_t search(int64_t count, const void* left, const void* right, const void* wanted) {
  using V = Vectors<T, bytes>;
  using Vector = typename V::Aligned;
  const T* a = static_cast<const T*>(left);
  const T* b = static_cast<const T*>(right);
  const T value = *static_cast<const T*>(wanted);
  const Vector values = value - Vector{};
  uint32_t bits = 0;
  int64_t k = 0;
  for (; k + V::kLanes <= count; k += V::kLanes) {
    const Vector x = *reinterpret_cast<const typename V::Unaligned*>(a + k);
    const Vector y = *reinterpret_cast<const typename V::Unaligned*>(b + k);
    bits |= bits_of<V::kLanes>(combine<join, true>(x, y) == values) << k;
  }
  for (; k < count; ++k) bits |= static_cast<uint32_t>(combine<join, true>(a[k], b[k]) == value) << k;
  return bits;
}

template <class T, int kRows, int bytes>
ExtremeTiles extreme_tiles_of(bool least, Join given_join) {
  return with_constant(given_join, [&](auto join) -> ExtremeTiles {
    constexpr Join kJoin = join.value;
    if constexpr (kJoin == Join::kUnsignedDifference || kJoin == Join::kDiv || kJoin == Join::kReversedDiv) {
      return {};
    } else {
      return {kRows, 2 * Vectors<T, bytes>::kLanes,
              least ? extreme_tile<T, kJoin, true, kRows, bytes> : extreme_tile<T, kJoin, false, kRows, bytes>,
              search<T, kJoin, bytes>};
    }
  });
}

template <int kRows, int bytes>
ExtremeTiles all_extreme_tiles(bool least, Join join, Type type) {
  switch (type) {
    case Type::kFloat:
      return extreme_tiles_of<float, kRows, bytes>(least, join);
    case Type::kDouble:
      return extreme_tiles_of<double, kRows, bytes>(least, join);
    case Type::kInt64:
      return extreme_tiles_of<int64_t, kRows, bytes>(least, join);
    case Type::kInt32:
      return extreme_tiles_of<int32_t, kRows, bytes>(least, join);
    default:
      return {};
  }
}

}  // namespace
}  // namespace joinsum::kernels::semiring
