#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <type_traits>

#include <sys/mman.h>

#include "base/check.h"
#include "sparse/tensor/tensor.h"

namespace joinsum::sparse::kernels::nest {

using tensor::Array;
using tensor::Values;

/// A growing array of numbers, which are not written before they are known. Raises PlanError beyond a tebibyte, and
/// where there is no memory.
template <class T>
class Buffer {
  static_assert(std::is_trivially_copyable_v<T>);

 public:
  Buffer() = default;
  explicit Buffer(int64_t size) { extend(size); }
  Buffer(int64_t size, T fill) { resize(size, fill); }

  int64_t size() const { return size_; }
  T* data() { return data_.get(); }
  const T* data() const { return data_.get(); }
  T& operator[](int64_t i) { return data_.get()[i]; }
  const T& operator[](int64_t i) const { return data_.get()[i]; }

  void clear() { size_ = 0; }
  void push_back(T value) {
    if (size_ == capacity_) reserve(size_ + 1);
    data_.get()[size_++] = value;
  }
  void copy_to(T* place) const {
    if (size_ > 0) std::memcpy(place, data(), static_cast<size_t>(size_) * sizeof(T));
  }
  /// Grows to `size` elements, the new ones being `fill`; does nothing where it holds as many.
  void resize(int64_t size, T fill) {
    if (size <= size_) return;
    const int64_t before = size_;
    extend(size);
    std::fill(data_.get() + before, data_.get() + size, fill);
  }
  /// Grows to `size` elements without a value.
  void extend(int64_t size) {
    if (size > capacity_) reserve(size);
    size_ = size;
  }

  /// The elements as an immutable array; the buffer is empty then.
  Array<T> take() {
    const int64_t size = std::exchange(size_, 0);
    capacity_ = 0;
    std::shared_ptr<T> owner(data_.release(), Free{});
    const T* data = owner.get();
    return Array<T>(std::move(owner), data, size);
  }
  Values take_values(DType dtype) {
    const int64_t bytes = size_ * static_cast<int64_t>(sizeof(T));
    const Array<T> all = take();
    auto owner = std::make_shared<Array<T>>(all);
    return {dtype, Array<std::byte>(owner, reinterpret_cast<const std::byte*>(all.data()), bytes)};
  }

 private:
  struct Free {
    void operator()(T* data) const { std::free(data); }
  };

  void reserve(int64_t wanted) {
    constexpr int64_t kLargest = (int64_t{1} << 40) / static_cast<int64_t>(sizeof(T));
    JOINSUM_USER_CHECK(wanted <= kLargest, "kernel: the result does not fit: elements=", wanted, ", largest=", kLargest,
                       "; use sorted_list or hash levels");
    const int64_t capacity = std::max({wanted, 2 * capacity_, int64_t{8}});
    void* grown = std::realloc(data_.get(), static_cast<size_t>(capacity) * sizeof(T));
    JOINSUM_USER_CHECK(grown != nullptr, "kernel: no memory for the result: elements of one of its arrays=", wanted,
                       "; aggregate over an index, or give operands with fewer entries");
    static_cast<void>(data_.release());
    data_.reset(static_cast<T*>(grown));
    capacity_ = capacity;
    prefer_huge_pages(grown, static_cast<size_t>(capacity) * sizeof(T));
  }

  /// Fewer page faults where large arrays are written first; numpy does the same from 4 MiB.
  static void prefer_huge_pages(void* data, size_t bytes) {
#ifdef MADV_HUGEPAGE
    constexpr uintptr_t kPage = 4096, kLarge = uintptr_t{1} << 22;
    if (bytes < kLarge) return;
    const uintptr_t begin = (reinterpret_cast<uintptr_t>(data) + kPage - 1) / kPage * kPage;
    const uintptr_t end = (reinterpret_cast<uintptr_t>(data) + bytes) / kPage * kPage;
    static_cast<void>(madvise(reinterpret_cast<void*>(begin), end - begin, MADV_HUGEPAGE));
#endif
  }

  std::unique_ptr<T, Free> data_;
  int64_t size_ = 0;
  int64_t capacity_ = 0;
};

}  // namespace joinsum::sparse::kernels::nest
