#include "runtime/communication/shared_memory/handshake.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <fstream>
#include <random>
#include <sched.h>
#include <unistd.h>

#include <sys/stat.h>

#include "base/check.h"

namespace joinsum::runtime::communication::shared_memory {
namespace {

/// Of the rings that one rank reads together, and of one of them. Their pages are used as messages touch them. Of rings
/// of 0.5 to 16 MiB, those up to 4 MiB pass large messages fastest (2 ranks on 2 cores, 16 and 64 MiB, both ways): they
/// stay in the cache.
constexpr int64_t kBytesOfRank = int64_t{64} << 20;
constexpr int64_t kMostBytesOfRing = int64_t{4} << 20;
constexpr int64_t kLeastBytesOfRing = int64_t{256} << 10;
constexpr int64_t kControlBytes = int64_t{64} << 10;

using Token = std::array<uint64_t, 2>;

/// What a rank reports to the others about its memory.
struct Offer {
  char host[40] = {};       ///< the boot's id; empty where the rank offers nothing
  uint64_t network = 0;     ///< number of the network namespace
  uint64_t network_of = 0;  ///< the file system that has this number
  int64_t process = 0;
  int64_t file = 0;
  Token token{};  ///< at the file's start: another process may have the number in another namespace of processes

  bool offered() const { return host[0] != 0; }
  bool beside(const Offer& other) const {
    return offered() && std::strncmp(host, other.host, sizeof(host)) == 0 && network == other.network &&
           network_of == other.network_of;
  }
};

/// The file of a rank's offer: a page with its bell, then for each rank of the host the rings that this one writes to.
constexpr int64_t kBellBytes = kMappingStep;
struct FileStart {
  Bell bell;
  Token token{};
};

Offer offer_of(const MemoryFile& file) {
  Offer offer;
  struct stat network{};
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  if (!file.valid() || boot.empty() || stat("/proc/self/ns/net", &network) != 0) return offer;
  std::random_device random;
  for (uint64_t& word : offer.token) word = (uint64_t{random()} << 32) | random();
  const Mapping start(file, 0, kBellBytes);
  if (!start.valid()) return offer;
  reinterpret_cast<FileStart*>(start.start())->token = offer.token;
  offer.network = network.st_ino;
  offer.network_of = network.st_dev;
  offer.process = getpid();
  offer.file = file.number();
  boot.copy(offer.host, sizeof(offer.host) - 1);
  return offer;
}

template <class T>
std::vector<T> gather_all(const T& own, const Gather& gather) {
  std::vector<T> out;
  for (const std::string& bytes : gather({reinterpret_cast<const char*>(&own), sizeof(T)})) {
    JOINSUM_CHECK(bytes.size() == sizeof(T), "bytes=", bytes.size());
    std::memcpy(&out.emplace_back(), bytes.data(), sizeof(T));
  }
  return out;
}

/// Bytes of the rings that ranks of a host with `ranks` ranks have, by channel: for arrays, for control data.
std::vector<int64_t> capacities_for(int64_t ranks) {
  const int64_t share = kBytesOfRank / std::max<int64_t>(ranks - 1, 1) / kMappingStep * kMappingStep;
  return {std::clamp(share, kLeastBytesOfRing, kMostBytesOfRing), kControlBytes};
}

/// The ranks beside one rank, itself among them, and where their rings are in its file.
struct Host {
  std::vector<int64_t> ranks;
  std::vector<int64_t> capacities;

  Host(const std::vector<Offer>& offers, int64_t site) {
    for (int64_t other = 0; other < static_cast<int64_t>(offers.size()); ++other) {
      if (offers[site].beside(offers[other])) ranks.push_back(other);
    }
    capacities = capacities_for(static_cast<int64_t>(ranks.size()));
  }
  int64_t rings_of(int64_t writer) const {
    const auto position = std::find(ranks.begin(), ranks.end(), writer) - ranks.begin();
    return kBellBytes + position * Rings::bytes(capacities);
  }
  int64_t file_bytes() const { return kBellBytes + static_cast<int64_t>(ranks.size()) * Rings::bytes(capacities); }
};

/// What this rank shares with `peer`, in their two files; incomplete where it cannot be mapped.
PeerMemory memory_with(const Host& host, const MemoryFile& own, int64_t site, const Offer& offer, int64_t peer) {
  PeerMemory memory;
  const MemoryFile file = MemoryFile::open(offer.process, offer.file);
  FileStart start;
  if (!file.valid() || !file.read_start(&start, sizeof(FileStart)) || start.token != offer.token) return memory;
  memory.incoming = Mapping(own, host.rings_of(peer), Rings::bytes(host.capacities));
  memory.outgoing = Mapping(file, host.rings_of(site), Rings::bytes(host.capacities));
  memory.bell = Mapping(file, 0, kBellBytes);
  return memory;
}

bool complete(const PeerMemory& memory) {
  return memory.incoming.valid() && memory.outgoing.valid() && memory.bell.valid();
}

int64_t cores() {
  cpu_set_t set;
  return sched_getaffinity(0, sizeof(set), &set) == 0 ? CPU_COUNT(&set) : 1;
}

}  // namespace

Connections connect(int64_t site, int64_t sites, bool enabled, const Gather& gather) {
  MemoryFile file = enabled && sites > 1 ? MemoryFile::create(kBellBytes) : MemoryFile();
  const std::vector<Offer> offers = gather_all(offer_of(file), gather);
  const Host host(offers, site);
  std::map<int64_t, PeerMemory> peers;
  Mapping bell;
  if (host.ranks.size() > 1 && file.resize(host.file_bytes())) bell = Mapping(file, 0, kBellBytes);
  for (const int64_t peer : host.ranks) {
    if (peer == site || !bell.valid()) continue;
    PeerMemory memory = memory_with(host, file, site, offers[peer], peer);
    if (complete(memory)) peers.emplace(peer, std::move(memory));
  }
  Connections out;
  out.pairs = keep_mutual(peers, site, sites, gather);
  const bool spin = static_cast<int64_t>(host.ranks.size()) <= cores();
  if (!peers.empty())
    out.channels = std::make_unique<Channels>(host.capacities, std::move(bell), std::move(peers), spin);
  return out;
}

}  // namespace joinsum::runtime::communication::shared_memory
