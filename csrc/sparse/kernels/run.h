#pragma once

#include <string>

#include "sparse/kernels/generate.h"
#include "sparse/kernels/interpret.h"
#include "sparse/kernels/kernel.h"

namespace joinsum::sparse::kernels {

enum class Engine : uint8_t {
  kAutomatic,  ///< compiled where that pays and works, else interpreted
  kInterpreter,
  kCompiled  ///< raises PlanError where it cannot be compiled
};

/// Of a loop of a kernel that is interpreted, about.
inline constexpr double kSecondsOfVisit = 20e-9;

struct RunOptions {
  int threads = 1;
  Engine engine = Engine::kAutomatic;
  std::string cache = {};  ///< folder of compiled kernels; empty: the user's
  double iterations = 0;   ///< estimated visits of all loops
  int64_t entries = 0;     ///< that the result is expected to have, if that is known
};

struct Run {
  Tensor result;
  double compile_seconds = 0;  ///< 0 where nothing had to be compiled
  double interpreted_seconds = 0;
  bool compiled = false;
  std::string why_interpreted = {};  ///< why a kernel that should have been compiled was not
};

/// Runs a kernel, interpreted or compiled. Kernels that would take less time interpreted than to compile are not,
/// unless they take more than a millisecond and are compiled already, or have run so often that they have taken that
/// time.
Run run(const Kernel& kernel, const KernelArguments& arguments, const RunOptions& options = {});

/// Runs a kernel by the function that was generated for it and the dtype of its arguments.
Tensor run_generated(const Kernel& kernel, const KernelArguments& arguments, GeneratedFunction function,
                     const InterpreterOptions& options = {});

}  // namespace joinsum::sparse::kernels
