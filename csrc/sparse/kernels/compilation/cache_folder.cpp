#include "sparse/kernels/compilation/cache_folder.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <unistd.h>
#include <vector>

#include <sys/file.h>
#include <sys/stat.h>

#include "base/check.h"

namespace joinsum::sparse::kernels::compilation {
namespace {

namespace fs = std::filesystem;

constexpr const char* kRemedy = "; set JOINSUM_KERNEL_CACHE to a folder of your own, or JOINSUM_JIT=0";
constexpr mode_t kOthersWrite = S_IWGRP | S_IWOTH;

void make_folders(const std::string& folder) {
  for (size_t slash = folder.find('/', 1);; slash = folder.find('/', slash + 1)) {
    const std::string part = folder.substr(0, slash);
    JOINSUM_USER_CHECK(mkdir(part.c_str(), S_IRWXU) == 0 || errno == EEXIST || fs::is_directory(part),
                       "kernel cache: the folder cannot be made: folder=", part, ", error=", std::strerror(errno),
                       kRemedy);
    if (slash == std::string::npos) return;
  }
}

struct CachedFile {
  fs::path path;
  fs::file_time_type used;
  int64_t bytes = 0;
};

std::vector<CachedFile> files_in(const std::string& folder) {
  std::vector<CachedFile> out;
  std::error_code failed;
  for (const fs::directory_entry& each : fs::directory_iterator(folder, failed)) {
    std::error_code gone;
    if (!each.is_regular_file(gone)) continue;
    out.push_back({each.path(), each.last_write_time(gone), static_cast<int64_t>(each.file_size(gone))});
    if (gone) out.pop_back();
  }
  return out;
}

}  // namespace

std::string default_cache_folder() {
  for (const auto& [variable, below] :
       {std::pair{"JOINSUM_KERNEL_CACHE", ""}, std::pair{"XDG_CACHE_HOME", "/joinsum/kernels"},
        std::pair{"HOME", "/.cache/joinsum/kernels"}}) {
    const char* value = std::getenv(variable);
    if (value != nullptr && value[0] == '/') return std::string(value) + below;
  }
  return concatenate("/tmp/joinsum-", geteuid(), "/kernels");
}

void prepare_cache_folder(const std::string& folder) {
  struct stat facts{};
  if (lstat(folder.c_str(), &facts) != 0) {
    make_folders(folder);
    JOINSUM_USER_CHECK(lstat(folder.c_str(), &facts) == 0, "kernel cache: the folder cannot be read: folder=", folder,
                       ", error=", std::strerror(errno), kRemedy);
  }
  JOINSUM_USER_CHECK(S_ISDIR(facts.st_mode), "kernel cache: it is not a folder: path=", folder, kRemedy);
  JOINSUM_USER_CHECK(facts.st_uid == geteuid(), "kernel cache: the folder belongs to another user: folder=", folder,
                     ", owner=", facts.st_uid, ", user=", geteuid(), kRemedy);
  JOINSUM_USER_CHECK((facts.st_mode & kOthersWrite) == 0, "kernel cache: others may write the folder: folder=", folder,
                     ", mode=0", (facts.st_mode >> 6) & 7, (facts.st_mode >> 3) & 7, facts.st_mode & 7,
                     "; run chmod go-w on it", kRemedy);
}

KeyLock::KeyLock(const std::string& folder, const std::string& key) {
  const std::string path = folder + "/" + key + ".lock";
  file_ = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, S_IRUSR | S_IWUSR);
  JOINSUM_USER_CHECK(file_ >= 0, "kernel cache: the folder cannot be written: path=", path,
                     ", error=", std::strerror(errno), kRemedy);
  // A file system without locks compiles twice, and renames atomically all the same.
  while (flock(file_, LOCK_EX) != 0 && errno == EINTR) {
  }
}

KeyLock::~KeyLock() { close(file_); }

bool is_own_file(const std::string& path) {
  struct stat facts{};
  if (lstat(path.c_str(), &facts) != 0 || !S_ISREG(facts.st_mode)) return false;
  return facts.st_uid == geteuid() && (facts.st_mode & kOthersWrite) == 0;
}

void touch_file(const std::string& path) { utimensat(AT_FDCWD, path.c_str(), nullptr, 0); }

void trim_cache_folder(const std::string& folder, int64_t largest) {
  std::vector<CachedFile> files = files_in(folder);
  std::ranges::sort(files, [](const CachedFile& a, const CachedFile& b) { return a.used > b.used; });
  const auto an_hour_ago = fs::file_time_type::clock::now() - std::chrono::hours(1);
  int64_t total = 0;
  for (const CachedFile& file : files) {
    const bool left_behind = file.path.filename().string().find(".tmp.") != std::string::npos;
    total += file.bytes;
    // A lock holds no bytes; it goes with the time.
    const bool removes = total > largest || ((left_behind || file.bytes == 0) && file.used < an_hour_ago);
    std::error_code ignored;
    if (removes) fs::remove(file.path, ignored);
    if (removes) total -= file.bytes;
  }
}

}  // namespace joinsum::sparse::kernels::compilation
