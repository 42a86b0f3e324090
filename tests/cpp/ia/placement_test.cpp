#include "ia/placement.h"

#include <gtest/gtest.h>

#include "ia/analysis/exchange.h"
#include "ia/type.h"
#include "random_plans.h"

namespace joinsum::ia {
namespace {

using testing::RandomPlans;

/// What `action` raises.
template <class Action>
std::string error_of(const Action& action) {
  try {
    action();
  } catch (const PlanError& error) {
    return error.what();
  }
  return "no error";
}

Grid grid_of(const std::string& text) {
  Scanner scanner(text);
  return Grid::parse(scanner);
}

Placement placement_of(const std::string& text, const Grid& grid, const Dims& frontier) {
  Scanner scanner(text);
  return Placement::parse(scanner, grid, frontier);
}

/// Parts i of c hold key k of a domain g when ⌈i·g/c⌉ ≤ k < ⌈(i+1)·g/c⌉, that is i·g ≤ k·c < (i+1)·g.
bool in_part(int64_t key, int64_t domain, int64_t parts, int64_t part) {
  return part * domain <= key * parts && key * parts < (part + 1) * domain;
}

/// The definition, dimension by dimension, with no box.
bool site_has(const Grid& grid, const GridPlacement& placement, int64_t site, const Key& key) {
  const Dims at = grid.coordinates(site);
  for (size_t dim = 0; dim < key.size(); ++dim) {
    int64_t parts = 1;
    int64_t part = 0;
    int64_t domain = 0;
    for (size_t a = 0; a < at.size(); ++a) {
      const auto* split = std::get_if<Split>(&placement.states[a]);
      if (split == nullptr || split->dim != static_cast<int64_t>(dim)) continue;
      parts *= grid.axes[a];
      part = part * grid.axes[a] + at[a];
      domain = split->domain;
    }
    if (parts > 1 && !in_part(key[dim], domain, parts, part)) return false;
  }
  return true;
}

TEST(Grid, HasThePrimeFactorsOfItsSites) {
  EXPECT_EQ(Grid::of_sites(1).axes, Dims{});
  EXPECT_EQ(Grid::of_sites(8).axes, (Dims{2, 2, 2}));
  EXPECT_EQ(Grid::of_sites(12).axes, (Dims{2, 2, 3}));
  EXPECT_EQ(Grid::of_sites(7).axes, Dims{7});
  EXPECT_EQ(error_of([] { Grid::of_sites(0); }), "grid: at least one site: sites=0");
}

TEST(Grid, NumbersSitesWithTheFirstAxisMostSignificant) {
  const Grid grid{{2, 2, 3}};
  EXPECT_EQ(grid.coordinates(0), (Dims{0, 0, 0}));
  EXPECT_EQ(grid.coordinates(5), (Dims{0, 1, 2}));
  EXPECT_EQ(grid.coordinates(6), (Dims{1, 0, 0}));
  for (int64_t site = 0; site < grid.sites(); ++site) EXPECT_EQ(grid.site(grid.coordinates(site)), site);
}

TEST(Grid, PrintsWhatItReads) {
  for (const char* text : {"1", "2x2x3", "5", "2x5"}) EXPECT_EQ(grid_of(text).text(), text);
}

TEST(Placement, GivesEachSiteTheKeysOfItsPart) {
  int64_t empty = 0;
  for (uint64_t seed = 0; seed < 400; ++seed) {
    RandomPlans random(seed);
    const Grid grid = random.grid(12);
    const RelationType relation = random.relation_type();
    const Placement placement = random.placement(relation, grid);
    for (int64_t site = 0; site < grid.sites(); ++site) {
      const Box box = placement.box(grid, site, relation.frontier);
      empty += box.empty() ? 1 : 0;
      for (const Key& key : keys_of(Box::below(relation.frontier))) {
        ASSERT_EQ(box.contains(key), site_has(grid, *placement.grid(), site, key))
            << grid.text() << " " << placement.text(relation.frontier) << " site " << site << " key " << key_text(key);
      }
    }
  }
  EXPECT_GT(empty, 100);
}

TEST(Placement, NamesTheLowestSiteThatHoldsAKeyItsOwner) {
  for (uint64_t seed = 0; seed < 400; ++seed) {
    RandomPlans random(seed);
    const Grid grid = random.grid(12);
    const RelationType relation = random.relation_type();
    const Placement placement = random.placement(relation, grid);
    for (const Key& key : keys_of(Box::below(relation.frontier))) {
      int64_t lowest = 0;
      while (!site_has(grid, *placement.grid(), lowest, key)) ++lowest;
      ASSERT_EQ(placement.owner(grid, key), lowest);
    }
  }
}

TEST(Placement, CutsUnevenFrontiersAsTensorsAreCut) {
  const Grid grid{{4}};
  const Placement placement = placement_of("(0)", grid, {10});
  Dims sizes;
  for (int64_t site = 0; site < 4; ++site) sizes.push_back(placement.box(grid, site, {10}).count());
  EXPECT_EQ(sizes, (Dims{3, 2, 3, 2}));
}

TEST(Placement, LeavesSitesEmptyThatHaveNoKey) {
  const Grid grid{{5}};
  const auto type =
      PhysicalType::placed("test", RelationType::parse("f32[6]<3>"), grid, placement_of("(0)", grid, {3}));
  Dims tuples;
  for (int64_t site = 0; site < 5; ++site) tuples.push_back(type.holding.tuples(site));
  EXPECT_EQ(tuples, (Dims{1, 1, 0, 1, 0}));
  EXPECT_EQ(type.stored(2).size(), 0u);
  EXPECT_EQ(type.bytes(1), 8);
}

TEST(Placement, KeepsOwnersWhenAFilterShrinksTheFrontier) {
  const Grid grid{{2}};
  const Placement placement = placement_of("(0:4)", grid, {3});
  EXPECT_EQ(placement.box(grid, 0, {3}), (Box{{0}, {2}}));
  EXPECT_EQ(placement.box(grid, 1, {3}), (Box{{2}, {3}}));
  EXPECT_EQ(placement.text({3}), "(0:4)");
  EXPECT_EQ(placement.text({4}), "(0)");
}

/// A grid of 1 to 3 axes, the last of which splits `dim` in the target and replicates it in the source.
struct Refinement {
  PhysicalType coarse;
  PhysicalType fine;
};

Refinement draw_refinement(RandomPlans& random) {
  Grid grid;
  for (int64_t axes = random.between(1, 3); axes > 0; --axes) grid.axes.push_back(random.between(2, 4));
  RelationType relation = random.relation_type();
  while (relation.arity() == 0) relation = random.relation_type();
  GridPlacement states = *random.placement(relation, grid).grid();
  states.states.back() = Replicated{};
  const int64_t dim = random.between(0, relation.arity() - 1);
  Split split{dim, relation.frontier[dim]};
  for (const AxisState& state : states.states) {
    const auto* other = std::get_if<Split>(&state);
    if (other != nullptr && other->dim == dim) split.domain = other->domain;
  }
  GridPlacement finer = states;
  finer.states.back() = split;
  return {PhysicalType::placed("test", relation, grid, states), PhysicalType::placed("test", relation, grid, finer)};
}

TEST(Placement, RefiningASplitMovesNothing) {
  for (uint64_t seed = 0; seed < 500; ++seed) {
    RandomPlans random(seed);
    const Refinement refinement = draw_refinement(random);
    ASSERT_EQ(analysis::wire_bytes(refinement.coarse, refinement.fine), 0)
        << refinement.coarse.text(true) << " to " << refinement.fine.text();
  }
}

TEST(Placement, RefiningBeforeASplitMoves) {
  const Grid grid{{2, 2}};
  const RelationType relation = RelationType::parse("f32[8]<8>");
  const auto source = PhysicalType::placed("test", relation, grid, placement_of("(*, 0)", grid, {8}));
  const auto target = PhysicalType::placed("test", relation, grid, placement_of("(0, 0)", grid, {8}));
  EXPECT_EQ(analysis::wire_bytes(source, target), 4 * 4);
}

/// Whether every site that has one tuple of a group has all of it.
bool groups_meet(const Grid& grid, const GridPlacement& placement, const Dims& frontier, const Dims& group) {
  const auto keys = keys_of(Box::below(frontier));
  for (const Key& a : keys) {
    for (const Key& b : keys) {
      if (project(a, group) != project(b, group)) continue;
      for (int64_t site = 0; site < grid.sites(); ++site) {
        if (site_has(grid, placement, site, a) != site_has(grid, placement, site, b)) return false;
      }
    }
  }
  return true;
}

TEST(Placement, KeepsTogetherGroupsThatItDoesNotSplit) {
  int64_t kept = 0;
  int64_t apart = 0;
  for (uint64_t seed = 0; seed < 600; ++seed) {
    RandomPlans random(seed);
    const Grid grid = random.grid(6);
    const RelationType relation = random.relation_type();
    const Placement placement = random.placement(relation, grid);
    Dims group;
    for (int64_t d = 0; d < relation.arity(); ++d) {
      if (random.chance(50)) group.push_back(d);
    }
    const bool meet = groups_meet(grid, *placement.grid(), relation.frontier, group);
    if (placement.keeps_together(group)) {
      ++kept;
      ASSERT_TRUE(meet) << placement.text(relation.frontier) << " keep " << concatenate(group);
    }
    apart += meet ? 0 : 1;
  }
  EXPECT_GT(kept, 50);
  EXPECT_GT(apart, 50);
}

TEST(Placement, KeepsNoGroupTogetherThatIsPending) {
  const Grid grid{{2}};
  EXPECT_FALSE(placement_of("(+add)", grid, {4}).keeps_together({0}));
  EXPECT_TRUE(Placement(Scattered{Dims{0}}).keeps_together({1, 0}));
  EXPECT_FALSE(Placement(Scattered{Dims{0}}).keeps_together({1}));
  EXPECT_FALSE(Placement(Scattered{}).keeps_together({0}));
}

TEST(Placement, PrintsWhatItReads) {
  const Grid grid{{2, 2, 3}};
  for (const char* text : {"(0, *, +add)", "(1, 1, 0)", "(*, *, *)", "(0:9, +max, 0:9)"}) {
    EXPECT_EQ(placement_of(text, grid, {4, 5}).text({4, 5}), text);
  }
  EXPECT_EQ(Placement(Scattered{Dims{0}}).text({4}), "(scattered[0])");
  EXPECT_EQ(Placement(Scattered{}).text({4}), "(scattered)");
}

TEST(Placement, RefusesTextsThatDoNotFitTheGrid) {
  const Grid grid{{2, 2}};
  const auto parsing = [&](const std::string& text) { return error_of([&] { placement_of(text, grid, {4}); }); };
  EXPECT_NE(parsing("(0)").find("one state per grid axis: states=1, grid=2x2"), std::string::npos) << parsing("(0)");
  EXPECT_NE(parsing("(1, *)").find("split by a key dimension that is not there"), std::string::npos);
}

TEST(Placement, FillGivesAxesToDimsInTurn) {
  const Grid grid{{2, 2, 3}};
  EXPECT_EQ(Placement(fill(grid, {2, 0}, {4, 5, 6})).text({4, 5, 6}), "(2, 0, 2)");
  EXPECT_EQ(Placement(fill(Grid{}, {}, {4})).text({4}), "()");
  EXPECT_EQ(error_of([&] { fill(grid, {}, {4}); }),
            "shuffle: no key dimension to split by; broadcast instead: dims=[]");
  EXPECT_EQ(error_of([&] { fill(grid, {1}, {4}); }), "shuffle: key dimension out of range: dims=[1], key arity=1");
}

std::string placing(const GridPlacement& placement) {
  return error_of([&] { PhysicalType::placed("input X", RelationType::parse("f32[8]<4>"), Grid{{2, 2}}, placement); });
}

TEST(Placement, OfAnInputNamesWhatIsWrong) {
  EXPECT_EQ(placing({{Pending{"add"}, Replicated{}}}),
            "input X: a relation is placed by replicated and split axes only: placement=(+add, *)");
  EXPECT_EQ(placing({{Replicated{}}}), "input X: a placement has one state per grid axis: placement=(*), grid=2x2");
  EXPECT_EQ(placing({{Split{1, 4}, Replicated{}}}),
            "input X: split by a key dimension that is not there: dimension=1, key arity=1");
  EXPECT_EQ(placing({{Split{0, 3}, Replicated{}}}), "input X: split domain below the frontier: domain=3, frontier=<4>");
  EXPECT_EQ(placing({{Split{0, 4}, Split{0, 5}}}),
            "input X: one key dimension split on two domains: dimension=0, domains=4 and 5");
}

TEST(Placement, PlacesTheKeysThatAnIrregularRelationHas) {
  int64_t irregular = 0;
  for (uint64_t seed = 0; seed < 800; ++seed) {
    RandomPlans random(seed);
    const Grid grid = random.grid(6);
    const RelationType relation = random.relation_type();
    const auto type = PhysicalType::placed("test", relation, grid, random.placement(relation, grid));
    irregular += relation.regular() ? 0 : 1;
    for (int64_t site = 0; site < grid.sites(); ++site) {
      std::vector<Key> held;
      for (const Key& key : relation.all_keys()) {
        if (site_has(grid, *type.placement.grid(), site, key)) held.push_back(key);
      }
      ASSERT_EQ(*type.holding.keys(site), held);
      int64_t elements = 0;
      for (const Key& key : held) elements += relation.elements_at(key);
      ASSERT_EQ(type.holding.elements(relation, site), elements);
    }
  }
  EXPECT_GT(irregular, 30);
}

TEST(Holding, NamesTheSitesOfAKey) {
  const Grid grid = grid_of("2x2");
  const auto regular =
      PhysicalType::placed("test", RelationType::parse("f32[4,4]<2,2>"), grid, placement_of("(0, *)", grid, {2, 2}));
  EXPECT_EQ(regular.holding.sites_of({0, 1}), (std::vector<int64_t>{0, 1}));
  EXPECT_EQ(regular.holding.sites_of({1, 0}), (std::vector<int64_t>{2, 3}));
  const auto keys = std::make_shared<const std::vector<Key>>(std::vector<Key>{{0, 0}, {1, 1}, {1, 1}});
  const auto diagonal = RelationType::make("test", DType::kFloat32, {2, 2}, {relation::Axis::whole(2)}, keys);
  const auto irregular = PhysicalType::placed("test", diagonal, grid, placement_of("(0, 1)", grid, {2, 2}));
  EXPECT_EQ(irregular.holding.sites_of({1, 1}), (std::vector<int64_t>{3}));
  EXPECT_EQ(irregular.holding.sites_of({0, 1}), (std::vector<int64_t>{}));
}

}  // namespace
}  // namespace joinsum::ia
