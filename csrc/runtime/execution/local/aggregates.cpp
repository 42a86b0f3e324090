#include <map>

#include "kernels/dense/dense.h"
#include "kernels/sparse/arrays.h"
#include "kernels/table/rows.h"
#include "relation/typing.h"
#include "runtime/execution/local/joins.h"
#include "runtime/execution/local/kernel_calls.h"
#include "runtime/storage/sparse_array.h"

namespace joinsum::runtime::execution::local {
namespace {

using storage::Layout;

/// Reduces arrays into the piece of one box; the first array may belong to an operand and is not written.
class ReducedPieces {
 public:
  using Reduce = std::function<at::Tensor(const at::Tensor&, const at::Tensor&, const at::Tensor& out)>;
  explicit ReducedPieces(Reduce reduce) : reduce_(std::move(reduce)) {}

  void add(const Box& box, const at::Tensor& array) {
    const auto [at, fresh] = pieces_.try_emplace(box, Entry{array, false});
    if (fresh) return;
    Entry& entry = at->second;
    entry.array = reduce_(entry.array, array, entry.owned ? entry.array : at::Tensor());
    entry.owned = true;
  }
  std::vector<PinnedPiece> pieces() const {
    std::vector<PinnedPiece> out;
    for (const auto& [box, entry] : pieces_) out.push_back({box, entry.array});
    return out;
  }

 private:
  struct Entry {
    at::Tensor array;
    bool owned;
  };
  Reduce reduce_;
  std::map<Box, Entry> pieces_;
};

/// Type of what the first kernel of an aggregation computes.
relation::RelationType first_type(const ia::LocalAggregate& op, const relation::RelationType& input) {
  return relation::aggregate_type("local_aggregate", input, op.group_by, op.kernel.first());
}

class Aggregate final : public LocalOperator {
 public:
  Aggregate(const ia::LocalAggregate& op, const relation::RelationType& input)
      : group_by_(op.group_by),
        kernel_(op.kernel.first()),
        type_(first_type(op, input)),
        in_(input),
        modes_(modes_of(input)),
        call_(kernel_, static_cast<int64_t>(Layout(type_).batch_dims().size())),
        epilogue_(op.kernel, type_) {
    Dims batch;
    Dims grouped_batch;
    for (size_t i = 0; i < group_by_.size(); ++i) {
      if (modes_[group_by_[i]] != DimMode::kBatch) continue;
      batch.push_back(group_by_[i]);
      grouped_batch.push_back(static_cast<int64_t>(i));
    }
    const auto grouped = static_cast<int64_t>(batch.size());
    for (const int64_t d : complement(group_by_, input.arity())) {
      if (modes_[d] == DimMode::kBatch) batch.push_back(d);
    }
    for (auto axis = grouped; axis < static_cast<int64_t>(batch.size()); ++axis) reduced_axes_.push_back(axis);
    axes_.emplace(in_, all_dims(input.arity()), modes_, batch);
    missing_ = missing_axes(grouped_batch, Layout(type_));
  }

  std::vector<PinnedPiece> run(const std::vector<PinnedOperand>& operands, const std::vector<Box>& /*boxes*/,
                               const RunContext& context) const override {
    ReducedPieces reduced([&](const at::Tensor& a, const at::Tensor& b, const at::Tensor& out) {
      return call_.run({a, b}, context, 0, in_place_ ? out : at::Tensor());
    });
    for (const PinnedPiece& piece : operands[0].pieces) {
      for_each_single(piece.box, modes_, [&](const Box& part) {
        reduced.add(projected(part, group_by_), reduced_part(in_.slice(piece.array, piece.box, part), context));
      });
    }
    return epilogue_.run(reduced.pieces(), context);
  }

  OnePart on(const std::vector<Box>& operands, const Box& result) const override {
    if (!is_one_part(operands[0], modes_) || projected(operands[0], group_by_) != result) return {};
    return epilogue_.after([this](c10::ArrayRef<PartOperand> given,
                                  const RunContext& context) { return reduced_part(given[0].array, context); },
                           result);
  }

  std::string text() const override { return "modes=" + modes_text(modes_); }

 private:
  at::Tensor reduced_part(const at::Tensor& part, const RunContext& context) const {
    at::Tensor array = axes_->apply(part);
    context.flops += array.numel();
    if (!reduced_axes_.empty()) array = kernels::dense::reduce_axes(kernel_.name, array, reduced_axes_);
    return with_axes(array, missing_);
  }

  std::vector<DimMode> modes_of(const relation::RelationType& input) {
    const kernels::table::Row& row = kernels::table::row_of(kernel_);
    in_place_ = row.form == kernels::table::Form::kElementwise && !row.user;
    const bool reducible = kernels::dense::reduces_axes(kernel_);
    std::vector<DimMode> modes(input.arity(), DimMode::kSingle);
    for (int64_t d = 0; d < input.arity() && in_place_; ++d) {
      const bool linked = !input.axes_of(d).empty();
      const bool grouped = position_of(group_by_, d).has_value();
      if (grouped || (!linked && reducible)) modes[d] = linked ? DimMode::kWhole : DimMode::kBatch;
    }
    split_relinked(input, group_by_, type_, modes);
    return modes;
  }

