#include "runtime/communication/watch/peer_watch.h"

#include <algorithm>
#include <unistd.h>
#include <utility>

#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include "base/check.h"
#include "kernels/dense/dense.h"
#include "runtime/communication/watch/peer_wait.h"

namespace joinsum::runtime::communication::watch {
namespace {

using Work = c10d::Work;

/// A Gloo group with n network interfaces picks one by tag mod n; tags that differ by a multiple of 1 to 16 share one
/// connection.
constexpr int kTagStep = 720720;
constexpr int kFirstTag = 0x4a53;
constexpr int kSentinelTag = kFirstTag + 2 * kTagStep;
int tag_of(Channel channel) { return kFirstTag + static_cast<int>(channel) * kTagStep; }

/// An array of bytes as a message of a link.
Transfer message_of(const at::Tensor& array, bool sending) {
  void* const bytes = sending ? const_cast<void*>(array.const_data_ptr()) : array.mutable_data_ptr();
  return {static_cast<char*>(bytes), static_cast<int64_t>(array.nbytes()), std::make_shared<at::Tensor>(array)};
}

/// A connection of joinsum's own to the group's store, or nothing. All sites create the transports of a group in one
/// order, so their count distinguishes the keys of this one from those of earlier ones.
c10::intrusive_ptr<c10d::Store> open_store(const c10d::ProcessGroup& group) {
  const auto shared = group.getStore();
  if (!shared) return {};
  const auto store = c10::make_intrusive<c10d::PrefixStore>("joinsum", shared->clone());
  const int64_t generation = store->add("generation/" + std::to_string(group.getRank()), 1);
  return c10::make_intrusive<c10d::PrefixStore>(std::to_string(generation), store);
}

}  // namespace

PeerWatch::PeerWatch(c10::intrusive_ptr<c10d::ProcessGroup> group, Millis timeout)
    : group_(std::move(group)),
      timeout_(timeout),
      process_(getpid()),
      site_(group_->getRank()),
      sites_(group_->getSize()) {
  for (const at::Device& device : group_->getDeviceTypes()) {
    const auto backend = group_->getBackend(device.type());
    const std::string name = backend->getBackendName();
    // Gloo sends from the memory of the CPU; arrays of other devices are copied there.
    if (name == "gloo" && !device.is_cpu()) continue;
    backends_[device.type()] = {name, backend, device, name == "gloo"};
  }
  JOINSUM_USER_CHECK(!backends_.empty(), "init: process group has no backend: group=", group_->getGroupName());
  if (control_backend().interruptible) waker_ = std::make_unique<Waker>();
  if (auto store = open_store(*group_)) heartbeat_ = std::make_unique<Heartbeat>(store, site(), sites(), timeout);
}

PeerWatch::~PeerWatch() { close(); }

const DeviceBackend& PeerWatch::control_backend() {
  const auto cpu = backends_.find(at::kCPU);
  return cpu != backends_.end() ? cpu->second : backends_.begin()->second;
}

const DeviceBackend& PeerWatch::backend(const std::string& operation, c10::DeviceType type) {
  const auto own = backends_.find(type);
  if (own != backends_.end()) return own->second;
  const DeviceBackend& other = control_backend();
  JOINSUM_USER_CHECK(other.device.is_cpu(), operation, ": process group cannot move these arrays; initialise it with ",
                     "backend=\"cpu:gloo,cuda:nccl\": device=", c10::DeviceTypeName(type, true),
                     ", backend=", other.name);
  return other;
}

bool PeerWatch::forked() const { return getpid() != process_; }

std::unique_lock<std::mutex> PeerWatch::enter() {
  if (forked()) throw TransportError("transport: the process group belongs to the parent of this forked process");
  std::unique_lock lock(mutex_);
  if (!failure_.empty()) throw TransportError(failure_);
  if (group_ == nullptr) throw TransportError("transport: closed; call joinsum.init again");
  return lock;
}

void PeerWatch::begin_common_call() {
  if (heartbeat_) heartbeat_->begin_call();
}

void PeerWatch::report_failure(const std::string& reason) {
  if (heartbeat_ && !forked()) heartbeat_->report(concatenate("lost site ", site_, ": it failed: ", reason));
}

std::vector<PeerTransfer> PeerWatch::post(const std::string& operation, const DeviceBackend& backend, Channel channel,
                                          const std::vector<PeerBuffer>& receives,
                                          const std::vector<PeerBuffer>& sends) {
  std::vector<PeerTransfer> transfers;
  if (receives.empty() && sends.empty()) return transfers;
  int64_t peer = kEveryPeer;
  try {
    // NCCL's sends and receives deadlock unless they form one group call.
    const bool coalesced = !backend.device.is_cpu();
    if (coalesced) backend.backend->startCoalescing();
    for (const auto* buffers : {&receives, &sends}) {
      for (const PeerBuffer& buffer : *buffers) {
        peer = buffer.peer;
        PeerTransfer transfer = post_one(backend, buffer, buffers == &sends, channel);
        if (!coalesced) transfers.push_back(std::move(transfer));
      }
    }
    peer = kEveryPeer;
    if (coalesced) transfers.push_back({peer, backend.backend->endCoalescing()});
  } catch (const std::exception& e) {
    fail(operation, peer, reason_of(e));
  }
  if (outstanding()) advance_far(operation);
  return transfers;
}

PeerTransfer PeerWatch::post_one(const DeviceBackend& backend, const PeerBuffer& buffer, bool sending,
                                 Channel channel) {
  const int peer = static_cast<int>(buffer.peer);
  if (backend.interruptible && !sentinels_.contains(peer)) {
    std::vector<at::Tensor> unused{at::empty({1}, at::kByte)};
    sentinels_.add(peer, backend.backend->recv(unused, peer, kSentinelTag));
  }
  std::vector<at::Tensor> bytes{kernels::dense::bytes_of(buffer.buffer)};
  if (Links* const links = backend.device.is_cpu() ? links_to(peer) : nullptr) {
    Transfer message = message_of(bytes[0], sending);
    const auto number = static_cast<size_t>(channel);
    return {peer,
            {},
            false,
            sending ? links->send(peer, number, std::move(message)) : links->receive(peer, number, std::move(message)),
            links->tells_of_end()};
  }
  const int tag = tag_of(channel);
  return {peer, sending ? backend.backend->send(bytes, peer, tag) : backend.backend->recv(bytes, peer, tag)};
}

Links* PeerWatch::links_to(int64_t peer) const {
  const auto found =
      std::find_if(links_.begin(), links_.end(), [&](const auto& links) { return links->reaches(peer); });
  return found == links_.end() ? nullptr : found->get();
}

bool PeerWatch::outstanding() const {
  return std::any_of(links_.begin(), links_.end(), [](const auto& links) { return links->outstanding(); });
}

/// As the links do; their errors fail the group.
bool PeerWatch::advance(const std::string& operation) {
  try {
    if (broken_) throw LinkError(*broken_);
    bool moved = false;
    for (const auto& links : links_) moved |= links->outstanding() && links->advance();
    return moved;
  } catch (const LinkError& e) {
    fail(operation, e.peer, e.what());
  }
}

void PeerWatch::advance_far(const std::string& operation) {
  try {
    if (broken_) throw LinkError(*broken_);
    advance_links_far();
  } catch (const LinkError& e) {
    fail(operation, e.peer, e.what());
  }
}

void PeerWatch::advance_links_far() {
  for (const auto& links : links_) {
    if (links->outstanding()) links->advance_far();
  }
}

void PeerWatch::progress() {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock || !outstanding() || forked() || broken_) return;
  try {
    advance_links_far();
  } catch (const LinkError& e) {
    broken_ = e;
  }
}

