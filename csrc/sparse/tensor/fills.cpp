#include "sparse/tensor/fills.h"

#include "sparse/operators/arithmetic.h"
#include "sparse/tensor/elements.h"

namespace joinsum::sparse::tensor {
namespace {

template <class Visit>
double computed(DType dtype, Visit&& visit) {
  if (dtype == DType::kBool) return operators::fill_from(visit(false));
  return with_element_type("sparse tensor", dtype, [&](auto zero) { return operators::fill_from(visit(zero)); });
}

}  // namespace

double fill_of_map(DType dtype, Operator op, const std::vector<double>& children) {
  return computed(dtype, [&]<class T>(T) {
    for (const double child : children) {
      const T value = operators::value_of<T>(child);
      if (operators::annihilates(op, static_cast<double>(value))) return value;
    }
    T value = operators::value_of<T>(children.front());
    if (children.size() == 1) return operators::applied(op, value);
    for (size_t i = 1; i < children.size(); ++i) {
      value = operators::applied(op, value, operators::value_of<T>(children[i]));
    }
    return value;
  });
}

bool decides(Operator op, double child, double map) { return operators::annihilates(op, child) && child == map; }

double fill_of_aggregate(DType dtype, Operator op, double x, double n) {
  return computed(dtype, [&]<class T>(T) { return operators::repeated_in(op, operators::value_of<T>(x), n); });
}

}  // namespace joinsum::sparse::tensor
