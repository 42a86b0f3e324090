#include "sparse/kernels/compilation/program.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <fstream>
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
constexpr int kMillisecondsOfWait = 20;

using Clock = std::chrono::steady_clock;

/// Reads what is there, and keeps the beginning in `out`; waits for something for so long at most. Whether more may
/// follow.
bool read_some(int file, int milliseconds, std::string& out) {
  pollfd waited{.fd = file, .events = POLLIN, .revents = 0};
  if (poll(&waited, 1, milliseconds) <= 0) return true;
  std::array<char, 4096> chunk{};
  const ssize_t count = read(file, chunk.data(), chunk.size());
  if (count <= 0) return count < 0 && errno == EINTR;
  out.append(chunk.data(), std::min(static_cast<size_t>(count), kMostOutput - std::min(kMostOutput, out.size())));
  return true;
}

/// Kills a process and all that it has started.
void kill_tree(pid_t process) {
  const std::string own = std::to_string(process);
  std::ifstream file("/proc/" + own + "/task/" + own + "/children");
  std::vector<pid_t> children;
  for (pid_t child = 0; file >> child;) children.push_back(child);
  kill(process, SIGKILL);
  for (const pid_t child : children) kill_tree(child);
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
  int status = 0;
  const auto has_ended = [&](int options) {
    const pid_t found = waitpid(child, &status, options);
    // A process that ignores SIGCHLD does not learn how its children end.
    JOINSUM_USER_CHECK(found >= 0 || errno == EINTR,
                       "kernel compiler: its end is not known: error=", std::strerror(errno));
    return found == child;
  };
  bool has_more = true, over = false;
  while (!over && Clock::now() < until) {
    // What it started may still hold the pipe when it has ended.
    if (has_more) has_more = read_some(ends[0], kMillisecondsOfWait, ended.output);
    if (!has_more) usleep(1000);
    over = has_ended(WNOHANG);
  }
  ended.in_time = over;
  if (!over) kill_tree(child);
  while (!over) over = has_ended(0);
  while (has_more && ended.in_time && ended.output.size() < kMostOutput) {
    const size_t before = ended.output.size();
    has_more = read_some(ends[0], 0, ended.output) && ended.output.size() > before;
  }
  close(ends[0]);
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
