#include "kernels/pairs/pairs.h"

#include <algorithm>
#include <array>
#include <numeric>

#include <ATen/ATen.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include "kernels/pairs/exponential_products.h"
#include "kernels/semiring/cuda_pairs.h"

namespace joinsum::kernels::pairs {

using semiring::Join;
using semiring::Reduction;
using semiring::Type;
using table::Row;
using table::Subscripts;

std::optional<Type> type_of(at::ScalarType type) {
  switch (type) {
    case at::kFloat:
      return Type::kFloat;
    case at::kDouble:
      return Type::kDouble;
    case at::kLong:
      return Type::kInt64;
    case at::kInt:
      return Type::kInt32;
    case at::kShort:
      return Type::kInt16;
    case at::kChar:
      return Type::kInt8;
    case at::kByte:
      return Type::kUInt8;
    case at::kComplexFloat:
      return Type::kComplexFloat;
    case at::kComplexDouble:
      return Type::kComplexDouble;
    default:
      return std::nullopt;
  }
}

Join reversed(Join join) {
  switch (join) {
    case Join::kSub:
      return Join::kReversedSub;
    case Join::kReversedSub:
      return Join::kSub;
    case Join::kDiv:
      return Join::kReversedDiv;
    case Join::kReversedDiv:
      return Join::kDiv;
    default:
      return join;
  }
}

namespace {

bool has(const std::string& letters, char letter) { return letters.find(letter) != std::string::npos; }

/// `letters` as one axis, in their order; those of extent 1 are left out.
Merged merged(const std::string& letters, const Subscripts& labels, const at::Tensor& left, const at::Tensor& right,
              const at::Tensor& out) {
  const auto stride = [](const at::Tensor& tensor, const std::string& own, char letter) -> int64_t {
    return has(own, letter) ? tensor.stride(static_cast<int64_t>(own.find(letter))) : 0;
  };
  Merged all;
  for (const char letter : letters) {
    const bool in_left = has(labels.operands[0], letter);
    const at::Tensor& owner = in_left ? left : right;
    const int64_t extent = owner.size(static_cast<int64_t>(labels.operands[in_left ? 0 : 1].find(letter)));
    if (extent == 1) continue;
    all.extents.push_back(extent);
    all.left.push_back(stride(left, labels.operands[0], letter));
    all.right.push_back(stride(right, labels.operands[1], letter));
    all.out.push_back(stride(out, labels.result, letter));
  }
  return all;
}

/// Letters by falling strides of the operand `own`, those that it lacks first: what lies close comes close.
std::string by_stride(std::string letters, const std::string& own, const at::Tensor& tensor) {
  const auto stride = [&](char letter) {
    return has(own, letter) ? tensor.stride(static_cast<int64_t>(own.find(letter)))
                            : std::numeric_limits<int64_t>::max();
  };
  std::stable_sort(letters.begin(), letters.end(), [&](char a, char b) { return stride(a) > stride(b); });
  return letters;
}

/// The problem of a contraction of those labels.
std::optional<PairProblem> pair_problem(const Row& row, const Subscripts& labels, const at::Tensor& left,
                                        const at::Tensor& right, const at::Tensor& out) {
  const auto join = table::find_row(row.combine)->joins_by;
  const auto reduction = table::find_row(row.reduction)->reduces_by;
  const auto type = type_of(out.scalar_type());
  if (!join || !reduction || !type) return std::nullopt;
  std::string batch, rows, columns, inner;
  for (const char letter : labels.result) {
    const bool in_left = has(labels.operands[0], letter), in_right = has(labels.operands[1], letter);
    (in_left && in_right ? batch : in_left ? rows : columns) += letter;
  }
  for (const char letter : labels.operands[0] + labels.operands[1]) {
    if (!has(labels.result + inner, letter)) inner += letter;
  }
  const auto axis = [&](const std::string& letters) { return merged(letters, labels, left, right, out); };
  return PairProblem{*join,
                     *reduction,
                     *type,
                     axis(batch),
                     axis(by_stride(rows, labels.result, out)),
                     axis(by_stride(columns, labels.result, out)),
                     axis(by_stride(inner, labels.operands[1], right)),
                     left.const_data_ptr(),
                     right.const_data_ptr(),
                     out.mutable_data_ptr()};
}

}  // namespace

int64_t Merged::count() const {
  return std::accumulate(extents.begin(), extents.end(), int64_t{1}, std::multiplies<>());
}

Dims Merged::offsets(const Dims& strides, int64_t begin, int64_t count) const {
  Dims index(extents.size()), places;
  places.reserve(static_cast<size_t>(count));
  int64_t offset = 0;
  for (size_t d = extents.size(); d-- > 0; begin /= extents[d]) {
    index[d] = begin % extents[d];
    offset += index[d] * strides[d];
  }
  for (int64_t i = 0; i < count; ++i) {
    places.push_back(offset);
    for (size_t d = extents.size(); d-- > 0;) {
      offset += strides[d];
      if (++index[d] < extents[d]) break;
      offset -= extents[d] * strides[d];
      index[d] = 0;
    }
  }
  return places;
}

PairProblem PairProblem::swapped() const {
  PairProblem other = *this;
  other.join = reversed(join);
  std::swap(other.left, other.right);
  std::swap(other.rows, other.columns);
  for (Merged* axis : {&other.batch, &other.rows, &other.columns, &other.inner}) std::swap(axis->left, axis->right);
  return other;
}

namespace {

/// A view of `tensor` with one axis for each of three groups of letters, or a copy where a group does not lie as one.
at::Tensor grouped(const at::Tensor& tensor, const std::array<const Merged*, 3>& groups, Dims Merged::* strides) {
  Dims extents, steps, shape;
  for (const Merged* group : groups) {
    extents.insert(extents.end(), group->extents.begin(), group->extents.end());
    steps.insert(steps.end(), (group->*strides).begin(), (group->*strides).end());
    shape.push_back(group->count());
  }
  return tensor.as_strided(extents, steps).reshape(shape);
}

/// A view of `out` with an axis for each letter, in the order of its three groups.
at::Tensor by_letters(const PairProblem& problem, const at::Tensor& out) {
  Dims extents, steps;
  for (const Merged* group : {&problem.batch, &problem.rows, &problem.columns}) {
    extents.insert(extents.end(), group->extents.begin(), group->extents.end());
    steps.insert(steps.end(), group->out.begin(), group->out.end());
  }
  return out.as_strided(extents, steps);
}

bool reduced_by_products(const PairProblem& problem, const at::Tensor& left, const at::Tensor& right,
                         const at::Tensor& out) {
  if (problem.reduction != Reduction::kLogAddExp) return false;
  const auto result =
      logarithms_of_sums(problem.join, grouped(left, {&problem.batch, &problem.rows, &problem.inner}, &Merged::left),
                         grouped(right, {&problem.batch, &problem.inner, &problem.columns}, &Merged::right));
  if (!result) return false;
  at::Tensor target = by_letters(problem, out);
  const at::Tensor value = result->view(target.sizes());
  const bool empty = (target == -std::numeric_limits<double>::infinity()).all().item<bool>();
  empty ? target.copy_(value) : at::logaddexp_out(target, target, value);
  return true;
}

void run_on_cuda(const PairProblem& problem, const at::Tensor& left, const at::Tensor& right, const at::Tensor& out) {
  const at::Tensor a = grouped(left, {&problem.batch, &problem.rows, &problem.inner}, &Merged::left);
  const at::Tensor b = grouped(right, {&problem.batch, &problem.inner, &problem.columns}, &Merged::right);
  const at::Tensor target = grouped(out, {&problem.batch, &problem.rows, &problem.columns}, &Merged::out);
  const at::Tensor result = target.contiguous();
  const c10::DeviceGuard device(left.device());
  const c10::Stream stream = c10::impl::VirtualGuardImpl(left.device().type()).getStream(left.device());
  semiring::run_on_cuda({problem.join,
                         problem.reduction,
                         problem.type,
                         a.size(0),
                         a.size(1),
                         b.size(2),
                         a.size(2),
                         a.const_data_ptr(),
                         {a.stride(0), a.stride(1), a.stride(2)},
                         b.const_data_ptr(),
                         {b.stride(0), b.stride(1), b.stride(2)},
                         result.mutable_data_ptr(),
                         stream.native_handle()});
  if (result.is_alias_of(out)) return;
  const at::Tensor all = by_letters(problem, out);
  all.copy_(result.view(all.sizes()));
}

}  // namespace

namespace {

/// Sums of more terms in single precision would lose digits: each adds to one that is thousands of times as large.
constexpr int64_t kMostTerms = 1 << 14;

bool sums(const PairProblem& problem) {
  const bool single = problem.type == Type::kFloat || problem.type == Type::kComplexFloat;
  return single && (problem.reduction == Reduction::kAdd || problem.reduction == Reduction::kLogAddExp);
}

/// Sums of at most `kMostTerms` terms, summed in double precision: the longest reduced letter is cut.
void run_in_pieces(const Row& row, const Subscripts& labels, const at::Tensor& left, const at::Tensor& right,
                   const at::Tensor& out, int64_t terms) {
  const auto extent = [&](char letter) {
    const size_t owner = has(labels.operands[0], letter) ? 0 : 1;
    return (owner == 0 ? left : right).size(static_cast<int64_t>(labels.operands[owner].find(letter)));
  };
  char longest = 0;
  for (const char letter : labels.operands[0] + labels.operands[1]) {
    const bool reduced = !has(labels.result, letter);
    if (reduced && (longest == 0 || extent(letter) > extent(longest))) longest = letter;
  }
  const int64_t count = extent(longest);
  const int64_t each = std::max<int64_t>(1, count * kMostTerms / terms);
  const auto piece = [&](const at::Tensor& operand, size_t i, int64_t begin) {
    const size_t axis = labels.operands[i].find(longest);
    return axis == std::string::npos ? operand
                                     : operand.narrow(static_cast<int64_t>(axis), begin, std::min(each, count - begin));
  };
  const bool logarithms = table::reduction_of(row.reduction) == Reduction::kLogAddExp;
  const auto wide = out.is_complex() ? at::kComplexDouble : at::kDouble;
  at::Tensor total = out.to(wide);
  const double nothing = logarithms ? -std::numeric_limits<double>::infinity() : 0;
  for (int64_t begin = 0; begin < count; begin += each) {
    const at::Tensor part = at::full(out.sizes(), nothing, out.options());
    JOINSUM_CHECK(runs_pairs(row, labels, piece(left, 0, begin), piece(right, 1, begin), part), "row=", row.name);
    logarithms ? at::logaddexp_out(total, total, part.to(wide)) : total.add_(part);
  }
  out.copy_(total);
}

}  // namespace

bool runs_pairs(const Row& row, const Subscripts& labels, const at::Tensor& left, const at::Tensor& right,
                const at::Tensor& out) {
  const auto problem = pair_problem(row, labels, left, right, out);
  if (!problem) return false;
  const int64_t terms = problem->inner.count();
  const bool long_sums = sums(*problem) && terms > 2 * kMostTerms;
  if (long_sums && (left.is_cpu() || left.is_cuda())) {
    run_in_pieces(row, labels, left, right, out, terms);
    return true;
  }
  if (left.is_cpu()) {
    if (!reduced_by_products(*problem, left, right, out)) run_pairs(*problem);
    return true;
  }
  if (!left.is_cuda() || !semiring::cuda_takes(problem->type, problem->reduction)) return false;
  run_on_cuda(*problem, left, right, out);
  return true;
}

}  // namespace joinsum::kernels::pairs
