#pragma once

#include <algorithm>
#include <random>
#include <set>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "kernels/dense/dense.h"
#include "kernels/reference/reference.h"

namespace joinsum::kernels::dense {

using Tensors = std::vector<at::Tensor>;

inline const table::Scalars kScalars{{"rate", 0.5}, {"step", 3}};

inline at::Tensor tensor_of(const reference::Array& array, at::ScalarType type = at::kDouble) {
  at::Tensor out = at::empty(array.shape, at::kDouble);
  std::copy(array.values.begin(), array.values.end(), out.mutable_data_ptr<double>());
  return out.to(type);
}

inline reference::Array array_of(const at::Tensor& tensor) {
  const at::Tensor values = tensor.to(at::kDouble).contiguous();
  return {tensor.sizes().vec(), {values.const_data_ptr<double>(), values.const_data_ptr<double>() + values.numel()}};
}

/// |x - y| <= tolerance (1 + |y|), and both not numbers in the same places.
inline ::testing::AssertionResult near(const at::Tensor& x, const at::Tensor& y, double tolerance) {
  if (x.sizes() != y.sizes()) return ::testing::AssertionFailure() << "shapes " << x.sizes() << " and " << y.sizes();
  const bool complex = x.is_complex() || y.is_complex();
  const auto wide = complex ? at::kComplexDouble : at::kDouble;
  if (at::allclose(x.to(wide), y.to(wide), tolerance, tolerance, true)) return ::testing::AssertionSuccess();
  if (x.numel() <= 100) return ::testing::AssertionFailure() << x << "\nis not near\n" << y;
  return ::testing::AssertionFailure() << "largest difference " << (x.to(wide) - y.to(wide)).abs().max();
}

/// One call of each kernel, and more where a kernel has cases.
struct Sample {
  std::string kernel;
  std::vector<Dims> shapes;
  int64_t output = 0;
};

inline const std::vector<Sample>& samples() {
  static const std::vector<Sample> list = [] {
    std::vector<Sample> all{
        {"id", {{2, 3}}},
        {"matmul", {{2, 3}, {3, 4}}},
        {"matmul_tn", {{3, 2}, {3, 4}}},
        {"matmul_nt", {{2, 3}, {4, 3}}},
        {"contract[ijk,lkj->il]", {{2, 3, 4}, {5, 4, 3}}},
        {"contract[bij,bjk->kbi]", {{2, 3, 4}, {2, 4, 5}}},
        {"contract[ij,ij->i]", {{2, 3}, {2, 3}}},
        {"contract[i,j->ji]", {{2}, {3}}},
        {"add", {{2, 3}, {2, 3}}},
        {"add", {{3}, {2, 1}}},
        {"sub", {{2, 3}, {3}}},
        {"mul", {{2, 3}, {}}},
        {"div", {{2, 3}, {2, 3}}},
        {"min", {{2, 3}, {2, 3}}},
        {"max", {{2, 3}, {3}}},
        {"squared_difference", {{4, 3}, {4, 3}}},
        {"squared_difference", {{3}, {2, 1}}},
        {"abs_difference", {{4, 3}, {4, 3}}},
        {"abs_difference", {{3}, {2, 1}}},
        {"logaddexp", {{2, 3}, {3}}},
        {"expression[1, sigmoid(x0)*exp(-x0/4)]", {{2, 3}}},
        {"expression[2, where(x0<x1,x0*3-x1,2)]", {{2, 3}, {3}}},
        {"expression[2, 7]", {{2, 3}, {3}}},
        {"equal", {{2, 3}, {2, 3}}},
        {"above", {{2, 3}, {2, 3}}},
        {"above", {{3}, {2, 1}}},
        {"conjugate", {{2, 3}}},
        {"detach", {{2, 3}}},
        {"sign", {{2, 3}}},
        {"is_zero", {{2, 3}}},
        {"scale[3]", {{2, 3}}},
        {"scale[-2.0]", {{2, 3}}},
        {"negate", {{2, 3}}},
        {"square", {{2, 3}}},
        {"reciprocal", {{2, 3}}},
        {"abs", {{2, 3}}},
        {"sqrt", {{2, 3}}},
        {"relu", {{2, 3}}},
        {"relu_derivative", {{2, 3}}},
        {"sigmoid", {{2, 3}}},
        {"tanh", {{2, 3}}},
        {"exp", {{2, 3}}},
        {"log", {{2, 3}}},
        {"softplus", {{2, 3}}},
        {"row_sum", {{2, 3}}},
        {"row_sum", {{2, 0}}},
        {"total", {{2, 3}}},
        {"row_max", {{2, 3}}},
        {"transpose", {{2, 3}}},
        {"diag", {{3, 3}}},
        {"arrange[ijk->kij]", {{2, 3, 4}}},
        {"arrange[ijii->ji]", {{2, 3, 2, 2}}},
        {"expand[1, 4]", {{2, 3}}},
        {"expand[2, 0]", {{2, 3}}},
        {"embed_diagonal[2, 0]", {{2, 3}}},
        {"embed_diagonal[0, 1]", {{2, 3}}},
        {"insert_dim[0]", {{2, 3}}},
        {"insert_dim[2]", {{2, 3}}},
        {"duplicate", {{2, 3}}, 4},
        {"tile[1, 2]", {{2, 5}}, 0},
        {"tile[1, 2]", {{2, 5}}, 2},
        {"concat[0]", {{2, 3}, {4, 3}}},
        {"concat[1]", {{2, 3}, {2, 0}}},
        {"cast[f32]", {{2, 3}}},
        {"cast[bf16]", {{2, 3}}},
        {"cast[f16]", {{2, 3}}},
        {"cast[i32]", {{2, 3}}},
        {"cast[bool]", {{2, 3}}},
        {"bce_with_logits", {{2, 3}, {2, 3}}},
        {"bce_with_logits", {{2, 3}, {3}}},
        {"sigmoid_difference", {{2, 3}, {2, 3}}},
        {"sigmoid_difference", {{3}, {2, 1}}},
        {"sgd_update[0.1]", {{2, 3}, {2, 3}}},
        {"sgd_update[$rate]", {{2, 3}, {3}}},
        {"adam_first[0.9]", {{2, 3}, {2, 3}}},
        {"adam_second[0.999]", {{2, 3}, {2, 3}}},
        {"adam_second[0.9]", {{2, 3}, {3}}},
        {"adam_direction[$rate, 0.9, 0.999, 1e-08, $step]", {{2, 3}, {2, 3}}},
        {"adam_direction[0.1, 0.5, 0.25, 0.125, 1]", {{2, 3}, {3}}},
    };
    for (const table::Row* row : table::all_rows()) {
      if (row->name.starts_with("reduce_")) {
        all.push_back({row->name + "[ijk->ki]", {{2, 3, 4}}});
        all.push_back({row->name + "[iij->j]", {{3, 3, 2}}});
        all.push_back({row->name + "[ij->i]", {{2, 0}}});
      } else if (row->name.starts_with("expression_")) {
        all.push_back({row->name + "[ij,kj->ki:x0*2-x1]", {{2, 3}, {4, 3}}});
        all.push_back({row->name + "[bij,kb->ik:where(x0<x1,tanh(x0),3)]", {{2, 3, 4}, {5, 2}}});
        all.push_back({row->name + "[ij,kj->ki:x0*2-x1]", {{2, 0}, {4, 0}}});
      } else if (row->name.starts_with("contract_")) {
        all.push_back({row->name + "[ij,kj->ki]", {{2, 3}, {4, 3}}});
        all.push_back({row->name + "[bij,kb->ik]", {{2, 3, 4}, {5, 2}}});
        all.push_back({row->name + "[ij,kj->ki]", {{2, 0}, {4, 0}}});
      }
    }
    return all;
  }();
  return list;
}

/// Roots and logarithms need operands above zero, and so does the second moment.
inline bool needs_positive(const std::string& name) {
  return std::set<std::string>{"sqrt", "log", "adam_direction", "div", "reciprocal"}.contains(name) ||
         name.starts_with("contract_div");
}

inline reference::Array random_array(const Dims& shape, std::mt19937_64& random, bool integers, bool positive) {
  reference::Array out = reference::Array::zeros(shape);
  for (double& value : out.values) {
    const auto draw = random();
    value = integers ? static_cast<double>(draw % 9) - 4 : (static_cast<double>(draw >> 11) * 0x1p-53 - 0.5) * 8;
    if (positive) value = std::abs(value) + 1;
  }
  return out;
}

struct Drawn {
  table::Kernel kernel;
  std::vector<reference::Array> arrays;

  Drawn(const Sample& sample, std::mt19937_64& random, bool integers, const std::vector<Dims>& shapes)
      : kernel(table::Kernel::parse(sample.kernel)) {
    for (const Dims& shape : shapes) {
      arrays.push_back(random_array(shape, random, integers, needs_positive(kernel.name)));
    }
  }

  Tensors tensors(at::ScalarType type) const {
    Tensors out;
    for (const reference::Array& array : arrays) out.push_back(tensor_of(array, type));
    return out;
  }
};

inline Drawn draw(const Sample& sample, std::mt19937_64& random, bool integers = false) {
  return {sample, random, integers, sample.shapes};
}

template <class Error, class Function>
std::string message_of(Function function) {
  try {
    function();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

}  // namespace joinsum::kernels::dense
