#include "optimizer/contraction_order.h"

#include <limits>
#include <random>

#include <gtest/gtest.h>

namespace joinsum::optimizer {
namespace {

/// All paths that join so many operands.
std::vector<einsum::transforms::Path> all_paths(int64_t operands) {
  if (operands == 1) return {{}};
  std::vector<einsum::transforms::Path> out;
  for (int64_t a = 0; a < operands; ++a) {
    for (int64_t b = a + 1; b < operands; ++b) {
      for (einsum::transforms::Path rest : all_paths(operands - 1)) {
        rest.insert(rest.begin(), {a, b});
        out.push_back(std::move(rest));
      }
    }
  }
  return out;
}

/// A chain of matrix products, with the sum over some labels.
struct Chain {
  einsum::Einsum op{{}, {}, {"mul", {}}, {"add", {}}, {}};
  std::vector<einsum::TensorType> operands;

  Chain(uint64_t seed, size_t count) {
    std::mt19937_64 random(seed);
    std::map<std::string, int64_t> extents;
    const auto label = [&](size_t i) {
      const std::string out(1, static_cast<char>('a' + i));
      extents.try_emplace(out, int64_t{1} << (1 + random() % 6));
      return out;
    };
    for (size_t i = 0; i < count; ++i) {
      op.operands.push_back({label(i), label(i + 1)});
      operands.push_back({DType::kFloat32, {extents.at(label(i)), extents.at(label(i + 1))}});
    }
    op.result = {label(0), label(count)};
  }
};

TEST(ContractionOrder, IsTheCheapestOfAllOrders) {
  for (uint64_t seed = 0; seed < 12; ++seed) {
    const Chain chain(seed, 4);
    for (const auto objective : {cost::Objective::kSeconds, cost::Objective::kWireBytes}) {
      const OrderFor wanted{ia::Grid::of_sites(2 + static_cast<int64_t>(seed % 3)), objective};
      OrderFor only_proposals = wanted;
      only_proposals.tries = 0;
      double least = std::numeric_limits<double>::infinity();
      for (const einsum::transforms::Path& path : all_paths(4)) {
        least = std::min(least, contraction_order(chain.op, chain.operands, only_proposals, {path}).cost);
      }
      const PricedPath best = contraction_order(chain.op, chain.operands, wanted);
      EXPECT_EQ(best.compared, Compared::kAll);
      EXPECT_DOUBLE_EQ(best.cost, least);
    }
  }
}

TEST(ContractionOrder, NamesAJoinWithoutAChoice) {
  Chain chain(1, 3);
  chain.op.join = {"sub", {}};
  EXPECT_THROW(contraction_order(chain.op, chain.operands, {ia::Grid::of_sites(2)}), PlanError);
}

}  // namespace
}  // namespace joinsum::optimizer
