#include <algorithm>
#include <limits>

#include <ATen/ATen.h>

#include "kernels/dense/letters.h"
#include "kernels/dense/loops.h"
#include "kernels/dense/row_sums.h"
#include "kernels/pairs/pairs.h"
#include "kernels/table/rows.h"

namespace joinsum::kernels::dense {

using pairs::runs_pairs;
using table::combined_by;
using table::extents_of;
using table::find_row;
using table::Kernel;
using table::letter_extents;
using table::Row;
using table::row_of;
using table::Subscripts;

namespace {

/// What a reduction of nothing gives: of integers the least or the largest one, where the table says an infinity.
at::Scalar nothing_of(const std::string& reduction, at::ScalarType type) {
  const double identity = *find_row(reduction)->facts.identity;
  if (std::isfinite(identity) || at::isFloatingType(type)) return identity;
  if (type == at::kBool) return identity > 0;
  const bool is_signed = at::isSignedType(type);
  const auto bits = static_cast<int64_t>(8 * at::elementSize(type));
  if (identity > 0) return std::numeric_limits<int64_t>::max() >> (is_signed ? 64 - bits : 63 - bits);
  return is_signed ? std::numeric_limits<int64_t>::min() >> (64 - bits) : int64_t{0};
}

/// Axes of a tensor without the repeats of a letter: each takes the diagonal.
at::Tensor diagonals(at::Tensor x, std::string& letters, int64_t batch) {
  for (size_t i = 0; i < letters.size(); ++i) {
    for (size_t j = letters.find(letters[i], i + 1); j != std::string::npos; j = letters.find(letters[i], i + 1)) {
      x = x.diagonal(0, batch + static_cast<int64_t>(i), batch + static_cast<int64_t>(j));
      x = x.movedim(-1, batch + static_cast<int64_t>(i));
      letters.erase(j, 1);
    }
  }
  return x;
}

/// One contraction by blocks of the joined array.
class Blocks {
 public:
  Blocks(const Kernel& kernel, size_t kept, int64_t most)
      : combine_(combined_by(kernel)), reduction_{row_of(kernel).reduction, {}}, kept_(kept), most_(most) {}

  /// Reduces into `out` what `left` and `right` combine to. All have one axis for each letter, kept ones first (of
  /// extent 1 where an operand lacks it); `out` has the kept ones only.
  void add(const at::Tensor& left, const at::Tensor& right, at::Tensor out) const {
    const Dims shape = at::infer_size(left.sizes(), right.sizes());
    const auto widest = std::max_element(shape.begin(), shape.end());
    if (shape.empty() || checked_product("contract", shape) <= most_ || *widest == 1) return block(left, right, out);
    const int64_t axis = widest - shape.begin();
    const int64_t half = *widest / 2;
    const auto part = [&](const at::Tensor& x, bool second) {
      if (x.size(axis) == 1) return x;
      return second ? x.narrow(axis, half, *widest - half) : x.narrow(axis, 0, half);
    };
    for (const bool second : {false, true}) {
      const bool keeps = axis < static_cast<int64_t>(kept_);
      add(part(left, second), part(right, second), keeps ? part(out, second) : out);
    }
  }

 private:
  void block(const at::Tensor& left, const at::Tensor& right, at::Tensor out) const {
    at::Tensor joined = at::empty(at::infer_size(left.sizes(), right.sizes()), out.options());
    elementwise(combine_, {left, right}, {}, joined);
    Dims reduced;
    for (auto axis = static_cast<int64_t>(kept_); axis < joined.dim(); ++axis) reduced.push_back(axis);
    elementwise(reduction_, {out, reduce_axes(reduction_.name, joined, reduced)}, {}, out);
  }

