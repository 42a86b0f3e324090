#include "kernels/dense/dense.h"
#include "relation/typing.h"
#include "runtime/execution/local/joins.h"
#include "runtime/execution/local/kernel_calls.h"

namespace joinsum::runtime::execution::local {
namespace {

/// Reduces axes, and the keys that they are linked to, as one.
class Reduction final : public LocalOperator {
 public:
  Reduction(const ia::LocalMap& map, const ia::LocalAggregate& aggregate, const relation::RelationType& input,
            const relation::RelationType& mapped)
      : op_(map),
        reduction_{aggregate.kernel.name, {}},
        group_by_(aggregate.group_by),
        type_(relation::aggregate_type("local_aggregate", mapped, group_by_, aggregate.kernel.first())),
        in_(input),
        modes_(modes_of(input, mapped)),
        batch_(dims_in(modes_, DimMode::kBatch)),
        axes_(in_, all_dims(input.arity()), modes_, batch_),
        missing_(missing_axes(positions_in(group_by_, batch_), storage::Layout(type_))),
        call_(op_.array_map, static_cast<int64_t>(batch_.size())),
        epilogue_(aggregate.kernel, type_) {}

  std::vector<PinnedPiece> run(const std::vector<PinnedOperand>& operands, const std::vector<Box>& /*boxes*/,
                               const RunContext& context) const override {
    std::map<Box, at::Tensor> reduced;
    for (const PinnedPiece& piece : operands[0].pieces) {
      for_each_single(piece.box, modes_, [&](const Box& part) {
        const at::Tensor array = reduced_part(in_.slice(piece.array, piece.box, part), keys_reduced(part), context);
        const auto [at, fresh] = reduced.try_emplace(projected(part, group_by_), array);
        if (!fresh) at->second = kernels::dense::run(reduction_, {at->second, array}, context.scalars);
      });
    }
    std::vector<PinnedPiece> pieces;
    for (const auto& [box, array] : reduced) pieces.push_back({box, with_axes(array, missing_)});
    return epilogue_.run(std::move(pieces), context);
  }

  OnePart on(const std::vector<Box>& operands, const Box& result) const override {
    if (!is_one_part(operands[0], modes_) || projected(operands[0], group_by_) != result) return {};
    return epilogue_.after(
        [this, keys = keys_reduced(operands[0])](c10::ArrayRef<PartOperand> given, const RunContext& context) {
          return with_axes(reduced_part(given[0].array, keys, context), missing_);
        },
        result);
  }

  std::string text() const override { return "reduction of axes and keys, modes=" + modes_text(modes_); }

 private:
  at::Tensor reduced_part(const at::Tensor& part, int64_t keys, const RunContext& context) const {
    at::Tensor array = call_.run({axes_.apply(part)}, context);
    context.flops += (keys - 1) * array.numel();
    return array;
  }

  std::vector<DimMode> modes_of(const relation::RelationType& input, const relation::RelationType& mapped) const {
    auto modes =
        dim_modes(op_.array_map, {{input, all_dims(input.arity())}}, mapped, complement(group_by_, mapped.arity()));
    split_relinked(mapped, group_by_, type_, modes);
    return modes;
  }

  static Dims positions_in(const Dims& dims, const Dims& chosen) {
    Dims positions;
    for (const int64_t dim : chosen) positions.push_back(*position_of(dims, dim));
    return positions;
  }

  int64_t keys_reduced(const Box& part) const {
    int64_t keys = 1;
    for (const int64_t dim : complement(group_by_, static_cast<int64_t>(modes_.size()))) keys *= part.extent(dim);
    return keys;
  }

  const ia::LocalMap& op_;
  kernels::table::Kernel reduction_;
  const Dims& group_by_;
  relation::RelationType type_;
  storage::Layout in_;
  std::vector<DimMode> modes_;
  Dims batch_;
  BatchAxes axes_;
  Dims missing_;
  KernelCall call_;
  Epilogue epilogue_;
};

}  // namespace

LocalOperatorPtr prepare_reduction(const ia::LocalMap& map, const ia::LocalAggregate& aggregate,
                                   const relation::RelationType& input, const relation::RelationType& mapped) {
  return std::make_unique<Reduction>(map, aggregate, input, mapped);
}

}  // namespace joinsum::runtime::execution::local
