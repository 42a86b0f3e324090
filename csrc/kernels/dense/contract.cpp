#include <algorithm>
#include <map>

#include <ATen/ATen.h>

#include "kernels/dense/letters.h"
#include "kernels/dense/loops.h"
#include "kernels/products/products.h"
#include "kernels/table/rows.h"

namespace joinsum::kernels::dense {

using table::extents_of;
using table::letter_extents;
using table::Subscripts;

namespace {

/// A tensor whose axes are named.
struct Lettered {
  at::Tensor tensor;
  std::string letters;

  int64_t axis(char letter) const { return static_cast<int64_t>(letters.find(letter)); }
  int64_t extent(char letter) const { return tensor.size(axis(letter)); }
  int64_t stride(char letter) const { return tensor.stride(axis(letter)); }

  int64_t extent_of(const std::string& group) const {
    int64_t product = 1;
    for (const char letter : group) product *= extent(letter);
    return product;
  }

  /// Whether the axes of `group`, in that order, lie as one.
  bool collapses(const std::string& group) const {
    for (size_t i = 1; i < group.size(); ++i) {
      if (stride(group[i - 1]) != stride(group[i]) * extent(group[i])) return false;
    }
    return true;
  }

  /// The letters of `group` by falling strides: the order in which they collapse if they do at all.
  std::string by_stride(std::string group) const {
    std::stable_sort(group.begin(), group.end(), [&](char a, char b) { return stride(a) > stride(b); });
    return group;
  }

  Lettered permuted(const std::string& order) const {
    Dims axes;
    for (const char letter : order) axes.push_back(axis(letter));
    return {tensor.permute(axes), order};
  }

  /// One axis per group; copies where a group does not collapse.
  at::Tensor grouped(const std::vector<std::string>& groups) const {
    std::string order;
    Dims extents;
    for (const std::string& group : groups) {
      order += group;
      extents.push_back(extent_of(group));
    }
    return permuted(order).tensor.reshape(extents);
  }

  Lettered without_units() const {
    const std::string kept = select(letters, [&](char letter) { return extent(letter) != 1; });
    Dims units;
    for (const char letter : letters) {
      if (!has(kept, letter)) units.push_back(axis(letter));
    }
    return units.empty() ? *this : Lettered{tensor.squeeze(units), kept};
  }

  /// Sums the letters that neither `other` nor `result` has.
  Lettered summed(const std::string& other, const std::string& result) const {
    const std::string kept = select(letters, [&](char letter) { return has(other, letter) || has(result, letter); });
    Dims axes;
    for (const char letter : letters) {
      if (!has(kept, letter)) axes.push_back(axis(letter));
    }
    return axes.empty() ? *this : Lettered{tensor.sum(axes, false, tensor.scalar_type()), kept};
  }

