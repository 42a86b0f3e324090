// Every worked example of the TRA paper, with the numbers that it prints: section 3.1, and section 5.2.2 for the
// replication-based product.
#include <map>
#include <string>

#include <gtest/gtest.h>

#include "ia/interpret.h"
#include "ia/text.h"
#include "tra/interpret.h"
#include "tra/lower.h"
#include "tra/text.h"

namespace joinsum {
namespace {

using kernels::reference::Array;
using tra::Relation;

Array matrix(int64_t rows, int64_t columns, std::vector<double> values) { return {{rows, columns}, std::move(values)}; }

/// The matrix A of section 2.2, in 2 x 2 blocks.
Relation matrix_a() {
  return {{{0, 0}, matrix(2, 2, {1, 2, 3, 4})},
          {{0, 1}, matrix(2, 2, {5, 6, 7, 8})},
          {{1, 0}, matrix(2, 2, {9, 10, 11, 12})},
          {{1, 1}, matrix(2, 2, {13, 14, 15, 16})}};
}

/// The matrix B of section 3.1 (6), cut by columns.
Relation matrix_b() {
  return {{{0}, matrix(2, 4, {1, 2, 5, 6, 3, 4, 7, 8})}, {{1}, matrix(2, 4, {9, 10, 13, 14, 11, 12, 15, 16})}};
}

constexpr const char* kInputA = "tra\ninput A: f32[4,4]<2,2>\n";
constexpr const char* kInputB = "tra\ninput B: f32[2,8@0]<2>\n";

/// Result Z of a plan over A and B, by the algebra; and by the first translation on 1 to 5 sites, which must agree.
Relation run(const std::string& text) {
  const tra::Plan plan = tra::parse(text);
  const std::map<std::string, Relation> inputs{{"A", matrix_a()}, {"B", matrix_b()}};
  const Relation result = tra::interpret(plan, inputs).at("Z");
  for (int64_t sites = 1; sites <= 5; ++sites) {
    const ia::Plan physical = tra::lower(plan, ia::Grid::of_sites(sites));
    const auto placed = ia::interpret(physical, inputs).at("Z");
    EXPECT_EQ(ia::contents(placed, physical.outputs()[0].node->type()), result) << physical.text();
  }
  return result;
}

TEST(WorkedExamples, AggregateByTheSecondKeySumsTheBlocksVertically) {
  EXPECT_EQ(run(std::string(kInputA) + "output Z = aggregate[1; add](A)"),
            (Relation{{{0}, matrix(2, 2, {10, 12, 14, 16})}, {{1}, matrix(2, 2, {18, 20, 22, 24})}}));
}

TEST(WorkedExamples, AggregateByNothingSumsAllBlocks) {
  EXPECT_EQ(run(std::string(kInputA) + "output Z = aggregate[; add](A)"),
            (Relation{{{}, matrix(2, 2, {28, 32, 36, 40})}}));
}

TEST(WorkedExamples, JoinMultipliesTheBlocksThatMeet) {
  const Relation result = run(std::string(kInputA) + "output Z = join[1; 0; matmul](A, A)");
  ASSERT_EQ(result.size(), 8U);
  EXPECT_EQ(result[2].first, (Key{0, 1, 0}));
  EXPECT_EQ(result[2].second, matrix(2, 2, {111, 122, 151, 166}));
}

TEST(WorkedExamples, AggregatedJoinIsTheMatrixProduct) {
  EXPECT_EQ(run(std::string(kInputA) + "output Z = aggregate[0, 2; add](join[1; 0; matmul](A, A))"),
            (Relation{{{0, 0}, matrix(2, 2, {118, 132, 166, 188})},
                      {{0, 1}, matrix(2, 2, {174, 188, 254, 276})},
                      {{1, 0}, matrix(2, 2, {310, 356, 358, 412})},
                      {{1, 1}, matrix(2, 2, {494, 540, 574, 628})}}));
}

TEST(WorkedExamples, FilterRekeyAndTransformTakeTheDiagonal) {
  EXPECT_EQ(run(std::string(kInputA) + "output Z = transform[diag](rekey[(k0)](filter[k0 == k1](A)))"),
            (Relation{{{0}, {{2}, {1, 4}}}, {{1}, {{2}, {13, 16}}}}));
}

TEST(WorkedExamples, TileCutsEachBlockInTwo) {
  EXPECT_EQ(run(std::string(kInputB) + "output Z = tile[1, 2](B)"),
            (Relation{{{0, 0}, matrix(2, 2, {1, 2, 3, 4})},
                      {{0, 1}, matrix(2, 2, {5, 6, 7, 8})},
                      {{1, 0}, matrix(2, 2, {9, 10, 11, 12})},
                      {{1, 1}, matrix(2, 2, {13, 14, 15, 16})}}));
}

TEST(WorkedExamples, RekeyMakesTheTilesATwoByEightMatrix) {
  EXPECT_EQ(run(std::string(kInputB) + "output Z = rekey[(2 * k0 + k1)](tile[1, 2](B))"),
            (Relation{{{0}, matrix(2, 2, {1, 2, 3, 4})},
                      {{1}, matrix(2, 2, {5, 6, 7, 8})},
                      {{2}, matrix(2, 2, {9, 10, 11, 12})},
                      {{3}, matrix(2, 2, {13, 14, 15, 16})}}));
}

TEST(WorkedExamples, ConcatUndoesTile) {
  EXPECT_EQ(run(std::string(kInputB) + "output Z = concat[1, 1](tile[1, 2](B))"), matrix_b());
}

ia::Contents run_physical(const std::string& text) {
  const ia::Plan plan = ia::parse(text);
  const auto result = ia::interpret(plan, {{"A", matrix_a()}}).at("Z");
  return ia::contents(result, plan.outputs()[0].node->type());
}

TEST(WorkedExamples, InsertDimAndDuplicateRepeatEachBlock) {
  const Relation a = matrix_a();
  ia::Contents twice;
  for (const auto& [key, array] : a) {
    twice.emplace_back(Key{key[0], key[1], 0}, array);
    twice.emplace_back(Key{key[0], key[1], 1}, array);
  }
  EXPECT_EQ(run_physical("ia on 2x2\n"
                         "input A: f32[4,4]<2,2> on 2x2 (0, 1)\n"
                         "output Z = local_map[2: (k0, k1, m); duplicate](A)"),
            twice);
}

TEST(WorkedExamples, ThreePhysicalMatrixProductsAgree) {
  const std::string head = "ia on 2x2x2\ninput A: f32[4,4]<2,2> on 2x2x2 (0, *, 1)\n";
  const ia::Contents product = run(std::string(kInputA) + "output Z = aggregate[0, 2; add](join[1; 0; matmul](A, A))");
  EXPECT_EQ(run_physical(head + "output Z = agg[0, 2; add](shuffle[0, 2](join[1; 0; matmul](broadcast(A), A)))"),
            product);
  EXPECT_EQ(run_physical(head + "output Z = agg[0, 2; add](shuffle[0, 2](join[1; 0; matmul](shuffle[1](A), "
                                "shuffle[0](A))))"),
            product);
  EXPECT_EQ(run_physical(head + "x = shuffle[0, 2](map[2: (k0, k1, m); duplicate](A))\n"
                                "y = shuffle[0, 2](map[2: (m, k0, k1); duplicate](A))\n"
                                "output Z = agg[0, 2; add](join[0, 1, 2; 0, 1, 2; matmul](x, y))"),
            product);
}

}  // namespace
}  // namespace joinsum
