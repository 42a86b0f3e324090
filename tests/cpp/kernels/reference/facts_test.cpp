#include "kernels/reference/facts.h"

#include <set>

#include <gtest/gtest.h>

#include "kernels/reference/reference.h"

namespace joinsum::kernels::reference {

using table::all_rows;
using table::Distribution;
using table::Facts;
using table::find_row;
using table::Form;
using table::has_row;
using table::Kernel;
using table::Row;

namespace {

Array evaluate(const Kernel& kernel, const std::vector<Array>& operands) { return reference::run(kernel, operands); }

/// Parameters to try for the rows whose facts depend on a label.
std::vector<Kernel> samples_of(const std::string& name) {
  std::vector<std::string> texts;
  const Row* row = find_row(name);
  if (row != nullptr && !row->combine.empty() && row->parameters == "l") {
    for (const char* labels :
         {"ij,jk->ik", "ij,ij->ij", "i,j->ji", "bij,kjb->bki", "ij,kl->i", ",->", "i,i->", "ij,->ji"})
      texts.push_back(name + "[" + labels + (row->combine == "expression" ? ":x0*x0*x1-3*x1+1" : "") + "]");
  }
  if (name == "expression") texts = {"expression[2, x0*x0*x1-3*x1+1]", "expression[1, where(x0<1,2,x0)]"};
  if (name.starts_with("reduce_")) {
    for (const char* labels : {"ij->i", "iij->j", "ijk->ki", "i->", "->", "ij->ij"})
      texts.push_back(name + "[" + labels + "]");
  }
  if (name == "arrange") texts = {"arrange[ij->ji]", "arrange[iji->ij]", "arrange[->]"};
  if (name == "embed_diagonal")
    texts = {"embed_diagonal[0, 0]", "embed_diagonal[1, 0]", "embed_diagonal[0, 1]", "embed_diagonal[2, 1]"};
  if (name == "cast") texts = {"cast[bf16]", "cast[i8]", "cast[f64]"};
  if (name == "adam_direction")
    texts = {"adam_direction[0.01, 0.9, 0.999, 1e-08, 3]", "adam_direction[-0.01, 0.9, 0.999, 0, 1]"};
  std::vector<Kernel> kernels;
  for (const std::string& text : texts) kernels.push_back(Kernel::parse(text));
  return kernels;
}

/// What the checker says of a row whose facts are replaced.
std::string verdict(const std::string& name, const Facts& facts, std::vector<Kernel> kernels = {}) {
  Row row = *find_row(name);
  row.facts = facts;
  if (kernels.empty()) kernels = samples_of(name);
  try {
    check_facts(row, evaluate, {.seed = 1, .kernels = kernels});
  } catch (const KernelError& error) {
    return error.what();
  }
  return "holds";
}

TEST(Facts, HoldForEveryBuiltInRow) {
  for (const Row* row : all_rows()) {
    for (const uint64_t seed : {1u, 2u, 3u}) {
      EXPECT_NO_THROW(check_facts(*row, evaluate, {.seed = seed, .kernels = samples_of(row->name)})) << row->name;
    }
  }
}

TEST(Facts, HoldForEveryOutputOfAKernelWithSeveral) {
  const Evaluate second = [](const Kernel& kernel, const std::vector<Array>& operands) {
    return reference::run(kernel, operands, {}, 1);
  };
  check_facts(*find_row("tile"), second, {.kernels = {Kernel::parse("tile[1, 3]")}, .shapes = {{{2, 6}}, {{3, 6, 2}}}});
  check_facts(*find_row("duplicate"), second);
}

/// Every fact that a built-in row could declare and does not has a counterexample, but for the ones listed.
TEST(Facts, ThatAreNotDeclaredDoNotHold) {
  // Zeros beside a diagonal stay zeros under products and extremes. `conjugate` does nothing to the real numbers of the
  // checker.
  const std::set<std::string> true_for_some_parameters{"contract",  "cast",       "adam_first",    "adam_second",
                                                       "conjugate", "expression", "embed_diagonal"};
  for (const Row* row : all_rows()) {
    if (true_for_some_parameters.contains(row->name)) continue;
    const auto refuted = [&](const Facts& facts) { return verdict(row->name, facts) != "holds"; };
    EXPECT_TRUE(row->facts.linear || refuted({.linear = true})) << row->name;
    if (row->operands == 2) {
      EXPECT_TRUE(row->facts.additive || refuted({.additive = true})) << row->name;
      EXPECT_TRUE(row->facts.associative || refuted({.associative = true})) << row->name;
      EXPECT_TRUE(row->facts.commutative || refuted({.commutative = true})) << row->name;
      EXPECT_TRUE(row->facts.idempotent || refuted({.idempotent = true})) << row->name;
    } else {
      EXPECT_TRUE(row->facts.moves_elements || refuted({.moves_elements = true})) << row->name;
    }
    for (const std::string over : {"add", "sub", "mul", "div", "min", "max", "squared_difference"}) {
      for (const bool left : {true, false}) {
        if (!left && row->operands == 1) continue;
        const Facts facts{.distributes_over = {{.over = over, .left = left, .right = !left}}};
        const auto& known = row->facts;
        const bool declared =
            (known.linear && (over == "add" || over == "sub")) || known.moves_elements ||
            std::any_of(known.distributes_over.begin(), known.distributes_over.end(),
                        [&](const Distribution& d) { return d.over == over && (left ? d.left : d.right); });
        EXPECT_TRUE(declared || refuted(facts)) << row->name << " over " << over << (left ? " left" : " right");
      }
    }
  }
}

TEST(Facts, OfTwoOperandsAreRefusedOfOne) {
  for (const Facts& facts : {Facts{.associative = true}, Facts{.commutative = true}, Facts{.additive = true}}) {
    EXPECT_NE(verdict("relu", facts).find("are facts of two operands: name=relu, operands=1"), std::string::npos);
  }
}

TEST(Facts, ACounterexampleIsPrinted) {
  const std::string text = verdict("sub", {.associative = true});
  EXPECT_EQ(text.find("register_kernel: declared fact does not hold: kernel=sub, fact=associative, counterexample: a="),
            0u)
      << text;
  EXPECT_NE(text.find(", f(f(a,b),c)="), std::string::npos) << text;
  EXPECT_NE(text.find(", f(a,f(b,c))="), std::string::npos) << text;
  EXPECT_EQ(text.find('['), std::string::npos) << "a scalar will do: " << text;
}

TEST(Facts, ThatCannotBeStatedAreRefused) {
  EXPECT_NE(verdict("matmul", {.commutative = true}).find("fact=commutative, counterexample: "), std::string::npos);
  const std::string text = verdict("contract", {.associative = true}, {Kernel::parse("contract[ij,j->i]")});
  EXPECT_NE(text.find("fact=associative, counterexample: operands="), std::string::npos) << text;
  EXPECT_EQ(verdict("relu", {.idempotent = true}),
            "register_kernel: associative, commutative, idempotent, additive, identity and annihilator are facts of "
            "two operands: "
            "name=relu, operands=1");
}

TEST(Facts, WrongElementsAreFound) {
  EXPECT_NE(verdict("add", {.identity = 1.0}).find("fact=identity"), std::string::npos);
  EXPECT_NE(verdict("sub", {.identity = 0.0}).find("fact=identity"), std::string::npos);
  EXPECT_NE(verdict("max", {.annihilator = 0.0}).find("fact=annihilator"), std::string::npos);
  EXPECT_NE(verdict("div", {.annihilator = 0.0}).find("fact=annihilator"), std::string::npos);
}

TEST(Facts, DependOnTheParameters) {
  const Facts over_max{.distributes_over = {{"max"}}};
  EXPECT_EQ(verdict("scale", over_max, {Kernel::parse("scale[2]")}), "holds");
  EXPECT_NE(verdict("scale", over_max).find("fact=distributes over max in operand 0"), std::string::npos);
}

Row user_row() { return {.name = "my_kernel", .summary = "a test's", .operands = 2}; }

std::string user_verdict(const Row& row, const Evaluate& run, const FactSamples& samples = {}) {
  try {
    check_facts(row, run, samples);
  } catch (const KernelError& error) {
    return error.what();
  }
  return "holds";
}

Array log_add_exp(const Kernel&, const std::vector<Array>& x) {
  const Array total =
      reference::run({"add", {}}, {reference::run({"exp", {}}, {x[0]}), reference::run({"exp", {}}, {x[1]})});
  return reference::run({"log", {}}, {total});
}

TEST(UserFacts, AreCheckedBeforeTheRowIsRegistered) {
  Row row = user_row();
  row.facts = {.associative = true, .commutative = true};
  EXPECT_EQ(user_verdict(row, log_add_exp), "holds");
  row.facts.idempotent = true;
  EXPECT_NE(user_verdict(row, log_add_exp).find("fact=idempotent"), std::string::npos);
  EXPECT_FALSE(has_row("my_kernel"));
}

TEST(UserFacts, ADistributionOverItselfIsEvaluatedByTheUser) {
  Row row = user_row();
  row.facts.distributes_over = {{"my_kernel"}};
  const Evaluate larger = [](const Kernel&, const std::vector<Array>& x) { return reference::run({"max", {}}, x); };
  EXPECT_EQ(user_verdict(row, larger), "holds");
}

TEST(UserFacts, TheResultHasTheShapeOfTheRule) {
  const Evaluate first_row = [](const Kernel&, const std::vector<Array>&) { return Array::zeros({7}); };
  EXPECT_EQ(user_verdict(user_row(), first_row),
            "register_kernel: result has another shape than the row says: kernel=my_kernel, operand shapes=[[], []], "
            "result=[7], wanted=[]");
}

TEST(UserFacts, AKernelThatFailsIsReported) {
  const Evaluate fails = [](const Kernel&, const std::vector<Array>&) -> Array { throw std::runtime_error("no"); };
  EXPECT_NE(user_verdict(user_row(), fails).find("register_kernel: kernel fails: kernel=my_kernel, operands="),
            std::string::npos);
}

TEST(UserFacts, OpaqueRowsAndLabelsMayNeedSamples) {
  Row row = user_row();
  row.operands = 1;
  row.form = Form::kOpaque;
  row.facts.linear = true;
  row.shape = [](const Kernel&, const std::vector<Dims>& shapes) -> Dims {
    JOINSUM_KERNEL_CHECK(shapes[0].size() == 1 && shapes[0][0] % 4 == 0, "my_kernel: multiples of four only");
    return {shapes[0][0] / 4};
  };
  const Evaluate fourth = [](const Kernel&, const std::vector<Array>& x) {
    Array out = Array::zeros({x[0].count() / 4});
    for (size_t i = 0; i < out.values.size(); ++i) out.values[i] = x[0].values[4 * i] + x[0].values[4 * i + 1];
    return out;
  };
  EXPECT_EQ(user_verdict(row, fourth),
            "register_kernel: the shape rule refuses every sample; give some shapes: kernel=my_kernel");
  EXPECT_EQ(user_verdict(row, fourth, {.shapes = {{{8}}, {{4}}}}), "holds");
  row.parameters = "l";
  EXPECT_EQ(user_verdict(row, fourth), "register_kernel: a kernel with a label needs samples: name=my_kernel");
  EXPECT_EQ(user_verdict(row, fourth, {.kernels = {Kernel::parse("my_kernel[x]")}, .shapes = {{{8}}}}), "holds");
}

}  // namespace
}  // namespace joinsum::kernels::reference
