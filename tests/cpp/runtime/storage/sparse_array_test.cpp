#include "runtime/storage/sparse_array.h"

#include <gtest/gtest.h>

#include "base/check.h"
#include "runtime/storage/block_store.h"

namespace joinsum::runtime::storage {
namespace {

at::Tensor matrix() {
  const at::Tensor x = at::randint(0, 3, {7, 5, 4}, at::kDouble);
  return x * at::randint(0, 2, {7, 5, 4}, at::kDouble);
}

TEST(SparseArray, PartsAreThoseOfTheDenseArray) {
  const at::Tensor dense = matrix();
  const at::Tensor sparse = as_sparse_array(dense.to_sparse());
  const at::Tensor view = geometry_of(sparse).narrow(0, 2, 3).narrow(2, 1, 2);
  const at::Tensor part = part_of(sparse, view);
  EXPECT_TRUE(part.is_coalesced());
  EXPECT_TRUE(at::equal(part.to_dense(), dense.narrow(0, 2, 3).narrow(2, 1, 2)));
  EXPECT_TRUE(part_of(sparse, geometry_of(sparse)).is_same(sparse));
}

TEST(SparseArray, PartsArePutTogetherInAnyOrder) {
  const at::Tensor dense = matrix();
  std::vector<std::pair<Dims, at::Tensor>> parts;
  for (const int64_t begin : {4, 0, 2}) {
    parts.emplace_back(Dims{begin, 0, 0}, dense.narrow(0, begin, begin == 4 ? 3 : 2).to_sparse());
  }
  const at::Tensor whole = put_together(parts, {7, 5, 4}, at::kDouble);
  EXPECT_TRUE(at::equal(whole.to_dense(), dense));
  EXPECT_TRUE(at::equal(whole.indices(), dense.to_sparse().indices()));
  EXPECT_EQ(put_together({}, {3, 2}, at::kFloat)._nnz(), 0);
}

TEST(SparseArray, RangesAreOfRowMajorPositions) {
  const at::Tensor dense = matrix();
  const at::Tensor sparse = as_sparse_array(dense.to_sparse());
  for (const auto& [begin, end] : {std::pair<int64_t, int64_t>{0, 140}, {0, 0}, {13, 77}, {139, 140}}) {
    at::Tensor expected = at::zeros({140}, at::kDouble);
    expected.narrow(0, begin, end - begin).copy_(dense.reshape(-1).narrow(0, begin, end - begin));
    EXPECT_TRUE(at::equal(entries_between(sparse, begin, end).to_dense().reshape(-1), expected));
  }
}

TEST(SparseArray, BytesAreReadBack) {
  for (const auto type : {at::kDouble, at::kBFloat16, at::kByte}) {
    const at::Tensor sparse = matrix().to(type).to_sparse();
    const at::Tensor bytes = to_bytes(sparse);
    EXPECT_EQ(bytes.numel(), stored_bytes(sparse));
    const at::Tensor again = from_bytes(bytes, {7, 5, 4}, type);
    EXPECT_TRUE(at::equal(again.indices(), sparse.indices()) && at::equal(again.values(), sparse.values()));
  }
}

TEST(SparseArray, RepeatsAreAddedAndDenseAxesRefused) {
  const at::Tensor twice = at::sparse_coo_tensor(at::zeros({2, 2}, at::kLong), at::ones({2}), {3, 3});
  EXPECT_EQ(as_sparse_array(twice)._nnz(), 1);
  EXPECT_THROW(as_sparse_array(at::ones({3, 3}).to_sparse(1)), PlanError);
  EXPECT_THROW(as_sparse_array(at::ones({3, 3})), PlanError);
}

TEST(SparseArray, BlocksAreCountedAsLongAsTheyLive) {
  for (const std::string& name : store_names()) {
    const auto store = make_store(name);
    {
      const at::Tensor sparse = matrix().to_sparse();
      const Block block = store->put(sparse);
      EXPECT_EQ(block.format(), Format::kSparse);
      EXPECT_EQ(block.elements(), 7 * 5 * 4);
      EXPECT_EQ(store->bytes(), stored_bytes(sparse));
      EXPECT_TRUE(at::equal(Pin(block.narrow(1, 1, 3)).array().to_dense(), sparse.to_dense().narrow(1, 1, 3)));
      EXPECT_FALSE(block.exclusive());
    }
    EXPECT_EQ(store->bytes(), 0);
  }
}

}  // namespace
}  // namespace joinsum::runtime::storage
