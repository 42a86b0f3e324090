#include "kernels/reference/reference.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <functional>
#include <limits>
#include <map>

#include "kernels/table/expression_kernel.h"
#include "kernels/table/rows.h"

namespace joinsum::kernels::reference {

using table::combined_by;
using table::expression_of;
using table::find_row;
using table::Form;
using table::is_expression;
using table::Kernel;
using table::letter_extents;
using table::result_shape;
using table::Row;
using table::row_of;
using table::Scalars;
using table::Subscripts;

namespace {

/// Rounds to `digits` binary digits, ties to even; `least` is the exponent of the smallest normal number.
double round_to(double value, int digits, int least, double largest) {
  if (value == 0 || !std::isfinite(value)) return value;
  const int exponent = std::max(std::ilogb(value), least);
  const double unit = std::ldexp(1.0, exponent - digits + 1);
  const double rounded = std::nearbyint(value / unit) * unit;
  return std::abs(rounded) > largest ? std::copysign(std::numeric_limits<double>::infinity(), value) : rounded;
}

/// Low bits of the integer part, as a conversion between integer types keeps them. What int64 cannot hold has no value
/// in torch either.
template <class T>
double wrapped(double value) {
  if (!(std::abs(value) < 0x1p63)) return 0;
  return static_cast<double>(static_cast<T>(static_cast<int64_t>(value)));
}

double cast(double value, DType dtype) {
  switch (dtype) {
    case DType::kBool:
      return value != 0 ? 1 : 0;
    case DType::kUInt8:
      return wrapped<uint8_t>(value);
    case DType::kInt8:
      return wrapped<int8_t>(value);
    case DType::kInt16:
      return wrapped<int16_t>(value);
    case DType::kInt32:
      return wrapped<int32_t>(value);
    case DType::kInt64:
      return wrapped<int64_t>(value);
    case DType::kFloat16:
      return round_to(static_cast<float>(value), 11, -14, 65504.0);
    case DType::kBFloat16:
      return round_to(static_cast<float>(value), 8, -126, 0x1.fep127);
    case DType::kFloat32:
    case DType::kComplex64:
      return static_cast<float>(value);
    default:
      return value;
  }
}

/// Offset in a row-major array of `shape` of the element that broadcasting puts at `index`.
size_t broadcast_offset(const Dims& shape, const Key& index) {
  int64_t offset = 0;
  const size_t lead = index.size() - shape.size();
  for (size_t d = 0; d < shape.size(); ++d) offset = offset * shape[d] + (shape[d] == 1 ? 0 : index[lead + d]);
  return static_cast<size_t>(offset);
}

/// The function that an elementwise kernel is.
std::function<double(const double*)> element_of(const Kernel& kernel, const Scalars& scalars) {
  if (kernel.name == "cast") {
    return [dtype = *dtype_from_name(kernel.label(0))](const double* x) { return cast(x[0], dtype); };
  }
  if (is_expression(kernel)) {
    return [expression = expression_of(kernel)](const double* x) { return expression.value(x); };
  }
  std::vector<double> numbers;
  for (size_t i = 0; i < kernel.parameters.size(); ++i) numbers.push_back(kernel.number(i, scalars));
  return [element = row_of(kernel).element, numbers](const double* x) { return element(x, numbers.data()); };
}

Array elementwise(const Kernel& kernel, const std::vector<Array>& operands, const Scalars& scalars, Array out) {
  const auto element = element_of(kernel, scalars);
  std::vector<double> at(operands.size());
  size_t next = 0;
  for_each_key(Box::below(out.shape), [&](const Key& index) {
    for (size_t i = 0; i < operands.size(); ++i) {
      at[i] = operands[i].values[broadcast_offset(operands[i].shape, index)];
    }
    out.values[next++] = element(at.data());
  });
  return out;
}

/// Reduces what the operands combine to over the letters that the result lacks.
Array labelled(const Kernel& kernel, const std::vector<Array>& operands, const std::vector<Dims>& shapes, Array out) {
  const Row& row = row_of(kernel);
  const Subscripts labels = row.labels(kernel);
  const auto combine = row.combine.empty() ? nullptr : element_of(combined_by(kernel), {});
  const table::Element reduction = row.reduction.empty() ? nullptr : find_row(row.reduction)->element;
  if (reduction != nullptr) std::fill(out.values.begin(), out.values.end(), *find_row(row.reduction)->facts.identity);
  std::map<char, size_t> position;
  Dims space;
  for (const auto& [letter, extent] : letter_extents(kernel.name, labels, shapes)) {
    position[letter] = space.size();
    space.push_back(extent);
  }
  const auto index_of = [&](const std::string& letters, const Key& point) {
    Key index;
    for (const char letter : letters) index.push_back(point[position.at(letter)]);
    return index;
  };
  for_each_key(Box::below(space), [&](const Key& point) {
    std::vector<double> at;
    for (size_t i = 0; i < operands.size(); ++i) at.push_back(operands[i].at(index_of(labels.operands[i], point)));
    const double value = combine ? combine(at.data()) : at[0];
    double& total = out.at(index_of(labels.result, point));
    const std::array<double, 2> both{total, value};
    total = reduction == nullptr ? value : reduction(both.data(), nullptr);
  });
  return out;
}

/// The operand, again for each index of the new axis.
Array inserted(const Kernel& kernel, const Array& operand, Array out) {
  const int64_t axis = kernel.integer(0);
  for_each_key(Box::below(out.shape), [&](const Key& index) {
    Key from = index;
    from.erase(from.begin() + axis);
    out.at(index) = operand.at(from);
  });
  return out;
}

/// The operand on the diagonal of an axis and the new one.
Array embedded(const Kernel& kernel, const Array& operand, Array out) {
  const int64_t position = kernel.integer(0);
  for_each_key(Box::below(out.shape), [&](const Key& index) {
    Key from = index;
    from.erase(from.begin() + position);
    if (from[kernel.integer(1)] == index[position]) out.at(index) = operand.at(from);
  });
  return out;
}

Array tile(const Kernel& kernel, const Array& operand, int64_t output, Array out) {
  const int64_t axis = kernel.integer(0);
  for_each_key(Box::below(out.shape), [&](const Key& index) {
    Key from = index;
    from[axis] += output * kernel.integer(1);
    out.at(index) = operand.at(from);
  });
  return out;
}

Array concat(const Kernel& kernel, const std::vector<Array>& operands, Array out) {
  const int64_t axis = kernel.integer(0);
  const int64_t seam = operands[0].shape[axis];
  for_each_key(Box::below(out.shape), [&](const Key& index) {
    Key from = index;
    if (index[axis] >= seam) from[axis] -= seam;
    out.at(index) = operands[index[axis] < seam ? 0 : 1].at(from);
  });
  return out;
}

}  // namespace

Array run(const Kernel& kernel, const std::vector<Array>& operands, const Scalars& scalars, int64_t output) {
  if (!kernel.epilogue.empty()) {
    Array out = run(kernel.first(), operands, scalars, output);
    for (const Kernel& next : kernel.epilogue) out = run(next, {out}, scalars);
    return out;
  }
  const Row& row = row_of(kernel);
  JOINSUM_KERNEL_CHECK(!row.user, kernel.name, ": the reference of a user's kernel is the user's function");
  std::vector<Dims> shapes;
  for (const Array& operand : operands) {
    JOINSUM_CHECK(operand.count() == checked_product("array", operand.shape), "shape=", operand.shape);
    shapes.push_back(operand.shape);
  }
  Array out = Array::zeros(result_shape(kernel, shapes, output));
  switch (row.form) {
    case Form::kElementwise:
      return elementwise(kernel, operands, scalars, std::move(out));
    case Form::kLabelled:
      return labelled(kernel, operands, shapes, std::move(out));
    case Form::kTile:
      return tile(kernel, operands[0], output, std::move(out));
    case Form::kConcat:
      return concat(kernel, operands, std::move(out));
    case Form::kInsertAxis:
      return inserted(kernel, operands[0], std::move(out));
    case Form::kEmbed:
      return embedded(kernel, operands[0], std::move(out));
    case Form::kDuplicate:
      out.values = operands[0].values;
      return out;
    case Form::kOpaque:
      break;
  }
  JOINSUM_CHECK(false, "kernel=", kernel.text());
}

}  // namespace joinsum::kernels::reference
