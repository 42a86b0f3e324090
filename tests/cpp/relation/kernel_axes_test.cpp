#include "relation/kernel_axes.h"

#include "relation/typing_samples.h"

namespace joinsum::relation {
namespace {

TEST(KernelAxes, KeysAreThoseListedOrAllBelowTheFrontier) {
  const auto keys_of = [](const KeySource& source, size_t most) {
    std::vector<Key> out;
    source([&](const Key& key) {
      out.push_back(key);
      return out.size() < most;
    });
    return out;
  };
  EXPECT_EQ(keys_of(source_of("test", {2, 2}, nullptr), 9), (std::vector<Key>{{0, 0}, {0, 1}, {1, 0}, {1, 1}}));
  EXPECT_EQ(keys_of(source_of("test", {2, 2}, nullptr), 3).size(), 3);
  const auto listed = std::make_shared<const std::vector<Key>>(std::vector<Key>{{1, 0}, {1, 0}});
  EXPECT_EQ(keys_of(source_of("test", {2, 2}, listed), 9), *listed);
}

TEST(KernelAxes, AnAxisIsUniformWhereAllPartsHaveOneExtent) {
  EXPECT_EQ(uniform_extent(Axis::whole(3)), 3);
  EXPECT_EQ(uniform_extent(Axis::cut(0, {0, 2, 4})), 2);
  EXPECT_EQ(uniform_extent(Axis::cut(0, {0, 1, 4})), std::nullopt);
}

TEST(KernelAxes, FollowFromTheOperandsByTheFormOfTheKernel) {
  const std::vector<Axis> rows{Axis::cut(0, {0, 2, 4}), Axis::whole(3)}, row{Axis::whole(3)};
  const auto axes = [](const std::string& text, const std::vector<std::vector<Axis>>& operands) {
    const kernels::table::Kernel by = kernel(text);
    return symbolic_axes({"test", by, source_of("test", {2}, nullptr)}, operands);
  };
  EXPECT_EQ(axes("add", {rows, row}), rows);
  EXPECT_EQ(axes("row_sum", {rows}), (std::vector<Axis>{rows[0]}));
  EXPECT_EQ(axes("expand[1, 5]", {rows}), (std::vector<Axis>{rows[0], Axis::whole(5), rows[1]}));
  EXPECT_EQ(axes("embed_diagonal[0, 1]", {rows}), (std::vector<Axis>{rows[1], rows[0], rows[1]}));
  EXPECT_EQ(axes("concat[0]", {rows, rows}), std::nullopt);
  EXPECT_EQ(error_of([&] { axes("add", {rows, {Axis::whole(2)}}); }),
            "test: array extents do not match: kernel=add, key=<0>, extents=3 and 2");
}

}  // namespace
}  // namespace joinsum::relation
