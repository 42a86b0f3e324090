#include "sparse/kernels/compilation/compiler.h"

#include <fstream>
#include <set>
#include <sstream>
#include <thread>
#include <unistd.h>
#include <vector>

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "base/check.h"
#include "sparse/kernels/compilation/cache_folder.h"
#include "sparse/kernels/temporary_folder.h"

namespace joinsum::sparse::kernels::compilation {

namespace {

namespace fs = std::filesystem;

/// A function that returns a number; each test has numbers of its own, as this process keeps what it compiled.
std::string returning(int number) { return "extern \"C\" int f() { return " + std::to_string(number) + "; }\n"; }

int call(const Compiled& compiled) { return reinterpret_cast<int (*)()>(compiled.library->symbol("f"))(); }

std::set<std::string> files_in(const std::string& folder, const std::string& extension) {
  std::set<std::string> out;
  for (const fs::directory_entry& each : fs::directory_iterator(folder)) {
    if (each.path().extension() == extension) out.insert(each.path().string());
  }
  return out;
}

std::string error_of(const std::string& source, const CompilerSettings& settings) {
  try {
    compile(source, settings);
    return "no error";
  } catch (const PlanError& error) {
    return error.what();
  }
}

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

/// A program that stands for a compiler.
std::string script(const TemporaryFolder& folder, const std::string& text) {
  const std::string path = folder.path() + "/fake_compiler";
  std::ofstream(path) << "#!/bin/sh\n" << "[ \"$1\" = --version ] && echo fake && exit 0\n" << text << "\n";
  chmod(path.c_str(), S_IRWXU);
  return path;
}

TEST(Compiler, CompilesOnceForAProcessAndOnceForAFolder) {
  const TemporaryFolder folder;
  const CompilerSettings settings{.cache_folder = folder.path() + "/new/kernels"};
  EXPECT_FALSE(is_compiled(returning(1), settings));
  const Compiled first = compile(returning(1), settings);
  EXPECT_EQ(call(first), 1);
  EXPECT_GT(first.seconds, 0);
  EXPECT_TRUE(is_compiled(returning(1), settings));
  const Compiled again = compile(returning(1), settings);
  EXPECT_EQ(again.library, first.library);
  EXPECT_EQ(again.seconds, 0);
  struct stat facts{};
  ASSERT_EQ(stat(settings.cache_folder.c_str(), &facts), 0);
  EXPECT_EQ(facts.st_mode & 0777, 0700);
}

/// Runs `work` in another process; returns whether it said yes.
template <class Work>
pid_t in_a_process(const Work& work) {
  const pid_t child = fork();
  if (child != 0) return child;
  int status = 1;
  try {
    status = work() ? 0 : 1;
  } catch (const std::exception&) {
    status = 2;
  }
  _exit(status);
}

bool succeeded(pid_t child) {
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

TEST(Compiler, TwoProcessesCompileOneSourceOnce) {
  const TemporaryFolder folder;
  const std::string counter = folder.path() + "/compilations";
  // Counts its runs, and takes long enough for the other process to wait.
  const std::string compiler = script(folder, "echo run >> " + counter + "\nsleep 0.3\nexec c++ \"$@\"");
  const CompilerSettings settings{.compiler = compiler, .cache_folder = folder.path() + "/kernels"};
  std::vector<pid_t> children;
  for (int i = 0; i < 2; ++i) {
    children.push_back(in_a_process([&] { return call(compile(returning(2), settings)) == 2; }));
  }
  for (const pid_t child : children) EXPECT_TRUE(succeeded(child));
  std::ifstream runs(counter);
  const std::string text((std::istreambuf_iterator<char>(runs)), {});
  EXPECT_EQ(text, "run\n");
}

TEST(Compiler, ALibraryThatIsCutShortIsCompiledAnew) {
  const TemporaryFolder folder;
  const CompilerSettings settings{.cache_folder = folder.path()};
  ASSERT_TRUE(succeeded(in_a_process([&] { return call(compile(returning(3), settings)) == 3; })));
  const std::set<std::string> libraries = files_in(folder.path(), ".so");
  ASSERT_EQ(libraries.size(), 1U);
  std::ofstream(*libraries.begin(), std::ios::trunc) << "broken";
  EXPECT_EQ(call(compile(returning(3), settings)), 3);
}

TEST(Compiler, AMissingCompilerIsAnErrorWithItsRemedy) {
  const TemporaryFolder folder;
  const std::string error = error_of(returning(4), {.compiler = "no_such_compiler", .cache_folder = folder.path()});
  EXPECT_EQ(error,
            "kernel compiler: there is no such program: name=no_such_compiler; set JOINSUM_CXX to a C++ "
            "compiler, or JOINSUM_JIT=0");
}

TEST(Compiler, ACompilerThatFailsLeavesNothingInTheCache) {
  const TemporaryFolder folder;
  const std::string cache = folder.path() + "/kernels";
  const std::string error = error_of("no C++\n", {.cache_folder = cache});
  EXPECT_TRUE(contains(error, "it failed")) << error;
  EXPECT_TRUE(contains(error, "exit status 1")) << error;
  EXPECT_TRUE(files_in(cache, ".so").empty());
  EXPECT_TRUE(files_in(cache, ".cpp").empty());
}

TEST(Compiler, ACompilerThatIsKilledHalfWayLeavesNothingInTheCache) {
  const TemporaryFolder folder;
  const std::string cache = folder.path() + "/kernels";
  // It has written part of its output.
  const std::string compiler = script(folder,
                                      "for last; do :; done\n"
                                      "while [ \"$1\" != -o ]; do shift; done\n"
                                      "echo half > \"$2\"\nkill -9 $$");
  const std::string error = error_of(returning(5), {.compiler = compiler, .cache_folder = cache});
  EXPECT_TRUE(contains(error, "killed by signal 9")) << error;
  EXPECT_TRUE(files_in(cache, ".so").empty());
  EXPECT_EQ(call(compile(returning(5), {.cache_folder = cache})), 5);
}

TEST(Compiler, ACompilerThatTakesTooLongIsStoppedOnceWithAllThatItStarted) {
  const TemporaryFolder folder;
  const std::string counter = folder.path() + "/counter";
  const std::string started = folder.path() + "/started";
  const std::string compiler =
      script(folder, "echo run >> " + counter + "\nsleep 1000 & echo $! > " + started + "\nsleep 1000");
  const CompilerSettings settings{
      .compiler = compiler, .cache_folder = folder.path() + "/cache", .longest_seconds = 0.5};
  EXPECT_TRUE(contains(error_of(returning(90), settings), "stopped after 0.5 s"));
  EXPECT_TRUE(contains(error_of(returning(91), settings), "stopped after 0.5 s"));
  std::stringstream runs;
  runs << std::ifstream(counter).rdbuf();
  EXPECT_EQ(runs.str(), "run\n");
  pid_t child = 0;
  std::ifstream(started) >> child;
  ASSERT_GT(child, 0);
  const auto ended = [&] {  // gone, or waiting until its end is read
    std::ifstream facts("/proc/" + std::to_string(child) + "/stat");
    std::string text;
    return !std::getline(facts, text) || contains(text, ") Z ");
  };
  for (int i = 0; i < 500 && !ended(); ++i) usleep(10'000);
  EXPECT_TRUE(ended());
}

TEST(Compiler, ACompilerWhoseOutputCannotBeLoadedLeavesNothingInTheCache) {
  const TemporaryFolder folder;
  const std::string cache = folder.path() + "/kernels";
  const std::string compiler = script(folder, "while [ \"$1\" != -o ]; do shift; done\necho text > \"$2\"");
  const std::string error = error_of(returning(6), {.compiler = compiler, .cache_folder = cache});
  EXPECT_TRUE(contains(error, "it cannot be loaded")) << error;
  EXPECT_TRUE(files_in(cache, ".so").empty());
}

TEST(CacheFolder, OneThatOthersMayWriteIsRefused) {
  const TemporaryFolder folder;
  for (const mode_t mode : {0720, 0702}) {
    chmod(folder.path().c_str(), mode);
    const std::string error = error_of(returning(7), {.cache_folder = folder.path()});
    EXPECT_TRUE(contains(error, "others may write the folder")) << error;
    EXPECT_TRUE(contains(error, "chmod go-w")) << error;
  }
}

TEST(CacheFolder, OneOfAnotherUserIsRefused) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can give a folder away";
  const TemporaryFolder folder;
  ASSERT_EQ(chown(folder.path().c_str(), 12345, 12345), 0);
  const std::string error = error_of(returning(8), {.cache_folder = folder.path()});
  EXPECT_TRUE(contains(error, "belongs to another user")) << error;
}

TEST(CacheFolder, AFileOrALinkInItsPlaceIsRefused) {
  const TemporaryFolder folder;
  const std::string file = folder.path() + "/file";
  std::ofstream(file) << "text";
  EXPECT_TRUE(contains(error_of(returning(9), {.cache_folder = file}), "it is not a folder"));
  EXPECT_TRUE(contains(error_of(returning(9), {.cache_folder = file + "/kernels"}), "cannot be made"));
  const std::string link = folder.path() + "/link";
  fs::create_directory_symlink(folder.path(), link);
  EXPECT_TRUE(contains(error_of(returning(9), {.cache_folder = link}), "it is not a folder"));
}

TEST(CacheFolder, OneThatCannotBeWrittenIsAnErrorWithItsRemedy) {
  constexpr uid_t kNobody = 65534;
  const TemporaryFolder folder;
  chmod(folder.path().c_str(), 0500);
  const bool is_root = geteuid() == 0;
  if (is_root) {
    ASSERT_EQ(chown(folder.path().c_str(), kNobody, kNobody), 0);
  }
  // Root writes everywhere, so that a process of root's gives its rights away.
  EXPECT_TRUE(succeeded(in_a_process([&] {
    if (is_root && seteuid(kNobody) != 0) return false;
    const std::string error = error_of(returning(10), {.cache_folder = folder.path()});
    return contains(error, "the folder cannot be written") && contains(error, "JOINSUM_KERNEL_CACHE");
  })));
}

/// Compiles in another process; returns the library's path.
std::string cached_library(const std::string& source, const CompilerSettings& settings) {
  EXPECT_TRUE(succeeded(in_a_process([&] { return compile(source, settings).library != nullptr; })));
  const std::set<std::string> libraries = files_in(settings.cache_folder, ".so");
  return libraries.size() == 1 ? *libraries.begin() : "";
}

/// A library of `kOther` in the place where that of `kOwn` is looked for.
struct PlantedLibrary {
  static constexpr int kOwn = 11, kOther = 12;

  PlantedLibrary()
      : settings{.cache_folder = folder.path()},
        path(cached_library(returning(kOwn), settings)),
        other(cached_library(returning(kOther), {.cache_folder = elsewhere.path()})) {}

  bool gives(int number) const {
    return succeeded(in_a_process([&] { return call(compile(returning(kOwn), settings)) == number; }));
  }

  TemporaryFolder folder, elsewhere;
  CompilerSettings settings;
  std::string path, other;
};

TEST(CacheFolder, ALibraryThatOthersMayWriteIsCompiledAnew) {
  const PlantedLibrary planted;
  for (const mode_t mode : {0700, 0720, 0702}) {
    fs::copy_file(planted.other, planted.path, fs::copy_options::overwrite_existing);
    ASSERT_EQ(chmod(planted.path.c_str(), mode), 0);
    const bool is_private = mode == 0700;
    EXPECT_EQ(is_compiled(returning(PlantedLibrary::kOwn), planted.settings), is_private);
    EXPECT_TRUE(planted.gives(is_private ? PlantedLibrary::kOther : PlantedLibrary::kOwn)) << mode;
  }
}

TEST(CacheFolder, ALibraryIsPrivateWhateverTheUmask) {
  const TemporaryFolder folder;
  const CompilerSettings settings{.cache_folder = folder.path()};
  EXPECT_TRUE(succeeded(in_a_process([&] {
    umask(0002);
    return call(compile(returning(13), settings)) == 13;
  })));
  EXPECT_TRUE(is_compiled(returning(13), settings));
}

TEST(CacheFolder, ALinkInPlaceOfALibraryIsNotFollowed) {
  const PlantedLibrary planted;
  fs::remove(planted.path);
  fs::create_symlink(planted.other, planted.path);
  EXPECT_FALSE(is_compiled(returning(PlantedLibrary::kOwn), planted.settings));
  EXPECT_TRUE(planted.gives(PlantedLibrary::kOwn));
  EXPECT_FALSE(fs::is_symlink(planted.path));
  EXPECT_TRUE(fs::exists(planted.other));
}

TEST(CacheFolder, TheFilesUsedLongestAgoAreRemovedBeyondTheCap) {
  const TemporaryFolder folder;
  const auto now = fs::file_time_type::clock::now();
  for (int age = 0; age < 4; ++age) {
    const std::string path = folder.path() + "/" + std::to_string(age) + ".so";
    std::ofstream(path) << std::string(100, 'x');
    fs::last_write_time(path, now - std::chrono::minutes(age));
  }
  trim_cache_folder(folder.path(), 250);
  EXPECT_EQ(files_in(folder.path(), ".so"), (std::set<std::string>{folder.path() + "/0.so", folder.path() + "/1.so"}));
}

TEST(CacheFolder, WhatAKilledProcessLeftBehindIsRemovedAfterAnHour) {
  const TemporaryFolder folder;
  const auto now = fs::file_time_type::clock::now();
  for (const int minutes : {10, 90}) {
    const std::string path = folder.path() + "/key.tmp." + std::to_string(minutes) + ".so";
    std::ofstream(path) << "half";
    fs::last_write_time(path, now - std::chrono::minutes(minutes));
  }
  trim_cache_folder(folder.path(), 1000);
  EXPECT_EQ(files_in(folder.path(), ".so"), (std::set<std::string>{folder.path() + "/key.tmp.10.so"}));
}

}  // namespace
}  // namespace joinsum::sparse::kernels::compilation
