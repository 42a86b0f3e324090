#pragma once

#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <ATen/ATen.h>

#include "ia/placement.h"

namespace joinsum::runtime::communication {

/// A message of an exchange.
struct Message {
  int64_t from = 0;
  int64_t to = 0;
  int64_t bytes = 0;
};

/// Bytes that crossed between different sites.
struct Counters {
  int64_t sent = 0;
  int64_t received = 0;
};

/// The contiguous flat array, with contents that do not matter, which a message (its position in the list) is received
/// into.
using Allocate = std::function<at::Tensor(size_t message, int64_t elements)>;

/// An exchange that has been started.
class ExchangeHandle {
 public:
  virtual ~ExchangeHandle() = default;
  /// The arrays received, flat, one per message in the order given to `start`; undefined for messages to other
  /// processes' sites. Raises TransportError naming the operation and the peer.
  virtual std::vector<at::Tensor> wait() = 0;
};

/// The sub-grids spanned by some axes of a grid: sites that differ on these axes only form one group. A collective runs
/// in all groups at once.
struct SubGrids {
  ia::Grid grid;
  Dims axes;

  /// All sites as one group.
  static SubGrids all(int64_t sites);
  /// Sites of each group, ascending; the position in its group is a site's rank there.
  std::vector<std::vector<int64_t>> groups() const;
};

/// One array for each site of this process, in the order of `local_sites()`.
using LocalArrays = std::vector<at::Tensor>;

enum class Collective { kAllReduce, kAllGather, kReduceScatter, kBroadcast };

/// A collective in one group, for a backend that has its own.
struct CollectiveCall {
  Collective collective = Collective::kAllReduce;
  std::string operation;       ///< opens errors
  std::vector<int64_t> group;  ///< its sites, ascending
  std::string reduction;       ///< kernel of an all-reduce or reduce-scatter
  int64_t root = 0;            ///< position in the group of a broadcast's sender
};

/// A collective that the backend runs while this process computes.
class CollectiveHandle {
 public:
  virtual ~CollectiveHandle() = default;
  /// Whether `wait` would return, or raise, at once.
  virtual bool arrived() const = 0;
  /// The result. Raises TransportError as `ExchangeHandle` does.
  virtual at::Tensor wait() = 0;
};

/// Which pairs of processes exchange arrays of the CPU through shared memory.
enum class SharedMemory { kNone, kSome, kAll };

/// Moves arrays between sites. Every process makes the same calls in the same order; `operation` opens errors, which
/// are TransportError where another site is lost or silent.
class Transport {
 public:
  virtual ~Transport() = default;
  virtual const std::string& name() const = 0;
  virtual int64_t sites() const = 0;
  /// Sites of this process.
  virtual const std::vector<int64_t>& local_sites() const = 0;
  /// Bytes sent and received since the start, sites of this process together.
  virtual Counters counters() const = 0;
  /// The same on all sites.
  virtual SharedMemory shared_memory() const { return SharedMemory::kNone; }
  /// Whether all pairs of processes that do not share memory exchange arrays of the CPU through sockets that their own
  /// threads read and write; the same on all sites.
  virtual bool own_sockets() const { return false; }

  /// Starts an exchange; all processes list the same messages. `payload(i)` is message i's array, called when its
  /// sender is local. `allocate` makes the arrays of messages from other processes, on their device; without it they
  /// are new.
  virtual std::unique_ptr<ExchangeHandle> start(const std::string& operation, const std::vector<Message>& messages,
                                                const at::TensorOptions& options,
                                                const std::function<at::Tensor(size_t)>& payload,
                                                const Allocate& allocate = {}) = 0;

  /// Moves what it can of the exchanges under way, without waiting. A transport whose exchanges would otherwise rest
  /// while the sites compute has something to do here; call it now and then.
  virtual void progress() {}

  // --- collectives --------------------------------------------------------------------------------------------------
  // Arrays have one shape, dtype and device on all sites of a group; g is the size of a group. They are not written to,
  // but results may share their memory. Messages of `start` carry them, and their bytes are counted, unless `native`
  // does; then the bytes of these messages are counted. Reductions take terms in the order of the group's sites.

