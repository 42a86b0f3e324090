#include "sparse/kernels/compilation/program.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <poll.h>
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

using Clock = std::chrono::steady_clock;

/// Reads all until the end or a time, keeps the beginning in `out`; whether the end was reached.
bool read_all(int file, Clock::time_point until, std::string& out) {
  std::array<char, 4096> chunk{};
  while (true) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - Clock::now()).count();
    pollfd waited{.fd = file, .events = POLLIN};
    const int ready = left <= 0 ? 0 : poll(&waited, 1, static_cast<int>(std::min<int64_t>(left, 1 << 30)));
    if (ready == 0 && Clock::now() >= until) return false;
    if (ready == 0 || (ready < 0 && errno == EINTR)) continue;
    const ssize_t count = read(file, chunk.data(), chunk.size());
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return true;
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
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);  // of its own, to be killed as one
  pid_t child = -1;
  const int failed = posix_spawn(&child, argv[0], &actions, &attributes, argv.data(), environ);
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&actions);
  return failed == 0 ? child : -failed;
}

}  // namespace

Ended run_program(const std::vector<std::string>& arguments, std::chrono::milliseconds longest) {
  const Clock::time_point until = Clock::now() + longest;
  std::array<int, 2> ends{};
  JOINSUM_USER_CHECK(pipe2(ends.data(), O_CLOEXEC) == 0,
                     "kernel compiler: no pipe to read its output: error=", std::strerror(errno));
  const pid_t child = start(arguments, ends[1]);
  close(ends[1]);
  if (child < 0) close(ends[0]);
  JOINSUM_USER_CHECK(child > 0, "kernel compiler: the program does not start: path=", arguments[0],
                     ", error=", std::strerror(-child));
  Ended ended;
  ended.in_time = read_all(ends[0], until, ended.output);
  close(ends[0]);
  if (!ended.in_time) kill(-child, SIGKILL);
  int status = 0;
  while (waitpid(child, &status, 0) < 0) {
    // A process that ignores SIGCHLD does not learn how its children end.
    JOINSUM_USER_CHECK(errno == EINTR, "kernel compiler: its end is not known: error=", std::strerror(errno));
  }
  ended.succeeded = ended.in_time && WIFEXITED(status) && WEXITSTATUS(status) == 0;
  ended.how = !ended.in_time        ? concatenate("stopped after ", static_cast<double>(longest.count()) / 1000, " s")
              : WIFSIGNALED(status) ? concatenate("killed by signal ", WTERMSIG(status))
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
