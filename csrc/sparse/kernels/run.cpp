#include "sparse/kernels/run.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <mutex>
#include <optional>
#include <unordered_map>

#include "base/check.h"
#include "sparse/kernels/compilation/compiler.h"
#include "sparse/kernels/compiled_worker.h"
#include "sparse/kernels/execution.h"
#include "sparse/kernels/repeated_operands.h"

namespace joinsum::sparse::kernels {
namespace {

constexpr double kSecondsOfLookup = 1e-3;     // work for which looking for a compiled kernel does not pay
constexpr double kSecondsOfThreads = 200e-6;  // work for which starting threads does not pay

/// What a compiler is expected to take: what those of this process took on average, which begins with a guess.
class CompileTime {
 public:
  double expected() const { return seconds_; }
  void add(double seconds) {
    if (seconds > 0) seconds_ = 0.75 * seconds_ + 0.25 * seconds;
  }

 private:
  std::atomic<double> seconds_{0.1};
};

CompileTime& compile_time() {
  static CompileTime time;
  return time;
}

/// Seconds that kernels have been interpreted in this process, by their generated source: a kernel that runs often is
/// compiled once it has taken as long as the compiler would.
class InterpretedTime {
 public:
  double of(const std::string& source) {
    const std::scoped_lock lock(mutex_);
    const auto found = seconds_.find(std::hash<std::string>()(source));
    return found == seconds_.end() ? 0 : found->second;
  }
  void add(const std::string& source, double seconds) {
    const std::scoped_lock lock(mutex_);
    if (seconds_.size() >= kMostKernels) seconds_.clear();
    seconds_[std::hash<std::string>()(source)] += seconds;
  }

 private:
  static constexpr size_t kMostKernels = 4096;
  std::mutex mutex_;
  std::unordered_map<size_t, double> seconds_;
};

InterpretedTime& interpreted_time() {
  static InterpretedTime time;
  return time;
}

compilation::Compiled compiled(const std::string& source, const RunOptions& options) {
  JOINSUM_USER_CHECK(compilation::compilation_is_on(), "kernel compiler: it is switched off: JOINSUM_JIT=0");
  compilation::Compiled out = compilation::compile(source, {.cache_folder = options.cache});
  compile_time().add(out.seconds);
  return out;
}

GeneratedFunction function_of(const compilation::Compiled& from) {
  return reinterpret_cast<GeneratedFunction>(from.library->symbol(kKernelSymbol));
}

/// The function for a kernel that takes longer to interpret than to compile, this time or with the times before, or is
/// compiled already; none for others, of which `source` is what was generated, if anything was.
std::optional<compilation::Compiled> where_it_pays(const Kernel& kernel, DType dtype, const RunOptions& options,
                                                   std::string& source) {
  const double interpreted = options.iterations * kSecondsOfVisit;
  // To look for a compiled kernel takes its source and a hash of it.
  if (interpreted < kSecondsOfLookup) return {};
  source = generate(kernel, dtype);
  if (std::max(interpreted, interpreted_time().of(source)) >= compile_time().expected()) {
    return compiled(source, options);
  }
  if (!compilation::is_compiled(source, {.cache_folder = options.cache})) return {};
  return compilation::compile(source, {.cache_folder = options.cache});
}

}  // namespace

Run run(const Kernel& given, const KernelArguments& given_arguments, const RunOptions& options) {
  auto [once, arguments] = without_repeated_operands(given, given_arguments);
  const Kernel kernel = with_single_loops(std::move(once), arguments);
  const double expected = options.iterations * kSecondsOfVisit;
  const bool is_small = expected > 0 && expected < kSecondsOfThreads;
  const InterpreterOptions how{.threads = is_small ? 1 : options.threads, .entries = options.entries};
  const DType dtype = dtype_of(kernel, arguments);
  Run out;
  std::optional<compilation::Compiled> from;
  GeneratedFunction function = nullptr;
  std::string source;
  if (options.engine == Engine::kCompiled) {
    from = compiled(generate(kernel, dtype), options);
    function = function_of(*from);
  }
  if (options.engine == Engine::kAutomatic && compilation::compilation_is_on()) {
    try {
      from = where_it_pays(kernel, dtype, options, source);
      if (from) function = function_of(*from);
    } catch (const PlanError& error) {
      out.why_interpreted = error.what();
    }
  }
  if (function == nullptr) {
    const auto start = std::chrono::steady_clock::now();
    out.result = interpret(kernel, arguments, how);
    out.interpreted_seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    if (!source.empty()) interpreted_time().add(source, out.interpreted_seconds);
    return out;
  }
  out.compile_seconds = from->seconds;
  out.compiled = true;
  out.result = run_generated(kernel, arguments, function, how);
  return out;
}

Tensor run_generated(const Kernel& kernel, const KernelArguments& arguments, GeneratedFunction function,
                     const InterpreterOptions& options) {
  const Prepared prepared_run = prepared(kernel, arguments);
  return with_arithmetic(prepared_run.dtype, [&](auto zero) {
    using T = decltype(zero);
    const Typed<T> typed(prepared_run);
    const auto make = [&]() -> std::unique_ptr<RangeWorker<T>> {
      return std::make_unique<CompiledWorker<T>>(typed, function);
    };
    return Execution<T>(typed, options, make).result();
  });
}

}  // namespace joinsum::sparse::kernels
