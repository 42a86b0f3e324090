#include "runtime/communication/moves/moves.h"

#include <gtest/gtest.h>

#include "ia/nodes.h"
#include "runtime/physical_types.h"
#include "runtime/test_store.h"

namespace joinsum::runtime::communication::moves {
namespace {

using storage::Block;
using storage::Ownership;
using storage::StoredRelation;

const std::vector<int64_t> kSites{0, 1, 2, 3};

ia::PhysicalType on_four_sites(const std::string& placement) {
  return runtime::testing::physical_type("f64[8,4]<4,2>", placement, 4);
}

class MoveTest : public ::testing::Test {
 protected:
  StoredRelation moved(const StoredRelation& source, const PreparedMove& move) {
    return start({{move, source}}, *transport_, *store_)->finish().front();
  }

  const at::Tensor x_ = at::arange(32, at::kDouble).reshape({8, 4});
  std::shared_ptr<storage::BlockStore> store_ = runtime::testing::make_test_store();
  std::shared_ptr<Transport> transport_ = make_loopback(4);
};

TEST_F(MoveTest, BringsEveryPlacementToEveryOtherByThePreparedMessages) {
  const std::vector<std::string> placements{"(0, 1)", "(1, 0)", "(*, 0)", "(0, 0)", "(*, *)"};
  for (const std::string& from : placements) {
    for (const std::string& to : placements) {
      const auto source = storage::place_tensor(x_, on_four_sites(from), kSites, *store_, Ownership::kCopied);
      const PreparedMove move("shuffle a", on_four_sites(from), on_four_sites(to), kSites);
      const int64_t before = transport_->counters().sent;
      const auto result = moved(source, move);
      EXPECT_TRUE(at::equal(storage::whole_tensor(result, *store_), x_)) << from << to;
      EXPECT_EQ(transport_->counters().sent - before, ia::analysis::wire_bytes(on_four_sites(from), on_four_sites(to)))
          << from << to;
    }
  }
}

TEST_F(MoveTest, ReducesPendingPartialsInTheOrderOfTheirHolders) {
  const auto input = ia::make_input("X", on_four_sites("(0, 1)"));
  const auto partial = ia::make(ia::LocalAggregate{{1}, kernels::table::Kernel{"add", {}}}, {input});
  const auto reduced = ia::broadcast(partial);
  const PreparedMove move("broadcast b", partial->type(), reduced->type(), kSites);
  ASSERT_FALSE(move.reduce.messages.empty());
  StoredRelation partials{ia::shared(partial->type()), {}};
  for (const int64_t site : kSites) {
    for (const Box& box : partial->type().stored(site)) {
      const storage::Layout layout(partial->type().relation);
      partials.sites[site].push_back(
          store_->put(at::full(layout.shape(box), static_cast<double>(site + 1), at::kDouble)));
    }
  }
  const auto result = moved(partials, move);
  const auto found = storage::tuples(result);
  ASSERT_EQ(found.size(), 2U);
  // Sites 0 and 2 hold partials of key 0, sites 1 and 3 of key 1.
  EXPECT_TRUE((found[0].second == 1 + 3).all().item<bool>());
  EXPECT_TRUE((found[1].second == 2 + 4).all().item<bool>());
}

TEST_F(MoveTest, CountsTheBytesThatASiteReceivesAtOnce) {
  const PreparedMove move("broadcast b", on_four_sites("(0, 1)"), on_four_sites("(*, *)"), kSites);
  for (const int64_t site : kSites) EXPECT_EQ(move.received.at(site), 3 * 8 * 8);
  EXPECT_TRUE(PreparedMove("shuffle a", on_four_sites("(0, 1)"), on_four_sites("(0, 1)"), kSites).received.empty());
}

TEST_F(MoveTest, ResultsShareMemoryWithTheSourceUnderBlocksOfTheirOwn) {
  const auto source = storage::place_tensor(x_, on_four_sites("(*, *)"), kSites, *store_, Ownership::kCopied);
  const auto result =
      moved(source, PreparedMove("shuffle a", on_four_sites("(*, *)"), on_four_sites("(0, 1)"), kSites));
  for (const int64_t site : kSites) {
    const Block& block = result.sites.at(site)[0];
    EXPECT_EQ(block.memory(), source.sites.at(site)[0].memory());
    EXPECT_FALSE(block.exclusive());
  }
}

}  // namespace
}  // namespace joinsum::runtime::communication::moves
