#include "einsum/lower.h"

#include <algorithm>
#include <cmath>

#include <gtest/gtest.h>

#include "einsum/gradients/gradient.h"
#include "einsum/interpret.h"
#include "einsum/text.h"
#include "einsum/transforms/binary.h"
#include "random_einsums.h"
#include "tra/interpret.h"
#include "tra/text.h"

namespace joinsum::einsum {
namespace {

using kernels::reference::Array;

std::string lowered(const std::string& text, int64_t sites) {
  const Plan plan = parse("einsum\n" + text);
  return tra::print(lower(plan, even_cuts(plan, sites)));
}

/// The tuples of a tensor whose relation has type `type`.
tra::Relation cut(const Array& tensor, const relation::RelationType& type) {
  tra::Relation out;
  for (const Key& key : type.all_keys()) {
    Array part = Array::zeros(type.array_shape(key));
    for_each_key(Box::below(part.shape), [&](const Key& index) {
      Key from = index;
      for (size_t a = 0; a < from.size(); ++a) {
        if (type.axes[a].linked()) from[a] += type.axes[a].cuts[key[type.axes[a].key_dim]];
      }
      part.at(index) = tensor.at(from);
    });
    out.emplace_back(key, std::move(part));
  }
  return out;
}

/// Equal but for the order in which large products were rounded.
bool agree(const tra::Relation& a, const tra::Relation& b) {
  const auto near = [](double x, double y) { return x == y || std::abs(x - y) <= 1e-12 * std::abs(y); };
  const auto same = [&](const auto& x, const auto& y) {
    return x.first == y.first && x.second.shape == y.second.shape &&
           std::equal(x.second.values.begin(), x.second.values.end(), y.second.values.begin(), near);
  };
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), same);
}

/// Whether integers are exact: below 2^53.
bool exact(const std::map<std::string, Array>& values) {
  return std::all_of(values.begin(), values.end(), [](const auto& named) {
    return std::all_of(named.second.values.begin(), named.second.values.end(),
                       [](double value) { return std::isinf(value) || std::abs(value) < 0x1p53; });
  });
}

/// Whether the lowered plan computes what the plan means.
void expect_same_meaning(const Plan& plan, const std::map<std::string, Array>& contents, int64_t sites) {
  const auto wanted = interpret(plan, contents);
  const Plan pairs = transforms::binary(plan);
  const auto cuts = even_cuts(pairs, sites);
  const tra::Plan tuples = lower(pairs, cuts);
  std::map<std::string, tra::Relation> relations;
  for (const auto& [name, type] : cuts) relations[name] = cut(contents.at(name), type);
  const auto computed = tra::interpret(tuples, relations);
  for (const auto& output : tuples.outputs()) {
    ASSERT_TRUE(agree(computed.at(output.name), cut(wanted.at(output.name), output.node->type())))
        << "sites=" << sites << "\n"
        << plan.text() << tuples.text();
  }
}

TEST(EinsumLower, AnExpressionThatIsAggregatedIsOneKernel) {
  const std::string text = lowered(
      "input X: f32[4,5]\ninput Y: f32[5,6]\n"
      "output Z = einsum[ij,jk->ki; expression[2, exp(x0-x1)*2]; max](X, Y)",
      3);
  EXPECT_NE(text.find("join[1; 0; expression_max[ab,bc->ca:exp(x0-x1)*2]](X, Y)"), std::string::npos) << text;
}

TEST(EinsumLower, AProductIsAJoinOnTheSharedLabelsAndASumOverThem) {
  EXPECT_EQ(lowered("input X: f32[4,5]\ninput Y: f32[5,6]\noutput Z = einsum[ij,jk->ki; mul; add](X, Y)", 3),
            "tra\n"
            "input X: f32[4,5]<3,3>\n"
            "input Y: f32[5,6]<3,3>\n"
            "t0 = join[1; 0; contract[ab,bc->ca]](X, Y): f32[6@2,4@0]<3,3,3>\n"
            "t1 = aggregate[2, 0; add](t0): f32[6,4]<3,3>\n"
            "output Z = t1\n");
}

