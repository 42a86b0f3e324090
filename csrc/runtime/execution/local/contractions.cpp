#include <algorithm>
#include <map>

#include "kernels/dense/dense.h"
#include "kernels/table/rows.h"
#include "relation/typing.h"
#include "runtime/execution/local/joins.h"
#include "runtime/storage/sparse_array.h"

namespace joinsum::runtime::execution::local {
namespace {

/// Letters of one contraction: those of the kernel's axes, and one for each batch dimension.
struct ContractionLetters {
  kernels::table::Subscripts labels;
  Dims group_batch;  ///< positions in the result's key, ascending
};

/// A letter that `used` lacks for each of the dimensions.
std::map<int64_t, char> letters_for(const Dims& dims, const std::string& used) {
  std::map<int64_t, char> letters;
  char next = 'A';
  for (const int64_t dim : dims) {
    while (used.find(next) != std::string::npos || (next > 'Z' && next < 'a')) ++next;
    letters[dim] = next++;
  }
  return letters;
}

ContractionLetters contraction_letters(const JoinOperands& operands, const kernels::table::Subscripts& axes,
                                       const Dims& group_by) {
  std::string used = axes.result;
  for (const std::string& operand : axes.operands) used += operand;
  const auto letters = letters_for(operands.batch, used);
  ContractionLetters out{axes, {}};
  const auto prefix = [&](const storage::Layout& layout, const Dims& position) {
    std::string text;
    for (const int64_t d : layout.batch_dims()) {
      if (const auto at = letters.find(position[d]); at != letters.end()) text += at->second;
    }
    return text;
  };
  out.labels.operands[0] = prefix(operands.left_layout, operands.left.position) + axes.operands[0];
  out.labels.operands[1] = prefix(operands.right_layout, operands.right.position) + axes.operands[1];
  std::string group_letters;
  for (size_t i = 0; i < group_by.size(); ++i) {
    const auto at = letters.find(group_by[i]);
    if (at == letters.end()) continue;
    group_letters += at->second;
    out.group_batch.push_back(static_cast<int64_t>(i));
  }
  out.labels.result = group_letters + axes.result;
  return out;
}

/// A contraction of each pair of blocks, part by part.
class Parts {
 public:
  Parts(const ia::LocalJoin& op, const ia::LocalAggregate& aggregate, const relation::RelationType& left,
        const relation::RelationType& right, const relation::RelationType& joined)
      : op_(op),
        group_by_(aggregate.group_by),
        type_(relation::aggregate_type("local_aggregate", joined, group_by_, aggregate.kernel.first())),
        operands_(op, left, right, joined, group_by_, type_),
        letters_(contraction_letters(operands_, *letters_of(op.kernel, {operands_.left, operands_.right}), group_by_)),
        left_axes_(operands_.left_layout, operands_.left.position, operands_.modes, operands_.batch),
        right_axes_(operands_.right_layout, operands_.right.position, operands_.modes, operands_.batch),
        missing_(missing_axes(letters_.group_batch, storage::Layout(type_))),
        product_(kernels::table::row_of(op.kernel).facts.linear),
        flops_per_point_(kernels::table::flops_per_element(op.kernel)) {}

  /// The array that a part is reduced into, and whether it holds what other parts gave.
  struct Target {
    at::Tensor array;
    bool accumulate = false;
  };
  using TargetOf = std::function<Target(const Box& group, const Dims& shape, const at::TensorOptions& options)>;

  void reduce(const PinnedOperand& left, const PinnedOperand& right, const RunContext& context,
              const TargetOf& target_of) const {
    operands_.for_each(left, right, [&](const Box& part, const at::Tensor& a, const at::Tensor& b) {
      const at::Tensor l = left_axes_.without_singles(a);
      const at::Tensor r = right_axes_.without_singles(b);
      const Work work = work_of({l.sizes().vec(), r.sizes().vec()});
      context.flops += flops_of(work, l, r);
      contract(l, r, target_of(projected(part, group_by_), work.shape, l.options().layout(at::kStrided)));
    });
  }

  /// A part that is all of both operands.
  OnePart on(const std::vector<Box>& operands, const Box& result) const {
    const auto part = operands_.only_part(operands);
    if (!part || projected(*part, group_by_) != result) return {};
    Work work = work_of({left_axes_.without_singles(operands_.left_layout.shape(operands[0])),
                         right_axes_.without_singles(operands_.right_layout.shape(operands[1]))});
    return [this, work = std::move(work)](c10::ArrayRef<PartOperand> given, const RunContext& context) {
      const at::Tensor l = left_axes_.without_singles(given[0].array);
      const at::Tensor r = right_axes_.without_singles(given[1].array);
      context.flops += flops_of(work, l, r);
      const at::Tensor out = context.store.allocate(work.shape, l.options().layout(at::kStrided));
      contract(l, r, {out});
      return with_axes(out, missing_);
    };
  }

  const relation::RelationType& type() const { return type_; }
  const Dims& missing() const { return missing_; }

  std::string text() const {
    const kernels::table::Subscripts& labels = letters_.labels;
    return "contraction=" + labels.operands[0] + "," + labels.operands[1] + "->" + labels.result +
           ", modes=" + modes_text(operands_.modes);
  }

 private:
  /// Of one part.
  struct Work {
    Dims shape;  ///< of the result, without the axes that it lacks
    int64_t flops = 0;
  };

  Work work_of(const std::vector<Dims>& shapes) const {
    const auto extents = kernels::table::letter_extents(op_.kernel.name, letters_.labels, shapes);
    int64_t points = 1;
    for (const auto& [letter, extent] : extents) points *= extent;
    return {kernels::table::extents_of(letters_.labels.result, extents), flops_per_point_ * points};
  }

