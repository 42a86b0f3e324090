#include "sparse/kernels/compilation/compiler.h"

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <dlfcn.h>
#include <fstream>
#include <map>
#include <mutex>
#include <unistd.h>
#include <unordered_map>
#include <vector>

#include <sys/stat.h>

#include "base/check.h"
#include "sparse/kernels/compilation/cache_folder.h"
#include "sparse/kernels/compilation/program.h"
#include "sparse/kernels/compilation/sha256.h"

namespace joinsum::sparse::kernels::compilation {
namespace {

/// Sums are rounded as the interpreter rounds them, and integers wrap around.
const std::vector<std::string>& flags() {
  static const std::vector<std::string> all{"-x",
                                            "c++",
                                            "-std=c++17",
                                            "-O3",
                                            "-fPIC",
                                            "-shared",
                                            "-w",
                                            "-ffp-contract=off",
                                            "-fwrapv",
                                            "-fno-math-errno",
                                            "-fno-trapping-math",
#if defined(__x86_64__)
                                            "-march=native",
#elif defined(__aarch64__)
                                            "-mcpu=native",
#endif
                                            "-nostdlib"};
  return all;
}

struct SystemCompiler {
  std::string path;
  std::string version;
};

std::string found_compiler(const std::string& wanted) {
  const char* variable = std::getenv("JOINSUM_CXX");
  const std::string named = !wanted.empty() ? wanted : variable == nullptr ? "" : variable;
  if (!named.empty()) {
    const auto path = find_program(named);
    JOINSUM_USER_CHECK(path.has_value(), "kernel compiler: there is no such program: name=", named,
                       "; set JOINSUM_CXX to a C++ compiler, or JOINSUM_JIT=0");
    return *path;
  }
  for (const char* name : {"c++", "g++", "clang++"}) {
    if (const auto path = find_program(name)) return *path;
  }
  JOINSUM_USER_CHECK(false,
                     "kernel compiler: there is none: looked for=[c++, g++, clang++]; install one, set "
                     "JOINSUM_CXX to its path, or JOINSUM_JIT=0");
  return {};
}

/// Runs a compiler; one that did not end in time is not started again.
Ended run_in_time(const std::vector<std::string>& arguments, double longest) {
  static std::mutex mutex;
  static std::map<std::string, std::string> late;
  const std::string& path = arguments.front();
  {
    const std::lock_guard<std::mutex> lock(mutex);
    if (const auto found = late.find(path); found != late.end()) return {.in_time = false, .how = found->second};
  }
  Ended ended = run_program(arguments, std::chrono::milliseconds(static_cast<int64_t>(1000 * longest)));
  const std::lock_guard<std::mutex> lock(mutex);
  if (!ended.in_time) late[path] = ended.how;
  return ended;
}

/// Asks a compiler for its version once.
SystemCompiler system_compiler(const std::string& wanted, double longest) {
  static std::mutex mutex;
  static std::map<std::string, SystemCompiler> known;
  const std::string path = found_compiler(wanted);
  const std::lock_guard<std::mutex> lock(mutex);
  const auto found = known.find(path);
  if (found != known.end()) return found->second;
  const Ended ended = run_in_time({path, "--version"}, longest);
  JOINSUM_USER_CHECK(ended.succeeded, "kernel compiler: it does not tell its version: path=", path, ", ", ended.how,
                     ", output=", ended.output, "; set JOINSUM_CXX to a C++ compiler, or JOINSUM_JIT=0");
  return known[path] = {path, ended.output};
}

/// The instructions that `native` stands for on this machine.
const std::string& processor_features() {
  static const std::string features = [] {
    std::ifstream file("/proc/cpuinfo");
    std::string model;
    for (std::string line; std::getline(file, line);) {
      const bool names = line.starts_with("model name") || line.starts_with("CPU part");
      if (names && model.empty()) model = line;
      if (line.starts_with("flags") || line.starts_with("Features")) return model + "\n" + line;
    }
    return model;
  }();
  return features;
}

/// Hashes of texts; those of the last ones are remembered, as kernels run often.
class Hashes {
 public:
  std::string of(const std::string& text) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (known_.size() >= kMostKnown) known_.clear();
    std::string& found = known_[text];
    if (found.empty()) found = sha256(text);
    return found;
  }

 private:
  static constexpr size_t kMostKnown = 256;
  std::mutex mutex_;
  std::unordered_map<std::string, std::string> known_;
};

std::string key_of(const std::string& source, const SystemCompiler& compiler) {
  static auto& hashes = *new Hashes;
  std::string all = source;
  for (const std::string& flag : flags()) all += "\n" + flag;
  return hashes.of(all + "\n" + compiler.path + "\n" + compiler.version + "\n" + processor_features());
}

struct Loaded {
  std::mutex mutex;
  std::map<std::string, std::shared_ptr<const Library>> libraries;

