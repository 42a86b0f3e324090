#include "base/dims.h"

#include <algorithm>
#include <limits>
#include <set>

#include <gtest/gtest.h>

namespace joinsum {
namespace {

constexpr int64_t kHighest = std::numeric_limits<int64_t>::max();

Dims sizes(int64_t extent, int64_t parts) {
  const CutPoints cuts = even_cuts(extent, parts);
  Dims out;
  for (size_t i = 0; i + 1 < cuts.size(); ++i) out.push_back(cuts[i + 1] - cuts[i]);
  return out;
}

/// Every box of `arity` whose bounds lie in 0..limit, empty and inverted ones too.
std::vector<Box> all_boxes(int64_t arity, int64_t limit) {
  std::vector<Box> out;
  for (const Key& bounds : keys_of(Box::below(Key(2 * arity, limit + 1)))) {
    out.push_back({Key(bounds.begin(), bounds.begin() + arity), Key(bounds.begin() + arity, bounds.end())});
  }
  return out;
}

std::set<Key> members(const Box& box, int64_t limit) {
  std::set<Key> out;
  for (const Key& key : keys_of(Box::below(Key(box.arity(), limit + 1)))) {
    bool inside = true;
    for (size_t d = 0; d < key.size(); ++d) inside = inside && box.lower[d] <= key[d] && key[d] < box.upper[d];
    if (inside) out.insert(key);
  }
  return out;
}

TEST(Cuts, TenInFourGivesThreeTwoThreeTwo) { EXPECT_EQ(sizes(10, 4), (Dims{3, 2, 3, 2})); }

TEST(Cuts, MorePartsThanElementsGiveOnePartPerElement) { EXPECT_EQ(sizes(3, 5), (Dims{1, 1, 1})); }

TEST(Cuts, AnExtentOfZeroIsOneEmptyPart) {
  EXPECT_EQ(even_cuts(0, 1), (CutPoints{0, 0}));
  EXPECT_EQ(even_cuts(0, 7), (CutPoints{0, 0}));
}

TEST(Cuts, AnExtentOfOneIsOnePart) {
  EXPECT_EQ(even_cuts(1, 1), (CutPoints{0, 1}));
  EXPECT_EQ(even_cuts(1, 7), (CutPoints{0, 1}));
}

TEST(Cuts, PartsDifferByAtMostOneAndCoverTheExtent) {
  for (int64_t extent = 1; extent <= 40; ++extent) {
    for (int64_t parts = 1; parts <= 45; ++parts) {
      const Dims part_sizes = sizes(extent, parts);
      ASSERT_EQ(part_sizes.size(), std::min(extent, parts));
      const auto [least, most] = std::minmax_element(part_sizes.begin(), part_sizes.end());
      ASSERT_GE(*least, 1);
      ASSERT_LE(*most - *least, 1);
      ASSERT_EQ(even_cuts(extent, parts).front(), 0);
      ASSERT_EQ(even_cuts(extent, parts).back(), extent);
    }
  }
}

TEST(Cuts, ACutInAMultipleRefinesTheCut) {
  for (int64_t extent = 1; extent <= 60; ++extent) {
    for (int64_t parts = 1; parts <= extent; ++parts) {
      for (int64_t times = 1; parts * times <= extent; ++times) {
        const CutPoints coarse = even_cuts(extent, parts);
        const CutPoints fine = even_cuts(extent, parts * times);
        ASSERT_TRUE(std::includes(fine.begin(), fine.end(), coarse.begin(), coarse.end()))
            << extent << " in " << parts << " and " << parts * times;
      }
    }
  }
}

TEST(Cuts, PartOfFindsThePartThatHoldsTheIndexAlsoAmongEmptyParts) {
  for (int64_t extent = 1; extent <= 40; ++extent) {
    for (int64_t parts = 1; parts <= 90; ++parts) {
      for (int64_t index = 0; index < extent; ++index) {
        const int64_t part = part_of(extent, parts, index);
        ASSERT_GE(part, 0);
        ASSERT_LT(part, parts);
        ASSERT_LE(part_begin(extent, parts, part), index);
        ASSERT_LT(index, part_begin(extent, parts, part + 1));
      }
      ASSERT_EQ(part_begin(extent, parts, 0), 0);
      ASSERT_EQ(part_begin(extent, parts, parts), extent);
    }
  }
}

TEST(Cuts, ExtentsNearTheLimitDoNotOverflow) {
  EXPECT_EQ(part_begin(kHighest, kHighest, kHighest), kHighest);
  EXPECT_EQ(part_begin(kHighest, 2, 1), kHighest / 2 + 1);
  EXPECT_EQ(part_of(kHighest, kHighest, kHighest - 1), kHighest - 1);
  EXPECT_EQ(even_cuts(kHighest, 2), (CutPoints{0, kHighest / 2 + 1, kHighest}));
  EXPECT_EQ(ceil_div(kHighest, 2), kHighest / 2 + 1);
}

TEST(Cuts, ANegativeExtentOrNoPartsIsRejected) {
  EXPECT_THROW(even_cuts(-1, 2), PlanError);
  EXPECT_THROW(even_cuts(3, 0), PlanError);
}

TEST(CeilDiv, IsTheLeastNumberOfPartsThatCover) {
  for (int64_t a = 0; a <= 30; ++a) {
    for (int64_t b = 1; b <= 12; ++b) {
      ASSERT_GE(ceil_div(a, b) * b, a);
      ASSERT_LT((ceil_div(a, b) - 1) * b, a);
    }
  }
}

TEST(Dims, ComplementAndProjectionCoverTheKey) {
  EXPECT_EQ(all_dims(3), (Dims{0, 1, 2}));
  EXPECT_EQ(all_dims(0), Dims{});
  EXPECT_EQ(complement({2, 0}, 4), (Dims{1, 3}));
  EXPECT_EQ(complement({}, 2), (Dims{0, 1}));
  EXPECT_EQ(project({7, 8, 9}, {2, 0}), (Key{9, 7}));
  EXPECT_EQ(project({7, 8, 9}, {}), Key{});
  EXPECT_EQ(position_of({4, 2}, 2), 1);
  EXPECT_EQ(position_of({4, 2}, 3), std::nullopt);
}

TEST(Dims, AKeyPrintsInAngles) {
  EXPECT_EQ(key_text({0, 1}), "<0,1>");
  EXPECT_EQ(key_text({-3}), "<-3>");
  EXPECT_EQ(key_text({}), "<>");
}

TEST(Dims, CheckRejectsRepeatsAndDimsOutsideTheKey) {
  EXPECT_NO_THROW(check_dims("op", "dims", {2, 0}, 3));
  EXPECT_NO_THROW(check_dims("op", "dims", {}, 0));
  EXPECT_THROW(check_dims("op", "dims", {-1}, 3), PlanError);
  try {
    check_dims("op", "dims", {0, 3}, 3);
    FAIL();
  } catch (const PlanError& error) {
    EXPECT_STREQ(error.what(), "op: key dimension out of range: dims=[0, 3], key arity=3");
  }
  try {
    check_dims("op", "dims", {1, 0, 1}, 3);
    FAIL();
  } catch (const PlanError& error) {
    EXPECT_STREQ(error.what(), "op: key dimension named twice: dims=[1, 0, 1]");
  }
}

TEST(CheckedProduct, RaisesOnlyWhenTheProductExceeds64Bits) {
  EXPECT_EQ(checked_product("op", {}), 1);
  EXPECT_EQ(checked_product("op", {3, 4, 5}), 60);
  EXPECT_EQ(checked_product("op", {kHighest, 1}), kHighest);
  EXPECT_EQ(checked_product("op", {kHighest, kHighest, 0}), 0);
  EXPECT_THROW(checked_product("op", {kHighest, 2}), PlanError);
}

TEST(Box, CountsAndListsItsKeysInOrder) {
  for (int64_t arity = 0; arity <= 2; ++arity) {
    for (const Box& box : all_boxes(arity, 3)) {
      const std::set<Key> expected = members(box, 3);
      const std::vector<Key> keys = keys_of(box);
      ASSERT_EQ(keys, std::vector<Key>(expected.begin(), expected.end())) << box.text();
      ASSERT_EQ(box.count(), expected.size()) << box.text();
      ASSERT_EQ(box.empty(), expected.empty()) << box.text();
    }
  }
}

TEST(Box, ContainsAndIntersectAreThoseOfTheSetsOfKeys) {
  for (int64_t arity = 0; arity <= 2; ++arity) {
    const std::vector<Box> boxes = all_boxes(arity, 2);
    for (const Box& left : boxes) {
      const std::set<Key> in_left = members(left, 2);
      for (const Key& key : keys_of(Box::below(Key(arity, 3)))) {
        ASSERT_EQ(left.contains(key), in_left.count(key) == 1) << left.text() << key_text(key);
      }
      for (const Box& right : boxes) {
        const std::set<Key> in_right = members(right, 2);
        std::set<Key> common;
        std::set_intersection(in_left.begin(), in_left.end(), in_right.begin(), in_right.end(),
                              std::inserter(common, common.end()));
        ASSERT_EQ(members(left.intersect(right), 2), common) << left.text() << " and " << right.text();
        ASSERT_EQ(left.contains(right), common == in_right) << left.text() << " and " << right.text();
      }
    }
  }
}

TEST(Box, SingleHoldsItsKeyOnly) {
  EXPECT_EQ(keys_of(Box::single({2, 0, 5})), (std::vector<Key>{{2, 0, 5}}));
  EXPECT_EQ(keys_of(Box::single({})), (std::vector<Key>{{}}));
  EXPECT_EQ(Box::single({2, 0}).text(), "<2,0>..<3,1>");
}

TEST(Box, BelowHoldsTheKeysUnderTheFrontier) {
  EXPECT_EQ(keys_of(Box::below({2, 2})), (std::vector<Key>{{0, 0}, {0, 1}, {1, 0}, {1, 1}}));
  EXPECT_EQ(Box::below({2, 3}).extents(), (Dims{2, 3}));
  EXPECT_EQ(Box::below({2, 3}).extent(1), 3);
  EXPECT_TRUE(Box::below({2, 0}).empty());
}

TEST(Box, ACountBeyond64BitsRaisesAndAnEmptyBoxOfThatSizeIsEmpty) {
  const int64_t big = int64_t{1} << 40;
  EXPECT_THROW(Box::below({big, big}).count(), PlanError);
  EXPECT_FALSE(Box::below({big, big}).empty());
  EXPECT_TRUE(Box::below({big, big, 0}).empty());
  EXPECT_EQ(Box::below({big, big, 0}).count(), 0);
}

TEST(Hash, IsFnv1aOnEveryMachine) {
  EXPECT_EQ(hash_text(""), 0xcbf29ce484222325ULL);
  EXPECT_EQ(hash_text("a"), 0xaf63dc4c8601ec8cULL);
  EXPECT_EQ(hash_text("foobar"), 0x85944171f73967e8ULL);
  EXPECT_EQ(hash_mix(hash_text(""), 'a'), hash_text(std::string("a\0\0\0\0\0\0\0", 8)));
}

}  // namespace
}  // namespace joinsum
