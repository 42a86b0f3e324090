#pragma once

#include <cstdint>
#include <memory>
#include <string>

/// The system's C++ compiler, and what it made of generated sources.
namespace joinsum::sparse::kernels::compilation {

/// A loaded shared library; its functions stand while it does.
class Library {
 public:
  /// Raises PlanError where it cannot be loaded.
  explicit Library(const std::string& path);
  ~Library();
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;

  /// The address of a function; raises PlanError where there is none of this name.
  void* symbol(const std::string& name) const;

 private:
  void* handle_ = nullptr;
};

struct CompilerSettings {
  std::string compiler;                    ///< name or path; empty: $JOINSUM_CXX, then c++, g++, clang++
  std::string cache_folder;                ///< empty: `default_cache_folder`
  double longest_seconds = 60;             ///< that the compiler may run
  int64_t cache_bytes = int64_t{1} << 28;  ///< beyond which the files used longest ago are removed
};

struct Compiled {
  std::shared_ptr<const Library> library;
  double seconds = 0;  ///< that the compiler ran; 0 where the library was in the cache
};

/// Whether kernels are compiled at all: unless JOINSUM_JIT=0.
bool compilation_is_on();

/// Compiles a source, or takes what this process or the cache folder has. Two processes compile one source once. Raises
/// PlanError, which says why, where there is no compiler, it fails, is killed or takes too long, or the cache folder
/// cannot be used; nothing of it stays in the cache then.
Compiled compile(const std::string& source, const CompilerSettings& settings = {});

/// Whether `compile` would run no compiler. Raises as it does.
bool is_compiled(const std::string& source, const CompilerSettings& settings = {});

}  // namespace joinsum::sparse::kernels::compilation
