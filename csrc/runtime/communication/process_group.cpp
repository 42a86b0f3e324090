#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <set>

#include <torch/csrc/distributed/c10d/GroupRegistry.hpp>

#include "base/check.h"
#include "runtime/communication/coalescing.h"
#include "runtime/communication/first_difference.h"
#include "runtime/communication/gloo_threads.h"
#include "runtime/communication/native_collectives.h"
#include "runtime/communication/shared_memory/handshake.h"
#include "runtime/communication/sockets/connect.h"
#include "runtime/communication/transport.h"
#include "runtime/communication/watch/peer_watch.h"

namespace joinsum::runtime::communication {
namespace {

using watch::Channel;
using watch::DeviceBackend;
using watch::PeerBuffer;
using watch::PeerTransfer;
using watch::PeerWatch;

/// An exchange that has been posted. If nobody waits for it, the group fails, so that the other sites learn it.
class PostedExchange final : public ExchangeHandle {
 public:
  PostedExchange(std::shared_ptr<PeerWatch> peers, std::string operation, std::vector<at::Tensor> arrays)
      : peers_(std::move(peers)), operation_(std::move(operation)), arrays_(std::move(arrays)) {}
  ~PostedExchange() override {
    if (peers_->forked()) {
      static_cast<void>(new auto(std::move(transfers_)));
    } else if (!waited_ && !transfers_.empty()) {
      peers_->abandon(operation_);
    }
  }

  void post(const DeviceBackend& backend, std::vector<CoalescedMessage> receives, std::vector<CoalescedMessage> sends) {
    receives_ = std::move(receives);
    sends_ = std::move(sends);
    transfers_ = peers_->post(operation_, backend, Channel::kArrays, buffers_of(receives_), buffers_of(sends_));
  }

  std::vector<at::Tensor> wait() override {
    {
      const auto turn = peers_->enter();
      waited_ = true;
      peers_->wait(operation_, transfers_);
    }
    for (const CoalescedMessage& coalesced : receives_) unpack(coalesced, arrays_);
    return std::move(arrays_);
  }

 private:
  std::shared_ptr<PeerWatch> peers_;
  std::string operation_;
  std::vector<at::Tensor> arrays_;  ///< that are received
  std::vector<CoalescedMessage> receives_;
  std::vector<CoalescedMessage> sends_;
  std::vector<PeerTransfer> transfers_;
  bool waited_ = false;
};

/// A collective of the backend that has been started. If nobody waits for it, the group fails.
class StartedCollective final : public CollectiveHandle {
 public:
  StartedCollective(std::shared_ptr<PeerWatch> peers, std::string operation, NativeCollective started)
      : peers_(std::move(peers)), operation_(std::move(operation)), result_(std::move(started.result)) {
    transfers_.push_back({watch::kEveryPeer, std::move(started.work)});
  }
  ~StartedCollective() override {
    if (peers_->forked()) {
      static_cast<void>(new auto(std::move(transfers_)));
    } else if (!waited_) {
      peers_->abandon(operation_);
    }
  }

  bool arrived() const override { return transfers_.front().work->isCompleted(); }

  at::Tensor wait() override {
    const auto turn = peers_->enter();
    waited_ = true;
    peers_->wait(operation_, transfers_);
    return std::move(result_);
  }

 private:
  std::shared_ptr<PeerWatch> peers_;
  std::string operation_;
  at::Tensor result_;
  std::vector<PeerTransfer> transfers_;
  bool waited_ = false;
};

/// What a site sends first in every call that all sites make.
struct Header {
  uint64_t hash = 0;
  int64_t length = 0;
  char call[48] = {};
};

std::string call_of(const Header& header) { return {header.call, strnlen(header.call, sizeof(header.call))}; }

class ProcessGroupTransport final : public Transport {
 public:
  ProcessGroupTransport(std::shared_ptr<PeerWatch> peers, Collectives policy)
      : peers_(std::move(peers)),
        name_(peers_->control_backend().name),
        sites_(peers_->sites()),
        site_(peers_->site()),
        local_{site_},
        policy_(policy) {}

  const std::string& name() const override { return name_; }
  int64_t sites() const override { return sites_; }
  const std::vector<int64_t>& local_sites() const override { return local_; }
  Counters counters() const override { return {sent_, received_}; }
  SharedMemory shared_memory() const override { return shared_memory_; }
  bool own_sockets() const override { return own_sockets_; }
  void progress() override { peers_->progress(); }
  /// Links the ranks of each host by shared memory, and hosts by sockets; collective.
  void link(bool share_memory, bool sockets);