  const Dims& group_by_;
  kernels::table::Kernel kernel_;
  relation::RelationType type_;
  Layout in_;
  bool in_place_ = false;
  std::vector<DimMode> modes_;
  KernelCall call_;
  Epilogue epilogue_;
  std::optional<BatchAxes> axes_;
  Dims reduced_axes_;
  Dims missing_;
};

/// Sums of sparse arrays, tuple by tuple.
class SparseSum final : public LocalOperator {
 public:
  SparseSum(const ia::LocalAggregate& op, const relation::RelationType& input)
      : group_by_(op.group_by), type_(first_type(op, input)), in_(input), epilogue_(op.kernel, type_) {}

  std::vector<PinnedPiece> run(const std::vector<PinnedOperand>& operands, const std::vector<Box>& /*boxes*/,
                               const RunContext& context) const override {
    const Layout layout(type_);
    std::map<Box, std::vector<at::Tensor>> terms;
    for (const PinnedPiece& piece : operands[0].pieces) {
      for_each_key(piece.box, [&](const Key& key) {
        const Box part = Box::single(key);
        const Box box = projected(part, group_by_);
        const at::Tensor array = in_.slice(piece.array, piece.box, part);
        terms[box].push_back(storage::reshaped(array, layout.shape(box)));
      });
    }
    std::vector<PinnedPiece> out;
    for (const auto& [box, arrays] : terms) {
      for (size_t i = 1; i < arrays.size(); ++i) context.flops += arrays[i]._nnz();
      out.push_back({box, kernels::sparse::folded(arrays, "add")});
    }
    return epilogue_.run(std::move(out), context);
  }

  std::string text() const override { return "tuple by tuple"; }

 private:
  const Dims& group_by_;
  relation::RelationType type_;
  Layout in_;
  Epilogue epilogue_;
};

class Concatenation final : public LocalOperator {
 public:
  Concatenation(const ia::LocalAggregate& op, const relation::RelationType& input)
      : group_by_(op.group_by),
        type_(first_type(op, input)),
        in_(input),
        dim_(complement(op.group_by, input.arity())[0]),
        modes_(input.arity(), DimMode::kBatch),
        leading_(position_of(in_.batch_dims(), dim_)),
        epilogue_(op.kernel, type_) {
    const int64_t axis = op.kernel.integer(0);
    const relation::Axis& grown = input.axes[axis];
    const bool joined_parts = grown.key_dim == dim_ && input.axes_of(dim_).size() == 1;
    modes_[dim_] = joined_parts ? DimMode::kWhole : DimMode::kSingle;
    // Where the grown axis is cut by another dimension, its parts interleave: one key of that dimension at a time.
    if (grown.linked() && !joined_parts && grown.key_dim != dim_) modes_[grown.key_dim] = DimMode::kSingle;
    axis_ = Layout(type_).position_of_axis(axis);
  }

  std::vector<PinnedPiece> run(const std::vector<PinnedOperand>& operands, const std::vector<Box>& /*boxes*/,
                               const RunContext& context) const override {
    std::map<Box, std::vector<at::Tensor>> parts;
    for (const PinnedPiece& piece : operands[0].pieces) {
      for_each_single(piece.box, modes_, [&](const Box& part) {
        at::Tensor array = in_.slice(piece.array, piece.box, part);
        if (leading_) array = array.squeeze(*leading_);
        parts[projected(part, group_by_)].push_back(array);
      });
    }
    std::vector<PinnedPiece> out;
    for (const auto& [box, arrays] : parts) {
      out.push_back({box, arrays.size() == 1 ? arrays[0] : at::cat(arrays, axis_)});
    }
    return epilogue_.run(std::move(out), context);
  }

  std::string text() const override { return "modes=" + modes_text(modes_); }

 private:
  const Dims& group_by_;
  relation::RelationType type_;
  Layout in_;
  int64_t dim_;
  std::vector<DimMode> modes_;
  std::optional<int64_t> leading_;
  Epilogue epilogue_;
  int64_t axis_ = 0;
};

}  // namespace

LocalOperatorPtr prepare_aggregate(const ia::LocalAggregate& op, const relation::RelationType& input) {
  if (kernels::table::row_of(op.kernel).form == kernels::table::Form::kConcat) {
    return std::make_unique<Concatenation>(op, input);
  }
  if (input.sparse()) return std::make_unique<SparseSum>(op, input);
  return std::make_unique<Aggregate>(op, input);
}

}  // namespace joinsum::runtime::execution::local
