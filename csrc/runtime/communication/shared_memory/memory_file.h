#pragma once

#include <cstdint>
#include <utility>

namespace joinsum::runtime::communication::shared_memory {

/// A file in memory that has no name in any file system: its pages are freed when no process has it open or mapped, so
/// nothing of it remains of processes that are killed.
class MemoryFile {
 public:
  MemoryFile() = default;
  /// Invalid where the system does not permit it, as all of these.
  static MemoryFile create(int64_t bytes);
  /// The file that process `process` has open under `number`.
  static MemoryFile open(int64_t process, int64_t number);
  ~MemoryFile();
  MemoryFile(MemoryFile&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
  MemoryFile& operator=(MemoryFile&& other) noexcept {
    std::swap(number_, other.number_);
    return *this;
  }

  bool valid() const { return number_ >= 0; }
  int64_t number() const { return number_; }
  bool resize(int64_t bytes);
  /// Reads its first bytes; false where it has fewer.
  bool read_start(void* to, int64_t bytes) const;

 private:
  explicit MemoryFile(int number) : number_(number) {}
  int number_ = -1;
};

/// Bytes of a file in this process's memory. A forked child does not have them.
class Mapping {
 public:
  Mapping() = default;
  /// Invalid where the system does not permit it; `offset` and `bytes` are multiples of kMappingStep.
  Mapping(const MemoryFile& file, int64_t offset, int64_t bytes);
  ~Mapping();
  Mapping(Mapping&& other) noexcept { *this = std::move(other); }
  Mapping& operator=(Mapping&& other) noexcept;

  bool valid() const { return start_ != nullptr; }
  char* start() const { return start_; }

 private:
  char* start_ = nullptr;
  int64_t bytes_ = 0;
  int64_t process_ = 0;
};

/// A multiple of every system's page size.
constexpr int64_t kMappingStep = int64_t{64} << 10;

}  // namespace joinsum::runtime::communication::shared_memory