  std::unique_ptr<ExchangeHandle> start(const std::string& operation, const std::vector<Message>& messages,
                                        const at::TensorOptions& options,
                                        const std::function<at::Tensor(size_t)>& payload,
                                        const Allocate& allocate) override;
  std::optional<at::Tensor> native(const CollectiveCall& call, const at::Tensor& array) override;
  std::unique_ptr<CollectiveHandle> start_in_background(const CollectiveCall& call, const at::TensorOptions& options,
                                                        int64_t elements, const Counters& bytes,
                                                        const std::function<at::Tensor()>& array) override;
  void agree_on(const std::string& call, uint64_t hash, const std::function<std::string()>& text) override;
  std::vector<std::string> gather_texts(const std::string& call, const std::string& text) override;
  std::vector<double> all_reduce_max(const std::vector<double>& values) override;
  void report_failure(const std::exception& error) override { peers_->report_failure(watch::reason_of(error)); }

 private:
  at::TensorOptions on_backend(const DeviceBackend& backend, const at::TensorOptions& options) const {
    return at::TensorOptions()
        .dtype(options.dtype())
        .device(options.device().type() == backend.device.type() ? options.device() : backend.device);
  }
  void count(const Counters& moved) {
    sent_ += moved.sent;
    received_ += moved.received;
  }
  std::vector<std::string> gather_bytes(const std::string& operation, const std::string& own,
                                        const std::vector<int64_t>& sizes);
  std::vector<Header> exchange_headers(const std::string& call, uint64_t hash, size_t length);
  std::vector<std::string> exchange_texts(const std::string& call, const std::string& text);

