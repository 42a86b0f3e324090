#include "runtime/communication/sockets/connect.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <ifaddrs.h>
#include <netdb.h>
#include <optional>
#include <poll.h>
#include <random>
#include <string>
#include <unistd.h>
#include <utility>
#include <vector>

#include <net/if.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include "base/check.h"
#include "runtime/communication/sockets/socket_links.h"

namespace joinsum::runtime::communication::sockets {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds kPatience{5};
constexpr size_t kChannels = 2;

using Token = std::array<uint64_t, 2>;

struct Address {
  sockaddr_storage bytes{};
  socklen_t length = 0;  ///< 0 where there is none
  sockaddr* get() { return reinterpret_cast<sockaddr*>(&bytes); }
};

/// Where a rank waits for connections, and what shows that one comes from its group.
struct Offer {
  Address address;
  Token token{};
};

/// What opens a connection.
struct Hello {
  Token token{};
  int64_t site = 0;
  int64_t channel = 0;
};

Address address_of(const sockaddr* given) {
  Address out;
  const bool known = given != nullptr && (given->sa_family == AF_INET || given->sa_family == AF_INET6);
  if (!known) return out;
  if (given->sa_family == AF_INET6) {
    const auto* six = reinterpret_cast<const sockaddr_in6*>(given);
    if (IN6_IS_ADDR_LINKLOCAL(&six->sin6_addr)) return out;
  }
  out.length = given->sa_family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
  std::memcpy(&out.bytes, given, out.length);
  return out;
}

/// Of the network interface of that name.
Address address_of_interface(const std::string& name) {
  Address found;
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return found;
  for (const ifaddrs* each = list; each != nullptr; each = each->ifa_next) {
    const Address address = address_of(each->ifa_addr);
    if (each->ifa_name != name || address.length == 0) continue;
    const bool first = found.length == 0 || (found.bytes.ss_family == AF_INET6 && address.bytes.ss_family == AF_INET);
    if (first) found = address;
  }
  freeifaddrs(list);
  return found;
}

/// What the host's name stands for.
std::vector<Address> addresses_of_host() {
  std::vector<Address> out;
  std::array<char, 256> name{};
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* list = nullptr;
  if (gethostname(name.data(), name.size() - 1) != 0 || getaddrinfo(name.data(), nullptr, &hints, &list) != 0)
    return out;
  for (const addrinfo* each = list; each != nullptr; each = each->ai_next) {
    if (const Address address = address_of(each->ai_addr); address.length > 0) out.push_back(address);
  }
  freeaddrinfo(list);
  return out;
}

Address loopback() {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address_of(reinterpret_cast<const sockaddr*>(&address));
}

/// Whether torch has Gloo use plain TCP.
bool plain_tcp() {
  const char* const transport = std::getenv("GLOO_DEVICE_TRANSPORT");
  return transport == nullptr || *transport == 0 || std::string(transport) == "TCP";
}

/// Where torch has Gloo listen: on the interface that the environment names, or that the host's name stands for, or the
/// loopback interface. The first one that can be used counts.
std::vector<Address> addresses() {
  const char* const interfaces = std::getenv("GLOO_SOCKET_IFNAME");
  if (interfaces != nullptr && *interfaces != 0) {
    const std::string names = interfaces;
    return {address_of_interface(names.substr(0, names.find(',')))};
  }
  std::vector<Address> out = addresses_of_host();
  out.push_back(loopback());
  return out;
}

Descriptor new_socket(int family) {
  Descriptor out(socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, IPPROTO_TCP));
  const int yes = 1;
  if (out.valid()) setsockopt(out.number(), IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes));
  return out;
}

/// A socket that listens; its address, with the port that it has got, is in `offer`.
Descriptor listen_on(Address address, int64_t sites, Offer& offer) {
  if (address.length == 0) return {};
  Descriptor out = new_socket(address.bytes.ss_family);
  const int backlog = static_cast<int>(std::min<int64_t>(2 * sites * static_cast<int64_t>(kChannels), SOMAXCONN));
  if (!out.valid() || bind(out.number(), address.get(), address.length) != 0 || listen(out.number(), backlog) != 0 ||
      getsockname(out.number(), address.get(), &address.length) != 0)
    return {};
  offer.address = address;
  std::random_device random;
  for (uint64_t& word : offer.token) word = (uint64_t{random()} << 32) | random();
  return out;
}

/// The connections of a rank while they are made.
class Meeting {
 public:
  Meeting(int64_t site, std::vector<Offer> offers, std::set<int64_t> wanted, Descriptor listener)
      : site_(site), offers_(std::move(offers)), wanted_(std::move(wanted)), listener_(std::move(listener)) {
    for (const int64_t peer : wanted_) {
      for (size_t channel = 0; peer < site_ && channel < kChannels; ++channel) begin(peer, channel);
    }
  }

