#include "einsum/json/place.h"

#include <gtest/gtest.h>

namespace joinsum::einsum::json {
namespace {

TEST(JsonPlace, AStepOfAPathIsAWordOrInBrackets) {
  EXPECT_EQ(path_step("ops"), ".ops");
  EXPECT_EQ(path_step("W_1"), ".W_1");
  EXPECT_EQ(path_step("1"), "[\"1\"]");
  EXPECT_EQ(path_step(""), "[\"\"]");
  EXPECT_EQ(path_step("a \"b\""), "[\"a \\\"b\\\"\"]");
}

TEST(JsonPlace, LinesAndColumnsCountFromOne) {
  EXPECT_EQ(place_of("ab\ncd", 0), "line=1, column=1");
  EXPECT_EQ(place_of("ab\ncd", 4), "line=2, column=2");
}

TEST(JsonPlace, APathNamesTheOpenListsAndObjects) {
  Place place;
  EXPECT_EQ(place.path(), "$");
  place.open(false);
  EXPECT_TRUE(place.name("ops"));
  place.open(true);
  place.begin_value();
  place.open(false);
  EXPECT_TRUE(place.name("join"));
  EXPECT_FALSE(place.name("join"));
  EXPECT_EQ(place.path(), "$.ops[1].join");
  place.close();
  EXPECT_EQ(place.path(), "$.ops[1]");
}

}  // namespace
}  // namespace joinsum::einsum::json
