#include "runtime/communication/transport.h"

#include <gtest/gtest.h>
#include <torch/csrc/distributed/c10d/GroupRegistry.hpp>

#include "base/check.h"
#include "base/dims.h"
#include "runtime/communication/memory_group.h"

namespace joinsum::runtime::communication {
namespace {

/// What a collective gave on every site, and the bytes that each site's process counted.
struct Outcome {
  std::vector<at::Tensor> arrays;
  std::vector<Counters> counters;
};

using Call = std::function<LocalArrays(Transport&, const LocalArrays&)>;

Outcome on_loopback(const std::vector<at::Tensor>& arrays, const Call& call) {
  const auto transport = make_loopback(static_cast<int64_t>(arrays.size()));
  Outcome out{call(*transport, arrays), {}};
  out.counters.push_back(transport->counters());
  return out;
}

Outcome on_group(const std::vector<at::Tensor>& arrays, Collectives policy, const Call& call) {
  static std::atomic<int> calls = 0;
  const std::string prefix = "collective " + std::to_string(calls++) + " rank ";
  const int ranks = static_cast<int>(arrays.size());
  testing::MemoryNetwork network(ranks, "gloo");
  Outcome out{std::vector<at::Tensor>(ranks), std::vector<Counters>(ranks)};
  const auto errors = testing::on_ranks(ranks, [&](int rank) {
    const auto group = network.group(rank);
    c10d::register_process_group(prefix + std::to_string(rank), group);
    const auto transport = make_process_group(prefix + std::to_string(rank), 30, policy);
    out.arrays[rank] = call(*transport, {arrays[rank]}).at(0);
    out.counters[rank] = transport->counters();
    transport->agree("end", "");  // a rank that ends closes its connections
    c10d::unregister_process_group(prefix + std::to_string(rank));
  });
  for (const std::string& error : errors) EXPECT_EQ(error, "");
  return out;
}

/// Integers that name their site, so that every reduction is exact.
std::vector<at::Tensor> arrays_of(int64_t sites, at::IntArrayRef shape) {
  std::vector<at::Tensor> out;
  for (int64_t site = 0; site < sites; ++site)
    out.push_back(at::arange(c10::multiply_integers(shape), at::kLong).reshape(shape) + 100 * site);
  return out;
}

using Expected = std::function<at::Tensor(const std::vector<int64_t>& group, size_t rank)>;

/// Checks the results on loopback and on process groups, with messages and with native collectives; and that all count
/// the same bytes.
void check(const SubGrids& sub_grids, const std::vector<at::Tensor>& arrays, const Call& call,
           const Expected& expected) {
  const Outcome loopback = on_loopback(arrays, call);
  const Outcome messages = on_group(arrays, Collectives::kNever, call);
  const Outcome native = on_group(arrays, Collectives::kAlways, call);
  for (const Outcome* outcome : {&loopback, &messages, &native}) {
    for (const auto& group : sub_grids.groups()) {
      for (size_t rank = 0; rank < group.size(); ++rank) {
        const at::Tensor wanted = expected(group, rank);
        ASSERT_TRUE(at::equal(outcome->arrays[group[rank]], wanted)) << outcome->arrays[group[rank]] << "\nwanted\n"
                                                                     << wanted;
      }
    }
  }
  Counters total;
  for (size_t site = 0; site < arrays.size(); ++site) {
    EXPECT_EQ(messages.counters[site].sent, native.counters[site].sent) << site;
    EXPECT_EQ(messages.counters[site].received, native.counters[site].received) << site;
    total.sent += messages.counters[site].sent;
    total.received += messages.counters[site].received;
  }
  EXPECT_EQ(loopback.counters[0].sent, total.sent);
  EXPECT_EQ(loopback.counters[0].received, total.received);
}

std::vector<SubGrids> all_sub_grids() {
  std::vector<SubGrids> out;
  for (const Dims& axes : std::vector<Dims>{{}, {0}, {1}, {0, 1}}) out.push_back({{{2, 3}}, axes});
  return out;
}

at::Tensor stacked(const std::vector<at::Tensor>& arrays, const std::vector<int64_t>& group) {
  std::vector<at::Tensor> out;
  for (const int64_t site : group) out.push_back(arrays[site]);
  return at::stack(out);
}

TEST(Collectives, SubGridsAreGroupsOfSitesThatDifferOnTheirAxes) {
  const ia::Grid grid{{2, 3}};
  EXPECT_EQ((SubGrids{grid, {0}}.groups()), (std::vector<std::vector<int64_t>>{{0, 3}, {1, 4}, {2, 5}}));
  EXPECT_EQ((SubGrids{grid, {1}}.groups()), (std::vector<std::vector<int64_t>>{{0, 1, 2}, {3, 4, 5}}));
  EXPECT_EQ(SubGrids::all(6).groups(), (std::vector<std::vector<int64_t>>{{0, 1, 2, 3, 4, 5}}));
  EXPECT_EQ((SubGrids{grid, {}}.groups().size()), 6U);
  EXPECT_THROW((SubGrids{grid, {2}}.groups()), PlanError);
}

TEST(Collectives, AllReduceGivesEachSiteTheReductionOfItsGroup) {
  for (const SubGrids& sub_grids : all_sub_grids()) {
    for (const std::vector<int64_t>& shape : std::vector<std::vector<int64_t>>{{4, 5}, {1}, {}}) {
      const auto arrays = arrays_of(6, shape);
      check(
          sub_grids, arrays,
          [&](Transport& t, const LocalArrays& x) { return t.all_reduce("sum", sub_grids, "add", x); },
          [&](const auto& group, size_t) { return stacked(arrays, group).sum(0); });
    }
  }
}

TEST(Collectives, AllGatherGivesEachSiteTheArraysOfItsGroup) {
  for (const SubGrids& sub_grids : all_sub_grids()) {
    const auto arrays = arrays_of(6, {3, 2});
    check(
        sub_grids, arrays, [&](Transport& t, const LocalArrays& x) { return t.all_gather("gather", sub_grids, x); },
        [&](const auto& group, size_t) { return stacked(arrays, group); });
  }
}

TEST(Collectives, ReduceScatterGivesEachSiteItsEntryOfTheReduction) {
  for (const SubGrids& sub_grids : all_sub_grids()) {
    const auto size = static_cast<int64_t>(sub_grids.groups()[0].size());
    const auto arrays = arrays_of(6, {size, 2});
    check(
        sub_grids, arrays,
        [&](Transport& t, const LocalArrays& x) { return t.reduce_scatter("sum", sub_grids, "add", x); },
        [&](const auto& group, size_t rank) { return stacked(arrays, group).sum(0)[static_cast<int64_t>(rank)]; });
  }
}

TEST(Collectives, BroadcastGivesEachSiteTheArrayOfItsGroupsRoot) {
  for (const SubGrids& sub_grids : all_sub_grids()) {
    const auto root = static_cast<int64_t>(sub_grids.groups()[0].size()) - 1;
    const auto arrays = arrays_of(6, {3});
    check(
        sub_grids, arrays, [&](Transport& t, const LocalArrays& x) { return t.broadcast("copy", sub_grids, root, x); },
        [&](const auto& group, size_t) { return arrays[group[root]]; });
  }
}

TEST(Collectives, AllToAllTransposesTheEntriesOfAGroup) {
  for (const SubGrids& sub_grids : all_sub_grids()) {
    const auto size = static_cast<int64_t>(sub_grids.groups()[0].size());
    const auto arrays = arrays_of(6, {size, 2});
    check(
        sub_grids, arrays, [&](Transport& t, const LocalArrays& x) { return t.all_to_all("swap", sub_grids, x); },
        [&](const auto& group, size_t rank) { return stacked(arrays, group).select(1, static_cast<int64_t>(rank)); });
  }
}

TEST(Collectives, MoveEmptyArraysAndEveryDtype) {
  const SubGrids everyone = SubGrids::all(2);
  for (const auto dtype : {at::kBool, at::kHalf, at::kBFloat16, at::kDouble, at::kComplexFloat}) {
    std::vector<at::Tensor> arrays;
    for (const auto& each : arrays_of(2, {3})) arrays.push_back(each.to(dtype));
    check(
        everyone, arrays, [&](Transport& t, const LocalArrays& x) { return t.all_gather("gather", everyone, x); },
        [&](const auto& group, size_t) { return stacked(arrays, group); });
  }
  const auto empty = arrays_of(2, {0, 3});
  check(
      everyone, empty, [&](Transport& t, const LocalArrays& x) { return t.all_reduce("sum", everyone, "add", x); },
      [&](const auto&, size_t) { return empty[0]; });
}

TEST(Collectives, KeepNansInAMaximumAlsoWhereNativeOnesAreUsed) {
  const SubGrids everyone = SubGrids::all(2);
  const at::Tensor nan = at::full({2}, std::nan(""));
  const Call call = [&](Transport& t, const LocalArrays& x) { return t.all_reduce("max", everyone, "max", x); };
  for (const at::Tensor& array : on_group({nan, at::ones({2})}, Collectives::kAlways, call).arrays)
    EXPECT_TRUE(array.isnan().all().item<bool>());
}

TEST(Collectives, DoNotWriteToTheirArguments) {
  const SubGrids everyone = SubGrids::all(2);
  for (const Collectives policy : {Collectives::kNever, Collectives::kAlways}) {
    const auto arrays = arrays_of(2, {2, 3});
    on_group(arrays, policy, [&](Transport& t, const LocalArrays& x) {
      t.all_reduce("sum", everyone, "add", x);
      t.broadcast("copy", everyone, 1, x);
      return t.reduce_scatter("sum", everyone, "add", x);
    });
    const auto before = arrays_of(2, {2, 3});
    for (size_t site = 0; site < arrays.size(); ++site) EXPECT_TRUE(at::equal(arrays[site], before[site]));
  }
}

TEST(Collectives, RefuseArraysAndGridsThatDoNotFit) {
  const auto transport = make_loopback(2);
  const SubGrids everyone = SubGrids::all(2);
  const at::Tensor x = at::ones({3});
  EXPECT_THROW(transport->all_reduce("sum", everyone, "add", {x}), PlanError);
  EXPECT_THROW(transport->all_reduce("sum", everyone, "add", {x, at::ones({4})}), PlanError);
  EXPECT_THROW(transport->all_reduce("sum", SubGrids::all(4), "add", {x, x}), PlanError);
  EXPECT_THROW(transport->reduce_scatter("sum", everyone, "add", {x, x}), PlanError);
  EXPECT_THROW(transport->broadcast("copy", everyone, 2, {x, x}), PlanError);
}

}  // namespace
}  // namespace joinsum::runtime::communication
