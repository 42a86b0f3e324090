#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

/// Other programs, started without a shell.
namespace joinsum::sparse::kernels::compilation {

struct Ended {
  bool succeeded = false;
  bool in_time = true;
  std::string how;     ///< `exit status 1`, `killed by signal 9`, `stopped after 60 s`
  std::string output;  ///< the beginning of what it wrote to standard output and standard error
};

/// Runs a program with arguments, the first of which is its path, and waits for its end, for so long at most: then it
/// and all that it started are killed. Raises PlanError if it cannot be started.
Ended run_program(const std::vector<std::string>& arguments, std::chrono::milliseconds longest);

/// The path of an executable of this name along PATH; a name with a slash is a path.
std::optional<std::string> find_program(const std::string& name);

}  // namespace joinsum::sparse::kernels::compilation
