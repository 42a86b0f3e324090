#include "sparse/kernels/generate.h"
#include "sparse/operators/exponential.h"

namespace joinsum::sparse::kernels {

/// Structures as in generate.h, reading of levels as in nest/level_view.h, operators as in operators.h.
const std::string& generated_preamble() {
  static const std::string text = R"cpp(#include <cstdint>

                                        namespace {

                                        struct Level {
                                          int64_t size;
                                          const int64_t* offsets;
                                          const int64_t* coordinates;
                                          const uint8_t* stored;
                                          const int64_t* slots;
                                          const int64_t* parents;
                                          uint64_t mask;
                                          bool single;

                                          // Where the entries of a fiber begin in a list; those of the one before end
                                          // there.
                                          int64_t begin(int64_t fiber) const { return single ? fiber : offsets[fiber]; }
                                        };

                                        struct Call {
                                          const Level* const* levels;
                                          const void* const* values;
                                          const int64_t* roots;
                                          const int64_t* extents;
                                          const int64_t* strides;
                                          int64_t lower;
                                          int64_t upper;
                                          void* context;
                                          int64_t* prefix;
                                          void* elements;
                                          int64_t* counts;
                                          uint64_t* touched;
                                          int64_t* order;
                                          void* (*element)(void* context, int64_t position, int64_t visits);
                                          void (*fiber)(void* context, int64_t count);
                                        };

                                        constexpr int64_t kPastAll = INT64_MAX;

                                        inline int64_t least(int64_t a, int64_t b) { return b < a ? b : a; }

                                        // The first entry in [at, end) whose coordinate is at least this one.
                                        inline int64_t lower_bound(const int64_t* coordinates, int64_t at, int64_t end, int64_t coordinate) {
                                          while (at < end) {
                                            const int64_t middle = at + (end - at) / 2;
                                            if (coordinates[middle] < coordinate) {
                                              at = middle + 1;
                                            } else {
                                              end = middle;
                                            }
                                          }
                                          return at;
                                        }

                                        inline int64_t gallop(const int64_t* coordinates, int64_t at, int64_t end, int64_t coordinate) {
                                          if (at >= end || coordinates[at] >= coordinate) return at;
                                          int64_t step = 1;
                                          while (at + step < end && coordinates[at + step] < coordinate) {
                                            at += step;
                                            step *= 2;
                                          }
                                          return lower_bound(coordinates, at + 1, least(at + step, end), coordinate);
                                        }

                                        inline int64_t find_marked(const Level& level, int64_t fiber, int64_t coordinate) {
                                          const int64_t entry = fiber * level.size + coordinate;
                                          return fiber >= 0 && level.stored[entry] ? entry : -1;
                                        }

                                        inline int64_t find_hashed(const Level& level, int64_t fiber, int64_t coordinate) {
                                          if (fiber < 0) return -1;
                                          uint64_t hash = uint64_t(fiber) * 0x9E3779B97F4A7C15ull + uint64_t(coordinate);
                                          hash ^= hash >> 32;
                                          hash *= 0xD6E8FEB86659FD93ull;
                                          hash ^= hash >> 32;
                                          for (uint64_t slot = hash & level.mask;; slot = (slot + 1) & level.mask) {
                                            const int64_t entry = level.slots[slot];
                                            if (entry < 0 || (level.coordinates[entry] == coordinate && level.parents[entry] == fiber)) return entry;
                                          }
                                        }

                                        // Looks up ascending coordinates of a fiber of a sorted list.
                                        struct Search {
                                          int64_t at = 0;
                                          int64_t end = 0;
                                          Search(const Level& level, int64_t fiber) {
                                            if (fiber < 0) return;
                                            at = level.begin(fiber);
                                            end = level.begin(fiber + 1);
                                          }
                                          int64_t find(const Level& level, int64_t coordinate) {
                                            at = gallop(level.coordinates, at, end, coordinate);
                                            return at < end && level.coordinates[at] == coordinate ? at : -1;
                                          }
                                        };

                                        // Walks the stored coordinates of a fiber in [lower, upper).
                                        struct ListWalk {
                                          int64_t coordinate = kPastAll;
                                          int64_t entry = 0;
                                          int64_t end = 0;
                                          ListWalk(const Level& level, int64_t fiber, int64_t lower, int64_t upper) {
                                            if (fiber < 0) return;
                                            entry = level.begin(fiber);
                                            end = level.begin(fiber + 1);
                                            if (lower > 0) entry = lower_bound(level.coordinates, entry, end, lower);
                                            if (upper < level.size) end = lower_bound(level.coordinates, entry, end, upper);
                                            if (entry < end) coordinate = level.coordinates[entry];
                                          }
                                          void next(const Level& level) {
                                            ++entry;
                                            coordinate = entry < end ? level.coordinates[entry] : kPastAll;
                                          }
                                        };

                                        template <bool kMarked>
                                        struct RangeWalk {
                                          int64_t coordinate = kPastAll;
                                          int64_t entry = 0;
                                          int64_t end = 0;
                                          RangeWalk(const Level& level, int64_t fiber, int64_t lower, int64_t upper) {
                                            if (fiber < 0 || lower >= upper) return;
                                            entry = fiber * level.size + lower;
                                            end = fiber * level.size + upper;
                                            coordinate = lower;
                                            skip(level);
                                          }
                                          void next(const Level& level) {
                                            ++entry;
                                            ++coordinate;
                                            skip(level);
                                          }
                                          void skip(const Level& level) {
                                            while (kMarked && entry < end && !level.stored[entry]) {
                                              ++entry;
                                              ++coordinate;
                                            }
                                            if (entry >= end) coordinate = kPastAll;
                                          }
                                        };

                                        template <class T>
                                        inline T add(T a, T b) {
                                          return T(a + b);
                                        }
                                        template <class T>
                                        inline T multiply(T a, T b) {
                                          return T(a * b);
                                        }
                                        template <class T>
                                        inline T subtract(T a, T b) {
                                          return T(a - b);
                                        }
                                        template <class T>
                                        inline T divide(T a, T b) {
                                          if (T(0.5) != T(0)) return T(a / b);
                                          if (b == T(0)) return T(0);
                                          return T(-1) < T(0) && b == T(-1) ? T(0 - uint64_t(a)) : T(a / b);
                                        }
                                        template <>
                                        inline bool divide(bool a, bool b) {
                                          return a && b;
                                        }
                                        template <class T>
                                        inline T smaller(T a, T b) {
                                          return (b < a || b != b) ? b : a;
                                        }
                                        template <class T>
                                        inline T larger(T a, T b) {
                                          return (b > a || b != b) ? b : a;
                                        }
                                        template <class T>
                                        inline T both(T a, T b) {
                                          return T(a != T(0) && b != T(0));
                                        }
                                        template <class T>
                                        inline T either(T a, T b) {
                                          return T(a != T(0) || b != T(0));
                                        }
                                        template <class T>
                                        inline T equal(T a, T b) {
                                          return T(a == b);
                                        }
                                        template <class T>
                                        inline T greater(T a, T b) {
                                          return T(a > b);
                                        }
                                        template <class T>
                                        inline T power(T a, T b) {
                                          return T(__builtin_pow(double(a), double(b)));
                                        }
                                        template <>
                                        inline float power(float a, float b) {
                                          return __builtin_powf(a, b);
                                        }
                                        template <class T>
                                        inline T integer_power(T a, T b) {
                                          if (b < T(0)) return T(__builtin_pow(double(a), double(b)));
                                          T out = T(1);
                                          for (; b > T(0); b = T(b / T(2))) {
                                            if (b % T(2) == T(1)) out = T(out * a);
                                            a = T(a * a);
                                          }
                                          return out;
                                        }
                                        template <>
                                        inline int32_t power(int32_t a, int32_t b) {
                                          return integer_power(a, b);
                                        }
                                        template <>
                                        inline int64_t power(int64_t a, int64_t b) {
                                          return integer_power(a, b);
                                        }
                                        template <>
                                        inline uint8_t power(uint8_t a, uint8_t b) {
                                          return integer_power(a, b);
                                        }
                                        template <class T>
                                        inline T same(T a) {
                                          return a;
                                        }
                                        template <class T>
                                        inline T truth(T a) {
                                          return T(a != T(0));
                                        }
                                        template <class T>
                                        inline T negated(T a) {
                                          return T(-a);
                                        }
                                        template <class T>
                                        inline T square(T a) {
                                          return T(a * a);
                                        }
                                        template <class T>
                                        inline T positive_part(T a) {
                                          return larger(a, T(0));
                                        }
                                        template <class T>
                                        inline T absolute(T a) {
                                          return a < T(0) ? T(-a) : a;
                                        }
  )cpp" JOINSUM_EXPONENTIAL(JOINSUM_TEXT) R"cpp(
    template <class T>
    inline T exponential(T a) {
      return T(exponential_of(double(a)));
    }
    template <class T>
    inline T square_root(T a) {
      return T(__builtin_sqrt(double(a)));
    }
    template <>
    inline float square_root(float a) {
      return __builtin_sqrtf(a);
    }
    template <class T>
    inline T logarithm(T a) {
      return T(__builtin_log(double(a)));
    }
    template <>
    inline float logarithm(float a) {
      return __builtin_logf(a);
    }
    template <class T>
    inline T log_add_exp(T a, T b) {
      const double most = larger(double(a), double(b));
      if (__builtin_isinf(most)) return T(most);
      return T(most + __builtin_log1p(exponential(smaller(double(a), double(b)) - most)));
    }
    template <>
    inline float log_add_exp(float a, float b) {
      const float most = larger(a, b);
      if (__builtin_isinf(most)) return most;
      return most + __builtin_log1pf(exponential(smaller(a, b) - most));
    }
    template <class T>
    inline T sigmoid(T a) {
      return T(1.0 / (1.0 + exponential_of(-double(a))));
    }
    template <>
    inline float sigmoid(float a) {
      return 1.0f / (1.0f + exponential(-a));
    }

    }  // namespace
  )cpp";
  return text;
}

}  // namespace joinsum::sparse::kernels
