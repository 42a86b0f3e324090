#include "base/arena.h"

#include <algorithm>
#include <shared_mutex>
#include <unistd.h>

#include <sys/mman.h>

#include "base/check.h"

namespace joinsum {
namespace {

/// The arenas of this process by the first address behind each.
class Addresses {
 public:
  void add(char* begin, char* end, Arena* arena) {
    const std::unique_lock lock(mutex_);
    ranges_[end] = {begin, arena};
  }
  void remove(char* end) {
    const std::unique_lock lock(mutex_);
    ranges_.erase(end);
  }
  std::shared_ptr<Arena> owner_of(const char* memory) const {
    const std::shared_lock lock(mutex_);
    const auto found = ranges_.upper_bound(memory);
    if (found == ranges_.end() || memory < found->second.first) return nullptr;
    return found->second.second->weak_from_this().lock();
  }

 private:
  mutable std::shared_mutex mutex_;
  std::map<const char*, std::pair<const char*, Arena*>> ranges_;
};

/// Outlives all arenas, as memory may be freed when the program ends.
Addresses& addresses() {
  static auto* const all = new Addresses;
  return *all;
}

size_t page_bytes() {
  static const auto bytes = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  return bytes;
}

size_t rounded_up(size_t bytes, size_t unit) { return (bytes + unit - 1) / unit * unit; }

/// The pages that lie in a chunk as a whole.
std::pair<char*, size_t> pages_in(char* begin, size_t bytes) {
  const size_t before =
      rounded_up(reinterpret_cast<uintptr_t>(begin), page_bytes()) - reinterpret_cast<uintptr_t>(begin);
  if (before >= bytes) return {begin, 0};
  return {begin + before, (bytes - before) / page_bytes() * page_bytes()};
}

}  // namespace

std::shared_ptr<Arena> Arena::make(bool huge_pages) { return std::shared_ptr<Arena>(new Arena(huge_pages)); }

Arena::~Arena() {
  if (begin_ == nullptr) return;
  addresses().remove(end_);
  munmap(begin_, static_cast<size_t>(end_ - begin_));
}

std::shared_ptr<Arena> Arena::owner_of(const void* memory) {
  return addresses().owner_of(static_cast<const char*>(memory));
}

/// Addresses for as much memory as the machine has, or for less where the process may not have so many. They take no
/// memory.
bool Arena::reserve() {
  if (begin_ != nullptr) return true;
  constexpr size_t kLeast = size_t{64} << 20;
  for (size_t bytes = static_cast<size_t>(sysconf(_SC_PHYS_PAGES)) * page_bytes(); bytes >= kLeast; bytes /= 2) {
    bytes = rounded_up(bytes, page_bytes());
    void* const memory = mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) continue;
#ifdef MADV_HUGEPAGE
    if (huge_pages_) static_cast<void>(madvise(memory, bytes, MADV_HUGEPAGE));
#endif
    begin_ = top_ = static_cast<char*>(memory);
    end_ = begin_ + bytes;
    addresses().add(begin_, end_, this);
    return true;
  }
  return false;
}

void* Arena::allocate(size_t bytes) {
  bytes = rounded_up(std::max<size_t>(bytes, 1), kAlignment);
  const std::lock_guard lock(mutex_);
  void* const memory = take(bytes);
  if (memory == nullptr) return nullptr;
  if (taken_.empty()) self_ = shared_from_this();
  taken_.emplace(static_cast<char*>(memory), bytes);
  used_bytes_ += bytes;
  return memory;
}

void* Arena::take(size_t bytes) {
  if (bytes <= kSmall) {
    const auto same = small_.find(bytes);
    if (same != small_.end() && !same->second.empty()) {
      char* const memory = same->second.back();
      same->second.pop_back();
      cached_bytes_ -= bytes;
      return memory;
    }
  }
  auto smallest = by_size_.lower_bound({bytes, nullptr});
  if (smallest == by_size_.end()) {
    if (!grow(bytes)) return nullptr;
    smallest = by_size_.lower_bound({bytes, nullptr});
  }
  const auto found = free_.find(smallest->second);
  char* const memory = found->first;
  const Chunk chunk = found->second;
  remove_free(found);
  const size_t rest = chunk.bytes - bytes;
  if (rest > 0) add_free(memory + bytes, {rest, std::min(chunk.returned, rest)});
  return memory;
}

