#include "sparse/kernels/compilation/program.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <spawn.h>
#include <sstream>
#include <unistd.h>

#include <sys/stat.h>
#include <sys/wait.h>

#include "base/check.h"

extern char** environ;

namespace joinsum::sparse::kernels::compilation {
namespace {

constexpr size_t kMostOutput = 4096;

/// Reads all, keeps the beginning.
std::string read_all(int file) {
  std::string out;
  std::array<char, 4096> chunk{};
  while (true) {
    const ssize_t count = read(file, chunk.data(), chunk.size());
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return out;
    out.append(chunk.data(), std::min(static_cast<size_t>(count), kMostOutput - std::min(kMostOutput, out.size())));
  }
}

pid_t start(const std::vector<std::string>& arguments, int output) {
  std::vector<char*> argv;
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, output, STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, output, STDERR_FILENO);
  pid_t child = -1;
  const int failed = posix_spawn(&child, argv[0], &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  return failed == 0 ? child : -failed;
}

}  // namespace

Ended run_program(const std::vector<std::string>& arguments) {
  std::array<int, 2> ends{};
  JOINSUM_USER_CHECK(pipe2(ends.data(), O_CLOEXEC) == 0,
                     "kernel compiler: no pipe to read its output: error=", std::strerror(errno));
  const pid_t child = start(arguments, ends[1]);
  close(ends[1]);
  if (child < 0) close(ends[0]);
  JOINSUM_USER_CHECK(child > 0, "kernel compiler: the program does not start: path=", arguments[0],
                     ", error=", std::strerror(-child));
  Ended ended{.output = read_all(ends[0])};
  close(ends[0]);
  int status = 0;
  while (waitpid(child, &status, 0) < 0) {
    // A process that ignores SIGCHLD does not learn how its children end.
    JOINSUM_USER_CHECK(errno == EINTR, "kernel compiler: its end is not known: error=", std::strerror(errno));
  }
  ended.succeeded = WIFEXITED(status) && WEXITSTATUS(status) == 0;
  ended.how = WIFSIGNALED(status) ? concatenate("killed by signal ", WTERMSIG(status))
                                  : concatenate("exit status ", WEXITSTATUS(status));
  return ended;
}

std::optional<std::string> find_program(const std::string& name) {
  const auto runs = [](const std::string& path) {
    struct stat facts{};
    return stat(path.c_str(), &facts) == 0 && S_ISREG(facts.st_mode) && access(path.c_str(), X_OK) == 0;
  };
  if (name.find('/') != std::string::npos) return runs(name) ? std::optional(name) : std::nullopt;
  const char* folders = std::getenv("PATH");
  std::istringstream list(folders == nullptr ? "/usr/bin:/bin" : folders);
  for (std::string folder; std::getline(list, folder, ':');) {
    const std::string path = (folder.empty() ? "." : folder) + "/" + name;
    if (runs(path)) return path;
  }
  return std::nullopt;
}

}  // namespace joinsum::sparse::kernels::compilation
