#include "runtime/communication/moves/reduction_by_messages.h"

#include <gtest/gtest.h>

#include "ia/nodes.h"
#include "runtime/communication/memory_group.h"
#include "runtime/physical_types.h"
#include "runtime/test_store.h"

namespace joinsum::runtime::communication::moves {
namespace {

using storage::Block;
using storage::Pin;
using storage::StoredRelation;

constexpr int kReducingRanks = 3;

/// A sum over rows that the sites share: each site has a partial, an array of 2 x `columns`.
ia::NodePtr shared_sum(int64_t columns) {
  const std::string type = concatenate("f64[6,", columns, "]<3,1>");
  const auto input = ia::make_input("X", runtime::testing::physical_type(type, "(0)", kReducingRanks));
  return ia::make(ia::LocalAggregate{{1}, kernels::table::Kernel{"add", {}}}, {input});
}

std::unique_ptr<PreparedMove> prepared_for(const ia::NodePtr& sum, int rank) {
  return std::make_unique<PreparedMove>("broadcast b", sum->type(), ia::broadcast(sum)->type(),
                                        std::vector<int64_t>{rank});
}

/// The relation whose partial on a site is `array`.
StoredRelation partial_of(const ia::PhysicalType& type, int64_t site, const at::Tensor& array,
                          storage::BlockStore& store) {
  StoredRelation out{ia::shared(type), {}};
  const storage::Layout layout(type.relation);
  out.sites[site] = {store.put(array.reshape(layout.shape(type.stored(site).front())).clone())};
  return out;
}

at::Tensor array_of(const StoredRelation& relation, int64_t site) {
  return Pin(relation.sites.at(site).front()).array().clone().reshape({-1});
}

/// Moves partials of these numbers of columns together, and expects their sums everywhere. `check` sees the partial's
/// memory before, and the result's block.
void expect_sums(const std::vector<int64_t>& columns, bool overwritable,
                 const std::function<void(int64_t columns, const void* before, const Block& after)>& check) {
  communication::testing::expect_no_errors(
      communication::testing::on_group(kReducingRanks, [&](Transport& transport, int rank) {
        const auto store = runtime::testing::make_test_store();
        std::vector<std::unique_ptr<PreparedMove>> prepared;
        std::vector<StoredRelation> partials;
        std::vector<at::Tensor> sums;
        int64_t bytes = 0;
        for (const int64_t each : columns) {
          const ia::NodePtr node = shared_sum(each);
          prepared.push_back(prepared_for(node, rank));
          bytes += prepared.back()->bytes.sent;
          // Not the same in another order: 1e16 + 1 = 1e16.
          at::Tensor sum = at::zeros({2 * each}, at::kDouble);
          for (int site = 0; site < kReducingRanks; ++site) {
            at::Tensor partial = at::arange(2 * each, at::kDouble) * (site + 1);
            partial[0] = std::vector<double>{1e16, 1, -1e16}[site];
            sum += partial;
            if (site == rank) partials.push_back(partial_of(node->type(), rank, partial, *store));
          }
          sums.push_back(sum);
        }
        std::vector<MoveOf> moves;
        std::vector<const void*> before;
        for (size_t i = 0; i < columns.size(); ++i) {
          moves.push_back({*prepared[i], partials[i], overwritable});
          before.push_back(partials[i].sites.at(rank).front().memory());
        }
        const int64_t sent = transport.counters().sent;
        const auto results = start(moves, transport, *store)->finish();
        EXPECT_EQ(transport.counters().sent - sent, bytes);
        for (size_t i = 0; i < columns.size(); ++i) {
          EXPECT_TRUE(at::equal(array_of(results[i], rank), sums[i])) << "columns=" << columns[i] << ", rank=" << rank;
          check(columns[i], before[i], results[i].sites.at(rank).front());
        }
        transport.agree("end", "");
      }));
}

constexpr int64_t kLarge = 50'001;

TEST(ReductionByMessages, AddsUpLargeAndSmallPartialsInTheOrderOfTheSites) {
  expect_sums({1, kLarge, 40, kLarge + 1, 7}, true, [](int64_t, const void*, const Block&) {});
  expect_sums({3}, true, [](int64_t, const void*, const Block&) {});
}

TEST(ReductionByMessages, ReducesLargePartialsInPlaceThatNobodyElseReads) {
  expect_sums({kLarge, 5}, true, [](int64_t columns, const void* before, const Block& after) {
    EXPECT_EQ(after.memory() == before, columns == kLarge) << columns;
  });
}

TEST(ReductionByMessages, LeavesPartialsThatOthersReadAsTheyAre) {
  communication::testing::expect_no_errors(
      communication::testing::on_group(kReducingRanks, [](Transport& transport, int rank) {
        const auto store = runtime::testing::make_test_store();
        const ia::NodePtr node = shared_sum(kLarge);
        const auto move = prepared_for(node, rank);
        const at::Tensor own = at::full({2 * kLarge}, 1.0 + rank, at::kDouble);
        const StoredRelation partial = partial_of(node->type(), rank, own, *store);
        const auto sums = start({{*move, partial, false}}, transport, *store)->finish();
        EXPECT_TRUE(at::equal(array_of(partial, rank), own));
        EXPECT_TRUE((array_of(sums.front(), rank) == 6).all().item<bool>());
        transport.agree("end", "");
      }));
}

}  // namespace
}  // namespace joinsum::runtime::communication::moves
