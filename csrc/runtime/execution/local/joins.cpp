#include "runtime/execution/local/joins.h"

#include <algorithm>

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

class Join final : public LocalOperator {
 public:
  Join(const ia::LocalJoin& op, const relation::RelationType& left, const relation::RelationType& right)
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
      at::Tensor l = left_axes_.apply(a);
      at::Tensor r = right_axes_.apply(b);
      if (call_.elementwise()) {
        l = pad_rank(l, batch_, type_.rank());
        r = pad_rank(r, batch_, type_.rank());
      }
      at::Tensor into;
      if (one_pair && left.overwritable && call_.fits_result(l, {l, r})) {
        into = l;
      } else if (one_pair && right.overwritable && call_.fits_result(r, {l, r})) {
        into = r;
      }
      out.push_back({part, with_axes(call_.run({l, r}, context, 0, into), missing_)});
    });
    return epilogue_.run(std::move(out), context);
  }

  std::string text() const override { return "modes=" + modes_text(operands_.modes); }

 private:
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
  return std::make_unique<Join>(op, left, right);
}

}  // namespace joinsum::runtime::execution::local
