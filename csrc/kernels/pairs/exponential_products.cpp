#include "kernels/pairs/exponential_products.h"

#include <algorithm>
#include <limits>

#include "kernels/products/products.h"

namespace joinsum::kernels::pairs {

using semiring::Join;

namespace {

/// Sums relative to e^(α + β) down to e^-27 have all their digits: what vanishes in a product of single precision is
/// smaller by 2^-47 at least, and differences of up to 27 are exact to 2^-20.
constexpr double kMostBelow = 27;

/// Larger weights could make products overflow.
constexpr double kMostWeight = 0x1p60;

/// Terms one by one cost many times as much as a product: at most one element in so many has them, so many at a time.
constexpr int64_t kFewest = 64;
constexpr int64_t kAtATime = 1024;

/// Below it loops over tiles are faster than calls of torch's operators.
constexpr int64_t kFewestPoints = 1 << 16;
constexpr int64_t kFewestIndices = 8;

bool takes(Join join, at::ScalarType type, int64_t rows, int64_t inner, int64_t columns) {
  const bool sums = join == Join::kAdd || join == Join::kSub || join == Join::kReversedSub;
  const bool large = std::min({rows, inner, columns}) >= kFewestIndices && rows * inner * columns >= kFewestPoints;
  const bool exact = type == at::kDouble || (type == at::kFloat && at::globalContext().float32MatmulPrecision() ==
                                                                       at::Float32MatmulPrecision::HIGHEST);
  return sums && large && exact;
}

/// e^(x - shift), where x is an operand with its sign in the join, and shift the largest one along an axis, or 0 where
/// all are -inf.
struct Exponentials {
  at::Tensor shift;
  at::Tensor values;
};

std::optional<Exponentials> exponentials(const at::Tensor& operand, bool negative, int64_t axis) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  at::Tensor shift = negative ? at::amin(operand, axis, true).neg_() : at::amax(operand, axis, true);
  if (!(shift < kInfinity).all().item<bool>()) return std::nullopt;
  shift.masked_fill_(shift == -kInfinity, 0);
  at::Tensor values = negative ? at::sub(shift.neg(), operand) : at::sub(operand, shift);
  return Exponentials{shift, values.exp_()};
}

at::Tensor product(const at::Tensor& a, const at::Tensor& b) {
  return a.size(0) == 1 ? products::matrix_product(a[0], b[0]).unsqueeze_(0) : products::matrix_product(a, b);
}

at::Tensor joined(Join join, const at::Tensor& a, const at::Tensor& b) {
  if (join == Join::kAdd) return a + b;
  return join == Join::kSub ? a - b : b - a;
}

/// Indices of three axes, some at a time, of the places where `mask` is true.
template <class Use>
void for_places(const at::Tensor& places, Use use) {
  for (const at::Tensor& some : places.split(kAtATime)) use(some.select(1, 0), some.select(1, 1), some.select(1, 2));
}

bool many(const at::Tensor& places, const at::Tensor& of) { return places.size(0) * kFewest > of.numel(); }

}  // namespace

std::optional<at::Tensor> logarithms_of_sums(Join join, const at::Tensor& left, const at::Tensor& right) {
  if (!takes(join, left.scalar_type(), left.size(1), left.size(2), right.size(2))) return std::nullopt;
  const auto a = exponentials(left, join == Join::kReversedSub, 2);
  const auto b = a ? exponentials(right, join == Join::kSub, 1) : std::nullopt;
  if (!b) return std::nullopt;
  at::Tensor result = product(a->values, b->values).log_();
  at::Tensor places;
  if (!(at::amin(result).item<double>() >= -kMostBelow)) {
    places = (result < -kMostBelow).nonzero();
    if (many(places, result)) return std::nullopt;
  }
  result.add_(at::add(a->shift, b->shift));
  if (!places.defined()) return result;
  for_places(places, [&](const at::Tensor& batch, const at::Tensor& row, const at::Tensor& column) {
    const at::Tensor x = joined(join, left.index({batch, row}), right.transpose(1, 2).index({batch, column}));
    result.index_put_({batch, row, column}, x.logsumexp(1));
  });
  return result;
}

std::optional<at::Tensor> sums_of_shares(Join join, const Shares& of) {
  if (!takes(join, of.own.scalar_type(), of.own.size(1), of.right.size(1), of.own.size(2))) return std::nullopt;
  const auto [least, most] = at::aminmax(of.weight);
  if (!(least.item<double>() >= -kMostWeight && most.item<double>() <= kMostWeight)) return std::nullopt;
  const auto own = exponentials(of.own, join == Join::kReversedSub, 2);
  const auto right = own ? exponentials(of.right, join == Join::kSub, 2) : std::nullopt;
  if (!right) return std::nullopt;
  at::Tensor factors = at::add(own->shift, right->shift.transpose(1, 2)).sub_(of.left);
  at::Tensor places;
  if (!(at::amax(factors).item<double>() <= kMostBelow)) {
    const at::Tensor wild = (factors <= kMostBelow).logical_not_();
    places = wild.nonzero();
    if (many(places, factors)) return std::nullopt;
    factors.masked_fill_(wild, -std::numeric_limits<double>::infinity());
  }
  const at::Tensor result = product(factors.exp_().mul_(of.weight), right->values).mul_(own->values);
  if (!places.defined()) return result;
  const at::Tensor rows = result.flatten(0, 1);
  for_places(places, [&](const at::Tensor& batch, const at::Tensor& row, const at::Tensor& k) {
    const at::Tensor x = joined(join, of.own.index({batch, row}), of.right.index({batch, k}));
    const at::Tensor share = x.sub_(of.left.index({batch, row, k}).unsqueeze(1)).exp_();
    rows.index_add_(0, batch * of.own.size(1) + row, share.mul_(of.weight.index({batch, row, k}).unsqueeze(1)));
  });
  return result;
}

}  // namespace joinsum::kernels::pairs