/// Makes a free chunk of these bytes at the end of the range.
bool Arena::grow(size_t bytes) {
  if (!reserve()) return false;
  const auto last = free_.empty() ? free_.end() : std::prev(free_.end());
  const bool joined = last != free_.end() && last->first + last->second.bytes == top_;
  const size_t more = rounded_up(joined ? bytes - last->second.bytes : bytes, page_bytes());
  if (more > static_cast<size_t>(end_ - top_) || mprotect(top_, more, PROT_READ | PROT_WRITE) != 0) return false;
  char* const begin = top_;
  top_ += more;
  add_free(begin, {more, 0});
  return true;
}

void Arena::add_free(char* begin, Chunk chunk) {
  auto next = free_.lower_bound(begin);
  if (next != free_.end() && begin + chunk.bytes == next->first) {
    chunk.bytes += next->second.bytes;
    chunk.returned += next->second.returned;
    next = remove_free(next);
  }
  if (next != free_.begin()) {
    const auto before = std::prev(next);
    if (before->first + before->second.bytes == begin) {
      begin = before->first;
      chunk.bytes += before->second.bytes;
      chunk.returned += before->second.returned;
      remove_free(before);
    }
  }
  free_.emplace(begin, chunk);
  by_size_.emplace(chunk.bytes, begin);
  cached_bytes_ += chunk.bytes - chunk.returned;
}

Arena::Chunks::iterator Arena::remove_free(Chunks::iterator chunk) {
  cached_bytes_ -= chunk->second.bytes - chunk->second.returned;
  by_size_.erase({chunk->second.bytes, chunk->first});
  return free_.erase(chunk);
}

void Arena::free(void* memory) {
  std::shared_ptr<Arena> last;  // released after the lock
  const std::lock_guard lock(mutex_);
  const auto found = taken_.find(static_cast<char*>(memory));
  JOINSUM_CHECK(found != taken_.end(), "memory that is not taken is freed");
  const size_t bytes = found->second;
  taken_.erase(found);
  used_bytes_ -= bytes;
  if (bytes <= kSmall) {
    small_[bytes].push_back(static_cast<char*>(memory));
    cached_bytes_ += bytes;
  } else {
    add_free(static_cast<char*>(memory), {bytes, 0});
  }
  if (taken_.empty()) last = std::move(self_);
}

int64_t Arena::used_bytes() const {
  const std::lock_guard lock(mutex_);
  return static_cast<int64_t>(used_bytes_);
}

int64_t Arena::cached_bytes() const {
  const std::lock_guard lock(mutex_);
  return static_cast<int64_t>(cached_bytes_);
}

void Arena::shrink_to(int64_t most) {
  const std::lock_guard lock(mutex_);
  if (static_cast<int64_t>(cached_bytes_) <= most) return;
  for (const auto& [bytes, all] : small_) {
    cached_bytes_ -= bytes * all.size();
    for (char* const memory : all) add_free(memory, {bytes, 0});
  }
  small_.clear();
  for (auto largest = by_size_.rbegin(); largest != by_size_.rend(); ++largest) {
    if (static_cast<int64_t>(cached_bytes_) <= most) return;
    Chunk& chunk = free_.at(largest->second);
    const auto [begin, bytes] = pages_in(largest->second, chunk.bytes);
    if (bytes <= chunk.returned || madvise(begin, bytes, MADV_DONTNEED) != 0) continue;
    cached_bytes_ -= bytes - chunk.returned;
    chunk.returned = bytes;
  }
}

}  // namespace joinsum
