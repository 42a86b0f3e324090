#include "sparse/tensor/distinct.h"

#include "sparse/tensor/elements.h"

namespace joinsum::sparse::tensor {
namespace {

Columns columns_of(const Coordinates& coordinates, const std::vector<int64_t>& axes) {
  Columns columns{.count = coordinates.count()};
  for (const int64_t axis : axes) {
    columns.data.push_back(coordinates.axes[axis]);
    columns.sizes.push_back(coordinates.shape[axis]);
  }
  return columns;
}

/// The first element that equals the one before it; the number of elements if there is none.
int64_t first_repeated(const Columns& columns) {
  for (int64_t e = 1; e < columns.count; ++e) {
    if (columns.same(e - 1, e)) return e;
  }
  return columns.count;
}

/// The first element of each run of equal ones.
std::vector<int64_t> beginnings(const Columns& columns) {
  std::vector<int64_t> begins;
  for (int64_t e = 0; e < columns.count; ++e) {
    if (e == 0 || !columns.same(e - 1, e)) begins.push_back(e);
  }
  return begins;
}

void refuse_repeated(const Coordinates& coordinates, const Ascending& elements, int64_t repeated) {
  Dims coordinate;
  for (const Array<int64_t>& axis : coordinates.axes) coordinate.push_back(axis[elements.place(repeated)]);
  const Dims places{elements.place(repeated - 1), elements.place(repeated)};
  JOINSUM_USER_CHECK(false, "sparse tensor: a coordinate is repeated, and no fold is named: coordinate=", coordinate,
                     ", places=", places);
}

/// Whether a fold makes truths, 0 and 1, of its values.
bool gives_truths(std::optional<Operator> fold) { return fold == Operator::kAnd || fold == Operator::kOr; }

/// Folds each run of equal elements; a run begins at each of `begins`.
Values folded(const Values& values, const Ascending& elements, const std::vector<int64_t>& begins, Operator fold) {
  const bool truth = values.dtype == DType::kBool || gives_truths(fold);
  return with_element_type("sparse tensor", values.dtype, [&](auto zero) {
    using T = decltype(zero);
    const T* from = values.as<T>();
    ValueBuffer<T> out(static_cast<int64_t>(begins.size()));
    for (size_t i = 0; i < begins.size(); ++i) {
      const int64_t end = i + 1 < begins.size() ? begins[i + 1] : elements.columns.count;
      T value = from[elements.place(begins[i])];
      for (int64_t e = begins[i] + 1; e < end; ++e) value = apply(fold, value, from[elements.place(e)]);
      out.data()[i] = truth ? T(value != T(0)) : value;
    }
    return out.take(values.dtype);
  });
}

}  // namespace

DistinctElements distinct_elements(const Coordinates& coordinates, const std::vector<int64_t>& axes,
                                   std::optional<Operator> fold) {
  const Ascending elements = sorted(columns_of(coordinates, axes));
  const Columns& columns = elements.columns;
  const int64_t repeated = first_repeated(columns);
  if (repeated == columns.count && !gives_truths(fold)) {
    return {.columns = columns,
            .count = columns.count,
            .values = elements.places.empty() ? coordinates.values : gathered(coordinates.values, elements.places)};
  }
  if (!fold) refuse_repeated(coordinates, elements, repeated);
  std::vector<int64_t> begins = beginnings(columns);
  Values values = folded(coordinates.values, elements, begins, *fold);
  const auto count = static_cast<int64_t>(begins.size());
  return {columns, std::move(begins), count, std::move(values)};
}

}  // namespace joinsum::sparse::tensor
