#include "kernels/call/call.h"

#include <gtest/gtest.h>

#include "einsum/lower.h"
#include "einsum/text.h"
#include "ia/text.h"
#include "optimizer/optimizer.h"
#include "tra/lower.h"
#include "tra/text.h"

namespace joinsum::kernels::call {
namespace {

constexpr const char* kSoftmax =
    "0; aten::_softmax; abc -> abc:f32; (%0{a,b,c}, 2, false) -> {a,b,c}; undivided=c; flops=5.0 abc";
constexpr const char* kNorm =
    "1; aten::native_layer_norm; abcd,cd,cd -> abcd:f32, ab:f32, ab:f32; (%0{a,b,cd}, [|cd|], %1{cd}, %2{cd}, 1e-05) "
    "-> "
    "{a,b,cd}, {a,b,1}, {a,b,1}; undivided=cd; flops=8.0 abcd + 2.0 ab";
constexpr const char* kEmbedding =
    "0; joinsum::embedding_shard; vd,bs -> bsd:f32; (%0{v,d}, %1{b,s}, @v) -> {b,s,d}; reduce v=add; flops=1.0 bsd";

// A softmax of its partial sums, with the sum of each row as a second result.
constexpr const char* kQuotient =
    "0; joinsum::quotient; ab,a -> ab:f32, a:f32; (%0{a,b}, %1{a}) -> {a,b}, {a}; same=b; flops=4.0 ab; "
    "undecomposed (0) {0; aten::_softmax; xy -> xy:f32; (%0{x,y}, 1, false) -> {x,y}; undivided=y; flops=5.0 xy}";

constexpr const char* kSparse =
    "0; joinsum::sparse_query; ab,bc -> ac:f32 sparse{9}; ([%0{a,b}, %1{b,c}], [0.0, 0.0], '+[b]((x0[a,b] * "
    "x1[b,c]))', 'ac', '', [], false) -> {a,c}; reduce b=add; flops=0.25 abc";

Call parsed(const std::string& text) {
  Scanner scanner(text);
  Call call = Call::parse(scanner);
  if (!scanner.at_end()) scanner.fail("expected the end of the call");
  return call;
}

std::string error_of(const std::string& text) {
  try {
    return "no error: " + parsed(text).text();
  } catch (const Error& error) {
    return error.what();
  }
}

void expect_error(const std::string& text, const std::string& fragment) {
  EXPECT_NE(error_of(text).find(fragment), std::string::npos) << text << "\n  raises " << error_of(text);
}

TEST(Call, PrintsAndReadsBackTheSame) {
  for (const std::string text : {kSoftmax, kNorm, kEmbedding, kQuotient, kSparse,
                                 "0; aten::x.y; a -> b:i64; (none, true, 'text', f16, -inf, nan, [1, [2.5]], "
                                 "name=[|a|, @a], other=%0{a}) -> {b}; "
                                 "undivided=a; extents b=8/4"}) {
    EXPECT_EQ(parsed(text).text(), text);
    EXPECT_EQ(parsed(parsed(text).text()), parsed(text));
  }
}

TEST(Call, AnOperandMayHaveNoAxes) {
  EXPECT_EQ(parsed("0; aten::sqrt;  -> :f32; (%0{}) -> {}").operands, std::vector<std::string>{""});
  EXPECT_EQ(parsed("0; aten::sum_of;  -> :f32; ([%0{}]) -> {}").operands, std::vector<std::string>{""});
  EXPECT_EQ(parsed("0; aten::new;  -> :f32; (1) -> {}").operands, std::vector<std::string>{});
}

TEST(Call, RefusesWhatMakesNoSense) {
  expect_error("0; a::b; a -> a:f32 sparse{-1}; (%0{a}) -> {a}", "no negative number of entries");
  expect_error("2; a::b; a -> a:f32; (%0{a}) -> {a}", "no such result");
  expect_error("0; a::b; aa -> a:f32; (%0{a}) -> {a}", "a letter stands once in a tensor");
  expect_error("0; a::b; ab -> ab:f32; (%0{a}) -> {a,b}", "axes have each letter of a tensor once");
  expect_error("0; a::b; ab -> ab:f32; (%1{a,b}) -> {a,b}", "no such operand");
  expect_error("0; a::b; ab -> a:f32; (%0{a,b}) -> {a}", "lacks a letter that is divided freely: letter=b");
  expect_error("0; a::b; ab -> ab:f32; (%0{a,b}) -> {a,b}; reduce b=add",
               "some result lacks a letter that leaves partials: letter=b");
  expect_error("0; a::b; ab -> a:f32; (%0{a,b}) -> {a}; reduce b=sub", "reduced by an associative, commutative kernel");
  expect_error("0; a::b; a -> ac:f32; (%0{a}) -> {a,c}", "a result's letter has no extent: letter=c");
  expect_error("0; a::b; a -> a:f32; (|c|) -> {a}", "no tensor has the letter: letter=c");
  expect_error("0; a::b; ab -> a:f32; (%0{a,b}) -> {a}; undivided=b; same=b", "a letter of which results are the same");
  const std::string call = "0; a::b; ab -> ab:f32; (%0{a,b}) -> {a,b}; undecomposed ";
  expect_error(call + "(1) {0; a::c; ab -> ab:f32; (%0{a,b}) -> {a,b}}", "there is no such operand: operand=1");
  expect_error(call + "(0,0) {0; a::c; ab -> ab:f32; (%0{a,b}) -> {a,b}}", "as many operands as are named");
  expect_error(call + "(0) {0; a::c; a -> a:f32; (%0{a}) -> {a}}",
               "an operand has as many letters in the undecomposed call");
  expect_error(call + "(0) {0; a::c; ab -> ab:f64; (%0{a,b}) -> {a,b}}", "and its dtype, in the undecomposed call");
  expect_error("0; a::b; a -> a:f99; (%0{a}) -> {a}", "no such dtype");
  expect_error("0; a::b; a -> a:f32; (word) -> {a}", "an argument is");
}

TEST(Call, DamagedTextsRaiseAndNeverCrash) {
  const std::string text = std::string(kNorm) + "; undecomposed (0,1,2) {" + kNorm + "}";
  for (size_t i = 0; i < text.size(); ++i) {
    for (const char replaced : {'\0', '{', '}', ';', '9', '%', ','}) {
      std::string damaged = text;
      damaged[i] = replaced;
      EXPECT_NO_THROW((void)error_of(damaged)) << damaged;
    }
    EXPECT_NO_THROW((void)error_of(text.substr(0, i)));
  }
}

// --- placement
// ---------------------------------------------------------------------------------------------------------------

std::string type_of(const std::string& inputs, const std::string& call, const std::string& operands) {
  const ia::Plan plan = ia::parse("ia on 2x2\n" + inputs + "output Z = local_call[" + call + "](" + operands + ")");
  return plan.outputs()[0].node->type().text();
}

TEST(LocalCall, CarriesADividedLetterToTheResult) {
  EXPECT_EQ(type_of("input X: f32[4,6,8]<4,4,4> (0, 1)\n", kSoftmax, "X"), "f32[4,6,8]<4,4,4> on 2x2 (0, 1)");
}

TEST(LocalCall, LeavesPartialsWhereALetterIsReduced) {
  const char* inputs = "input W: f32[9,8]<4,4> (0, *)\ninput I: i64[4,6]<4,4> (*, 1)\n";
  EXPECT_EQ(type_of(inputs, kEmbedding, "W, I"), "f32[4,6,8]<4,4,4> on 2x2 (+add, 1)");
}

/// A product's gradients, of which each has a letter that the other one lacks.
constexpr const char* kGradients =
    "; joinsum::gradients; ab,ac -> ac:f32, bc:f32; (%0{a,b}, %1{a,c}) -> {a,c}, {b,c}; undivided=c; "
    "reduce a=add b=add";

TEST(LocalCall, DividesResultsThatHaveAReducedLetterAndLeavesPartialsOfThoseThatLackIt) {
  const char* inputs = "input X: f32[8,6]<4,2> (0, 1)\ninput Y: f32[8,5]<4,1> (0, *)\n";
  EXPECT_EQ(type_of(inputs, "0" + std::string(kGradients), "X, Y"), "f32[8,5]<4,1> on 2x2 (0, +add)");
  EXPECT_EQ(type_of(inputs, "1" + std::string(kGradients), "X, Y"), "f32[6,5]<2,1> on 2x2 (+add, 0)");
}

TEST(LocalCall, RefusesPartialsOfDifferentReductionsForAllResultsAlike) {
  const std::string call = "; joinsum::both; ab -> a:f32, b:f32; (%0{a,b}) -> {a}, {b}; reduce a=add b=max";
  for (const char* output : {"0", "1"}) {
    try {
      type_of("input X: f32[8,6]<4,2> (0, 1)\n", output + call, "X");
      ADD_FAILURE() << output;
    } catch (const PlanError& error) {
      EXPECT_NE(std::string(error.what()).find("partials of different reductions"), std::string::npos) << error.what();
    }
  }
}

TEST(LocalCall, RepeatsResultsThatAreTheSameForAllParts) {
  const char* inputs = "input X: f32[8,4]<4,4> (0, 1)\ninput S: f32[8]<4> (0, *)\n";
  EXPECT_EQ(type_of(inputs, kQuotient, "X, S"), "f32[8,4]<4,4> on 2x2 (0, 1)");
  EXPECT_EQ(type_of(inputs, "1" + std::string(kQuotient).substr(1, std::string(kQuotient).find("; undecomposed") - 1),
                    "X, S"),
            "f32[8]<4> on 2x2 (0, *)");
}

TEST(LocalCall, GivesSparseResultsAndPartialsOfThem) {
  const char* inputs = "input X: f32[8,6]<4,2> sparse{5} (0, 1)\ninput Y: f32[6,5]<2,1> (*, 0)\n";
  EXPECT_EQ(type_of(inputs, kSparse, "X, Y"), "f32[8,5]<4,1> sparse{9} on 2x2 (0, +add)");
}

TEST(LocalCall, RefusesOperandsThatDoNotMeet) {
  const auto error = [](const std::string& inputs, const std::string& call, const std::string& operands) {
    try {
      return "no error: " + type_of(inputs, call, operands);
    } catch (const PlanError& raised) {
      return std::string(raised.what());
    }
  };
  const auto has = [](const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
  };
  EXPECT_TRUE(has(error("input X: f32[4,6,8]<4,4,4> (2, *)\n", kSoftmax, "X"), "the call needs undivided"));
  const std::string add = "0; aten::add.Tensor; ab,ab -> ab:f32; (%0{a,b}, %1{a,b}) -> {a,b}";
  EXPECT_TRUE(has(error("input X: f32[4,4]<4,4> (0, *)\ninput Y: f32[4,4]<4,4> (1, *)\n", add, "X, Y"),
                  "operands do not meet on one site"));
  EXPECT_TRUE(has(error("input X: f32[4,4]<4,4> (0, *)\ninput Y: f32[4,4]<4,4> (*, *)\n", add, "X, Y"),
                  "operands do not meet on one site"));
  EXPECT_TRUE(has(error("input X: f32[4,4]<4,4> (*, *)\ninput Y: f32[4,4]<2,4> (*, *)\n", add, "X, Y"),
                  "a letter is cut at different points"));
}

// --- from graphs to plans
// ----------------------------------------------------------------------------------------------------

einsum::Plan graph() {
  return einsum::parse(std::string("einsum\ninput W: f32[16,8]\ninput I: i64[4,6]\ninput V: f32[8,16]\n") +
                       "t0 = call[" + kEmbedding + "](W, I)\nt1 = call[" + kSoftmax + "](t0)\n" +
                       "output Z = einsum[bsd,dk->bsk; mul; add](t1, V)\n");
}

TEST(Call, IsAVertexOfGraphsAndLowersToEachLevel) {
  const einsum::Plan plan = graph();
  EXPECT_EQ(einsum::parse(plan.text()), plan);
  const tra::Plan logical = einsum::lower(plan, einsum::even_cuts(plan, 4));
  EXPECT_EQ(tra::parse(logical.text(), {}), logical);
  EXPECT_EQ(logical.outputs()[0].node->type().text(), "f32[4,6,16]<4,4,4>");
  const ia::Plan physical = tra::lower(logical, ia::Grid::of_sites(4), {});
  EXPECT_EQ(ia::parse(physical.text(), {}), physical);
}

TEST(Call, IsDividedWhereThatCostsLess) {
  const einsum::Plan plan = graph();
  const tra::Plan logical = einsum::lower(plan, einsum::even_cuts(plan, 4));
  const auto found =
      optimizer::optimize(logical, ia::Grid::of_sites(4), {}, {.minimize = optimizer::cost::Objective::kSeconds});
  const std::string text = found.candidates[0].plan.text();
  const std::string divided = "on 2x2 (0, 0)";
  EXPECT_NE(text.find(divided), std::string::npos) << text;
  EXPECT_EQ(text.find("broadcast"), std::string::npos) << text;
}

}  // namespace
}  // namespace joinsum::kernels::call
