#include "sparse/logical/elimination.h"

#include <gtest/gtest.h>

#include "sparse/plan.h"
#include "sparse/programs.h"

namespace joinsum::sparse::logical {
namespace {

using namespace sparse::testing;  // NOLINT: the tests' own words
using enum Operator;

/// Terms over tensors of any shape.
struct Made {
  Terms terms;
  TermPtr term;
};

Made made(const ExpressionPtr& expression) {
  const Distinct distinct = with_distinct_indices(expression, {});
  Readable readable;
  std::map<std::string, int64_t> sizes;
  for (const ExpressionPtr& input : inputs_of(distinct.expression)) {
    readable[input->tensor].shape = Dims(input->indices.size(), 4);
  }
  for (const auto& [name, original] : distinct.originals) sizes[original] = 4;
  Terms terms(nullptr, space_of("test", distinct, {}, readable, sizes));
  TermPtr term = lifted(terms, terms.from_expression(distinct.expression, {}));
  return {std::move(terms), std::move(term)};
}

std::vector<std::string> sub_expressions(const ExpressionPtr& expression, const std::string& index) {
  Made all = made(expression);
  std::vector<std::string> texts;
  for (const TermPtr& each : minimal_sub_expressions(all.terms, all.term, all.terms.space().id_of(index))) {
    texts.push_back(text_of(all.terms.to_expression(each)));
  }
  return texts;
}

std::vector<std::string> precedences(const ExpressionPtr& expression) {
  Made all = made(expression);
  std::vector<std::string> pairs;
  for (const auto& [first, second] : must_precede(all.terms, all.term)) {
    pairs.push_back(all.terms.space().names[first] + all.terms.space().names[second]);
  }
  return pairs;
}

using Texts = std::vector<std::string>;

TEST(MinimalSubExpression, LeavesOutFactorsWithoutTheIndex) {
  const auto chain = sum("jk", times({in("A", "ij"), in("B", "jk"), in("C", "kl")}));
  EXPECT_EQ(sub_expressions(chain, "j"), Texts{"(A[i,j] * B[j,k])"});
  EXPECT_EQ(sub_expressions(chain, "k"), Texts{"(B[j,k] * C[k,l])"});
}

TEST(MinimalSubExpression, HasOnePathForEachSummand) {
  const auto both = sum("j", times({in("S", "pc"), plus({in("P", "pj"), in("C", "cj")}), in("t", "j")}));
  EXPECT_EQ(sub_expressions(both, "j"), Texts{"((P[p,j] + C[c,j]) * t[j])"});
  const auto apart = sum("j", times({in("S", "pc"), plus({in("P", "pj"), in("C", "cj")})}));
  EXPECT_EQ(sub_expressions(apart, "j"), (Texts{"P[p,j]", "C[c,j]"}));
}

TEST(MinimalSubExpression, StopsAtOperatorsThatBlock) {
  EXPECT_EQ(sub_expressions(sum("j", map(kSqrt, {times({in("A", "ij"), in("B", "jk")})})), "j"),
            Texts{"sqrt((A[i,j] * B[j,k]))"});
  EXPECT_EQ(sub_expressions(reduce(kMax, "j", times({in("A", "i"), in("B", "ij")})), "j"), Texts{"(A[i] * B[i,j])"});
  EXPECT_EQ(sub_expressions(reduce(kMax, "j", times({map(kExp, {in("A", "i")}), in("B", "ij")})), "j"),
            Texts{"B[i,j]"});
  EXPECT_EQ(sub_expressions(reduce(kMin, "j", plus({in("A", "i"), in("B", "ij")})), "j"), Texts{"B[i,j]"});
}

TEST(Precedence, IsOfAggregatesThatDoNotCommuteOrCannotBeReached) {
  EXPECT_EQ(precedences(reduce(kMax, "i", sum("j", in("A", "ij")))), Texts{"ji"});
  EXPECT_EQ(precedences(sum("i", map(kSqrt, {sum("j", in("A", "ij"))}))), Texts{"ji"});
  EXPECT_EQ(precedences(sum("i", sum("j", in("A", "ij")))), Texts{});
  EXPECT_EQ(precedences(sum("i", times({in("A", "i"), sum("j", in("B", "ij"))}))), Texts{});
  EXPECT_EQ(precedences(sum("i", times({in("A", "i"), map(kSqrt, {sum("j", in("B", "j"))})}))), Texts{});
}

/// The plan of the only query as text, a line a query.
Texts plan_text(const Program& program, const LogicalOptions& options) {
  const ProgramPlan planned = plan(program, {options, {}});
  Texts lines;
  for (const LogicalQuery& query : planned.queries.front().logical.queries) {
    const IndexSpace& space = planned.queries.front().logical.space;
    std::string line = query.name + "=";
    if (query.op) line += name_of(*query.op);
    for (const int64_t index : query.indices) line += " " + space.originals[index];
    lines.push_back(line + " " + text_of(Terms(nullptr, space).to_expression(query.body, true)));
  }
  return lines;
}

Program logistic_regression() {
  std::map<std::string, InputTensor> tensors = {{"S", counted({100000, 100, 100}, 100000)},
                                                {"P", counted({100, 20}, 1000)},
                                                {"C", counted({100, 20}, 1000)},
                                                {"t", counted({20}, 20)}};
  tensors["S"].degrees = {{{1, 2}, {0}, 1}};
  const auto features = times({in("S", "ipc"), plus({in("P", "pj"), in("C", "cj")}), in("t", "j")});
  return program_of(tensors, map(kSigmoid, {sum("pcj", features)}), "i");
}

TEST(Plan, PushesWeightsIntoTheFeaturesOfAJoin) {
  // Galley, section 5.6: P·t and C·t first, then the sum over the join, then the sigmoid.
  LogicalOptions options;
  const Texts lines = plan_text(logistic_regression(), options);
  ASSERT_EQ(lines.size(), 4);
  EXPECT_EQ(lines[0], "q_1=+ j (P[p,j] * t[j])");
  EXPECT_EQ(lines[1], "q_2=+ j (C[c,j] * t[j])");
  EXPECT_EQ(lines[3].substr(0, 10), "q= sigmoid");
}

TEST(Plan, OfBranchAndBoundIsNeverDearerThanTheGreedyOne) {
  std::mt19937 random(3);
  for (int round = 0; round < 60; ++round) {
    std::map<std::string, InputTensor> tensors;
    std::vector<ExpressionPtr> factors;
    const std::string letters = "abcdef";
    std::uniform_int_distribution<> letter(0, 5);
    for (int i = 0; i < 5; ++i) {
      const int first = letter(random), second = (first + 1 + letter(random) % 5) % 6;
      const std::string name(1, static_cast<char>('A' + i));
      tensors[name] = random_entries(random, {5, 5}, 0.3);
      factors.push_back(in(name, std::string{letters[first], letters[second]}));
    }
    std::string all;
    for (const std::string& index : free_indices(times(factors))) all += index;
    const Program over = program_of(tensors, sum(all, times(factors)), "");
    LogicalOptions greedy{.estimator = exact_estimator(), .absorption = Absorption::kSingle};
    LogicalOptions best = greedy;
    best.search = Search::kBranchAndBound;
    EXPECT_LE(plan(over, {best, {}}).cost, plan(over, {greedy, {}}).cost * (1 + 1e-12));
  }
}

TEST(Plan, RefusesAnOrderThatIsNotPossible) {
  const Program over = program_of({{"A", counted({3, 4}, 5)}}, reduce(kMax, "i", sum("j", in("A", "ij"))), "");
  const LogicalOptions options;
  const Terms::Sources sources = sources_of(over, *options.estimator);
  EXPECT_NO_THROW(elimination_cost(over.queries()[0], over.space(0), sources, {"j", "i"}, options));
  EXPECT_THROW(elimination_cost(over.queries()[0], over.space(0), sources, {"i", "j"}, options), PlanError);
  EXPECT_THROW(elimination_cost(over.queries()[0], over.space(0), sources, {"j"}, options), PlanError);
  EXPECT_THROW(elimination_cost(over.queries()[0], over.space(0), sources, {"x"}, options), PlanError);
}

}  // namespace
}  // namespace joinsum::sparse::logical
