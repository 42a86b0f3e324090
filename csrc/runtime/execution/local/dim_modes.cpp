#include "runtime/execution/local/dim_modes.h"

#include <algorithm>

namespace joinsum::runtime::execution::local {
namespace {

bool always_one(const relation::Axis& axis) {
  if (!axis.linked()) return axis.extent == 1;
  for (size_t i = 1; i < axis.cuts.size(); ++i) {
    if (axis.cuts[i] - axis.cuts[i - 1] != 1) return false;
  }
  return true;
}

/// Whether all parts of result dimension `dim` can go through the kernel at once.
bool whole(int64_t dim, const kernels::table::Subscripts& letters, const std::vector<ModeOperand>& operands,
           const relation::RelationType& joined, bool summed, bool broadcasts) {
  char letter = 0;
  std::vector<bool> owns(operands.size(), false);
  for (size_t i = 0; i < operands.size(); ++i) {
    const auto own = position_of(operands[i].position, dim);
    if (!own) continue;
    owns[i] = true;
    const Dims linked = operands[i].type.axes_of(*own);
    if (linked.size() != 1) return false;
    const char here = letters.operands[i][linked[0]];
    if (letter != 0 && letter != here) return false;
    letter = here;
  }
  for (size_t i = 0; i < operands.size(); ++i) {
    const std::string& own = letters.operands[i];
    if (std::count(own.begin(), own.end(), letter) > 1) return false;
    const size_t at = own.find(letter);
    if (at == std::string::npos || owns[i]) continue;
    if (!broadcasts || !always_one(operands[i].type.axes[at])) return false;
  }
  const size_t at = letters.result.find(letter);
  if (at == std::string::npos) return summed;
  return !summed && joined.axes[at].key_dim == dim;
}

}  // namespace

std::optional<kernels::table::Subscripts> letters_of(const kernels::table::Kernel& kernel,
                                                     const std::vector<ModeOperand>& operands) {
  const kernels::table::Row& row = kernels::table::row_of(kernel);
  // A user's labels say what shapes result, not that parts of an axis are treated alike.
  if (row.user) return std::nullopt;
  if (row.form == kernels::table::Form::kLabelled) return row.labels(kernel);
  const bool same_axes = row.form == kernels::table::Form::kElementwise || row.form == kernels::table::Form::kDuplicate;
  const bool inserts = row.form == kernels::table::Form::kInsertAxis;
  const bool embeds = row.form == kernels::table::Form::kEmbed &&
                      !operands[0].type.axes[static_cast<size_t>(kernel.integer(1))].linked();
  if (!same_axes && !inserts && !embeds) return std::nullopt;
  kernels::table::Subscripts letters;
  size_t rank = 0;
  for (const ModeOperand& operand : operands) rank = std::max(rank, operand.type.axes.size());
  for (size_t a = 0; a < rank; ++a) letters.result += static_cast<char>('a' + a);
  for (const ModeOperand& operand : operands)
    letters.operands.push_back(letters.result.substr(rank - operand.type.axes.size()));
  if (inserts || embeds) letters.result.insert(letters.result.begin() + kernel.integer(0), 'Z');
  return letters;
}

std::vector<DimMode> dim_modes(const kernels::table::Kernel& kernel, const std::vector<ModeOperand>& operands,
                               const relation::RelationType& joined, const Dims& summed) {
  const auto letters = letters_of(kernel, operands);
  const bool broadcasts = kernels::table::row_of(kernel).form == kernels::table::Form::kElementwise;
  std::vector<DimMode> modes;
  for (int64_t dim = 0; dim < joined.arity(); ++dim) {
    bool linked = false;
    for (const ModeOperand& operand : operands) {
      const auto own = position_of(operand.position, dim);
      linked = linked || (own && !operand.type.axes_of(*own).empty());
    }
    if (!letters) {
      modes.push_back(DimMode::kSingle);
    } else if (!linked) {
      modes.push_back(DimMode::kBatch);
    } else {
      const bool all = whole(dim, *letters, operands, joined, position_of(summed, dim).has_value(), broadcasts);
      modes.push_back(all ? DimMode::kWhole : DimMode::kSingle);
    }
  }
  return modes;
}

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

bool is_one_part(const Box& box, const std::vector<DimMode>& modes) {
  for (size_t d = 0; d < modes.size(); ++d) {
    if (modes[d] == DimMode::kSingle && box.extent(static_cast<int64_t>(d)) != 1) return false;
  }
  return !box.empty();
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

Dims BatchAxes::without_singles(Dims shape) const {
  for (const int64_t axis : dropped_) shape.erase(shape.begin() + axis);
  return shape;
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

}  // namespace joinsum::runtime::execution::local
