#pragma once

#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "runtime/communication/transport.h"

namespace joinsum::runtime::communication::testing {

/// Connects the ranks of a c10d process group within one process, where each rank is a thread. Sends, receives,
/// wake-ups and closed connections behave as Gloo's, whose C++ headers torch does not ship; tests/distributed runs the
/// real one.
class MemoryNetwork {
 public:
  MemoryNetwork(int ranks, std::string backend_name);
  ~MemoryNetwork();
  /// The group as `rank` sees it; all share one store.
  c10::intrusive_ptr<c10d::ProcessGroup> group(int rank);
  /// Closes the connections of a rank, as its death does.
  void disconnect(int rank);
  int ranks() const { return ranks_; }

  class Backend;
  class Transfer;

 private:
  /// A collective that some ranks have not called yet.
  struct Meeting {
    std::map<int, std::pair<at::Tensor, at::Tensor>> arrays;  ///< by rank: input and output
    std::vector<c10::intrusive_ptr<Transfer>> works;
  };
  using Rule = std::function<at::Tensor(const std::vector<at::Tensor>& inputs, int rank)>;
  using Route = std::tuple<int, int, int>;  ///< from, to, tag

  c10::intrusive_ptr<c10d::Work> send(const Route& route, const at::Tensor& array);
  c10::intrusive_ptr<c10d::Work> receive(const Route& route, const at::Tensor& array);
  /// Once all ranks have called it, each rank's output becomes `rule` of all inputs.
  c10::intrusive_ptr<c10d::Work> meet(int rank, const at::Tensor& input, const at::Tensor& output, const Rule& rule);

  const int ranks_;
  const std::string name_;
  const c10::intrusive_ptr<c10d::Store> store_;
  std::mutex mutex_;
  std::set<int> closed_;
  std::map<Route, std::deque<at::Tensor>> arrived_;
  std::map<Route, std::deque<std::pair<at::Tensor, c10::intrusive_ptr<Transfer>>>> posted_;
  std::map<int, int64_t> calls_;  ///< collectives that each rank has called
  std::map<int64_t, Meeting> meetings_;
};

/// Runs `body(rank)` on a thread for each rank; returns what each raised, or "".
std::vector<std::string> on_ranks(int ranks, const std::function<void(int)>& body);

/// Runs `body` with a transport on each rank of a new group; returns what each raised.
std::vector<std::string> on_group(int ranks, const std::function<void(Transport&, int rank)>& body,
                                  const std::string& backend = "gloo", bool share_memory = true);

void expect_no_errors(const std::vector<std::string>& errors);

}  // namespace joinsum::runtime::communication::testing