  /// Each site gets the reduction of its group's arrays by the kernel named `reduction`.
  LocalArrays all_reduce(const std::string& operation, const SubGrids& sub_grids, const std::string& reduction,
                         const LocalArrays& arrays);
  /// [...] on each site becomes [g, ...]: the group's arrays in order.
  LocalArrays all_gather(const std::string& operation, const SubGrids& sub_grids, const LocalArrays& arrays);
  /// [g, ...] on each site becomes [...]: the i-th site gets the reduction of the group's i-th entries.
  LocalArrays reduce_scatter(const std::string& operation, const SubGrids& sub_grids, const std::string& reduction,
                             const LocalArrays& arrays);
  /// Each site gets the array of its group's site number `root`; the contents of the others' arrays do not matter.
  LocalArrays broadcast(const std::string& operation, const SubGrids& sub_grids, int64_t root,
                        const LocalArrays& arrays);
  /// [g, ...] on each site becomes [g, ...]: entry j of the i-th site becomes entry i of the j-th site.
  LocalArrays all_to_all(const std::string& operation, const SubGrids& sub_grids, const LocalArrays& arrays);
  /// The result of the backend's own collective for the array of this process's only site. Nothing where a table says
  /// that messages are faster, or the backend has no such collective; all sites of the group get the same answer.
  virtual std::optional<at::Tensor> native(const CollectiveCall& /*call*/, const at::Tensor& /*array*/) {
    return std::nullopt;
  }

  /// Starts the backend's own collective on an array of so many elements. `array` makes it, and the result overwrites
  /// it; `bytes` are counted. Null where messages are faster, or the backend has no such collective; all sites of the
  /// group get the same answer.
  virtual std::unique_ptr<CollectiveHandle> start_in_background(const CollectiveCall& /*call*/,
                                                                const at::TensorOptions& /*options*/,
                                                                int64_t /*elements*/, const Counters& /*bytes*/,
                                                                const std::function<at::Tensor()>& /*array*/) {
    return nullptr;
  }

  // --- control: not counted ------------------------------------------------------------------------------------------

  /// Raises TransportError on every site unless all give the same hash; the message shows the first line in which the
  /// texts differ, which are made for that.
  virtual void agree_on(const std::string& call, uint64_t hash, const std::function<std::string()>& text) = 0;
  /// The same for a text that exists.
  void agree(const std::string& call, const std::string& text);
  /// Every site's text; `call` must be the same on all.
  virtual std::vector<std::string> gather_texts(const std::string& call, const std::string& text) = 0;
  /// Maximum of the sites' values, element by element.
  virtual std::vector<double> all_reduce_max(const std::vector<double>& values) = 0;
  /// Reports to the other processes that this one has failed after the last `agree`, in what all do together: those
  /// that wait for it then fail within seconds.
  virtual void report_failure(const std::exception& /*error*/) {}
};

/// `sites` sites in this process; arrays are handed over without copying.
std::shared_ptr<Transport> make_loopback(int64_t sites);

/// When a process group's own collectives are used: as a table of backends says, never, or wherever there is one.
enum class Collectives { kTable, kNever, kAlways };

/// One site per rank of the c10d process group with that name; all its ranks call this. Peers that die or stay silent
/// beyond `timeout_seconds` raise; slow ones do not. Ranks of one host that are permitted to map each other's memory
/// use it instead of Gloo, if both have `share_memory`; others use sockets of their own, if both have `sockets`.
std::shared_ptr<Transport> make_process_group(const std::string& group_name, double timeout_seconds,
                                              Collectives collectives, bool share_memory = true, bool sockets = true);

/// Ends the threads of every process group's transport and releases the groups, which must precede the end of the
/// Python interpreter; waits in other threads raise. Call it without Python's lock.
void close_process_groups();

}  // namespace joinsum::runtime::communication
