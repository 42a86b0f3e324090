#include "runtime/storage/relation.h"

#include <gtest/gtest.h>

#include "base/check.h"
#include "runtime/physical_types.h"
#include "runtime/test_store.h"

namespace joinsum::runtime::storage {
namespace {

using relation::RelationType;

class RelationTest : public ::testing::Test {
 protected:
  const at::Tensor x_ = at::arange(24, at::kDouble).reshape({6, 4});
  std::shared_ptr<BlockStore> store_ = testing::make_test_store();
};

TEST_F(RelationTest, LayoutSlicesLinkedAxesByTheirCuts) {
  const auto type = RelationType::parse("f64[6,4]<3,2>");
  const Layout layout(type);
  const Box all{{0, 0}, {3, 2}}, part{{1, 1}, {3, 2}};
  EXPECT_EQ(layout.shape(all), (Dims{6, 4}));
  EXPECT_TRUE(layout.batch_dims().empty());
  EXPECT_TRUE(at::equal(layout.slice(x_, all, part), x_.narrow(0, 2, 4).narrow(1, 2, 2)));
  EXPECT_TRUE(layout.slice(x_, all, all).is_same(x_));
  const Block block = layout.slice(block_of(x_), all, part);
  EXPECT_EQ(block.shape(), at::IntArrayRef({4, 2}));
}

TEST_F(RelationTest, AssemblesByKeepingSlicingAndCopyingTogether) {
  const auto type = RelationType::parse("f64[6,4]<3,2>");
  const Box all{{0, 0}, {3, 2}}, upper{{0, 0}, {1, 2}}, lower{{1, 0}, {3, 2}};
  const Block upper_block = store_->put(x_.narrow(0, 0, 2).clone()),
              lower_block = store_->put(x_.narrow(0, 2, 4).clone());
  const std::vector<Piece> pieces{{upper, upper_block}, {lower, lower_block}};
  const auto kept = assemble(type, {lower}, pieces, x_.options(), *store_);
  EXPECT_TRUE(kept[0].shares_buffer(lower_block));
  const auto sliced = assemble(type, {Box{{2, 1}, {3, 2}}}, pieces, x_.options(), *store_);
  EXPECT_TRUE(at::equal(Pin(sliced[0]).array().clone(), x_.narrow(0, 4, 2).narrow(1, 2, 2)));
  const auto joined = assemble(type, {all}, pieces, x_.options(), *store_);
  EXPECT_TRUE(at::equal(Pin(joined[0]).array().clone(), x_));
}

TEST_F(RelationTest, TensorsComeBackWhole) {
  for (const char* const placement : {"(0, 1)", "(*, 0)", "(1, 0)", "(*, *)"}) {
    const auto type = testing::physical_type("f64[6,4]<3,2>", placement, 4);
    for (const Ownership ownership : {Ownership::kCopied, Ownership::kShared}) {
      const auto relation = place_tensor(x_, type, {0, 1, 2, 3}, *store_, ownership);
      EXPECT_TRUE(at::equal(whole_tensor(relation, *store_), x_)) << placement;
      EXPECT_EQ(shares_memory(relation, x_), ownership == Ownership::kShared) << placement;
    }
  }
}

TEST_F(RelationTest, TuplesAreSortedByKeyWithReplicasOnce) {
  const auto type = testing::physical_type("f64[6]<3>", "(*)", 2);
  const at::Tensor x = at::arange(6, at::kDouble);
  const auto found = tuples(place_tensor(x, type, {0, 1}, *store_, Ownership::kCopied));
  ASSERT_EQ(found.size(), 3U);
  for (int64_t k = 0; k < 3; ++k) {
    EXPECT_EQ(found[k].first, Key{k});
    EXPECT_TRUE(at::equal(found[k].second, x.narrow(0, 2 * k, 2)));
  }
  const auto again = place_tuples(found, type, {0, 1}, *store_, Ownership::kCopied);
  EXPECT_TRUE(at::equal(whole_tensor(again, *store_), x));
}

TEST_F(RelationTest, SitesAscendAndMissingOnesRaise) {
  const Block first = store_->put(x_.clone()), second = store_->put(x_.clone());
  SiteBlocks blocks;
  for (const int64_t site : {5, 2, 9, 2}) blocks[site].push_back(site == 5 ? first : second);
  std::vector<int64_t> sites;
  for (const auto& [site, own] : blocks) sites.push_back(site);
  EXPECT_EQ(sites, (std::vector<int64_t>{2, 5, 9}));
  EXPECT_EQ(blocks.at(2).size(), 2U);
  EXPECT_EQ(blocks.at(5).front().memory(), first.memory());
  EXPECT_THROW(blocks.at(3), std::out_of_range);
}

TEST_F(RelationTest, BlocksArePlacedAsTheyAre) {
  const auto type = testing::physical_type("f64[6,4]<2,1>", "(0)", 2);
  const std::vector<at::Tensor> arrays{x_.narrow(0, 0, 3).clone(), x_.narrow(0, 3, 3).clone()};
  const auto relation = place_blocks(arrays, type, {0, 1}, *store_);
  const auto found = block_arrays(relation);
  for (size_t i = 0; i < arrays.size(); ++i) EXPECT_EQ(found[i].data_ptr(), arrays[i].data_ptr());
  EXPECT_TRUE(at::equal(whole_tensor(relation, *store_), x_));
  EXPECT_THROW(place_blocks({arrays[0]}, type, {0, 1}, *store_), PlanError);
  EXPECT_THROW(place_blocks({arrays[0], x_}, type, {0, 1}, *store_), PlanError);
}

TEST_F(RelationTest, RetypedRelationsShareMemoryUnderBlocksOfTheirOwn) {
  const auto relation =
      place_tensor(x_, testing::physical_type("f64[6,4]<2,1>", "(0)", 2), {0, 1}, *store_, Ownership::kCopied);
  const auto other = retyped(relation, testing::physical_type("f64[6,2,2]<2,1,1>", "(0)", 2), *store_);
  const Block& block = other.sites.at(1)[0];
  EXPECT_EQ(block.shape(), at::IntArrayRef({3, 2, 2}));
  EXPECT_EQ(block.memory(), relation.sites.at(1)[0].memory());
  EXPECT_FALSE(block.exclusive());
  EXPECT_THROW(retyped(relation, testing::physical_type("f64[8,4]<2,1>", "(0)", 2), *store_), PlanError);
  EXPECT_FALSE(with_own_blocks(relation, *store_).sites.at(0)[0].exclusive());
}

}  // namespace
}  // namespace joinsum::runtime::storage