  /// Sockets of the peers that have all of them in time.
  Sockets run() {
    const auto end = Clock::now() + kPatience;
    for (auto now = Clock::now(); !complete() && now < end; now = Clock::now())
      step(std::chrono::ceil<std::chrono::milliseconds>(end - now));
    Sockets out;
    for (auto& [peer, channels] : met_) {
      if (channels.size() != kChannels) continue;
      for (auto& [channel, socket] : channels) out[peer].push_back(std::move(socket));
    }
    return out;
  }

 private:
  /// A connection, and what has been sent or received of its opening.
  struct Opening {
    Descriptor socket;
    bool connects = false;
    Hello hello;
    size_t moved = 0;
    int64_t peer = 0;  ///< of one that connects
  };

  bool complete() const {
    return std::all_of(wanted_.begin(), wanted_.end(), [&](int64_t peer) {
      const auto found = met_.find(peer);
      return found != met_.end() && found->second.size() == kChannels;
    });
  }

  void begin(int64_t peer, size_t channel) {
    Address address = offers_[peer].address;
    Opening opening{new_socket(address.bytes.ss_family),
                    true,
                    {offers_[peer].token, site_, static_cast<int64_t>(channel)},
                    0,
                    peer};
    if (!opening.socket.valid()) return;
    if (::connect(opening.socket.number(), address.get(), address.length) != 0 && errno != EINPROGRESS) return;
    openings_.push_back(std::move(opening));
  }

  void step(std::chrono::milliseconds longest) {
    std::vector<pollfd> waiting{{listener_.number(), POLLIN, 0}};
    for (const Opening& opening : openings_)
      waiting.push_back({opening.socket.number(), static_cast<int16_t>(opening.connects ? POLLOUT : POLLIN), 0});
    if (poll(waiting.data(), waiting.size(), static_cast<int>(longest.count())) <= 0) return;
    for (size_t i = openings_.size(); i-- > 0;) {
      if (waiting[i + 1].revents != 0 && !goes_on(openings_[i]))
        openings_.erase(openings_.begin() + static_cast<std::ptrdiff_t>(i));
    }
    if (waiting[0].revents != 0) accept_all();
  }

  void accept_all() {
    while (true) {
      Descriptor socket(accept4(listener_.number(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
      if (!socket.valid()) return;
      const int yes = 1;
      setsockopt(socket.number(), IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes));
      openings_.push_back({std::move(socket), false, {}, 0, 0});
    }
  }

  /// Moves the opening; false where it is at its end, well or not.
  bool goes_on(Opening& opening) {
    char* const rest = reinterpret_cast<char*>(&opening.hello) + opening.moved;
    const size_t left = sizeof(Hello) - opening.moved;
    const ssize_t moved = opening.connects ? ::send(opening.socket.number(), rest, left, MSG_NOSIGNAL)
                                           : recv(opening.socket.number(), rest, left, 0);
    if (moved < 0 && (errno == EAGAIN || errno == EINTR)) return true;
    if (moved <= 0) return false;
    opening.moved += static_cast<size_t>(moved);
    if (opening.moved < sizeof(Hello)) return true;
    const int64_t peer = opening.connects ? opening.peer : opening.hello.site;
    const bool known =
        opening.connects || (opening.hello.token == offers_[site_].token && peer > site_ && wanted_.contains(peer) &&
                             opening.hello.channel >= 0 && opening.hello.channel < static_cast<int64_t>(kChannels));
    if (known) met_[peer].emplace(opening.hello.channel, std::move(opening.socket));
    return false;
  }

  int64_t site_;
  std::vector<Offer> offers_;
  std::set<int64_t> wanted_;
  Descriptor listener_;
  std::vector<Opening> openings_;
  std::map<int64_t, std::map<int64_t, Descriptor>> met_;
};

}  // namespace

Connections connect(int64_t site, int64_t sites, bool enabled, const std::set<int64_t>& reached,
                    const shared_memory::Gather& gather) {
  Offer own;
  Descriptor listener;
  const bool needed = enabled && plain_tcp() && static_cast<int64_t>(reached.size()) + 1 < sites;
  for (const Address& address : needed ? addresses() : std::vector<Address>()) {
    if (!listener.valid()) listener = listen_on(address, sites, own);
  }
  std::vector<Offer> offers;
  for (const std::string& bytes : gather({reinterpret_cast<const char*>(&own), sizeof(Offer)})) {
    JOINSUM_CHECK(bytes.size() == sizeof(Offer), "bytes=", bytes.size());
    std::memcpy(&offers.emplace_back(), bytes.data(), sizeof(Offer));
  }
  std::set<int64_t> wanted;
  for (int64_t peer = 0; peer < sites; ++peer) {
    const bool both = listener.valid() && offers[peer].address.length > 0;
    if (peer != site && both && !reached.contains(peer)) wanted.insert(peer);
  }
  Sockets sockets;
  if (!wanted.empty()) sockets = Meeting(site, std::move(offers), std::move(wanted), std::move(listener)).run();
  Connections out;
  out.pairs = shared_memory::keep_mutual(sockets, site, sites, gather);
  if (!sockets.empty()) out.links = std::make_unique<SocketLinks>(std::move(sockets));
  return out;
}

}  // namespace joinsum::runtime::communication::sockets
