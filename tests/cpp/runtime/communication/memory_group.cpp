#include "runtime/communication/memory_group.h"

#include <thread>

#include <c10/util/ScopeExit.h>
#include <gtest/gtest.h>
#include <torch/csrc/distributed/c10d/GroupRegistry.hpp>
#include <torch/csrc/distributed/c10d/HashStore.hpp>

namespace joinsum::runtime::communication::testing {

using c10d::Work;

/// One send, receive or collective. An abort ends one wait and leaves it posted; a wait that times out closes the
/// connections of its rank, as Gloo does.
class MemoryNetwork::Transfer final : public Work {
 public:
  Transfer(MemoryNetwork& network, int rank) : network_(network), rank_(rank) {}

  bool wait(std::chrono::milliseconds timeout) override {
    std::unique_lock lock(mutex_);
    const bool woken = timeout == kNoTimeout ? (cv_.wait(lock, [&] { return completed_ || aborted_; }), true)
                                             : cv_.wait_for(lock, timeout, [&] { return completed_ || aborted_; });
    if (std::exchange(aborted_, false) && !completed_) return false;
    if (completed_ && exception_) std::rethrow_exception(exception_);
    lock.unlock();
    if (!woken) {
      network_.disconnect(rank_);
      throw std::runtime_error("timed out");
    }
    return true;
  }
  void abort() override {
    std::lock_guard lock(mutex_);
    aborted_ = true;
    cv_.notify_all();
  }
  void complete() { finish(); }
  void close() {
    if (!isCompleted()) finish(std::make_exception_ptr(std::runtime_error("Connection closed by peer")));
  }

 private:
  MemoryNetwork& network_;
  const int rank_;
  bool aborted_ = false;
};

class MemoryNetwork::Backend final : public c10d::Backend {
 public:
  Backend(MemoryNetwork& network, int rank) : c10d::Backend(rank, network.ranks_), network_(network) {}
  const std::string getBackendName() const override { return network_.name_; }

  c10::intrusive_ptr<Work> send(std::vector<at::Tensor>& arrays, int to, int tag) override {
    return network_.send({getRank(), to, tag}, arrays.at(0));
  }
  c10::intrusive_ptr<Work> recv(std::vector<at::Tensor>& arrays, int from, int tag) override {
    return network_.receive({from, getRank(), tag}, arrays.at(0));
  }
  c10::intrusive_ptr<Work> allreduce(std::vector<at::Tensor>& arrays, const c10d::AllreduceOptions&) override {
    return network_.meet(getRank(), arrays.at(0), arrays.at(0), [](const auto& inputs, int) { return sum(inputs); });
  }
  c10::intrusive_ptr<Work> _allgather_base(at::Tensor& output, at::Tensor& input,
                                           const c10d::AllgatherOptions&) override {
    return network_.meet(getRank(), input, output, [](const auto& inputs, int) { return at::cat(inputs); });
  }
  c10::intrusive_ptr<Work> _reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                                const c10d::ReduceScatterOptions&) override {
    return network_.meet(getRank(), input, output, [](const auto& inputs, int rank) {
      return sum(inputs).chunk(static_cast<int64_t>(inputs.size())).at(rank);
    });
  }
  c10::intrusive_ptr<Work> broadcast(std::vector<at::Tensor>& arrays, const c10d::BroadcastOptions& options) override {
    const auto root = options.rootRank;
    return network_.meet(getRank(), arrays.at(0), arrays.at(0),
                         [root](const auto& inputs, int) { return inputs.at(root); });
  }
  void abort() override { network_.disconnect(getRank()); }

 private:
  static at::Tensor sum(const std::vector<at::Tensor>& inputs) { return at::stack(inputs).sum(0, false, at::kLong); }
  MemoryNetwork& network_;
};

MemoryNetwork::MemoryNetwork(int ranks, std::string backend_name)
    : ranks_(ranks), name_(std::move(backend_name)), store_(c10::make_intrusive<c10d::HashStore>()) {}
MemoryNetwork::~MemoryNetwork() = default;

