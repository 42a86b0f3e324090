#include "runtime/communication/first_difference.h"

#include <gtest/gtest.h>

namespace joinsum::runtime::communication {
namespace {

TEST(FirstDifference, NamesTheLineAndTheFirstSiteThatDiffers) {
  EXPECT_EQ(first_difference({"a\nb", "a\nb", "a\nc"}), "line=2, site 0: b, site 2: c");
}

TEST(FirstDifference, SaysWhereALineIsMissing) {
  EXPECT_EQ(first_difference({"a\nb", "a"}), "line=2, site 0: b, site 1: (no such line)");
}

TEST(FirstDifference, ShowsWhatSurroundsTheDifferenceOfLongLines) {
  const std::string same(500, 'x');
  const std::string text = first_difference({same + "1" + same, same + "2" + same});
  EXPECT_NE(text.find("..." + std::string(60, 'x') + "1xxx"), std::string::npos) << text;
  EXPECT_NE(text.find("..." + std::string(60, 'x') + "2xxx"), std::string::npos) << text;
  EXPECT_LT(text.size(), 400U);
}

}  // namespace
}  // namespace joinsum::runtime::communication
