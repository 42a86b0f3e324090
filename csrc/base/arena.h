#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <unordered_map>
#include <vector>

namespace joinsum {

/// One range of addresses from which memory on the CPU is taken, and which caches what is freed: computing into pages
/// that are fresh from the system takes longer than computing. The smallest free chunk that fits is used; adjacent free
/// chunks are joined; the range grows only where nothing fits. Small memory is cached by its size. Thread-safe.
class Arena : public std::enable_shared_from_this<Arena> {
 public:
  /// With `huge_pages` the system is asked for these, of which there are fewer to clear and map where memory is written
  /// first.
  static std::shared_ptr<Arena> make(bool huge_pages = false);
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  /// Memory aligned to `kAlignment`; it keeps the arena alive until it is freed. Null where there are no addresses.
  void* allocate(size_t bytes);
  void free(void* memory);

  /// Bytes that are allocated now.
  int64_t used_bytes() const;
  /// Bytes of free memory that the system has not got back.
  int64_t cached_bytes() const;
  /// Returns pages of free chunks to the system, of the largest first, until at most `most` bytes are cached.
  void shrink_to(int64_t most);

  /// Keep other threads from it in between, as while the process forks.
  void lock() const { mutex_.lock(); }
  void unlock() const { mutex_.unlock(); }

  /// The arena that has an address; null where none has.
  static std::shared_ptr<Arena> owner_of(const void* memory);

  static constexpr size_t kAlignment = 64;
  /// Memory of up to these bytes is not joined with its neighbours when it is freed.
  static constexpr size_t kSmall = size_t{1} << 14;

 private:
  explicit Arena(bool huge_pages) : huge_pages_(huge_pages) {}
  struct Chunk {
    size_t bytes;
    size_t returned;  ///< to the system, of these
  };
  using Chunks = std::map<char*, Chunk>;

  bool reserve();
  void* take(size_t bytes);
  bool grow(size_t bytes);
  void add_free(char* begin, Chunk chunk);
  Chunks::iterator remove_free(Chunks::iterator chunk);

  const bool huge_pages_;
  mutable std::mutex mutex_;
  char* begin_ = nullptr;  ///< of the addresses; up to `top_` they have memory
  char* top_ = nullptr;
  char* end_ = nullptr;
  Chunks free_;
  std::set<std::pair<size_t, char*>> by_size_;  ///< the same
  std::unordered_map<size_t, std::vector<char*>> small_;
  std::unordered_map<char*, size_t> taken_;
  size_t used_bytes_ = 0;
  size_t cached_bytes_ = 0;
  std::shared_ptr<Arena> self_;  ///< while memory is taken
};

}  // namespace joinsum
