#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <optional>
#include <sstream>

#include <torch/csrc/distributed/c10d/GroupRegistry.hpp>

#include "base/check.h"
#include "base/dims.h"
#include "runtime/peer_watch.h"
#include "runtime/transport.h"

namespace joinsum::runtime {
namespace {

/// A message of at least this size travels from and to its own memory; smaller ones of a pair of sites go together.
constexpr int64_t kDirectBytes = int64_t{64} << 10;
constexpr int64_t kBundleBytes = int64_t{1} << 20;
/// Characters of a long line that an error shows, and how many of them stand before the first difference.
constexpr size_t kShown = 160;
constexpr size_t kShownBefore = 60;

// --- bundles ---------------------------------------------------------------------------------------------------------

/// Messages that travel as one array, one after another.
struct Bundle {
  int64_t peer = 0;
  std::vector<size_t> messages;
  int64_t elements = 0;
  at::Tensor array;
};

/// What `site` sends, or receives. Both ends of a pair make the same bundles in the same order.
std::vector<Bundle> bundles(const std::vector<Message>& messages, int64_t site, bool sending, int64_t element_bytes) {
  std::vector<Bundle> out;
  std::map<int64_t, size_t> open;
  for (size_t i = 0; i < messages.size(); ++i) {
    const Message& message = messages[i];
    if ((sending ? message.from : message.to) != site || message.elements == 0) continue;
    const int64_t peer = sending ? message.to : message.from;
    if (message.elements * element_bytes >= kDirectBytes) {
      out.push_back({peer, {i}, message.elements, {}});
      continue;
    }
    const auto [at, fresh] = open.try_emplace(peer, out.size());
    const bool full = !fresh && (out[at->second].elements + message.elements) * element_bytes > kBundleBytes;
    if (full) at->second = out.size();
    if (fresh || full) out.push_back({peer, {}, 0, {}});
    Bundle& bundle = out[at->second];
    bundle.messages.push_back(i);
    bundle.elements += message.elements;
  }
  return out;
}

/// One contiguous flat array of the bundle's payload, on `device`; the payload itself where it is that already.
at::Tensor gather(const Bundle& bundle, const std::vector<Message>& messages, const at::TensorOptions& options,
                  const std::function<at::Tensor(size_t)>& payload) {
  std::vector<at::Tensor> flat;
  for (const size_t i : bundle.messages) {
    const at::Tensor array = payload(i).detach();
    JOINSUM_CHECK(array.numel() == messages[i].elements, "payload of a message has the wrong size");
    JOINSUM_CHECK(array.dtype() == options.dtype(), "payload of a message has the wrong dtype");
    flat.push_back(array.resolve_conj().resolve_neg().reshape({-1}));
  }
  return (flat.size() == 1 ? flat[0].contiguous() : at::cat(flat)).to(options.device());
}

std::vector<Parcel> parcels(const std::vector<Bundle>& list) {
  std::vector<Parcel> out;
  for (const Bundle& bundle : list) out.push_back({bundle.peer, bundle.array});
  return out;
}

int64_t bytes_of(const std::vector<Bundle>& list) {
  int64_t bytes = 0;
  for (const Bundle& bundle : list) bytes += static_cast<int64_t>(bundle.array.nbytes());
  return bytes;
}

/// An exchange under way; the other sites learn it if nobody waits for this one.
class Underway final : public Delivery {
 public:
  Underway(std::shared_ptr<PeerWatch> peers, std::string who, std::vector<at::Tensor> arrays,
           std::vector<Message> messages, at::Device device)
      : peers_(std::move(peers)),
        who_(std::move(who)),
        arrays_(std::move(arrays)),
        messages_(std::move(messages)),
        device_(device) {}
  ~Underway() override {
    if (peers_->forked()) {
      static_cast<void>(new auto(std::move(pending_)));
    } else if (!waited_ && !pending_.empty()) {
      peers_->abandon(who_);
    }
  }

