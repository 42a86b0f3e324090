#pragma once

#include "kernels/dense/samples.h"

namespace joinsum::kernels::dense {

/// Random letters with random extents, 0 and 1 among them, and operands in random stride orders.
struct RandomContraction {
  table::Kernel kernel;
  table::Subscripts labels;
  Tensors operands;
  at::Tensor wanted;

  RandomContraction(std::mt19937_64& random, at::ScalarType type, const std::string& name = "contract") {
    const std::string alphabet = "abcXYZ";
    Dims extents;
    const Dims choices{2, 3, 1, 4, 2, 3, 1, 0};
    const bool may_be_empty = random() % 3 == 0;
    for (size_t i = 0; i < alphabet.size(); ++i) extents.push_back(choices[random() % (may_be_empty ? 8 : 7)]);
    std::string given;
    std::vector<reference::Array> arrays;
    for (int i = 0; i < 2; ++i) {
      labels.operands.push_back(random_letters(alphabet, random));
      given += labels.operands.back();
      Dims shape;
      for (const char letter : labels.operands.back()) shape.push_back(extents[alphabet.find(letter)]);
      arrays.push_back(random_array(shape, random, true, needs_positive(name)));
      operands.push_back(reordered(tensor_of(arrays.back(), type), random));
    }
    for (const char letter : random_letters(alphabet, random)) {
      if (given.find(letter) != std::string::npos) labels.result += letter;
    }
    kernel = table::Kernel{name, {labels.text()}};
    wanted = tensor_of(reference::run(kernel, arrays), type);
  }

  static std::string random_letters(std::string alphabet, std::mt19937_64& random) {
    std::shuffle(alphabet.begin(), alphabet.end(), random);
    return alphabet.substr(0, random() % 5);
  }

  /// The same values, the axes lying in another order.
  static at::Tensor reordered(const at::Tensor& x, std::mt19937_64& random) {
    Dims order = all_dims(x.dim());
    std::shuffle(order.begin(), order.end(), random);
    Dims inverse(order.size());
    for (size_t i = 0; i < order.size(); ++i) inverse[order[i]] = static_cast<int64_t>(i);
    return x.permute(order).contiguous().permute(inverse);
  }
};

}  // namespace joinsum::kernels::dense
