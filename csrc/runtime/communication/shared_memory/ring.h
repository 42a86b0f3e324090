#pragma once

#include <atomic>
#include <cstdint>

namespace joinsum::runtime::communication::shared_memory {

/// What is written and read begins on cache lines.
constexpr int64_t kLine = 64;

constexpr int64_t round_up_to_line(int64_t bytes) { return (bytes + kLine - 1) / kLine * kLine; }

/// Bytes ever written and ever read, lines that are used in part counted in full; zeros are an empty ring. Lies in
/// shared memory before the ring's bytes.
struct RingCounts {
  alignas(kLine) std::atomic<int64_t> written = 0;
  alignas(kLine) std::atomic<int64_t> read = 0;
};

static_assert(std::atomic<int64_t>::is_always_lock_free, "atomics between processes must not use locks");

/// The end of a ring at which one process writes. `capacity` is a multiple of kLine.
class RingWriter {
 public:
  RingWriter(RingCounts& counts, char* bytes, int64_t capacity)
      : counts_(&counts), bytes_(bytes), capacity_(capacity) {}
  /// A multiple of kLine; up to date where it is less than `wanted`.
  int64_t room(int64_t wanted);
  /// Copies as many of `bytes` bytes as there is room for, and returns how many. Reader and writer cut a message at
  /// multiples of kLine.
  int64_t write(const char* from, int64_t bytes);
  /// Shows the reader what has been written; false where that is nothing new.
  bool publish();

 private:
  RingCounts* counts_;
  char* bytes_;
  int64_t capacity_;
  int64_t written_ = 0;
  int64_t published_ = 0;
  int64_t read_ = 0;  ///< as last seen
};

/// The end at which one process reads.
class RingReader {
 public:
  RingReader(RingCounts& counts, const char* bytes, int64_t capacity)
      : counts_(&counts), bytes_(bytes), capacity_(capacity) {}
  /// A multiple of kLine; up to date where it is less than `wanted`.
  int64_t available(int64_t wanted);
  /// Copies as many of `bytes` bytes as there are, and returns how many.
  int64_t read(char* to, int64_t bytes);
  /// Gives the writer the room of what has been read; false where that is nothing new.
  bool publish();

 private:
  RingCounts* counts_;
  const char* bytes_;
  int64_t capacity_;
  int64_t read_ = 0;
  int64_t published_ = 0;
  int64_t written_ = 0;  ///< as last seen
};

}  // namespace joinsum::runtime::communication::shared_memory
