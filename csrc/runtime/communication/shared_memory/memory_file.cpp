#include "runtime/communication/shared_memory/memory_file.h"

#include <fcntl.h>
#include <string>
#include <unistd.h>

#include <sys/mman.h>

namespace joinsum::runtime::communication::shared_memory {

MemoryFile MemoryFile::create(int64_t bytes) {
  MemoryFile file(memfd_create("joinsum", MFD_CLOEXEC));
  return file.valid() && file.resize(bytes) ? std::move(file) : MemoryFile();
}

MemoryFile MemoryFile::open(int64_t process, int64_t number) {
  const std::string path = "/proc/" + std::to_string(process) + "/fd/" + std::to_string(number);
  return MemoryFile(::open(path.c_str(), O_RDWR | O_CLOEXEC));
}

MemoryFile::~MemoryFile() {
  if (valid()) ::close(number_);
}

bool MemoryFile::resize(int64_t bytes) { return ftruncate(number_, bytes) == 0; }

bool MemoryFile::read_start(void* to, int64_t bytes) const { return pread(number_, to, bytes, 0) == bytes; }

Mapping::Mapping(const MemoryFile& file, int64_t offset, int64_t bytes) : bytes_(bytes), process_(getpid()) {
  void* const start = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, static_cast<int>(file.number()), offset);
  if (start == MAP_FAILED) return;
  start_ = static_cast<char*>(start);
  madvise(start, bytes, MADV_DONTFORK);
}

Mapping::~Mapping() {
  // In a forked child, something else may have been mapped there.
  if (valid() && getpid() == process_) munmap(start_, bytes_);
}

Mapping& Mapping::operator=(Mapping&& other) noexcept {
  std::swap(start_, other.start_);
  std::swap(bytes_, other.bytes_);
  std::swap(process_, other.process_);
  return *this;
}

}  // namespace joinsum::runtime::communication::shared_memory
