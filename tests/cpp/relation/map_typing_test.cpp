#include "relation/typing_samples.h"

namespace joinsum::relation {
namespace {

std::string mapped(const std::string& input, const std::string& keys, const std::string& by, int64_t outputs = 1) {
  return map_type("test", relation(input), outputs, KeyMap::parse(keys, {}), kernel(by)).text(true);
}

TEST(MapTyping, AKernelChangesAxesAndAKeyMapKeys) {
  EXPECT_EQ(mapped("f32[4,6]<2,3>", "(k0, k1)", "exp"), "f32[4,6]<2,3>");
  EXPECT_EQ(mapped("f32[4,6]<2,3>", "(k1, k0)", "id"), "f32[4@1,6@0]<3,2>");
  EXPECT_EQ(mapped("f32[4,6]<2,3>", "(k0, k1)", "transpose"), "f32[6@1,4@0]<2,3>");
  EXPECT_EQ(mapped("f32[4]<2>", "(k0)", "insert_dim[0]"), "f32[1,4@0]<2>");
  EXPECT_EQ(mapped("f32[4]<2>", "(k0)", "cast[f64] | exp"), "f64[4]<2>");
}

TEST(MapTyping, KeysThatAMapMergesAreListed) {
  EXPECT_EQ(mapped("f32[4@-]<2>", "(k0 // 2)", "id"), "f32[4@-]<1> keys{<0>,<0>}");
}

TEST(MapTyping, TilesAreCountedByANewKey) {
  const TileMap tiles = tile_map("test", relation("f32[8@-]<2>"), 0, 3);
  EXPECT_EQ(tiles.outputs, 3);
  EXPECT_EQ(tiles.array_map, kernel("tile[0, 3]"));
  const RelationType type = map_type("test", relation("f32[8@-]<2>"), tiles.outputs, tiles.key_map, tiles.array_map);
  EXPECT_EQ(type.text(), "f32[8@1]<2,3>");
}

TEST(MapTyping, AFilterLeavesTheKeysOfItsPredicate) {
  const auto filtered = [](const std::string& predicate) {
    return filter_type("test", relation("f32[8]<4>"), KeyExpression::parse(predicate, {})).text(true);
  };
  EXPECT_EQ(filtered("k0 < 2"), "f32[4]<2>");
  EXPECT_EQ(filtered("k0 != 0"), "f32[8]<4> keys{<1>,<2>,<3>}");
  EXPECT_NE(error_of([&] { filtered("k0 + 1"); }).find("a predicate is a comparison"), std::string::npos);
  EXPECT_NE(error_of([&] { filtered("k1 < 2"); }).find("predicate reads a component that the key lacks"),
            std::string::npos);
}

TEST(MapTyping, WhatDoesNotFitIsRefused) {
  EXPECT_EQ(error_of([] { mapped("f32[4]<2>", "(k0)", "add"); }),
            "test: kernel has the wrong number of operands: kernel=add, operands=2, wanted=1");
  EXPECT_EQ(error_of([] { mapped("f32[4]<2>", "(k0, m)", "exp", 2); }),
            "test: kernel has one result: kernel=exp, outputs=2");
  EXPECT_EQ(error_of([] { mapped("f32[4]<2>", "(k0)", "insert_dim[3]"); }), "test: axis out of range: axis=3, rank=1");
  EXPECT_NE(error_of([] { tile_map("test", relation("f32[8@0{0,1,8}]<2>"), 0, 1); }).find("arrays differ along"),
            std::string::npos);
}

}  // namespace
}  // namespace joinsum::relation