  void post(const Lane& lane, std::vector<Bundle> receives, std::vector<Bundle> sends) {
    receives_ = std::move(receives);
    sends_ = std::move(sends);
    pending_ = peers_->post(who_, lane, Channel::kArrays, parcels(receives_), parcels(sends_));
  }

  std::vector<at::Tensor> wait() override {
    {
      const auto turn = peers_->enter();
      waited_ = true;
      peers_->wait(who_, pending_);
    }
    for (const Bundle& bundle : receives_) unpack(bundle);
    return std::move(arrays_);
  }

 private:
  void unpack(const Bundle& bundle) {
    const at::Tensor array = bundle.array.to(device_);
    int64_t begin = 0;
    for (const size_t i : bundle.messages) {
      const int64_t elements = messages_[i].elements;
      // A copy, so that one small array does not keep the memory of all.
      arrays_[i] = bundle.messages.size() == 1 ? array : array.narrow(0, begin, elements).clone();
      begin += elements;
    }
  }

  std::shared_ptr<PeerWatch> peers_;
  std::string who_;
  std::vector<at::Tensor> arrays_;
  std::vector<Message> messages_;
  at::Device device_;
  std::vector<Bundle> receives_;
  std::vector<Bundle> sends_;
  std::vector<Pending> pending_;
  bool waited_ = false;
};

// --- agreement -------------------------------------------------------------------------------------------------------

/// What a site tells first in every call that all sites make.
struct Header {
  uint64_t hash = 0;
  int64_t length = 0;
  char call[48] = {};
};

std::optional<std::string> line_of(const std::string& text, size_t number) {
  std::istringstream in(text);
  std::string line;
  for (size_t i = 0; i <= number; ++i) {
    if (!std::getline(in, line)) return std::nullopt;
  }
  return line;
}

/// A line as an error shows it: all of it, or what surrounds its first difference from `other`.
std::string shown(const std::optional<std::string>& line, const std::optional<std::string>& other) {
  if (!line) return "(no such line)";
  if (line->size() <= kShown) return *line;
  const std::string& against = other ? *other : std::string();
  const size_t same = std::mismatch(line->begin(), line->end(), against.begin(), against.end()).first - line->begin();
  const size_t begin = std::min(same > kShownBefore ? same - kShownBefore : 0, line->size() - kShown);
  const char* const end = begin + kShown < line->size() ? "..." : "";
  return (begin > 0 ? "..." : "") + line->substr(begin, kShown) + end;
}

/// The first line that is not the same on all sites.
std::string first_difference(const std::vector<std::string>& texts) {
  // Lines are the same up to the first character that some text has otherwise than the first one.
  size_t same = texts[0].size();
  for (const std::string& text : texts) {
    const auto end = std::mismatch(texts[0].begin(), texts[0].end(), text.begin(), text.end()).first;
    same = std::min(same, static_cast<size_t>(end - texts[0].begin()));
  }
  size_t number = std::count(texts[0].begin(), texts[0].begin() + static_cast<std::ptrdiff_t>(same), '\n');
  for (const size_t last = number + 1; number <= last; ++number) {
    const auto first = line_of(texts[0], number);
    for (size_t site = 1; site < texts.size(); ++site) {
      const auto line = line_of(texts[site], number);
      if (line == first) continue;
      return concatenate("line=", number + 1, ", site 0: ", shown(first, line), ", site ", site, ": ",
                         shown(line, first));
    }
  }
  return "the texts differ in their line ends";
}

std::string call_of(const Header& header) { return {header.call, strnlen(header.call, sizeof(header.call))}; }

// --- collectives -----------------------------------------------------------------------------------------------------

struct BackendRow {
  const char* name;
  bool all_reduce_is_faster;  ///< than the direct way's messages
};
/// On Gloo neither way is the faster one throughout (2 ranks, 4 KiB to 64 MiB); messages fold in the order of sites.
constexpr BackendRow kBackends[] = {{"gloo", false}, {"nccl", true}};

struct FoldRow {
  const char* fold;
  c10d::ReduceOp::RedOpType operation;
  bool floats;  ///< c10d's min and max lose values that are not numbers, which the kernels keep
};
constexpr FoldRow kFolds[] = {{"add", c10d::ReduceOp::SUM, true},
                              {"mul", c10d::ReduceOp::PRODUCT, true},
                              {"min", c10d::ReduceOp::MIN, false},
                              {"max", c10d::ReduceOp::MAX, false}};

const FoldRow* find_fold(const std::string& fold, at::ScalarType type) {
  constexpr at::ScalarType integers[] = {at::kByte, at::kChar, at::kInt, at::kLong};
  constexpr at::ScalarType floats[] = {at::kHalf, at::kBFloat16, at::kFloat, at::kDouble};
  const bool is_float = std::find(std::begin(floats), std::end(floats), type) != std::end(floats);
  if (!is_float && std::find(std::begin(integers), std::end(integers), type) == std::end(integers)) return nullptr;
  for (const FoldRow& row : kFolds) {
    if (row.fold == fold && (row.floats || !is_float)) return &row;
  }
  return nullptr;
}

bool worth_while(Collectives collectives, const std::string& backend) {
  if (collectives != Collectives::kTable) return collectives == Collectives::kAlways;
  return std::any_of(std::begin(kBackends), std::end(kBackends),
                     [&](const BackendRow& row) { return row.name == backend && row.all_reduce_is_faster; });
}

// --- the transport ---------------------------------------------------------------------------------------------------

class ProcessGroupTransport final : public Transport {
 public:
  ProcessGroupTransport(std::shared_ptr<PeerWatch> peers, Collectives collectives)
      : peers_(std::move(peers)),
        name_(peers_->control_lane().name),
        sites_(peers_->sites()),
        site_(peers_->site()),
        local_{site_},
        collectives_(collectives) {}

