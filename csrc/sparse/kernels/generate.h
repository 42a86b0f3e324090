#pragma once

#include <cstdint>
#include <string>

#include "sparse/kernels/kernel.h"

namespace joinsum::sparse::kernels {

/// The name of the function that `generate` writes.
inline constexpr const char* kKernelSymbol = "joinsum_kernel";

/// A kernel as C++: a function `extern "C" void joinsum_kernel(const Call*)` for the elements of a dtype, which runs a
/// range of the outermost loop. It needs no header but <cstdint>; all names are generated, literals are hex floats.
std::string generate(const Kernel& kernel, DType dtype);

/// The parts of it, for several functions in one file: what all of them share, and one function.
const std::string& generated_preamble();
std::string generated_function(const Kernel& kernel, DType dtype, const std::string& name);

/// A level as generated functions read it.
struct GeneratedLevel {
  int64_t size = 0;
  const int64_t* offsets = nullptr;
  const int64_t* coordinates = nullptr;
  const uint8_t* stored = nullptr;
  const int64_t* slots = nullptr;
  const int64_t* parents = nullptr;
  uint64_t mask = 0;
  bool single = false;
};

/// The arguments of a generated function.
struct GeneratedCall {
  const GeneratedLevel* const* levels = nullptr;  ///< [operand][level]
  const void* const* values = nullptr;            ///< [operand]
  const int64_t* roots = nullptr;                 ///< [operand]: 0, or -1 for a scalar that is not stored
  const int64_t* extents = nullptr;               ///< [loop]
  const int64_t* strides = nullptr;               ///< [loop], of the elements that are reduced where they stay
  int64_t lower = 0;                              ///< range of the outermost loop
  int64_t upper = 0;
  void* context = nullptr;
  int64_t* prefix = nullptr;    ///< written: coordinates of the result's leading levels, before `fiber`
  void* elements = nullptr;     ///< dense: all; workspace: of an array; in order: a chunk of a fiber
  int64_t* counts = nullptr;    ///< of visits, parallel to the elements
  uint64_t* touched = nullptr;  ///< workspace of an array: a bit for each element; null where it is a hash table
  int64_t* order = nullptr;     ///< positions of the workspace that were touched, or coordinates of the chunk
  /// The element of a position in a hash table, which so many visits are reduced into.
  void* (*element)(void* context, int64_t position, int64_t visits) = nullptr;
  /// A chunk of a fiber of so many elements is there, or a workspace of which so many were touched.
  void (*fiber)(void* context, int64_t count) = nullptr;
};

using GeneratedFunction = void (*)(const GeneratedCall*);

/// Elements of a chunk.
inline constexpr int64_t kGeneratedChunk = 1024;

}  // namespace joinsum::sparse::kernels