  std::shared_ptr<PeerWatch> peers_;
  std::string name_;
  int64_t sites_;
  int64_t site_;
  std::vector<int64_t> local_;
  Collectives policy_;
  SharedMemory shared_memory_ = SharedMemory::kNone;
  bool own_sockets_ = false;
  std::atomic<int64_t> sent_ = 0;
  std::atomic<int64_t> received_ = 0;
};

void ProcessGroupTransport::link(bool share_memory, bool sockets) {
  // Gloo closes the connections of a lost rank, which ends the waits for it; other backends would not.
  const bool watched = peers_->control_backend().interruptible;
  const auto gather = [&](const std::string& own) { return gather_texts("init", own); };
  auto memory = shared_memory::connect(site_, sites_, share_memory && watched, gather);
  if (memory.pairs > 0) shared_memory_ = SharedMemory::kSome;
  if (memory.pairs > 0 && memory.pairs == sites_ * (sites_ - 1) / 2) shared_memory_ = SharedMemory::kAll;
  std::set<int64_t> reached;
  for (int64_t peer = 0; peer < sites_; ++peer) {
    if (memory.channels != nullptr && memory.channels->reaches(peer)) reached.insert(peer);
  }
  peers_->add_links(std::move(memory.channels));
  if (shared_memory_ == SharedMemory::kAll) return;
  auto between_hosts = sockets::connect(site_, sites_, sockets && watched, reached, gather);
  own_sockets_ = between_hosts.pairs > 0 && memory.pairs + between_hosts.pairs == sites_ * (sites_ - 1) / 2;
  peers_->add_links(std::move(between_hosts.links));
}

std::unique_ptr<ExchangeHandle> ProcessGroupTransport::start(const std::string& operation,
                                                             const std::vector<Message>& messages,
                                                             const at::TensorOptions& options,
                                                             const std::function<at::Tensor(size_t)>& payload,
                                                             const Allocate& allocate) {
  const auto turn = peers_->enter();
  const DeviceBackend& backend = peers_->backend(operation, options.device().type());
  const at::TensorOptions wire = on_backend(backend, options);
  const auto element_bytes = static_cast<int64_t>(options.dtype().itemsize());
  std::vector<at::Tensor> arrays(messages.size());
  for (size_t i = 0; i < messages.size(); ++i) {
    JOINSUM_CHECK(messages[i].from != messages[i].to, "a message from a site to itself");
    if (messages[i].to == site_ && messages[i].bytes == 0) arrays[i] = at::empty({0}, options);
  }
  auto receives = coalesce(messages, site_, false);
  auto sends = coalesce(messages, site_, true);
  for (CoalescedMessage& coalesced : receives) {
    for (const size_t i : coalesced.messages) {
      const int64_t elements = messages[i].bytes / element_bytes;
      arrays[i] = allocate ? allocate(i, elements) : at::empty({elements}, options);
    }
    const bool is_result = coalesced.messages.size() == 1 && wire.device() == options.device();
    coalesced.buffer =
        is_result ? arrays[coalesced.messages.front()] : at::empty({coalesced.bytes / element_bytes}, wire);
  }
  for (CoalescedMessage& coalesced : sends) coalesced.buffer = pack(coalesced, messages, wire, payload);
  count({bytes_of(sends), bytes_of(receives)});
  auto handle = std::make_unique<PostedExchange>(peers_, operation, std::move(arrays));
  handle->post(backend, std::move(receives), std::move(sends));
  return handle;
}

std::unique_ptr<CollectiveHandle> ProcessGroupTransport::start_in_background(const CollectiveCall& call,
                                                                             const at::TensorOptions& options,
                                                                             int64_t elements, const Counters& bytes,
                                                                             const std::function<at::Tensor()>& array) {
  const bool everyone = static_cast<int64_t>(call.group.size()) == sites_;
  if (sites_ == 1 || !everyone || elements == 0 || call.collective != Collective::kAllReduce) return nullptr;
  const auto turn = peers_->enter();
  const DeviceBackend& backend = peers_->backend(call.operation, options.device().type());
  if (on_backend(backend, options).device() != options.device()) return nullptr;
  const at::ScalarType type = c10::typeMetaToScalarType(options.dtype());
  // Ranks that are linked exchange faster than by the backend's sockets.
  const bool linked = options.device().is_cpu() && (own_sockets_ || shared_memory_ != SharedMemory::kNone);
  if (linked ? !uses_native(policy_, backend.name, call, type)
             : !uses_native_in_background(policy_, backend.name, call, type)) {
    return nullptr;
  }
  try {
    auto started = start_all_reduce_in_place(*backend.backend, call, array());
    count(bytes);
    return std::make_unique<StartedCollective>(peers_, call.operation, std::move(started));
  } catch (const std::exception& e) {
    peers_->fail(call.operation, watch::kEveryPeer, watch::reason_of(e));
  }
}

/// Only where the group is all ranks: a backend of its own for every sub-grid would have connections that PeerWatch
/// does not see. A collective that can no longer finish ends when the failure closes the group's connections. Where
/// Gloo spreads a group over several network interfaces, only those of one are closed: a collective on another one then
/// delays the process's exit until its own timeout.
std::optional<at::Tensor> ProcessGroupTransport::native(const CollectiveCall& call, const at::Tensor& array) {
  if (sites_ == 1 || static_cast<int64_t>(call.group.size()) != sites_ || array.numel() == 0) return std::nullopt;
  const auto turn = peers_->enter();
  const DeviceBackend& backend = peers_->backend(call.operation, array.device().type());
  if (!uses_native(policy_, backend.name, call, array.scalar_type())) return std::nullopt;
  NativeCollective started;
  try {
    started = start_native(*backend.backend, call, array.detach().to(on_backend(backend, array.options()).device()));
  } catch (const std::exception& e) {
    peers_->fail(call.operation, watch::kEveryPeer, watch::reason_of(e));
  }
  std::vector<PeerTransfer> transfers{{watch::kEveryPeer, started.work}};
  peers_->wait(call.operation, transfers);
  count(message_bytes(call, array, site_));
  return started.result.to(array.device());
}

/// Every site's bytes; `sizes` has the number of each.
std::vector<std::string> ProcessGroupTransport::gather_bytes(const std::string& operation, const std::string& own,
                                                             const std::vector<int64_t>& sizes) {
  const DeviceBackend& backend = peers_->control_backend();
  const auto options = at::TensorOptions(at::kByte);
  // Sent from a copy on its device; the text itself must not be written to.
  const at::Tensor array = at::from_blob(const_cast<char*>(own.data()), {static_cast<int64_t>(own.size())}, options)
                               .to(backend.device, at::kByte, false, true);
  std::vector<PeerBuffer> receives;
  std::vector<PeerBuffer> sends;
  for (int64_t i = 1; i < sites_; ++i) {
    const int64_t peer = (site_ + i) % sites_;
    if (sizes[peer] > 0) receives.push_back({peer, at::empty({sizes[peer]}, options.device(backend.device))});
    if (!own.empty()) sends.push_back({peer, array});
  }
  auto transfers = peers_->post(operation, backend, Channel::kControl, receives, sends);
  peers_->wait(operation, transfers);
  std::vector<std::string> all(sites_);
  all[site_] = own;
  for (const PeerBuffer& received : receives) {
    const at::Tensor host = received.buffer.cpu();
    all[received.peer].assign(static_cast<const char*>(host.const_data_ptr()), host.nbytes());
  }
  return all;
}

/// Begins a call that all sites make; raises on every site if some make another one.
std::vector<Header> ProcessGroupTransport::exchange_headers(const std::string& call, uint64_t hash, size_t length) {
  peers_->begin_common_call();
  Header own{hash, static_cast<int64_t>(length), {}};
  call.copy(own.call, sizeof(own.call) - 1);
  const std::string bytes(reinterpret_cast<const char*>(&own), sizeof(Header));
  std::vector<Header> headers(sites_);
  const auto all = gather_bytes(call, bytes, std::vector<int64_t>(sites_, sizeof(Header)));
  for (int64_t site = 0; site < sites_; ++site) std::memcpy(&headers[site], all[site].data(), sizeof(Header));
  for (int64_t site = 1; site < sites_; ++site) {
    if (call_of(headers[site]) == call_of(headers[0])) continue;
    throw TransportError(concatenate("agree: sites make different calls: site 0: ", call_of(headers[0]), ", site ",
                                     site, ": ", call_of(headers[site]), "; every rank makes all calls, in one order"));
  }
  return headers;
}

std::vector<std::string> ProcessGroupTransport::exchange_texts(const std::string& call, const std::string& text) {
  std::vector<int64_t> lengths;
  for (const Header& header : exchange_headers(call, hash_text(text), text.size())) {
    lengths.push_back(header.length);
  }
  return gather_bytes(call, text, lengths);
}

void ProcessGroupTransport::agree_on(const std::string& call, uint64_t hash, const std::function<std::string()>& text) {
  const auto turn = peers_->enter();
  const auto headers = exchange_headers(call, hash, 0);
  if (std::all_of(headers.begin(), headers.end(), [&](const Header& header) { return header.hash == hash; })) return;
  throw TransportError(call + ": sites differ: " + first_difference(exchange_texts(call, text())));
}

std::vector<std::string> ProcessGroupTransport::gather_texts(const std::string& call, const std::string& text) {
  const auto turn = peers_->enter();
  return exchange_texts(call, text);
}

std::vector<double> ProcessGroupTransport::all_reduce_max(const std::vector<double>& values) {
  const std::string call = "all_reduce_max";
  const std::string own(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(double));
  const auto all = gather_texts(call, own);
  for (size_t site = 1; site < all.size(); ++site) {
    if (all[site].size() == all[0].size()) continue;
    throw TransportError(
        concatenate(call, ": sites give lists of different lengths: site 0: ", all[0].size() / sizeof(double),
                    ", site ", site, ": ", all[site].size() / sizeof(double)));
  }
  std::vector<double> out = values;
  for (const std::string& bytes : all) {
    for (size_t i = 0; i < out.size(); ++i) {
      double other = 0;
      std::memcpy(&other, bytes.data() + i * sizeof(double), sizeof(double));
      out[i] = std::max(out[i], other);
    }
  }
  return out;
}

/// Never destroyed: transports may outlive any static object.
struct Registry {
  std::mutex mutex;
  std::vector<std::weak_ptr<PeerWatch>> open;
};

Registry& registry() {
  static auto* const instance = new Registry;
  return *instance;
}

}  // namespace

std::shared_ptr<Transport> make_process_group(const std::string& group_name, double timeout_seconds, Collectives policy,
                                              bool share_memory, bool sockets) {
  JOINSUM_USER_CHECK(std::isfinite(timeout_seconds) && timeout_seconds > 0,
                     "init: timeout must be positive: timeout_seconds=", timeout_seconds);
  c10::intrusive_ptr<c10d::ProcessGroup> group;
  try {
    group = c10d::resolve_process_group(group_name);
  } catch (const c10::Error&) {
    throw PlanError("init: no process group of that name: name=" + group_name);
  }
  const auto timeout = std::chrono::duration_cast<watch::Millis>(std::chrono::duration<double>(timeout_seconds));
  auto peers = std::make_shared<PeerWatch>(std::move(group), timeout);
  {
    std::lock_guard lock(registry().mutex);
    auto& open = registry().open;
    open.erase(std::remove_if(open.begin(), open.end(), [](const auto& entry) { return entry.expired(); }), open.end());
    open.push_back(peers);
  }
  auto transport = std::make_shared<ProcessGroupTransport>(std::move(peers), policy);
  transport->link(share_memory, sockets);
  let_gloo_threads_yield();
  return transport;
}

void close_process_groups() {
  std::lock_guard lock(registry().mutex);
  for (const auto& entry : registry().open) {
    if (const auto peers = entry.lock()) peers->close();
  }
  registry().open.clear();
}

}  // namespace joinsum::runtime::communication
