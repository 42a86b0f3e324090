#include "runtime/communication/shared_memory/ring.h"

#include <algorithm>

namespace joinsum::runtime::communication::shared_memory {

int64_t RingWriter::room(int64_t wanted) {
  if (read_ + capacity_ - written_ < wanted) read_ = counts_->read.load(std::memory_order_acquire);
  return read_ + capacity_ - written_;
}

int64_t RingWriter::write(const char* from, int64_t bytes) {
  const int64_t copied = std::min(bytes, room(bytes));
  const int64_t start = written_ % capacity_;
  const int64_t before_end = std::min(copied, capacity_ - start);
  std::copy_n(from, before_end, bytes_ + start);
  std::copy_n(from + before_end, copied - before_end, bytes_);
  written_ += round_up_to_line(copied);
  return copied;
}

bool RingWriter::publish() {
  if (published_ == written_) return false;
  counts_->written.store(written_, std::memory_order_release);
  published_ = written_;
  return true;
}

int64_t RingReader::available(int64_t wanted) {
  if (written_ - read_ < wanted) written_ = counts_->written.load(std::memory_order_acquire);
  return written_ - read_;
}

int64_t RingReader::read(char* to, int64_t bytes) {
  const int64_t copied = std::min(bytes, available(bytes));
  const int64_t start = read_ % capacity_;
  const int64_t before_end = std::min(copied, capacity_ - start);
  std::copy_n(bytes_ + start, before_end, to);
  std::copy_n(bytes_, copied - before_end, to + before_end);
  read_ += round_up_to_line(copied);
  return copied;
}

bool RingReader::publish() {
  if (published_ == read_) return false;
  counts_->read.store(read_, std::memory_order_release);
  published_ = read_;
  return true;
}

}  // namespace joinsum::runtime::communication::shared_memory
