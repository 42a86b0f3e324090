#pragma once

#include <memory>
#include <mutex>
#include <unordered_map>

#include "sparse/tensor/tensor.h"

namespace joinsum::sparse::tensor {

/// What was found of tensors that are alive, each looked at once. Thread-safe.
template <class Value>
class ByTensor {
 public:
  /// What `find(*tensor)` gave when it was first asked for.
  template <class Find>
  Value of(const std::shared_ptr<const Tensor>& tensor, const Find& find) {
    {
      const std::scoped_lock lock(mutex_);
      const auto found = known_.find(tensor.get());
      if (found != known_.end() && found->second.tensor.lock() == tensor) return found->second.value;
    }
    Value value = find(*tensor);
    const std::scoped_lock lock(mutex_);
    if (known_.size() >= kMost) std::erase_if(known_, [](const auto& each) { return each.second.tensor.expired(); });
    known_[tensor.get()] = {tensor, value};
    return value;
  }

 private:
  struct Known {
    std::weak_ptr<const Tensor> tensor;
    Value value;
  };
  static constexpr size_t kMost = 1024;
  std::mutex mutex_;
  std::unordered_map<const Tensor*, Known> known_;
};

}  // namespace joinsum::sparse::tensor
