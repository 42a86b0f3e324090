#include "runtime/communication/gloo_threads.h"

#include <atomic>
#include <future>
#include <thread>

#include <gtest/gtest.h>

#if defined(__linux__)
#include <pthread.h>
#include <sched.h>
#include <unistd.h>

#include <sys/resource.h>

namespace joinsum::runtime::communication {
namespace {

/// Policy and niceness that a thread of this name has afterwards.
std::pair<int, int> afterwards(const char* name, int policy) {
  std::promise<pid_t> started;
  std::promise<void> done;
  std::thread thread([&] {
    pthread_setname_np(pthread_self(), name);
    const sched_param none{};
    EXPECT_EQ(sched_setscheduler(0, policy, &none), 0);
    started.set_value(gettid());
    done.get_future().wait();
  });
  const pid_t id = started.get_future().get();
  let_gloo_threads_yield();
  const std::pair<int, int> found{sched_getscheduler(id), getpriority(PRIO_PROCESS, static_cast<id_t>(id))};
  done.set_value();
  thread.join();
  return found;
}

TEST(GlooThreads, StartWhenACoreIsFree) {
  EXPECT_EQ(afterwards("gloo_tcp_loop", SCHED_OTHER), std::pair(SCHED_BATCH, 5));
}

TEST(GlooThreads, LeavesOtherThreadsAndOtherPoliciesAlone) {
  EXPECT_EQ(afterwards("worker", SCHED_OTHER).first, SCHED_OTHER);
  EXPECT_EQ(afterwards("gloo_tcp_loop", SCHED_IDLE), std::pair(SCHED_IDLE, getpriority(PRIO_PROCESS, 0)));
}

}  // namespace
}  // namespace joinsum::runtime::communication
#endif