void PeerWatch::wait_for_links(Millis longest, std::chrono::microseconds turn) {
  std::vector<Links*> waited;
  for (const auto& links : links_) {
    if (links->outstanding()) waited.push_back(links.get());
  }
  const auto share = waited.size() > 1 ? turn : std::chrono::microseconds(longest);
  for (Links* const links : waited) links->wait_for_change(share);
}

void PeerWatch::add_links(std::unique_ptr<Links> links) {
  const std::lock_guard lock(mutex_);
  if (links != nullptr) links_.push_back(std::move(links));
}

void PeerWatch::wait(const std::string& operation, std::vector<PeerTransfer>& transfers) {
  try {
    Wait(*this, operation, transfers).wait_all();
  } catch (...) {
    interrupt(operation);
    throw;
  }
}

void PeerWatch::interrupt(const std::string& operation) {
  if (group_ == nullptr || !failure_.empty()) return;
  failure_ = concatenate(operation, ": lost site ", site_, ": interrupted");
  if (heartbeat_) heartbeat_->publish(failure_);
  close_connections();
}

void PeerWatch::abandon(const std::string& operation) noexcept {
  std::lock_guard lock(mutex_);
  interrupt(operation);
}

void PeerWatch::fail(const std::string& operation, int64_t peer, const std::string& why) {
  const std::string lost = peer == kEveryPeer ? ": failed: " : concatenate(": lost site ", peer, ": ");
  const std::string reason = operation + lost + why;
  raise(heartbeat_ ? heartbeat_->publish(reason) : reason);
}

/// Comes after publishing: sites that see these connections close find the reason in the store.
void PeerWatch::raise(const std::string& reason) {
  failure_ = reason;
  close_connections();
  throw TransportError(reason);
}

void PeerWatch::close_connections() {
  for (const auto& links : links_) links->close();
  sentinels_.close_connections();
  for (auto& [type, backend] : backends_) {
    if (backend.interruptible) continue;
    try {
      backend.backend->abort();
    } catch (const std::exception&) {
      continue;
    }
  }
}

void PeerWatch::close() noexcept {
  if (forked()) {
    static_cast<void>(heartbeat_.release());
    static_cast<void>(waker_.release());
    static_cast<void>(new auto(std::move(links_)));
    static_cast<void>(group_.release());
    // Destroying them would touch connections.
    static_cast<void>(new auto(std::move(sentinels_)));
    static_cast<void>(new auto(std::move(backends_)));
    return;
  }
  closing_ = true;
  std::lock_guard lock(mutex_);
  heartbeat_.reset();
  waker_.reset();
  links_.clear();
  sentinels_.clear();
  backends_.clear();
  group_.reset();
}

}  // namespace joinsum::runtime::communication::watch
