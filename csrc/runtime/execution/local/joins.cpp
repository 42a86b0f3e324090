#include "runtime/execution/local/joins.h"

#include <algorithm>

#include <ATen/MemoryOverlap.h>

#include "kernels/table/rows.h"
#include "relation/typing.h"
#include "runtime/execution/local/kernel_calls.h"

namespace joinsum::runtime::execution::local {

JoinOperands::JoinOperands(const ia::LocalJoin& op, const relation::RelationType& l, const relation::RelationType& r,
                           const relation::RelationType& joined, const Dims& summed)
    : keys{op.left_keys, op.right_keys},
      left{l, all_dims(l.arity())},
      right{r, keys.right_position(l.arity(), r.arity())},
      left_layout(l),
      right_layout(r),
      modes(dim_modes(op.kernel, {left, right}, joined, summed)),
      batch(dims_in(modes, DimMode::kBatch)) {}

JoinOperands::JoinOperands(const ia::LocalJoin& op, const relation::RelationType& l, const relation::RelationType& r,
                           const relation::RelationType& joined, const Dims& group_by,
                           const relation::RelationType& result)
    : JoinOperands(op, l, r, joined, complement(group_by, joined.arity())) {
  split_relinked(joined, group_by, result, modes);
  batch = dims_in(modes, DimMode::kBatch);
}

void JoinOperands::for_each(const PinnedOperand& l, const PinnedOperand& r, const Visit& visit) const {
  for (const PinnedPiece& a : l.pieces) {
    for (const PinnedPiece& b : r.pieces) {
      const Box box = keys.joined(a.box, b.box);
      if (box.empty()) continue;
      for_each_single(box, modes, [&](const Box& part) {
        visit(part, left_layout.slice(a.array, a.box, projected(part, left.position)),
              right_layout.slice(b.array, b.box, projected(part, right.position)));
      });
    }
  }
}

std::optional<Box> JoinOperands::only_part(const std::vector<Box>& operands) const {
  const Box box = keys.joined(operands[0], operands[1]);
  const bool all = is_one_part(box, modes) && projected(box, left.position) == operands[0] &&
                   projected(box, right.position) == operands[1];
  return all ? std::optional(box) : std::nullopt;
}

void split_relinked(const relation::RelationType& input, const Dims& group_by, const relation::RelationType& result,
                    std::vector<DimMode>& modes) {
  for (size_t i = 0; i < group_by.size(); ++i) {
    if (input.axes_of(group_by[i]) != result.axes_of(static_cast<int64_t>(i))) modes[group_by[i]] = DimMode::kSingle;
  }
}

namespace {

/// Gives elementwise operands equal rank behind their batch axes, for broadcasting.
at::Tensor pad_rank(at::Tensor array, int64_t batch, int64_t rank) {
  while (array.dim() < batch + rank) array = array.unsqueeze(batch);
  return array;
}

/// Whether writing over one of two arrays might change elements of the other that are read later: both are views of one
/// block, in different orders.
bool shares_some_elements(const at::Tensor& a, const at::Tensor& b) {
  const at::MemOverlapStatus overlap = at::get_overlap_status(a, b);
  return overlap == at::MemOverlapStatus::Partial || overlap == at::MemOverlapStatus::TooHard;
}

class PreparedJoin final : public LocalOperator {
 public:
  PreparedJoin(const ia::LocalJoin& op, const relation::RelationType& left, const relation::RelationType& right)
      : op_{op.left_keys, op.right_keys, op.kernel.first()},
        type_(relation::join_type("local_join", left, right, {op.left_keys, op.right_keys}, op_.kernel)),
        operands_(op_, left, right, type_, {}),
        left_axes_(operands_.left_layout, operands_.left.position, operands_.modes, operands_.batch),
        right_axes_(operands_.right_layout, operands_.right.position, operands_.modes, operands_.batch),
        missing_(missing_axes(operands_.batch, storage::Layout(type_))),
        batch_(static_cast<int64_t>(operands_.batch.size())),
        call_(op_.kernel, batch_),
        single_(!dims_in(operands_.modes, DimMode::kSingle).empty()),
        epilogue_(op.kernel, type_) {}

  std::vector<PinnedPiece> run(const std::vector<PinnedOperand>& operands, const std::vector<Box>& /*boxes*/,
                               const RunContext& context) const override {
    const PinnedOperand& left = operands[0];
    const PinnedOperand& right = operands[1];
    // A part that one operand contributes to several pairs must not be overwritten by the first of them.
    const bool one_pair = left.pieces.size() == 1 && right.pieces.size() == 1 && !single_;
    std::vector<PinnedPiece> out;
    operands_.for_each(left, right, [&](const Box& part, const at::Tensor& a, const at::Tensor& b) {
      out.push_back({part, joined({a, one_pair && left.overwritable}, {b, one_pair && right.overwritable}, context)});
    });
    return epilogue_.run(std::move(out), context);
  }

  OnePart on(const std::vector<Box>& operands, const Box& result) const override {
    if (operands_.only_part(operands) != result) return {};
    return epilogue_.after([this](c10::ArrayRef<PartOperand> given,
                                  const RunContext& context) { return joined(given[0], given[1], context); },
                           result);
  }

  std::string text() const override { return "modes=" + modes_text(operands_.modes); }

 private:
  at::Tensor joined(const PartOperand& left, const PartOperand& right, const RunContext& context) const {
    at::Tensor l = left_axes_.apply(left.array);
    at::Tensor r = right_axes_.apply(right.array);
    if (call_.elementwise()) {
      l = pad_rank(l, batch_, type_.rank());
      r = pad_rank(r, batch_, type_.rank());
    }
    const auto may_hold = [&](const PartOperand& operand, const at::Tensor& array) {
      return operand.overwritable && call_.fits_result(array, {l, r}) && !shares_some_elements(l, r);
    };
    const at::Tensor into = may_hold(left, l) ? l : may_hold(right, r) ? r : at::Tensor();
    return with_axes(call_.run({l, r}, context, 0, into), missing_);
  }

  ia::LocalJoin op_;
  relation::RelationType type_;  ///< of what the first kernel computes
  JoinOperands operands_;
  BatchAxes left_axes_;
  BatchAxes right_axes_;
  Dims missing_;
  int64_t batch_;
  KernelCall call_;
  bool single_;
  Epilogue epilogue_;
};

}  // namespace

LocalOperatorPtr prepare_join(const ia::LocalJoin& op, const relation::RelationType& left,
                              const relation::RelationType& right) {
  return std::make_unique<PreparedJoin>(op, left, right);
}

}  // namespace joinsum::runtime::execution::local