TEST(EinsumLower, OtherPairsHaveKernelsOfTheirOwn) {
  EXPECT_EQ(lowered("input X: f32[4,5]\ninput Y: f32[5,6]\noutput Z = einsum[ij,jk->ik; add; min](X, Y)", 2),
            "tra\n"
            "input X: f32[4,5]<2,2>\n"
            "input Y: f32[5,6]<2,2>\n"
            "t0 = join[1; 0; contract_add_min[ab,bc->ac]](X, Y): f32[4@0,6@2]<2,2,2>\n"
            "t1 = aggregate[0, 2; min](t0): f32[4,6]<2,2>\n"
            "output Z = t1\n");
}

TEST(EinsumLower, ClassesWithADiagonalOrABroadcastStayWhole) {
  EXPECT_EQ(lowered("input X: f32[4,4,3]\noutput Z = einsum[iij->ijk; id; add; k=2](X)", 2),
            "tra\n"
            "input X: f32[4,4,3@0]<2>\n"
            "t0 = transform[arrange[aab->ab]](X): f32[4,3@0]<2>\n"
            "t1 = transform[expand[2, 2]](t0): f32[4,3@0,2]<2>\n"
            "output Z = t1\n");
}

TEST(EinsumLower, FloatsOfHalfWidthAreAggregatedInSinglePrecision) {
  EXPECT_EQ(lowered("input X: bf16[4,5]\noutput Z = einsum[ij->i; id; add](X)", 2),
            "tra\n"
            "input X: bf16[4,5]<2,2>\n"
            "t0 = transform[cast[f32]](X): f32[4,5]<2,2>\n"
            "t1 = transform[reduce_add[ab->a]](t0): f32[4@0]<2,2>\n"
            "t2 = aggregate[0; add](t1): f32[4]<2>\n"
            "t3 = transform[cast[bf16]](t2): bf16[4]<2>\n"
            "output Z = t3\n");
}

TEST(EinsumLower, LabelsOfGivenRelationsAreCutAlike) {
  const Plan plan = parse("einsum\ninput X: f32[4]\ninput Y: f32[4]\noutput Z = einsum[i,i->; mul; add](X, Y)");
  const auto of = [](const char* text) { return relation::RelationType::parse(text); };
  EXPECT_EQ(tra::print(lower(plan, {{"X", of("f32[4]<2>")}, {"Y", of("f32[4]<2>")}})).find("error"), std::string::npos);
  try {
    lower(plan, {{"X", of("f32[4]<2>")}, {"Y", of("f32[4]<4>")}});
    FAIL();
  } catch (const PlanError& error) {
    EXPECT_STREQ(
        error.what(),
        "einsum: a label is cut at different points; give its axes the same parts: label=i, cuts=[0, 2, 4] and "
        "[0, 1, 2, 3, 4], einsum=einsum[i,i->; mul; add]");
  }
}

TEST(EinsumLower, RandomPlansKeepTheirMeaning) {
  RandomEinsums random(2);
  for (int round = 0; round < 250; ++round) {
    const Plan plan = random.plan({});
    const auto contents = random.contents(plan, true);
    for (const int64_t sites : {1, 2, 3, 5}) expect_same_meaning(plan, contents, sites);
  }
}

TEST(EinsumLower, RandomExpressionsKeepTheirMeaning) {
  RandomEinsums random(9);
  int compared = 0;
  for (int round = 0; round < 300; ++round) {
    const Plan plan = random.plan({.differentiable = true, .expressions = true, .vertices = 1});
    const auto contents = random.contents(plan, true);
    if (!exact(interpret(plan, contents))) continue;
    ++compared;
    for (const int64_t sites : {1, 2, 3}) expect_same_meaning(plan, contents, sites);
  }
  EXPECT_GT(compared, 200);
}

}  // namespace
}  // namespace joinsum::einsum
