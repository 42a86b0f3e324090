#include "ia/analysis/exchange.h"

#include <gtest/gtest.h>

#include "ia/text.h"

namespace joinsum::ia::analysis {
namespace {

/// The types before and after the last operator of a plan.
struct Move {
  PhysicalType source;
  PhysicalType target;
  Exchange exchange() const { return analysis::exchange(source, target); }
  int64_t bytes() const { return wire_bytes(source, target); }
};

Move move_of(const std::string& text) {
  const Plan plan = parse(text);
  const NodePtr& node = plan.outputs()[0].node;
  return {node->input(0)->type(), node->type()};
}

/// 24 tuples of 100 floats on 2 x 3 sites, moved.
Move plain(const std::string& from, const std::string& move) {
  return move_of("ia on 2x3\ninput A: f32[100@-]<24> " + from + "\noutput Z = " + move + "(A)");
}

TEST(Exchange, SendsEachMissingBoxOnce) {
  const int64_t all = 24 * 100 * 4;
  EXPECT_EQ(plain("(0, 0)", "broadcast").bytes(), 5 * all);
  EXPECT_EQ(plain("(0, *)", "broadcast").bytes(), 6 * all / 2);
  EXPECT_EQ(plain("(*, *)", "shuffle[(0, 0)]").bytes(), 0);
  EXPECT_EQ(plain("(0, *)", "shuffle[(0, 0)]").bytes(), 0);
  EXPECT_EQ(plain("(0, *)", "shuffle[(0, *)]").bytes(), 0);
  EXPECT_EQ(plain("(*, 0)", "shuffle[(0, 0)]").bytes(), 4 * all / 6);
}

TEST(Exchange, TakesABoxFromTheNearestHolder) {
  // Site 5 = (1, 2) needs what sites (0, 0) and (1, 0) hold: (1, 0) shares one coordinate with it.
  for (const Transfer& t : plain("(*, 0)", "broadcast").exchange().copy) EXPECT_EQ(t.from / 3, t.to / 3);
  // Holders that are equally near: the receiver's number chooses among them.
  for (const Transfer& t : plain("(0, *)", "broadcast").exchange().copy) {
    EXPECT_NE(t.from / 3, t.to / 3);
    EXPECT_EQ(t.from % 3, t.to % 3);
  }
}

/// 24 tuples of 100 floats in `parts` more, which are added up on a grid of sites.
Move pending(const std::string& grid, const std::string& from, const std::string& move, int64_t parts = 12) {
  return move_of("ia on " + grid + "\ninput A: f32[100]<24," + std::to_string(parts) + "> " + from +
                 "\nP = local_aggregate[0; add](A)\noutput Z = " + move + "(P)");
}

constexpr int64_t kPartial = 24 * 100 * 4;

TEST(Exchange, ReducesPendingIntoASplitWithOneMessageLessThanHolders) {
  for (const int64_t sites : {2, 3, 4, 7}) {
    const Move move = pending(std::to_string(sites), "(1)", "shuffle[0]", 14);
    EXPECT_EQ(move.bytes(), (sites - 1) * kPartial);
    EXPECT_TRUE(move.exchange().gather.empty());
    EXPECT_TRUE(move.exchange().copy.empty());
  }
  EXPECT_EQ(pending("2x2", "(1, 1)", "shuffle[(0, 0)]").bytes(), 3 * kPartial);
  EXPECT_EQ(pending("2x2", "(1, 0)", "shuffle[(0, 0)]").bytes(), kPartial * 3 / 2);
}

TEST(Exchange, ReducesPendingAndGathersItInTwiceThat) {
  for (const int64_t sites : {2, 3, 4, 7}) {
    const Move move = pending(std::to_string(sites), "(1)", "broadcast", 14);
    EXPECT_EQ(move.bytes(), 2 * (sites - 1) * kPartial);
  }
  EXPECT_EQ(pending("2x2", "(1, 1)", "broadcast").bytes(), 2 * 3 * kPartial);
  EXPECT_EQ(pending("2x2", "(1, 0)", "broadcast[0]").bytes(), 2 * kPartial);
}

TEST(Exchange, ReplicasOfPartialsSettleAmongThemselves) {
  EXPECT_EQ(pending("2x2", "(1, *)", "broadcast").bytes(), 2 * 2 * kPartial);
  EXPECT_EQ(pending("2x2", "(1, *)", "shuffle[(0, *)]").bytes(), 2 * kPartial);
  EXPECT_EQ(pending("2x2", "(1, *)", "shuffle[(0, 0)]").bytes(), kPartial);
}

TEST(Exchange, SitesWithoutTuplesHoldNoPartial) {
  // Two parts on three sites: site 2 holds none. Sites 0 and 1 reduce a third each from the other; site 2 takes both
  // partials of its third, and nothing less would do: each partial is known to one site alone.
  const Move split = pending("3", "(1)", "shuffle[0]", 2);
  EXPECT_EQ(split.bytes(), (1 + 1 + 2) * kPartial / 3);
  // Both holders reduce half, then every site takes what it did not reduce.
  const Move whole = pending("3", "(1)", "broadcast", 2);
  EXPECT_EQ(whole.bytes(), kPartial + 2 * kPartial);
  for (const Share& share : whole.exchange().shares) EXPECT_EQ(share.holders, (std::vector<int64_t>{0, 1}));
}

TEST(Exchange, ReducesWhereTheTargetWantsItEvenIfTheDimensionIsSplitAlready) {
  // Grid order makes the pending axis the coarser one: half of the owners lie outside of the sites that reduce.
  const Move move = pending("2x2", "(1, 0)", "shuffle[(0, 0)]");
  int64_t reduced = 0;
  for (const Share& share : move.exchange().shares) {
    reduced += share.end - share.begin;
    EXPECT_TRUE(move.target.holding.box(share.site)->contains(share.box)) << "site " << share.site;
  }
  EXPECT_EQ(reduced, 24 * 100);
}

TEST(Exchange, KeepsAxesPendingThatTheTargetKeeps) {
  EXPECT_EQ(pending("2x2", "(1, 1)", "broadcast[0]").bytes(), 2 * 2 * kPartial);
  EXPECT_EQ(pending("2x2", "(1, 1)", "shuffle[(+add, 0)]").bytes(), 2 * kPartial);
  const Move kept = pending("2x2", "(1, 0)", "shuffle[(+add, *)]");
  EXPECT_EQ(kept.bytes(), 4 * kPartial / 2);
  EXPECT_TRUE(kept.exchange().reduction.empty());
}

TEST(Exchange, DividesAReductionEvenlyAmongThoseWhoNeedIt) {
  const Move move =
      move_of("ia on 3\ninput A: f32[7]<1,3> (1)\nP = local_aggregate[0; add](A)\noutput Z = broadcast(P)");
  Dims sizes;
  for (const Share& share : move.exchange().shares) sizes.push_back(share.end - share.begin);
  EXPECT_EQ(sizes, (Dims{3, 2, 2}));
}

TEST(Exchange, SendsEveryTupleOfAKeyThatLiesOnSeveralSites) {
  const Move move =
      move_of("ia on 3\ninput A: f32[5@-]<6> (0)\nM = local_map[(k0 % 2); id](A)\noutput Z = broadcast(M)");
  EXPECT_NE(move.source.placement.scattered(), nullptr);
  EXPECT_EQ(move.bytes(), 3 * 4 * 5 * 4);
}

}  // namespace
}  // namespace joinsum::ia::analysis