c10::intrusive_ptr<c10d::ProcessGroup> MemoryNetwork::group(int rank) {
  auto group = c10::make_intrusive<c10d::ProcessGroup>(store_, rank, ranks_);
  const auto type = c10d::ProcessGroup::BackendType::CUSTOM;
  group->setBackend(at::kCPU, type, c10::intrusive_ptr<c10d::Backend>(c10::make_intrusive<Backend>(*this, rank)));
  group->setDefaultBackend(type);
  return group;
}

void MemoryNetwork::disconnect(int rank) {
  std::lock_guard lock(mutex_);
  closed_.insert(rank);
  for (auto& [route, list] : posted_) {
    if (std::get<0>(route) != rank && std::get<1>(route) != rank) continue;
    for (auto& [array, work] : list) work->close();
    list.clear();
  }
  for (auto& [number, meeting] : meetings_) {
    for (auto& work : meeting.works) work->close();
  }
}

c10::intrusive_ptr<Work> MemoryNetwork::send(const Route& route, const at::Tensor& array) {
  std::lock_guard lock(mutex_);
  const auto& [from, to, tag] = route;
  if (closed_.contains(from) || closed_.contains(to)) throw std::runtime_error("Connection closed by peer");
  auto work = c10::make_intrusive<Transfer>(*this, from);
  work->complete();
  auto& waiting = posted_[route];
  if (waiting.empty()) {
    arrived_[route].push_back(array.clone());
    return work;
  }
  waiting.front().first.copy_(array);
  waiting.front().second->complete();
  waiting.pop_front();
  return work;
}

c10::intrusive_ptr<Work> MemoryNetwork::receive(const Route& route, const at::Tensor& array) {
  std::lock_guard lock(mutex_);
  const auto& [from, to, tag] = route;
  auto work = c10::make_intrusive<Transfer>(*this, to);
  auto& arrived = arrived_[route];
  if (!arrived.empty()) {
    at::Tensor(array).copy_(arrived.front());
    arrived.pop_front();
    work->complete();
  } else if (closed_.contains(from) || closed_.contains(to)) {
    work->close();
  } else {
    posted_[route].emplace_back(array, work);
  }
  return work;
}

c10::intrusive_ptr<Work> MemoryNetwork::meet(int rank, const at::Tensor& input, const at::Tensor& output,
                                             const Rule& rule) {
  std::lock_guard lock(mutex_);
  auto work = c10::make_intrusive<Transfer>(*this, rank);
  if (!closed_.empty()) {
    work->close();
    return work;
  }
  Meeting& meeting = meetings_[calls_[rank]++];
  meeting.arrays[rank] = {input, output};
  meeting.works.push_back(work);
  if (static_cast<int>(meeting.arrays.size()) < ranks_) return work;
  std::vector<at::Tensor> inputs;
  for (const auto& [each, arrays] : meeting.arrays) inputs.push_back(arrays.first.clone());
  for (auto& [each, arrays] : meeting.arrays) arrays.second.copy_(rule(inputs, each));
  for (auto& each : meeting.works) each->complete();
  return work;
}

std::vector<std::string> on_ranks(int ranks, const std::function<void(int)>& body) {
  std::vector<std::string> errors(ranks);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        body(rank);
      } catch (const std::exception& error) {
        errors[rank] = error.what();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return errors;
}

std::vector<std::string> on_group(int ranks, const std::function<void(Transport&, int rank)>& body,
                                  const std::string& backend, bool share_memory) {
  static std::atomic<int> calls = 0;
  const std::string prefix = "process group " + std::to_string(calls++) + " rank ";
  MemoryNetwork network(ranks, backend);
  return on_ranks(ranks, [&](int rank) {
    const std::string name = prefix + std::to_string(rank);
    const auto group = network.group(rank);
    c10d::register_process_group(name, group);
    const auto transport = make_process_group(name, 20, Collectives::kTable, share_memory, false);
    c10d::unregister_process_group(name);
    const auto end = c10::make_scope_exit([&] { network.disconnect(rank); });  // as at the end of a process
    body(*transport, rank);
  });
}

void expect_no_errors(const std::vector<std::string>& errors) {
  for (const std::string& error : errors) EXPECT_EQ(error, "");
}

}  // namespace joinsum::runtime::communication::testing
