#include "runtime/communication/moves/member.h"

#include <gtest/gtest.h>

#include "kernels/dense/dense.h"
#include "runtime/communication/memory_group.h"
#include "runtime/physical_types.h"
#include "runtime/test_store.h"

namespace joinsum::runtime::communication::moves {
namespace {

using storage::Block;
using storage::Ownership;
using storage::StoredRelation;

constexpr int kRanks = 4;

/// Shards of rows lie in one stretch of a replicated array, those of columns do not; messages of 512 x 256 elements
/// travel alone.
ia::PhysicalType typed(const std::string& placement) {
  return runtime::testing::physical_type("f32[1024,512]<4,2>", placement, kRanks);
}

TEST(Members, BringEveryPlacementToEveryOtherBetweenProcesses) {
  const at::Tensor x = at::rand({1024, 512}, at::kFloat);
  const std::vector<std::string> placements{"(0, 1)", "(1, 0)", "(*, 0)", "(0, 0)", "(*, *)", "(1, *)"};
  communication::testing::expect_no_errors(
      communication::testing::on_group(kRanks, [&](Transport& transport, int rank) {
        const auto store = runtime::testing::make_test_store();
        for (const std::string& from : placements) {
          for (const std::string& to : placements) {
            const auto source = storage::place_tensor(x, typed(from), {rank}, *store, Ownership::kCopied);
            const auto wanted = storage::place_tensor(x, typed(to), {rank}, *store, Ownership::kCopied);
            const PreparedMove move("shuffle a", typed(from), typed(to), {rank});
            const auto results = start({{move, source}}, transport, *store)->finish();
            const auto& blocks = results.front().sites.at(rank);
            ASSERT_EQ(blocks.size(), wanted.sites.at(rank).size()) << from << to;
            for (size_t i = 0; i < blocks.size(); ++i) {
              EXPECT_TRUE(at::equal(storage::Pin(blocks[i]).array(), storage::Pin(wanted.sites.at(rank)[i]).array()))
                  << from << to;
            }
          }
        }
        transport.agree("end", "");
      }));
}

TEST(Members, BringColumnsOfOneElementToAReplicatedResult) {
  const auto columns = [](const std::string& placement) {
    return runtime::testing::physical_type("i64[20000,4]<1,4>", placement, kRanks);
  };
  const at::Tensor x = at::arange(80'000, at::kLong).view({20'000, 4});
  communication::testing::expect_no_errors(
      communication::testing::on_group(kRanks, [&](Transport& transport, int rank) {
        const auto store = runtime::testing::make_test_store();
        const auto source = storage::place_tensor(x, columns("(1, 1)"), {rank}, *store, Ownership::kCopied);
        const PreparedMove move("broadcast a", columns("(1, 1)"), columns("(*, *)"), {rank});
        const auto result = start({{move, source}}, transport, *store)->finish().front();
        EXPECT_TRUE(at::equal(storage::Pin(result.sites.at(rank).front()).array().view({20'000, 4}), x));
        transport.agree("end", "");
      }));
}

TEST(Members, ReceiveShardsOfRowsWhereTheResultHasThem) {
  const at::Tensor x = at::rand({1024, 512}, at::kFloat);
  communication::testing::expect_no_errors(
      communication::testing::on_group(kRanks, [&](Transport& transport, int rank) {
        const auto store = runtime::testing::make_test_store();
        const auto source = storage::place_tensor(x, typed("(0, 0)"), {rank}, *store, Ownership::kCopied);
        const PreparedMove move("broadcast a", typed("(0, 0)"), typed("(*, *)"), {rank});
        const int64_t before = store->bytes();
        store->reset_peak();
        const auto result = start({{move, source}}, transport, *store)->finish().front();
        EXPECT_TRUE(at::equal(storage::Pin(result.sites.at(rank).front()).array(), x.view({1024, 512})));
        EXPECT_EQ(store->peak_bytes() - before, x.nbytes());  // no block beside the result
        transport.agree("end", "");
      }));
}

TEST(Members, ReduceByAnyKernelInOrder) {
  at::manual_seed(0);
  for (const std::string kernel : {"add", "mul", "max", "min", "logaddexp"}) {
    for (const at::ScalarType type : {at::kDouble, at::kLong}) {
      if (kernel == "logaddexp" && type == at::kLong) continue;
      for (const size_t place : {0, 1, 3}) {
        std::vector<at::Tensor> terms;
        for (int i = 0; i < 4; ++i) terms.push_back((at::rand({3, 5}, at::kDouble) * 9 + 1).to(type));
        at::Tensor wanted = terms[0];
        for (size_t i = 1; i < terms.size(); ++i) {
          wanted = kernels::dense::run({kernel, {}}, {wanted, terms[i]}, {}, 0, 0);
        }
        reduce_into(kernel, terms, terms[place]);
        EXPECT_TRUE(at::equal(terms[place], wanted)) << kernel << " into term " << place;
      }
    }
  }
}

}  // namespace
}  // namespace joinsum::runtime::communication::moves
