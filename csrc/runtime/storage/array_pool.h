#pragma once

#include <list>
#include <unordered_map>
#include <vector>

#include <ATen/ATen.h>

namespace joinsum::runtime::storage {

/// Freed arrays by size and dtype. Not locked.
class ArrayPool {
 public:
  /// A contiguous array of these bytes and dtype; undefined where there is none.
  at::Tensor take(int64_t bytes, at::ScalarType type);
  void add(at::Tensor array);
  int64_t bytes() const { return bytes_; }
  /// Removes arrays of the sizes that were taken or added least recently until at most `bytes` are left. The caller
  /// frees them.
  std::vector<at::Tensor> shrink_to(int64_t bytes);

 private:
  using Size = std::pair<int64_t, at::ScalarType>;
  struct Hash {
    size_t operator()(const Size& size) const;
  };
  struct Arrays {
    std::vector<at::Tensor> arrays;
    std::list<Size>::iterator place;
  };
  Arrays& used(const Size& size);

  std::unordered_map<Size, Arrays, Hash> sizes_;
  std::list<Size> recent_;  ///< the most recently used size first
  int64_t bytes_ = 0;
};

}  // namespace joinsum::runtime::storage
