#include <map>

#include "kernels/dense/dense.h"
#include "kernels/table/rows.h"
#include "relation/typing.h"
#include "runtime/execution/local/joins.h"

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

class Contraction final : public LocalOperator {
 public:
  Contraction(const ia::LocalJoin& op, const ia::LocalAggregate& aggregate, const relation::RelationType& left,
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
        flops_per_point_(kernels::table::flops_per_element(op.kernel)),
        epilogue_(aggregate.kernel, type_) {}

  std::vector<PinnedPiece> run(const std::vector<PinnedOperand>& operands, const std::vector<Box>& /*boxes*/,
                               const RunContext& context) const override {
    const kernels::table::Subscripts& labels = letters_.labels;
    std::map<Box, at::Tensor> reduced;
    operands_.for_each(operands[0], operands[1], [&](const Box& part, const at::Tensor& a, const at::Tensor& b) {
      const at::Tensor l = left_axes_.without_singles(a);
      const at::Tensor r = right_axes_.without_singles(b);
      const auto extents = kernels::table::letter_extents(op_.kernel.name, labels, {l.sizes().vec(), r.sizes().vec()});
      int64_t points = 1;
      for (const auto& [letter, extent] : extents) points *= extent;
      context.flops += flops_per_point_ * points;
      const auto [at, fresh] = reduced.try_emplace(projected(part, group_by_));
      at::Tensor& out = at->second;
      if (fresh) out = context.store.allocate(kernels::table::extents_of(labels.result, extents), l.options());
      product_ ? kernels::dense::contract(labels, l, r, out, !fresh)
               : kernels::dense::contract(op_.kernel, labels, l, r, out, !fresh);
    });
    std::vector<PinnedPiece> pieces;
    for (const auto& [box, array] : reduced) pieces.push_back({box, with_axes(array, missing_)});
    return epilogue_.run(std::move(pieces), context);
  }

  std::string text() const override {
    const kernels::table::Subscripts& labels = letters_.labels;
    return "contraction=" + labels.operands[0] + "," + labels.operands[1] + "->" + labels.result +
           ", modes=" + modes_text(operands_.modes);
  }

 private:
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
  Epilogue epilogue_;
};

}  // namespace

LocalOperatorPtr prepare_contraction(const ia::LocalJoin& op, const ia::LocalAggregate& aggregate,
                                     const relation::RelationType& left, const relation::RelationType& right,
                                     const relation::RelationType& joined) {
  return std::make_unique<Contraction>(op, aggregate, left, right, joined);
}

}  // namespace joinsum::runtime::execution::local
