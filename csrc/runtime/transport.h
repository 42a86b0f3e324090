#pragma once

#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <ATen/ATen.h>

namespace joinsum::runtime {

/// A message of an exchange; `elements` of one dtype.
struct Message {
  int64_t from = 0;
  int64_t to = 0;
  int64_t elements = 0;
};

/// Bytes that crossed between different sites.
struct Counters {
  int64_t sent = 0;
  int64_t received = 0;
};

/// An exchange under way.
class Delivery {
 public:
  virtual ~Delivery() = default;
  /// The arrays received, flat, one per message in the order given to `start`; undefined for messages to other
  /// processes' sites. Raises TransportError naming the operator and the peer.
  virtual std::vector<at::Tensor> wait() = 0;
};

/// Moves arrays between sites. Every process calls with the same list of messages in the same order.
class Transport {
 public:
  virtual ~Transport() = default;
  virtual const std::string& name() const = 0;
  virtual int64_t sites() const = 0;
  /// Sites of this process.
  virtual const std::vector<int64_t>& local_sites() const = 0;
  /// Starts an exchange. `payload(i)` gives message i's array, flat, when its sender is local. `who` names the
  /// operator.
  virtual std::unique_ptr<Delivery> start(const std::string& who, const std::vector<Message>& messages,
                                          const at::TensorOptions& options,
                                          const std::function<at::Tensor(size_t)>& payload) = 0;
  /// Sums `array` over all sites by the group's own collective, counting the bytes of the direct way; nothing where the
  /// transport's table says that the direct way is faster, or has no such collective.
  virtual bool all_reduce(const std::string& who, const std::string& fold, at::Tensor array) = 0;
  /// Raises TransportError on every site unless all say the same; the message shows the first line that differs.
  virtual void agree(const std::string& what, const std::string& text) = 0;
  /// Tells the other processes that this one has failed after the last `agree`, in what all do together: those that
  /// wait for it then fail within seconds.
  virtual void leave(const std::exception& /*error*/) {}
  /// Greatest of the sites' values, element by element.
  virtual std::vector<double> greatest(const std::vector<double>& values) = 0;
  /// Payload counted since the start, sites of this process together.
  virtual Counters counters() const = 0;
};

/// `sites` sites in this process; arrays are handed over without copying.
std::shared_ptr<Transport> make_loopback(int64_t sites);

/// How arrays travel over a process group.
enum class Collectives { kTable, kNever, kAlways };

/// One site per rank of the c10d process group with that name. Peers that die or stay silent beyond `timeout_seconds`
/// raise; slow ones do not.
std::shared_ptr<Transport> make_process_group(const std::string& group_name, double timeout_seconds,
                                              Collectives collectives);

/// Ends the threads of every process group's transport and lets go of the groups, as must be before an interpreter
/// ends; waits under way in other threads raise. Call it without Python's lock.
void close_process_groups();

/// `check` is called about ten times a second while a wait for other sites lasts. What it raises ends the wait and
/// fails the transport: how Python's Ctrl-C gets through.
void set_wait_check(void (*check)());

}  // namespace joinsum::runtime