  const std::string& name() const override { return name_; }
  int64_t sites() const override { return sites_; }
  const std::vector<int64_t>& local_sites() const override { return local_; }
  Counters counters() const override { return {sent_, received_}; }

  std::unique_ptr<Delivery> start(const std::string& who, const std::vector<Message>& messages,
                                  const at::TensorOptions& options,
                                  const std::function<at::Tensor(size_t)>& payload) override;
  bool all_reduce(const std::string& who, const std::string& fold, at::Tensor array) override;
  void leave(const std::exception& error) override { peers_->leave_common_call(reason_of(error)); }
  void agree(const std::string& what, const std::string& text) override;
  std::vector<double> greatest(const std::vector<double>& values) override;

 private:
  at::TensorOptions on_lane(const Lane& lane, const at::TensorOptions& options) const {
    return at::TensorOptions()
        .dtype(options.dtype())
        .device(options.device().type() == lane.device.type() ? options.device() : lane.device);
  }
  std::vector<std::string> all_gather(const std::string& who, const std::string& mine,
                                      const std::vector<int64_t>& sizes);
  std::vector<Header> announce(const std::string& who, const std::string& call, const std::string& text);

  std::shared_ptr<PeerWatch> peers_;
  std::string name_;
  int64_t sites_;
  int64_t site_;
  std::vector<int64_t> local_;
  Collectives collectives_;
  std::atomic<int64_t> sent_ = 0;
  std::atomic<int64_t> received_ = 0;
};

std::unique_ptr<Delivery> ProcessGroupTransport::start(const std::string& who, const std::vector<Message>& messages,
                                                       const at::TensorOptions& options,
                                                       const std::function<at::Tensor(size_t)>& payload) {
  const auto turn = peers_->enter();
  const Lane& lane = peers_->lane(who, options.device().type());
  const at::TensorOptions wire = on_lane(lane, options);
  const auto element_bytes = static_cast<int64_t>(options.dtype().itemsize());
  std::vector<at::Tensor> arrays(messages.size());
  for (size_t i = 0; i < messages.size(); ++i) {
    JOINSUM_CHECK(messages[i].from != messages[i].to, "a message from a site to itself");
    if (messages[i].to == site_ && messages[i].elements == 0) arrays[i] = at::empty({0}, options);
  }
  auto receives = bundles(messages, site_, false, element_bytes);
  auto sends = bundles(messages, site_, true, element_bytes);
  for (Bundle& bundle : receives) bundle.array = at::empty({bundle.elements}, wire);
  for (Bundle& bundle : sends) bundle.array = gather(bundle, messages, wire, payload);
  sent_ += bytes_of(sends);
  received_ += bytes_of(receives);
  auto delivery = std::make_unique<Underway>(peers_, who, std::move(arrays), messages, options.device());
  delivery->post(lane, std::move(receives), std::move(sends));
  return delivery;
}

/// A collective that can no longer finish ends when the failure closes the group's connections. Where Gloo spreads a
/// group over several network interfaces, only those of one are closed: a collective on another one then holds the
/// process's exit until its own timeout.
bool ProcessGroupTransport::all_reduce(const std::string& who, const std::string& fold, at::Tensor array) {
  const auto turn = peers_->enter();
  const Lane& lane = peers_->lane(who, array.device().type());
  const FoldRow* row = find_fold(fold, array.scalar_type());
  if (sites_ == 1 || array.numel() == 0 || row == nullptr || !worth_while(collectives_, lane.name)) return false;
  std::vector<at::Tensor> wire{array.detach().to(on_lane(lane, array.options()).device()).contiguous()};
  c10d::AllreduceOptions options;
  options.reduceOp = row->operation;
  options.timeout = std::chrono::hours(24);
  std::vector<Pending> pending(1);
  try {
    pending[0].work = lane.backend->allreduce(wire, options);
  } catch (const std::exception& e) {
    peers_->fail(who, kEveryPeer, reason_of(e));
  }
  peers_->wait(who, pending);
  if (wire[0].data_ptr() != array.data_ptr()) array.copy_(wire[0]);
  // The direct way: each site folds one share and sends it to all the others.
  const int64_t elements = array.numel();
  const int64_t share = part_begin(elements, sites_, site_ + 1) - part_begin(elements, sites_, site_);
  const int64_t moved = (elements - share + (sites_ - 1) * share) * array.element_size();
  sent_ += moved;
  received_ += moved;
  return true;
}

/// Every site's bytes; `sizes` tells how many each has.
std::vector<std::string> ProcessGroupTransport::all_gather(const std::string& who, const std::string& mine,
                                                           const std::vector<int64_t>& sizes) {
  const Lane& lane = peers_->control_lane();
  const auto options = at::TensorOptions(at::kByte);
  // Sent from a copy on its device; the text itself must not be written to.
  const at::Tensor own = at::from_blob(const_cast<char*>(mine.data()), {static_cast<int64_t>(mine.size())}, options)
                             .to(lane.device, at::kByte, false, true);
  std::vector<Parcel> receives;
  std::vector<Parcel> sends;
  for (int64_t i = 1; i < sites_; ++i) {
    const int64_t peer = (site_ + i) % sites_;
    if (sizes[peer] > 0) receives.push_back({peer, at::empty({sizes[peer]}, options.device(lane.device))});
    if (!mine.empty()) sends.push_back({peer, own});
  }
  auto pending = peers_->post(who, lane, Channel::kControl, receives, sends);
  peers_->wait(who, pending);
  std::vector<std::string> all(sites_);
  all[site_] = mine;
  for (const Parcel& parcel : receives) {
    const at::Tensor host = parcel.array.cpu();
    all[parcel.peer].assign(static_cast<const char*>(host.const_data_ptr()), host.nbytes());
  }
  return all;
}

/// Begins a call that all sites make; raises on every site if some are in different ones.
std::vector<Header> ProcessGroupTransport::announce(const std::string& who, const std::string& call,
                                                    const std::string& text) {
  peers_->begin_common_call();
  Header mine{hash_text(text), static_cast<int64_t>(text.size()), {}};
  call.copy(mine.call, sizeof(mine.call) - 1);
  const std::string bytes(reinterpret_cast<const char*>(&mine), sizeof(Header));
  std::vector<Header> headers(sites_);
  const auto all = all_gather(who, bytes, std::vector<int64_t>(sites_, sizeof(Header)));
  for (int64_t site = 0; site < sites_; ++site) std::memcpy(&headers[site], all[site].data(), sizeof(Header));
  for (int64_t site = 1; site < sites_; ++site) {
    if (call_of(headers[site]) == call_of(headers[0])) continue;
    throw TransportError(concatenate("agree: sites make different calls: site 0: ", call_of(headers[0]), ", site ",
                                     site, ": ", call_of(headers[site])));
  }
  return headers;
}

void ProcessGroupTransport::agree(const std::string& what, const std::string& text) {
  const auto turn = peers_->enter();
  const auto headers = announce("agree", what, text);
  std::vector<int64_t> lengths;
  bool equal = true;
  for (const Header& header : headers) {
    lengths.push_back(header.length);
    equal = equal && header.hash == headers[0].hash && header.length == headers[0].length;
  }
  if (equal) return;
  throw TransportError(what + ": sites differ: " + first_difference(all_gather("agree", text, lengths)));
}

std::vector<double> ProcessGroupTransport::greatest(const std::vector<double>& values) {
  const auto turn = peers_->enter();
  const std::string mine(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(double));
  std::vector<int64_t> sizes;
  for (const Header& header : announce("greatest", "greatest", mine)) sizes.push_back(header.length);
  for (int64_t site = 1; site < sites_; ++site) {
    if (sizes[site] == sizes[0]) continue;
    throw TransportError(concatenate("greatest: sites give lists of different lengths: site 0: ",
                                     sizes[0] / sizeof(double), ", site ", site, ": ", sizes[site] / sizeof(double)));
  }
  std::vector<double> out = values;
  for (const std::string& bytes : all_gather("greatest", mine, sizes)) {
    for (size_t i = 0; i < out.size(); ++i) {
      double theirs = 0;
      std::memcpy(&theirs, bytes.data() + i * sizeof(double), sizeof(double));
      out[i] = std::max(out[i], theirs);
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

std::shared_ptr<Transport> make_process_group(const std::string& group_name, double timeout_seconds,
                                              Collectives collectives) {
  JOINSUM_USER_CHECK(std::isfinite(timeout_seconds) && timeout_seconds > 0,
                     "init: timeout must be positive: timeout_seconds=", timeout_seconds);
  c10::intrusive_ptr<c10d::ProcessGroup> group;
  try {
    group = c10d::resolve_process_group(group_name);
  } catch (const c10::Error&) {
    throw PlanError("init: no process group of that name: name=" + group_name);
  }
  const auto timeout = std::chrono::duration_cast<Millis>(std::chrono::duration<double>(timeout_seconds));
  auto peers = std::make_shared<PeerWatch>(std::move(group), timeout);
  {
    std::lock_guard lock(registry().mutex);
    auto& open = registry().open;
    open.erase(std::remove_if(open.begin(), open.end(), [](const auto& entry) { return entry.expired(); }), open.end());
    open.push_back(peers);
  }
  return std::make_shared<ProcessGroupTransport>(std::move(peers), collectives);
}

void close_process_groups() {
  std::lock_guard lock(registry().mutex);
  for (const auto& entry : registry().open) {
    if (const auto peers = entry.lock()) peers->close();
  }
  registry().open.clear();
}

}  // namespace joinsum::runtime
