#pragma once

#include <functional>
#include <string>
#include <vector>

#include <ATen/ATen.h>

#include "kernels/table/table.h"
#include "relation/relation_type.h"
#include "runtime/storage/relation.h"

namespace joinsum::runtime::execution::local {

/// How an operator goes through one key dimension of a box.
enum class DimMode {
  kBatch,   ///< no axis is linked to it: a leading axis of the arrays
  kWhole,   ///< the kernel treats the parts of the linked axes alike: all parts at once
  kSingle,  ///< key by key
};

/// An operand of a kernel: its type and the result's key dimension that each of its own becomes.
struct ModeOperand {
  const relation::RelationType& type;
  Dims position;
};

/// Letters of each operand's axes and of the result's; elementwise axes are lettered from the right. Nothing for
/// kernels that only work array by array.
std::optional<kernels::table::Subscripts> letters_of(const kernels::table::Kernel& kernel,
                                                     const std::vector<ModeOperand>& operands);

/// A mode for each key dimension of `joined`, the type of kernel's result before any reduction. `summed` dimensions are
/// reduced by the caller in the same contraction, as the kernel reduces.
std::vector<DimMode> dim_modes(const kernels::table::Kernel& kernel, const std::vector<ModeOperand>& operands,
                               const relation::RelationType& joined, const Dims& summed);

/// Calls `visit` for the parts of `box` in which the dimensions of mode kSingle have one key each, in key order.
void for_each_single(const Box& box, const std::vector<DimMode>& modes, const std::function<void(const Box&)>& visit);

/// Whether all of `box` is the only part that `for_each_single` visits.
bool is_one_part(const Box& box, const std::vector<DimMode>& modes);

/// Dimensions of one mode, ascending.
Dims dims_in(const std::vector<DimMode>& modes, DimMode mode);
/// `[whole, batch, single]`
std::string modes_text(const std::vector<DimMode>& modes);

/// The box of an operand whose key dimensions are at these positions of the result's key.
Box projected(const Box& box, const Dims& position);

/// How the leading axes of an operand's blocks become the batch axes of a kernel: those of kSingle dimensions are
/// dropped, the others are ordered as `batch` lists them, with extent 1 where the operand has none.
class BatchAxes {
 public:
  BatchAxes(const storage::Layout& layout, const Dims& position, const std::vector<DimMode>& modes, const Dims& batch);
  at::Tensor apply(at::Tensor array) const;
  /// Drops the axes only.
  at::Tensor without_singles(at::Tensor array) const;
  Dims without_singles(Dims shape) const;

 private:
  Dims dropped_;  ///< axes, descending
  Dims order_;    ///< of the remaining leading axes
  bool in_order_ = true;
  Dims inserted_;  ///< ascending
};

/// The leading axes that a result with batch axes `batch` lacks in the layout of its type; they have one key.
Dims missing_axes(const Dims& batch, const storage::Layout& layout);
at::Tensor with_axes(at::Tensor array, const Dims& missing);

}  // namespace joinsum::runtime::execution::local
