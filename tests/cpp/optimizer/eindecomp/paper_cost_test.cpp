#include "optimizer/eindecomp/paper_cost.h"

#include <algorithm>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "optimizer/eindecomp/partition_reference.h"
#include "optimizer/eindecomp/vectors.h"

namespace joinsum::optimizer::eindecomp {
namespace {

TEST(PaperCost, TheProductsOfThePapersFirstFigure) {
  const EinsumShape shape = shape_of(product(8).graph.operations()[0]);
  const std::vector<Dims> vectors{{4, 1, 4}, {2, 1, 8}, {2, 4, 2}, {2, 2, 4}};
  const std::vector<double> join{512, 640, 256, 384};
  const std::vector<double> aggregation{0, 0, 192, 64};
  for (size_t i = 0; i < vectors.size(); ++i) {
    EXPECT_EQ(join_floats(shape, vectors[i]), join[i]);
    EXPECT_EQ(aggregation_floats(shape, vectors[i]), aggregation[i]);
  }
}

TEST(PaperCost, TheRepartitionsOfAnEightByEightMatrix) {
  EXPECT_EQ(repartition_floats({8, 8}, {2, 4}, {4, 1}), 320);
  EXPECT_EQ(repartition_floats({8, 8}, {2, 2}, {4, 4}), 256);
  EXPECT_EQ(repartition_floats({8, 8}, {4, 4}, {2, 2}), 240);
  EXPECT_EQ(repartition_floats({8, 8}, {8, 1}, {1, 8}), 960);
  EXPECT_EQ(repartition_floats({8, 8}, {2, 4}, {2, 4}), 0);
  EXPECT_EQ(repartition_floats({0, 8}, {1, 4}, {1, 2}), 0);
  EXPECT_EQ(repartition_floats({}, {}, {}), 0);
}

TEST(PaperCost, RepartitionsHaveTheirClosedForm) {
  const std::vector<int64_t> counts{1, 2, 4, 8};
  for (const int64_t a : counts) {
    for (const int64_t b : counts) {
      for (const int64_t c : counts) {
        for (const int64_t d : counts) {
          EXPECT_EQ(repartition_floats({8, 24}, {a, b}, {c, d}), moved({8, 24}, {a, b}, {c, d}));
        }
      }
    }
  }
}

TEST(PartitionVectors, AProductOfEightByEightMatricesHasTenWhereThePaperListsEight) {
  const auto vectors = viable_vectors({8, 8, 8}, 8);
  EXPECT_EQ(vectors.size(), 10);
  for (const Dims& missing : {Dims{2, 4, 1}, Dims{1, 4, 2}}) {
    EXPECT_NE(std::find(vectors.begin(), vectors.end(), missing), vectors.end());
  }
  EXPECT_EQ(vectors.front(), (Dims{8, 1, 1}));
  EXPECT_EQ(vectors.back(), (Dims{1, 1, 8}));
}

TEST(PartitionVectors, ThereAreAsManyAsThePaperCounts) {
  EXPECT_EQ(viable_vectors(Dims(6, 1024), 1024).size(), 3003);
  EXPECT_EQ(viable_vectors(Dims(4, 1024), 1024).size(), 286);
  EXPECT_EQ(viable_vectors({}, 8), (std::vector<Dims>{{}}));
}

TEST(PartitionVectors, PartsDivideTheirExtentsAndReachWhatCanBeReached) {
  EXPECT_EQ(reachable_calls({12, 6, 5}, 64), 8);
  EXPECT_EQ(viable_vectors({12, 6, 5}, 64), (std::vector<Dims>{{4, 2, 1}}));
  EXPECT_EQ(reachable_calls({12, 6, 5}, 3), 4);
  EXPECT_EQ(viable_vectors({12, 6, 5}, 3), (std::vector<Dims>{{4, 1, 1}, {2, 2, 1}}));
  EXPECT_EQ(viable_vectors({0, 4}, 2), (std::vector<Dims>{{1, 2}}));
  EXPECT_EQ(power_of_two_calls(9), 16);
  EXPECT_EQ(message_of([] { viable_vectors({8}, 0); }),
            "partition: the number of kernel calls is between 1 and 2^30: calls=0");
  EXPECT_EQ(message_of([] { viable_vectors(Dims(12, 1 << 20), 1 << 20); }).substr(0, 76),
            "partition: more partition vectors than can be compared; plan for fewer calls");
}

}  // namespace
}  // namespace joinsum::optimizer::eindecomp
