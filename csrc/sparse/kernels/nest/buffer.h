#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <type_traits>

#include "base/check.h"
#include "base/reused_memory.h"
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
    if (size_ == capacity_) grow(size_ + 1);
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
    if (size > capacity_) grow(size);
    size_ = size;
  }

  /// Room for so many elements, if there is memory.
  void reserve(int64_t capacity) {
    if (capacity > capacity_) static_cast<void>(moved_to(capacity));
  }

  /// The elements as an immutable array; the buffer is empty then.
  Array<T> take() {
    if (is_large(capacity_) && size_ < capacity_ / 2) static_cast<void>(moved_to(std::max<int64_t>(size_, 1)));
    const int64_t size = std::exchange(size_, 0);
    capacity_ = 0;
    std::shared_ptr<T> owner(std::move(data_));
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
    bool reused = false;
    void operator()(T* data) const { reused ? free_reused(data) : std::free(data); }
  };

  /// Of which the system's allocator takes the pages from the system each time.
  static bool is_large(int64_t capacity) {
    constexpr int64_t kLarge = int64_t{1} << 16;
    return capacity * static_cast<int64_t>(sizeof(T)) >= kLarge;
  }

  void grow(int64_t wanted) {
    constexpr int64_t kLargest = (int64_t{1} << 40) / static_cast<int64_t>(sizeof(T));
    JOINSUM_USER_CHECK(wanted <= kLargest, "kernel: the result does not fit: elements=", wanted, ", largest=", kLargest,
                       "; use sorted_list or hash levels");
    const bool grown = moved_to(std::max({wanted, 2 * capacity_, int64_t{8}}));
    JOINSUM_USER_CHECK(grown, "kernel: no memory for the result: elements of one of its arrays=", wanted,
                       "; aggregate over an index, or give operands with fewer entries");
  }

  /// Whether there is memory of this size, which has the elements then.
  bool moved_to(int64_t capacity) {
    const size_t bytes = static_cast<size_t>(capacity) * sizeof(T);
    void* memory = is_large(capacity) ? allocate_reused(bytes) : nullptr;
    const bool reused = memory != nullptr;
    if (!reused) memory = std::malloc(bytes);
    if (memory == nullptr) return false;
    if (size_ > 0) std::memcpy(memory, data_.get(), static_cast<size_t>(size_) * sizeof(T));
    data_ = std::unique_ptr<T, Free>(static_cast<T*>(memory), Free{reused});
    capacity_ = capacity;
    return true;
  }

  std::unique_ptr<T, Free> data_;
  int64_t size_ = 0;
  int64_t capacity_ = 0;
};

}  // namespace joinsum::sparse::kernels::nest
