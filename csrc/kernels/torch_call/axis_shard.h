#pragma once

#include <vector>

#include <ATen/ATen.h>

namespace joinsum::kernels::torch_call {

/// A shard of an axis, which may be the product of several factors, row-major: offset, local and global extent of each.
class AxisShard {
 public:
  struct Factor {
    int64_t offset;
    int64_t local;
    int64_t extent;
  };

  AxisShard(at::IntArrayRef offsets, at::IntArrayRef local, at::IntArrayRef extents) {
    for (size_t i = 0; i < extents.size(); ++i) {
      factors_.push_back({offsets[i], local[i], extents[i]});
      extent_ *= extents[i];
    }
  }

  /// All of an axis.
  explicit AxisShard(int64_t extent) : factors_{{0, extent, extent}}, extent_(extent) {}

  const std::vector<Factor>& factors() const { return factors_; }

  /// Whether the shard is all of the axis.
  bool is_whole() const {
    for (const Factor& factor : factors_) {
      if (factor.local != factor.extent) return false;
    }
    return true;
  }

  /// The place in the shard of an element of the axis, by its global index; -1 where another shard has it. Raises
  /// IndexError for an index out of range.
  int64_t find(int64_t index) const {
    TORCH_CHECK_INDEX(index >= 0 && index < extent_, "capture: an index is out of range: index=", index,
                      ", extent=", extent_);
    int64_t found = 0;
    int64_t step = 1;
    for (size_t i = factors_.size(); i-- > 0;) {
      const auto& [offset, local, extent] = factors_[i];
      const int64_t coordinate = index % extent - offset;
      if (coordinate < 0 || coordinate >= local) return -1;
      index /= extent;
      found += coordinate * step;
      step *= local;
    }
    return found;
  }

 private:
  std::vector<Factor> factors_;
  int64_t extent_ = 1;
};

}  // namespace joinsum::kernels::torch_call