  /// Axes in the order of `order`, with extent 1 for the letters that are absent.
  at::Tensor aligned(const std::string& order) const {
    at::Tensor out = permuted(select(order, [&](char letter) { return has(letters, letter); })).tensor;
    for (size_t i = 0; i < order.size(); ++i) {
      if (!has(letters, order[i])) out = out.unsqueeze(static_cast<int64_t>(i));
    }
    return out;
  }
};

/// Letters by their part in a matrix product: batches, rows, columns and what is summed. Each group is in the order
/// that copies least.
struct Groups {
  std::string batch, rows, columns, inner;
};

/// The first of `orders` in which both operands collapse, else the one that copies the fewest elements.
std::string cheapest(const std::vector<std::string>& orders, const Lettered& left, const Lettered& right) {
  const auto cost = [&](const std::string& order) {
    return (left.collapses(order) ? 0 : left.tensor.numel()) + (right.collapses(order) ? 0 : right.tensor.numel());
  };
  return *std::min_element(orders.begin(), orders.end(),
                           [&](const auto& a, const auto& b) { return cost(a) < cost(b); });
}

std::string cheapest(const std::string& wanted, const Lettered& operand) {
  const std::string natural = operand.by_stride(wanted);
  return operand.collapses(wanted) || !operand.collapses(natural) ? wanted : natural;
}

Groups groups_of(const Lettered& left, const Lettered& right, const std::string& result) {
  const auto in = [&](bool in_left, bool in_right) {
    return [&, in_left, in_right](char letter) {
      return has(left.letters, letter) == in_left && has(right.letters, letter) == in_right;
    };
  };
  const std::string batch = select(result, in(true, true));
  const std::string inner = select(left.letters, [&](char letter) { return !has(result, letter); });
  return {cheapest({batch, left.by_stride(batch), right.by_stride(batch)}, left, right),
          cheapest(select(result, in(true, false)), left), cheapest(select(result, in(false, true)), right),
          cheapest({left.by_stride(inner), right.by_stride(inner)}, left, right)};
}

/// `value` in the order of `result`, or `out` once it holds it.
Lettered delivered(const Lettered& value, const std::string& result, const Lettered& out, bool accumulate) {
  const Lettered ordered = value.permuted(result);
  if (!out.tensor.defined()) return ordered;
  accumulate ? out.tensor.add_(ordered.tensor) : out.tensor.copy_(ordered.tensor);
  return out;
}

/// Product without a sum.
Lettered outer_product(const Lettered& left, const Lettered& right, const std::string& result, const Lettered& out,
                       bool accumulate) {
  const at::Tensor a = left.aligned(result);
  const at::Tensor b = right.aligned(result);
  if (!out.tensor.defined()) {
    at::Tensor product = at::empty(at::infer_size(a.sizes(), b.sizes()), a.options());
    at::mul_out(product, a, b);
    return {product, result};
  }
  at::Tensor target = out.tensor;
  accumulate ? target.addcmul_(a, b) : at::mul_out(target, a, b);
  return out;
}

bool narrow_float(at::ScalarType type) { return type == at::kHalf || type == at::kBFloat16; }

/// Inner products, one for each batch: as matrix products of a row by a column they are slow.
Lettered inner_products(const Lettered& left, const Lettered& right, const Groups& groups) {
  if (groups.batch.empty() && (left.tensor.is_cpu() || !at::isIntegralType(left.tensor.scalar_type(), true))) {
    return {at::dot(left.grouped({groups.inner}), right.grouped({groups.inner})), ""};
  }
  const at::Tensor products =
      at::mul(left.aligned(groups.batch + groups.inner), right.aligned(groups.batch + groups.inner));
  Dims summed;
  for (size_t i = 0; i < groups.inner.size(); ++i) summed.push_back(static_cast<int64_t>(groups.batch.size() + i));
  return {products.sum(summed, false, left.tensor.scalar_type()), groups.batch};
}

/// Product with a sum, as one matrix product or one batch of them.
Lettered matrix_product(const Lettered& left, const Lettered& right, const std::string& result, const Lettered& out,
                        bool accumulate) {
  const Groups groups = groups_of(left, right, result);
  // Narrow floats are products of matrices all the same, for those add up in single precision.
  if (groups.rows.empty() && groups.columns.empty() && !narrow_float(left.tensor.scalar_type())) {
    return delivered(inner_products(left, right, groups), result, out, accumulate);
  }
  std::vector<std::string> rows{groups.rows, groups.inner}, columns{groups.inner, groups.columns};
  std::vector<std::string> product{groups.rows, groups.columns};
  if (!groups.batch.empty()) {
    for (auto* each : {&rows, &columns, &product}) each->insert(each->begin(), groups.batch);
  }
  const at::Tensor a = left.grouped(rows);
  const at::Tensor b = right.grouped(columns);
  const bool direct = out.tensor.defined() && out.collapses(groups.batch) && out.collapses(groups.rows) &&
                      out.collapses(groups.columns);
  if (direct) {
    products::matrix_product_into(out.grouped(product), a, b, accumulate ? 1 : 0);
    return out;
  }
  Dims extents;
  for (const char letter : groups.batch + groups.rows) extents.push_back(left.extent(letter));
  for (const char letter : groups.columns) extents.push_back(right.extent(letter));
  const at::Tensor value = products::matrix_product(a, b);
  return delivered({value.view(extents), groups.batch + groups.rows + groups.columns}, result, out, accumulate);
}

void check_operands(const Subscripts& labels, const at::Tensor& left, const at::Tensor& right) {
  JOINSUM_KERNEL_CHECK(labels.operands.size() == 2, "contract: two operands are contracted: labels=", labels.text());
  for (const std::string& letters : labels.operands) {
    for (size_t i = 0; i < letters.size(); ++i) {
      JOINSUM_KERNEL_CHECK(!has(letters.substr(i + 1), letters[i]),
                           "contract: letter occurs twice in one operand: labels=", labels.text(),
                           ", letter=", letters[i]);
    }
  }
  JOINSUM_KERNEL_CHECK(left.scalar_type() == right.scalar_type(),
                       "contract: dtypes of the operands differ: left=", at::toString(left.scalar_type()),
                       ", right=", at::toString(right.scalar_type()));
}

}  // namespace

Dims shape_of(const at::Tensor& tensor) { return tensor.sizes().vec(); }

at::Tensor multiply(const Subscripts& labels, const at::Tensor& left, const at::Tensor& right, at::Tensor out,
                    bool accumulate) {
  check_operands(labels, left, right);
  const auto extents = letter_extents("contract", labels, {shape_of(left), shape_of(right)});
  const Dims shape = extents_of(labels.result, extents);
  JOINSUM_KERNEL_CHECK(!out.defined() || (shape_of(out) == shape && out.scalar_type() == left.scalar_type()),
                       "contract: out does not fit: labels=", labels.text(), ", shape=", shape);
  if (left.is_sparse() || right.is_sparse()) return multiply_sparse(labels, left, right, std::move(out), accumulate);
  const Lettered target = out.defined() ? Lettered{out, labels.result}.without_units() : Lettered{};
  const std::string result = select(labels.result, [&](char letter) { return extents.at(letter) != 1; });

  Lettered a = Lettered{left, labels.operands[0]}.without_units();
  Lettered b = Lettered{right, labels.operands[1]}.without_units();
  a = a.summed(b.letters, result);
  b = b.summed(a.letters, result);
  // The operand whose letter comes first in the result gives the rows, so that the product lies in the result's order.
  const auto own = std::find_if(result.begin(), result.end(),
                                [&](char letter) { return has(a.letters, letter) != has(b.letters, letter); });
  if (own != result.end() && has(b.letters, *own)) std::swap(a, b);
  const bool sums = std::any_of(a.letters.begin(), a.letters.end(), [&](char letter) { return !has(result, letter); });
  const Lettered value =
      sums ? matrix_product(a, b, result, target, accumulate) : outer_product(a, b, result, target, accumulate);
  if (out.defined()) return out;
  return result.size() == labels.result.size() ? value.tensor : value.aligned(labels.result);
}

}  // namespace joinsum::kernels::dense
