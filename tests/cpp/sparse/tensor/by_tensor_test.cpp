#include "sparse/tensor/by_tensor.h"

#include <gtest/gtest.h>

namespace joinsum::sparse::tensor {
namespace {

TEST(ByTensor, LooksAtATensorOnceAsLongAsItLives) {
  ByTensor<size_t> ranks;
  int looks = 0;
  const auto rank_of = [&](const Tensor& tensor) {
    ++looks;
    return tensor.shape.size();
  };
  auto tensor = std::make_shared<const Tensor>(Tensor{.shape = {2, 3}});
  EXPECT_EQ(ranks.of(tensor, rank_of), 2);
  EXPECT_EQ(ranks.of(tensor, rank_of), 2);
  EXPECT_EQ(looks, 1);
  // Others may lie where tensors were that are gone.
  for (int i = 0; i < 3000; ++i) {
    tensor = std::make_shared<const Tensor>(Tensor{.shape = Dims(i % 4, 1)});
    ASSERT_EQ(ranks.of(tensor, rank_of), i % 4);
  }
  EXPECT_EQ(looks, 3001);
}

}  // namespace
}  // namespace joinsum::sparse::tensor