  std::shared_ptr<const Library> find(const std::string& key) {
    const std::lock_guard<std::mutex> lock(mutex);
    const auto found = libraries.find(key);
    return found == libraries.end() ? nullptr : found->second;
  }
  std::shared_ptr<const Library> add(const std::string& key, std::shared_ptr<const Library> library) {
    const std::lock_guard<std::mutex> lock(mutex);
    return libraries.try_emplace(key, std::move(library)).first->second;
  }
};

/// Libraries of this process; they stay, so that no function is unloaded that runs.
Loaded& loaded() {
  static auto* all = new Loaded;
  return *all;
}

/// A library of the cache, if it is there and whole.
std::shared_ptr<const Library> cached(const std::string& path) {
  if (!is_own_file(path)) return nullptr;
  try {
    auto library = std::make_shared<const Library>(path);
    touch_file(path);
    return library;
  } catch (const PlanError&) {
    std::remove(path.c_str());
    return nullptr;
  }
}

/// Files that are removed unless they were renamed.
struct Temporary {
  std::string path;
  ~Temporary() { std::remove(path.c_str()); }
};

void write_source(const std::string& path, const std::string& source) {
  std::ofstream file(path, std::ios::binary);
  file << source;
  file.close();
  JOINSUM_USER_CHECK(file.good(), "kernel cache: the source cannot be written: path=", path,
                     "; set JOINSUM_KERNEL_CACHE to a folder of your own, or JOINSUM_JIT=0");
}

void run_compiler(const SystemCompiler& compiler, const std::string& source, const std::string& library,
                  double longest) {
  std::vector<std::string> arguments{compiler.path};
  arguments.insert(arguments.end(), flags().begin(), flags().end());
  arguments.insert(arguments.end(), {"-o", library, source});
  const Ended ended = run_in_time(arguments, longest);
  JOINSUM_USER_CHECK(ended.succeeded, "kernel compiler: it failed: path=", compiler.path, ", ", ended.how,
                     ", output=", ended.output, "; set JOINSUM_CXX to another compiler, or JOINSUM_JIT=0");
}

/// Compiles into the cache under its key and loads it.
std::shared_ptr<const Library> compile_into(const std::string& folder, const std::string& key,
                                            const std::string& source, const SystemCompiler& compiler, double longest) {
  const std::string stem = folder + "/" + key;
  const std::string own = ".tmp." + std::to_string(getpid());
  const Temporary text{stem + own + ".cpp"};
  const Temporary binary{stem + own + ".so"};
  write_source(text.path, source);
  run_compiler(compiler, text.path, binary.path, longest);
  // The linker leaves what the user's umask permits, and files that others may write are not loaded.
  chmod(binary.path.c_str(), S_IRWXU);
  // Loaded before it gets its name: what cannot be loaded is not cached.
  auto library = std::make_shared<const Library>(binary.path);
  const bool renamed = std::rename(text.path.c_str(), (stem + ".cpp").c_str()) == 0 &&
                       std::rename(binary.path.c_str(), (stem + ".so").c_str()) == 0;
  JOINSUM_USER_CHECK(renamed, "kernel cache: a file cannot be renamed: path=", binary.path);
  return library;
}

std::string folder_of(const CompilerSettings& settings) {
  return settings.cache_folder.empty() ? default_cache_folder() : settings.cache_folder;
}

}  // namespace

Library::Library(const std::string& path) : handle_(dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL)) {
  if (handle_ != nullptr) return;
  const char* error = dlerror();
  JOINSUM_USER_CHECK(false, "kernel library: it cannot be loaded: path=", path,
                     ", error=", error == nullptr ? "" : error);
}

Library::~Library() { dlclose(handle_); }

void* Library::symbol(const std::string& name) const {
  void* address = dlsym(handle_, name.c_str());
  JOINSUM_USER_CHECK(address != nullptr, "kernel library: it has no such function: name=", name);
  return address;
}

bool compilation_is_on() {
  const char* variable = std::getenv("JOINSUM_JIT");
  return variable == nullptr || std::string(variable) != "0";
}

Compiled compile(const std::string& source, const CompilerSettings& settings) {
  const SystemCompiler compiler = system_compiler(settings.compiler, settings.longest_seconds);
  const std::string key = key_of(source, compiler);
  if (auto library = loaded().find(key)) return {std::move(library), 0};
  const std::string folder = folder_of(settings);
  prepare_cache_folder(folder);
  const std::string path = folder + "/" + key + ".so";
  if (auto library = cached(path)) return {loaded().add(key, std::move(library)), 0};
  const KeyLock lock(folder, key);
  // Another process may have compiled it while this one waited.
  if (auto library = cached(path)) return {loaded().add(key, std::move(library)), 0};
  const auto before = std::chrono::steady_clock::now();
  auto library = compile_into(folder, key, source, compiler, settings.longest_seconds);
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - before;
  trim_cache_folder(folder, settings.cache_bytes);
  return {loaded().add(key, std::move(library)), seconds.count()};
}

bool is_compiled(const std::string& source, const CompilerSettings& settings) {
  const std::string key = key_of(source, system_compiler(settings.compiler, settings.longest_seconds));
  return loaded().find(key) != nullptr || is_own_file(folder_of(settings) + "/" + key + ".so");
}

}  // namespace joinsum::sparse::kernels::compilation