  /// Of operands with the entries that they have.
  static int64_t flops_of(const Work& work, const at::Tensor& l, const at::Tensor& r) {
    const double share = storage::stored_share({l, r});
    return share == 1 ? work.flops : static_cast<int64_t>(share * static_cast<double>(work.flops));
  }

  void contract(const at::Tensor& l, const at::Tensor& r, const Target& target) const {
    const auto& [out, accumulate] = target;
    product_ ? kernels::dense::contract(letters_.labels, l, r, out, accumulate)
             : kernels::dense::contract(op_.kernel, letters_.labels, l, r, out, accumulate);
  }

  const ia::LocalJoin& op_;
  const Dims& group_by_;
  relation::RelationType type_;
  JoinOperands operands_;
  ContractionLetters letters_;
  BatchAxes left_axes_;
  BatchAxes right_axes_;
  Dims missing_;
  bool product_;
  int64_t flops_per_point_;
};

class Contraction final : public LocalOperator {
 public:
  Contraction(Parts parts, const kernels::table::Kernel& kernel)
      : parts_(std::move(parts)), epilogue_(kernel, parts_.type()) {}

  std::vector<PinnedPiece> run(const std::vector<PinnedOperand>& operands, const std::vector<Box>& /*boxes*/,
                               const RunContext& context) const override {
    std::map<Box, at::Tensor> reduced;
    parts_.reduce(operands[0], operands[1], context,
                  [&](const Box& group, const Dims& shape, const at::TensorOptions& options) {
                    const auto [at, fresh] = reduced.try_emplace(group);
                    if (fresh) at->second = context.store.allocate(shape, options);
                    return Parts::Target{at->second, !fresh};
                  });
    std::vector<PinnedPiece> pieces;
    for (const auto& [box, array] : reduced) pieces.push_back({box, with_axes(array, parts_.missing())});
    return epilogue_.run(std::move(pieces), context);
  }

  OnePart on(const std::vector<Box>& operands, const Box& result) const override {
    return epilogue_.after(parts_.on(operands, result), result);
  }

  std::string text() const override { return parts_.text(); }

 private:
  Parts parts_;
  Epilogue epilogue_;
};

class AddedContraction final : public LocalOperator {
 public:
  explicit AddedContraction(Parts parts) : parts_(std::move(parts)), layout_(parts_.type()) {}

  std::vector<PinnedPiece> run(const std::vector<PinnedOperand>& operands, const std::vector<Box>& /*boxes*/,
                               const RunContext& context) const override {
    const at::Tensor& times = operands[1].pieces.front().array;
    const bool left = elements(operands[2]) <= elements(operands[3]);
    const PinnedOperand scaled = multiplied(operands[left ? 2 : 3], times, context);
    std::vector<PinnedPiece> out;
    for (const PinnedPiece& piece : operands[0].pieces) {
      const bool in_place = operands[0].overwritable && piece.array.is_non_overlapping_and_dense();
      out.push_back({piece.box, in_place ? piece.array : copied(piece.array, context)});
    }
    parts_.reduce(left ? scaled : operands[2], left ? operands[3] : scaled, context,
                  [&](const Box& group, const Dims& /*shape*/, const at::TensorOptions& /*options*/) {
                    return Parts::Target{part_of(out, group), true};
                  });
    return out;
  }

  std::string text() const override { return "added " + parts_.text(); }

 private:
  static int64_t elements(const PinnedOperand& operand) {
    int64_t count = 0;
    for (const PinnedPiece& piece : operand.pieces) count += piece.array.numel();
    return count;
  }

  static at::Tensor copied(const at::Tensor& array, const RunContext& context) {
    return context.store.allocate(array.sizes(), array.options()).copy_(array);
  }

  static PinnedOperand multiplied(const PinnedOperand& operand, const at::Tensor& times, const RunContext& context) {
    std::vector<PinnedPiece> out;
    for (const PinnedPiece& piece : operand.pieces) {
      at::Tensor into = context.store.allocate(piece.array.sizes(), piece.array.options());
      out.push_back({piece.box, at::mul_out(into, piece.array, times)});
    }
    return PinnedOperand(std::move(out));
  }

  /// The array of one group, without the axes that a contraction's result lacks.
  at::Tensor part_of(const std::vector<PinnedPiece>& pieces, const Box& group) const {
    const auto at =
        std::find_if(pieces.begin(), pieces.end(), [&](const PinnedPiece& piece) { return piece.box.contains(group); });
    JOINSUM_CHECK(at != pieces.end(), "group=", group.text());
    const at::Tensor part = layout_.slice(at->array, at->box, group);
    return parts_.missing().empty() ? part : part.squeeze(parts_.missing());
  }

  Parts parts_;
  storage::Layout layout_;
};

}  // namespace

LocalOperatorPtr prepare_contraction(const ia::LocalJoin& op, const ia::LocalAggregate& aggregate,
                                     const relation::RelationType& left, const relation::RelationType& right,
                                     const relation::RelationType& joined) {
  return std::make_unique<Contraction>(Parts(op, aggregate, left, right, joined), aggregate.kernel);
}

LocalOperatorPtr prepare_added_contraction(const ia::LocalJoin& op, const ia::LocalAggregate& aggregate,
                                           const relation::RelationType& left, const relation::RelationType& right,
                                           const relation::RelationType& joined) {
  return std::make_unique<AddedContraction>(Parts(op, aggregate, left, right, joined));
}

}  // namespace joinsum::runtime::execution::local
