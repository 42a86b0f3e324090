#include "runtime/communication/gloo_threads.h"

#if defined(__linux__)
#include <filesystem>
#include <fstream>
#include <sched.h>
#include <string>
#include <system_error>

#include <sys/resource.h>
#endif

namespace joinsum::runtime::communication {

#if defined(__linux__)

namespace {

constexpr const char* kName = "gloo_tcp_loop";
constexpr int kNice = 5;

}  // namespace

void let_gloo_threads_yield() {
  std::error_code error;
  for (const auto& thread : std::filesystem::directory_iterator("/proc/self/task", error)) {
    std::string name;
    std::getline(std::ifstream(thread.path() / "comm"), name);
    if (name != kName) continue;
    const int id = std::stoi(thread.path().filename());
    const sched_param none{};
    // Who has given them another policy knows better.
    if (sched_getscheduler(id) != SCHED_OTHER || sched_setscheduler(id, SCHED_BATCH, &none) != 0) continue;
    setpriority(PRIO_PROCESS, static_cast<id_t>(id), kNice);
  }
}

#else

void let_gloo_threads_yield() {}

#endif

}  // namespace joinsum::runtime::communication