  Kernel combine_;
  Kernel reduction_;
  size_t kept_;
  int64_t most_;
};

/// `x` with an axis for each letter of `order`, of extent 1 for those that it lacks.
at::Tensor aligned(const at::Tensor& x, const std::string& letters, const std::string& order) {
  Dims axes;
  for (const char letter : order) {
    if (has(letters, letter)) axes.push_back(static_cast<int64_t>(letters.find(letter)));
  }
  at::Tensor out = x.permute(axes);
  for (size_t i = 0; i < order.size(); ++i) {
    if (!has(letters, order[i])) out = out.unsqueeze(static_cast<int64_t>(i));
  }
  return out;
}

bool narrow_float(at::ScalarType type) { return type == at::kHalf || type == at::kBFloat16; }

/// Writes to `out`, or with `accumulate` reduces into it, what the operands combine to.
void reduce_pairs(const Kernel& kernel, const Subscripts& labels, const at::Tensor& left, const at::Tensor& right,
                  at::Tensor out, bool accumulate) {
  const Row& row = row_of(kernel);
  std::string order = labels.result;
  for (const char letter : labels.operands[0] + labels.operands[1]) {
    if (!has(order, letter)) order += letter;
  }
  const at::Tensor a = aligned(left, labels.operands[0], order);
  const at::Tensor b = aligned(right, labels.operands[1], order);
  if (order == labels.result && !accumulate) return elementwise(combined_by(kernel), {a, b}, {}, out);
  if (!accumulate) out.fill_(nothing_of(row.reduction, out.scalar_type()));
  if (checked_product("contract", at::infer_size(a.sizes(), b.sizes())) == 0) return;
  if (runs_pairs(row, labels, left, right, out)) return;
  Blocks(kernel, labels.result.size(), block_elements(left)).add(a, b, out);
}

at::Tensor product_along(at::Tensor x, Dims axes) {
  const auto type = x.scalar_type();
  std::sort(axes.rbegin(), axes.rend());
  for (const int64_t axis : axes) x = at::prod(x, axis, false, type);
  return x;
}

bool reduces_nothing(const at::Tensor& x, const Dims& axes) {
  return std::any_of(axes.begin(), axes.end(), [&](int64_t axis) { return x.size(axis) == 0; });
}

/// The identity of `reduction` for each index of the axes that are left.
at::Tensor identity_along(const std::string& reduction, const at::Tensor& x, const Dims& axes) {
  Dims shape;
  for (const int64_t axis : complement(axes, x.dim())) shape.push_back(x.size(axis));
  return at::full(shape, nothing_of(reduction, x.scalar_type()), x.options());
}

}  // namespace

at::Tensor reduce_axes(const std::string& reduction, const at::Tensor& x, const Dims& axes) {
  if (axes.empty()) return x;
  switch (table::reduction_of(reduction)) {
    case semiring::Reduction::kAdd:
      if (auto sum = sum_of_rows(x, axes)) return *std::move(sum);
      return at::sum(x, axes, false, x.scalar_type());
    case semiring::Reduction::kMul:
      return product_along(x, axes);
    case semiring::Reduction::kLogAddExp:
      return at::logsumexp(x, axes);
    case semiring::Reduction::kMax:
      return reduces_nothing(x, axes) ? identity_along(reduction, x, axes) : at::amax(x, axes);
    case semiring::Reduction::kMin:
      return reduces_nothing(x, axes) ? identity_along(reduction, x, axes) : at::amin(x, axes);
  }
  JOINSUM_CHECK(false, "reduction=", reduction);
}

at::Tensor reduce(const Row& row, const Subscripts& labels, const at::Tensor& operand, int64_t batch) {
  std::string letters = labels.operands[0];
  const at::Tensor x = diagonals(operand, letters, batch);
  Dims reduced, order = all_dims(batch);
  std::string kept;
  for (size_t i = 0; i < letters.size(); ++i) {
    if (has(labels.result, letters[i])) {
      kept += letters[i];
    } else {
      reduced.push_back(batch + static_cast<int64_t>(i));
    }
  }
  for (const char letter : labels.result) order.push_back(batch + static_cast<int64_t>(kept.find(letter)));
  return (reduced.empty() ? x : reduce_axes(row.reduction, x, reduced)).permute(order);
}

at::Tensor contract_pair(const Kernel& kernel, const Subscripts& labels, const at::Tensor& left,
                         const at::Tensor& right, at::Tensor out, bool accumulate) {
  const Row& row = row_of(kernel);
  if (row.combine == "mul" && row.reduction == "add") {
    return multiply(labels, left, right, std::move(out), accumulate);
  }
  const auto type = left.scalar_type();
  const auto inside = narrow_float(type) ? at::kFloat : type;
  const at::Tensor a = left.to(inside).resolve_conj().resolve_neg();
  const at::Tensor b = right.to(inside).resolve_conj().resolve_neg();
  const Dims shape = extents_of(labels.result, letter_extents(row.name, labels, {shape_of(a), shape_of(b)}));
  JOINSUM_KERNEL_CHECK(!out.defined() || (shape_of(out) == shape && out.scalar_type() == type), row.name,
                       ": out does not fit: labels=", labels.text(), ", shape=", shape);
  const bool direct = out.defined() && inside == type;
  at::Tensor target = direct ? out : at::empty(shape, a.options());
  if (accumulate && !direct) target.copy_(out);
  reduce_pairs(kernel, labels, a, b, target, accumulate);
  if (!out.defined()) return target.to(type);
  return direct ? out : out.copy_(target);
}

}  // namespace joinsum::kernels::dense
