#include "runtime/execution/key_modes.h"

namespace joinsum::runtime::execution {

void for_each_single(const Box& box, const std::vector<DimMode>& modes, const std::function<void(const Box&)>& visit) {
  if (box.empty()) return;
  Box singles = box;
  bool any = false;
  for (size_t d = 0; d < modes.size(); ++d) {
    if (modes[d] == DimMode::kSingle) {
      any = true;
      continue;
    }
    singles.lower[d] = 0;
    singles.upper[d] = 1;
  }
  if (!any) return visit(box);
  for_each_key(singles, [&](const Key& key) {
    Box part = box;
    for (size_t d = 0; d < modes.size(); ++d) {
      if (modes[d] != DimMode::kSingle) continue;
      part.lower[d] = key[d];
      part.upper[d] = key[d] + 1;
    }
    visit(part);
  });
}

Dims dims_in(const std::vector<DimMode>& modes, DimMode mode) {
  Dims out;
  for (size_t d = 0; d < modes.size(); ++d) {
    if (modes[d] == mode) out.push_back(static_cast<int64_t>(d));
  }
  return out;
}

std::string modes_text(const std::vector<DimMode>& modes) {
  std::string text;
  for (const DimMode mode : modes) {
    const char* const name = mode == DimMode::kBatch ? "batch" : mode == DimMode::kWhole ? "whole" : "single";
    text += (text.empty() ? "" : ", ") + std::string(name);
  }
  return "[" + text + "]";
}

Box projected(const Box& box, const Dims& position) {
  return {project(box.lower, position), project(box.upper, position)};
}

BatchAxes::BatchAxes(const storage::Layout& layout, const Dims& position, const std::vector<DimMode>& modes,
                     const Dims& batch) {
  Dims present;
  for (int64_t i = static_cast<int64_t>(layout.batch_dims().size()) - 1; i >= 0; --i) {
    const int64_t dim = position[layout.batch_dims()[i]];
    if (modes[dim] == DimMode::kSingle) {
      dropped_.push_back(i);
    } else {
      present.insert(present.begin(), dim);
    }
  }
  for (size_t i = 0; i < batch.size(); ++i) {
    if (const auto at = position_of(present, batch[i])) {
      in_order_ = in_order_ && *at == static_cast<int64_t>(order_.size());
      order_.push_back(*at);
    } else {
      inserted_.push_back(static_cast<int64_t>(i));
    }
  }
}

at::Tensor BatchAxes::without_singles(at::Tensor array) const {
  for (const int64_t axis : dropped_) array = array.squeeze(axis);
  return array;
}

at::Tensor BatchAxes::apply(at::Tensor array) const {
  array = without_singles(std::move(array));
  if (!in_order_) {
    Dims order = order_;
    for (auto axis = static_cast<int64_t>(order_.size()); axis < array.dim(); ++axis) order.push_back(axis);
    array = array.permute(order);
  }
  return with_axes(std::move(array), inserted_);
}

Dims missing_axes(const Dims& batch, const storage::Layout& layout) {
  Dims missing;
  for (size_t i = 0; i < layout.batch_dims().size(); ++i) {
    if (!position_of(batch, layout.batch_dims()[i])) missing.push_back(static_cast<int64_t>(i));
  }
  return missing;
}

at::Tensor with_axes(at::Tensor array, const Dims& missing) {
  for (const int64_t axis : missing) array = array.unsqueeze(axis);
  return array;
}

}  // namespace joinsum::runtime::execution
