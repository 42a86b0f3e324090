#pragma once

#include <memory>
#include <string>

/// A folder of compiled kernels that only its user can write.
namespace joinsum::sparse::kernels::compilation {

/// $XDG_CACHE_HOME/joinsum/kernels, or ~/.cache/joinsum/kernels.
std::string default_cache_folder();

/// Makes the folder with mode 0700 where there is none. Raises PlanError, naming the remedy, where it cannot be made,
/// is not a folder, belongs to another user, or others may write it.
void prepare_cache_folder(const std::string& folder);

/// Excludes other processes from one key while it stands; raises PlanError where the folder cannot be written.
class KeyLock {
 public:
  KeyLock(const std::string& folder, const std::string& key);
  ~KeyLock();
  KeyLock(const KeyLock&) = delete;
  KeyLock& operator=(const KeyLock&) = delete;

 private:
  int file_ = -1;
};

/// Whether there is a file of this user that others may not write.
bool is_own_file(const std::string& path);
/// Marks a file as used now, so that it is among the last to be removed.
void touch_file(const std::string& path);
/// Removes the files used longest ago until those left are within `largest` bytes, and what killed compilers left
/// behind an hour ago. Failures are ignored.
void trim_cache_folder(const std::string& folder, int64_t largest);

}  // namespace joinsum::sparse::kernels::compilation
