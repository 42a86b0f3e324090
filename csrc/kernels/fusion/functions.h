#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace joinsum::kernels::fusion {

/// Functions of one element of each argument. Truth values are 1 and 0; what is not 0 is true.
enum class Function : uint8_t {
  kUnit,  ///< the argument, which a program checks to lie between 0 and 1
  kNeg,
  kAbs,
  kSign,  ///< 0 of what is not a number
  kFloor,
  kCeil,
  kRound,  ///< to the nearest, halves to even
  kTrunc,
  kExp,
  kExp2,
  kExpm1,
  kLog,
  kLog2,
  kLog10,
  kLog1p,
  kSqrt,
  kReciprocal,
  kSin,
  kCos,
  kTan,
  kAsin,
  kAcos,
  kAtan,
  kSinh,
  kCosh,
  kTanh,
  kErf,
  kErfc,
  kNdtr,  ///< the normal distribution's function
  kSigmoid,
  kAdd,
  kSub,
  kMul,
  kDiv,
  kPow,
  kMax,  ///< not a number where one argument is not
  kMin,
  kEq,
  kNe,
  kLt,
  kLe,
  kGt,
  kGe,
  kAtan2,
  kFmod,
  kWhere,
};

struct FunctionRow {
  std::string_view name;
  int arguments;
};

inline constexpr std::array kFunctionRows{
    FunctionRow{"unit", 1},       FunctionRow{"neg", 1},     FunctionRow{"abs", 1},   FunctionRow{"sign", 1},
    FunctionRow{"floor", 1},      FunctionRow{"ceil", 1},    FunctionRow{"round", 1}, FunctionRow{"trunc", 1},
    FunctionRow{"exp", 1},        FunctionRow{"exp2", 1},    FunctionRow{"expm1", 1}, FunctionRow{"log", 1},
    FunctionRow{"log2", 1},       FunctionRow{"log10", 1},   FunctionRow{"log1p", 1}, FunctionRow{"sqrt", 1},
    FunctionRow{"reciprocal", 1}, FunctionRow{"sin", 1},     FunctionRow{"cos", 1},   FunctionRow{"tan", 1},
    FunctionRow{"asin", 1},       FunctionRow{"acos", 1},    FunctionRow{"atan", 1},  FunctionRow{"sinh", 1},
    FunctionRow{"cosh", 1},       FunctionRow{"tanh", 1},    FunctionRow{"erf", 1},   FunctionRow{"erfc", 1},
    FunctionRow{"ndtr", 1},       FunctionRow{"sigmoid", 1}, FunctionRow{"add", 2},   FunctionRow{"sub", 2},
    FunctionRow{"mul", 2},        FunctionRow{"div", 2},     FunctionRow{"pow", 2},   FunctionRow{"max", 2},
    FunctionRow{"min", 2},        FunctionRow{"eq", 2},      FunctionRow{"ne", 2},    FunctionRow{"lt", 2},
    FunctionRow{"le", 2},         FunctionRow{"gt", 2},      FunctionRow{"ge", 2},    FunctionRow{"atan2", 2},
    FunctionRow{"fmod", 2},       FunctionRow{"where", 3},
};

inline constexpr size_t kFunctions = kFunctionRows.size();
static_assert(kFunctions == static_cast<size_t>(Function::kWhere) + 1);

/// Computes `count` elements of `out` from those of the arguments that the function has; `out` may be one of them.
template <class T>
using Loop = void (*)(const T* a, const T* b, const T* c, T* out, int64_t count);

/// A loop for each function.
template <class T>
using Loops = std::array<Loop<T>, kFunctions>;

/// Loops for a set of instructions, which run only where it exists. Null functions where they are not compiled.
template <class T>
Loops<T> portable_loops();
template <class T>
Loops<T> avx2_loops();
template <class T>
Loops<T> avx512_loops();

}  // namespace joinsum::kernels::fusion
