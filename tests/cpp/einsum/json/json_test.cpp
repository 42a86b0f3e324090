#include "einsum/json/json.h"

#include <random>

#include <gtest/gtest.h>

#include "einsum/gradients/gradient.h"
#include "einsum/interpret.h"
#include "einsum/lower.h"
#include "einsum/text.h"
#include "kernels/table/table.h"
#include "random_einsums.h"
#include "tra/text.h"

namespace joinsum::einsum::json {
namespace {

const char* const kGraph = R"({
  "inputs": {"X": [4, 5], "Y": {"dtype": "f64", "extents": [5, 6]}, "W": {"dtype": "f64", "extents": [4, 5]}},
  "ops": [
    {"name": "A", "inputs": ["W", "Y"], "in_labels": ["ij", "jk"], "out_labels": "ik", "join": "x * y + 1", "agg": "sum"},
    {"name": "B", "inputs": ["A"], "in_labels": [["row", "k"]], "out_labels": ["row", "n"], "agg": "max", "extents": {"n": 2}}
  ],
  "outputs": {"Z": "B", "A": "A"}
})";

/// A graph of one operation `op`, an object's inside, over X of 4 by 5.
std::string graph_with(const std::string& op) {
  return R"({"inputs": {"X": [4, 5]}, "ops": [{)" + op + R"(}], "outputs": ["Z"]})";
}

std::string op_with(const std::string& fields) { return graph_with(R"("name": "Z", "inputs": ["X"], )" + fields); }

template <class Make>
std::string error_of(const Make& make) {
  try {
    make();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

std::string reading_error(const std::string& text) {
  return error_of([&] { read(text); });
}

std::string plan_error(const std::string& text) {
  return error_of([&] { plan_of(read(text)); });
}

TEST(EinsumJson, AGraphIsReadWithItsNames) {
  const JsonGraph graph = read(kGraph);
  ASSERT_EQ(graph.inputs.size(), 3);
  EXPECT_EQ(graph.inputs[0].first + ": " + graph.inputs[0].second.text(), "X: f32[4,5]");
  EXPECT_EQ(graph.inputs[1].first + ": " + graph.inputs[1].second.text(), "Y: f64[5,6]");
  ASSERT_EQ(graph.operations.size(), 2);
  EXPECT_EQ(
      graph.operations[0],
      (JsonOperation{
          "A", {"W", "Y"}, {{"i", "j"}, {"j", "k"}}, {"i", "k"}, {{"i", 4}, {"j", 5}, {"k", 6}}, "x * y + 1", "sum"}));
  EXPECT_EQ(graph.operations[1].join, "mul");
  EXPECT_EQ(graph.operations[1].out_labels, (Labels{"row", "n"}));
  EXPECT_EQ(graph.operations[1].extents, (Extents{{"row", 4}, {"k", 6}, {"n", 2}}));
  EXPECT_EQ(graph.outputs, (std::vector<std::pair<std::string, std::string>>{{"Z", "B"}, {"A", "A"}}));
}

TEST(EinsumJson, AGraphIsWrittenWithALineForEachOperation) {
  const std::string text =
      "{\n"
      "  \"inputs\": {\"X\": [4, 5], \"Y\": {\"dtype\": \"i64\", \"extents\": []}},\n"
      "  \"ops\": [\n"
      "    {\"name\": \"t0\", \"inputs\": [\"X\", \"Y\"], \"in_labels\": [\"ij\", \"\"], \"out_labels\": [\"i\", "
      "\"n.1\"], "
      "\"join\": \"sub | square\", \"agg\": \"max\", \"extents\": {\"n.1\": 2}},\n"
      "    {\"name\": \"t1\", \"inputs\": [\"X\"], \"in_labels\": [\"ij\"], \"out_labels\": \"ji\", \"join\": "
      "\"exp\"}\n"
      "  ],\n"
      "  \"outputs\": {\"Z\": \"t0\", \"\\u00e9 \\\"\": \"t1\"}\n"
      "}";
  EXPECT_EQ(write(read(text)), text);
  EXPECT_EQ(write(JsonGraph{}), "{\n  \"inputs\": {},\n  \"ops\": [],\n  \"outputs\": {}\n}");
}

TEST(EinsumJson, AGraphBecomesAPlanThatIsInferredLoweredAndWrittenBack) {
  const Plan plan = plan_of(read(kGraph));
  EXPECT_EQ(print(plan),
            "einsum\n"
            "input W: f64[4,5]\n"
            "input Y: f64[5,6]\n"
            "t0 = einsum[ij,jk->ik; expression[2, x0*x1+1]; add](W, Y): f64[4,6]\n"
            "t1 = einsum[{row}k->{row}n; id; max; n=2](t0): f64[4,2]\n"
            "output Z = t1\n"
            "output A = t0\n");
  EXPECT_EQ(tra::parse(tra::print(lower(plan, even_cuts(plan, 2))), {}).outputs().size(), 2);
  EXPECT_EQ(gradients::gradient(plan, {"W"}).outputs()[0].node->type().text(), "f64[4,5]");
  EXPECT_TRUE(plan_of(read(write(graph_of(plan)))) == plan);
}

TEST(EinsumJson, RandomPlansReadBack) {
  for (uint64_t seed = 0; seed < 500; ++seed) {
    RandomEinsums random(seed);
    const Plan plan = random.plan({.expressions = seed % 2 == 0, .vertices = 1 + seed % 5});
    const std::string text = write(graph_of(plan));
    const JsonGraph graph = read(text);
    ASSERT_TRUE(graph == graph_of(plan)) << "seed=" << seed << "\n" << text;
    ASSERT_TRUE(plan_of(graph) == plan) << "seed=" << seed << "\n" << text;
  }
}

TEST(EinsumJson, ArgmaxIsAPlanOfTwoAggregationsThatFindsTheFirstPosition) {
  const Plan plan = plan_of(read(op_with(R"("in_labels": ["ij"], "out_labels": "i", "agg": "argmax")")));
  std::map<std::string, kernels::reference::Array> inputs{{"X", kernels::reference::Array::zeros({4, 5})},
                                                          {"Z.positions", kernels::reference::Array::zeros({5})}};
  for (size_t j = 0; j < 5; ++j) inputs.at("Z.positions").values[j] = static_cast<double>(j);
  inputs.at("X").values = {0, 3, 1, 3, 2, 9, 9, 9, 9, 9, -3, -2, -1, -2, -3, 1, 2, 3, 4, 5};
  EXPECT_EQ(interpret(plan, inputs).at("Z").values, (std::vector<double>{1, 0, 2, 4}));
}

TEST(EinsumJson, AnyAndAllAreOfTruthValuesAndMulOfTruthValuesIsAnd) {
  const std::string given = R"({"inputs": {"X": {"dtype": "bool", "extents": [3]}, "F": [3]}, "ops": [)";
  const std::string text =
      given +
      R"({"name": "A", "inputs": ["X", "X"], "in_labels": ["i", "i"], "out_labels": "", "agg": "all"},
                              {"name": "B", "inputs": ["F"], "in_labels": ["i"], "out_labels": "", "agg": "any"}],
                              "outputs": ["A", "B"]})";
  EXPECT_EQ(print(plan_of(read(text))),
            "einsum\n"
            "input X: bool[3]\n"
            "input F: f32[3]\n"
            "t0 = einsum[i,i->; min | cast[bool]; min](X, X): bool[]\n"
            "t1 = einsum[i->; id | cast[bool]; max](F): bool[]\n"
            "output A = t0\n"
            "output B = t1\n");
}

TEST(EinsumJson, WhatIsNoJsonIsNamedByLineAndColumn) {
  EXPECT_EQ(reading_error("["),
            "json: not JSON, unexpected end of input; expected '[', '{', or a literal: line=1, column=2");
  EXPECT_EQ(reading_error("{\n \"inputs\": nil}"),
            "json: not JSON, invalid literal; last read: '\"inputs\": ni': line=2, column=13");
  EXPECT_TRUE(reading_error("").starts_with("json: not JSON, attempting to parse an empty input")) << reading_error("");
  EXPECT_NE(reading_error("{\"a\": \"\xff\"}").find("json: not JSON, invalid string: ill-formed UTF-8"),
            std::string::npos);
  EXPECT_EQ(reading_error("[1e999]"), "json: not JSON, number overflow parsing '1e999': line=1, column=2");
  EXPECT_NE(reading_error("[\"\\ud800\"]").find("json: not JSON, invalid string"), std::string::npos);
  const std::string file = error_of([] { read("[", {.who = "plan_graph", .where = "file=g.json, "}); });
  EXPECT_TRUE(file.starts_with("plan_graph: not JSON, ") && file.ends_with(": file=g.json, line=1, column=2")) << file;
  EXPECT_EQ(reading_error(R"({"inputs": {"X": [1], "Y": {}, "X": [2]}})"),
            "json: an object has one name twice: at=$.inputs.X");
  EXPECT_EQ(reading_error(R"({"ops": [1, [{"a": 1, "b c": {}, "b c": 2}]]})"),
            R"(json: an object has one name twice: at=$.ops[1][0]["b c"])");
  std::string deep = "json: lists and objects lie too deep: at=$";
  for (int level = 1; level < 32; ++level) deep += "[0]";
  EXPECT_EQ(reading_error(std::string(100000, '[')), deep + ", most=32");
}

TEST(EinsumJson, WhatIsNoGraphIsNamedByItsPath) {
  const std::vector<std::pair<std::string, std::string>> wrong{
      {"[]", "not an object: at=$, got=[]"},
      {R"({"inputs": {}})", "a field is missing: at=$, field='ops'"},
      {R"({"inputs": {}, "opps": []})", "no such field; there are inputs, ops, outputs: at=$.opps"},
      {R"({"in put": {}})", R"(no such field; there are inputs, ops, outputs: at=$["in put"])"},
      {R"({"inputs": [], "ops": [], "outputs": []})", "not an object: at=$.inputs, got=[]"},
      {R"({"inputs": {"": [1]}, "ops": [], "outputs": []})",
       R"(not a text of at least one letter: at=$.inputs[""], got='')"},
      {R"({"inputs": {"X": 4}, "ops": [], "outputs": []})", "not a list: at=$.inputs.X, got=4"},
      {R"({"inputs": {"X": [4, -1]}, "ops": [], "outputs": []})", "not a number of elements: at=$.inputs.X[1], got=-1"},
      {R"({"inputs": {"X": [4.0]}, "ops": [], "outputs": []})", "not a number of elements: at=$.inputs.X[0], got=4.0"},
      {R"({"inputs": {"X": [true]}, "ops": [], "outputs": []})",
       "not a number of elements: at=$.inputs.X[0], got=true"},
      {R"({"inputs": {"X": [9223372036854775808]}, "ops": [], "outputs": []})",
       "not a number of elements: at=$.inputs.X[0], got=9223372036854775808"},
      {R"({"inputs": {"X": {"extents": [1]}}, "ops": [], "outputs": []})",
       "a field is missing: at=$.inputs.X, field='dtype'"},
      {R"({"inputs": {"X": {"dtype": "f31", "extents": [1]}}, "ops": [], "outputs": []})",
       "no such dtype; there are bool, u8, i8, i16, i32, i64, f16, bf16, f32, f64, c64, c128: at=$.inputs.X.dtype, "
       "dtype='f31'"},
      {R"({"inputs": {}, "ops": {}, "outputs": []})", "not a list: at=$.ops, got={}"},
      {R"({"inputs": {}, "ops": [null], "outputs": []})", "not an object: at=$.ops[0], got=null"},
      {R"({"inputs": {}, "ops": [], "outputs": ["X"]})",
       "no such input or earlier operation: at=$.outputs[0], name='X'"},
      {R"({"inputs": {"X": [1]}, "ops": [], "outputs": {"": "X"}})",
       R"(an output has no name, or that of another value: at=$.outputs[""], of='X')"},
      {R"({"inputs": {"X": [1], "Y": [1]}, "ops": [], "outputs": {"X": "Y"}})",
       "an output has no name, or that of another value: at=$.outputs.X, of='Y'"},
      {graph_with(R"("name": "Z", "sum": 1)"),
       "no such field; there are name, inputs, in_labels, out_labels, join, agg, extents: at=$.ops[0].sum"},
      {graph_with(R"("name": "Z")"), "a field is missing: at=$.ops[0], field='inputs'"},
      {graph_with(R"("name": 3, "inputs": [], "in_labels": [], "out_labels": "")"),
       "not a text of at least one letter: at=$.ops[0].name, got=3"},
      {graph_with(R"("name": "Z", "inputs": [], "in_labels": [], "out_labels": "")"),
       "an operation has no operand: at=$.ops[0].inputs"},
      {graph_with(R"("name": "Z", "inputs": ["Y"], "in_labels": [], "out_labels": "")"),
       "no such input or earlier operation: at=$.ops[0].inputs[0], name='Y'"},
      {graph_with(R"("name": "X", "inputs": ["X"], "in_labels": ["ij"], "out_labels": "ij")"),
       "two values have one name: at=$.ops[0].name, name='X'"},
      {op_with(R"("in_labels": ["ij", "k"], "out_labels": "ij")"),
       "1 operands need as many lists of labels: at=$.ops[0].in_labels, in_labels=['ij', 'k']"},
      {op_with(R"("in_labels": ["i"], "out_labels": "i")"),
       "an operand has 2 axes but 1 labels: at=$.ops[0].in_labels[0], labels=['i']"},
      {op_with(R"("in_labels": ["i1"], "out_labels": "i")"),
       "a text of labels has letters only; give longer labels as a list: at=$.ops[0].in_labels[0][1], got='1'"},
      {op_with(R"("in_labels": ["i→"], "out_labels": "i")"),
       R"(a text of labels has letters only; give longer labels as a list: at=$.ops[0].in_labels[0][1], got='\u2192')"},
      {op_with(R"("in_labels": [["i", ""]], "out_labels": "i")"),
       "not a text of at least one letter: at=$.ops[0].in_labels[0][1], got=''"},
      {op_with(R"("in_labels": ["ii"], "out_labels": "i")"),
       "a label has two extents: at=$.ops[0].in_labels[0][1], label='i', extents=[4, 5]"},
      {op_with(R"("in_labels": ["ij"], "out_labels": "ijk")"),
       "a label has no extent; no operand has it, so name it in extents: at=$.ops[0].out_labels[2], label='k'"},
      {op_with(R"("in_labels": ["ij"], "out_labels": "ij", "extents": {"i": 7})"),
       "a label has two extents: at=$.ops[0].extents.i, extents=[4, 7]"},
      {op_with(R"("in_labels": ["ij"], "out_labels": "ij", "extents": {"k l": 7})"),
       R"(an extent of a label that no axis has: at=$.ops[0].extents["k l"], label='k l')"},
      {op_with(R"("in_labels": ["ij"], "out_labels": "ijk", "extents": {"k": []})"),
       "not a number of elements: at=$.ops[0].extents.k, got=[]"},
      {op_with(R"("in_labels": ["ij"], "out_labels": "")"),
       "labels vanish but nothing aggregates them: at=$.ops[0].agg, labels=['i', 'j']"},
      {op_with(R"("in_labels": ["ij"], "out_labels": "i", "agg": "mean")"),
       "no such aggregation; there are sum, prod, max, min, logsumexp, any, all, argmax, argmin: at=$.ops[0].agg, "
       "agg='mean'"},
      {op_with(R"("in_labels": ["ij"], "out_labels": "ij", "agg": null)"),
       "no such aggregation; there are sum, prod, max, min, logsumexp, any, all, argmax, argmin: at=$.ops[0].agg, "
       "agg=null"},
      {op_with(R"("in_labels": ["ij"], "out_labels": "ij", "join": "")"),
       "not a text of at least one letter: at=$.ops[0].join, got=''"},
  };
  for (const auto& [text, message] : wrong) EXPECT_EQ(reading_error(text), "json: " + message) << text;
}

TEST(EinsumJson, AResultWithALabelTwiceIsRefusedWhereDiagonalsAre) {
  const std::string text = R"({"inputs": {"X": [4]}, "ops": [{"name": "Z", "inputs": ["X"], "in_labels": ["i"],
                              "out_labels": "ii"}], "outputs": ["Z"]})";
  EXPECT_EQ(plan_of(read(text)).outputs()[0].node->type().text(), "f32[4,4]");
  EXPECT_EQ(error_of([&] { read(text, {.who = "plan_graph", .diagonals = false}); }),
            "plan_graph: a result has a label twice: at=$.ops[0].out_labels[1], label='i'");
}

TEST(EinsumJson, WhatDoesNotFitTheAlgebraIsNamedByItsPath) {
  EXPECT_EQ(plan_error(op_with(R"("in_labels": [["i", "a b"]], "out_labels": "i", "agg": "sum")")),
            "json: einsum: a label is letters, digits, _ and .: label=`a b`: at=$.ops[0].in_labels[0][1]");
  EXPECT_EQ(plan_error(op_with(R"("in_labels": ["ij"], "out_labels": "i", "join": "add", "agg": "sum")")),
            "json: einsum: the join has another number of operands: join=add, takes=2, given=1: at=$.ops[0].join");
  EXPECT_THROW(plan_of(read(op_with(R"("in_labels": ["ij"], "out_labels": "ij", "join": "sqare")"))), KernelError);
  EXPECT_NE(
      plan_error(op_with(R"("in_labels": ["ij"], "out_labels": "ij", "join": "x + y")")).find(": at=$.ops[0].join\n"),
      std::string::npos);
  EXPECT_EQ(plan_error(op_with(R"("in_labels": ["ij"], "out_labels": "ij", "agg": "argmin")")),
            "json: einsum: argmin aggregates one label at least: labels=ij: at=$.ops[0]");
  EXPECT_NE(plan_error(R"({"inputs": {".X": [1]}, "ops": [], "outputs": [".X"]})").find(R"(at=$.inputs[".X"])"),
            std::string::npos);
  EXPECT_EQ(plan_error(R"({"inputs": {"X": [1]}, "ops": [], "outputs": []})"), "json: plan: no output: at=$.outputs");
  EXPECT_EQ(plan_error(R"({"inputs": {"X": [1], "Z.positions": [1]}, "ops": [{"name": "Z", "inputs": ["X"],
                           "in_labels": ["i"], "out_labels": "", "agg": "argmax"}], "outputs": ["Z"]})"),
            R"(json: the name of the positions of an operation: name='Z.positions': at=$.inputs["Z.positions"])");
  EXPECT_EQ(
      plan_error(R"({"inputs": {"X": [1]}, "ops": [], "outputs": {"a b": "X"}})"),
      R"(json: graph: a name has letters, digits, _ and ., and does not begin with a point: name=`a b`: at=$.outputs["a b"])");
  const std::string empty = R"({"inputs": {"X": [0]}, "ops": [{"name": "Z", "inputs": ["X"], "in_labels": ["i"],
                               "out_labels": "", "agg": "argmax"}], "outputs": ["Z"]})";
  EXPECT_EQ(plan_error(empty), "json: einsum: no position among no elements: aggregated extents=[0]: at=$.ops[0]");
}

TEST(EinsumJson, AGraphThatIsMadeByHandIsChecked) {
  JsonGraph graph = read(kGraph);
  graph.operations[1].extents.erase("n");
  EXPECT_EQ(error_of([&] { write(graph); }), "einsum: a label that only the result has needs an extent: label=n");
  graph = read(kGraph);
  graph.operations[1].name = "A";
  EXPECT_EQ(error_of([&] { plan_of(graph); }), "json: two values have one name: name='A': at=$.ops[1]");
  graph.operations[1].name = "\xff";
  EXPECT_TRUE(error_of([&] { write(graph); }).starts_with("json: a name, label or join is not UTF-8: "));
  graph = read(kGraph);
  graph.operations[0].inputs[0] = "B";
  EXPECT_EQ(error_of([&] { plan_of(graph); }), "json: no such input or earlier operation: name='B': at=$.ops[0]");
}

TEST(EinsumJson, AnAggregationOfAUserHasNoName) {
  kernels::table::register_row(
      {.name = "user_aggregation", .operands = 2, .facts = {.associative = true, .commutative = true}});
  const Plan plan = parse("einsum\ninput X: f32[4]\noutput Z = einsum[i->; id; user_aggregation](X)");
  EXPECT_EQ(error_of([&] { graph_of(plan); }),
            "json: an aggregation without a name in JSON: vertex=t0, aggregate=user_aggregation");
  kernels::table::unregister_row("user_aggregation");
}

TEST(EinsumJson, LongValuesAreShownShort) {
  const std::string error =
      reading_error(R"({"inputs": {"X": [")" + std::string(1000, 'a') + R"("]}, "ops": [], "outputs": []})");
  EXPECT_LT(error.size(), 200) << error;
  EXPECT_TRUE(error.ends_with("...")) << error;
}

/// What text becomes when some bytes of it are changed, taken out, doubled or cut off.
std::string damaged(std::string text, std::mt19937_64& random) {
  const std::string pieces = "{}[]\",:0123456789-.eE\\ut\xff\x80\xc3 nfijX\n\0";
  for (size_t times = 1 + random() % 4; times > 0 && !text.empty(); --times) {
    const size_t at = random() % text.size();
    switch (random() % 5) {
      case 0:
        text[at] = pieces[random() % pieces.size()];
        break;
      case 1:
        text.erase(at, 1 + random() % 8);
        break;
      case 2:
        text.insert(at, text.substr(random() % text.size(), random() % 24));
        break;
      case 3:
        text.insert(at, 1, pieces[random() % pieces.size()]);
        break;
      default:
        if (random() % 4 == 0) text.resize(at);
    }
  }
  return text;
}

TEST(EinsumJson, DamageIsAnErrorOrAnotherGraphThatReadsBack) {
  std::mt19937_64 random(1);
  int64_t accepted = 0, refused = 0, made = 0;
  for (int64_t i = 0; i < 20000; ++i) {
    const std::string text = damaged(kGraph, random);
    try {
      const JsonGraph graph = read(text);
      ++accepted;
      ASSERT_TRUE(read(write(graph)) == graph) << text;
      const Plan plan = plan_of(graph);
      ++made;
      ASSERT_TRUE(plan_of(read(write(graph_of(plan)))) == plan) << text;
    } catch (const PlanError& error) {
      ++refused;
      ASSERT_TRUE(std::string(error.what()).starts_with("json: ")) << error.what() << "\n" << text;
    } catch (const KernelError& error) {
      ASSERT_TRUE(std::string(error.what()).starts_with("json: ")) << error.what() << "\n" << text;
    }
  }
  EXPECT_GT(made, 100);
  EXPECT_GT(accepted, made);
  EXPECT_GT(refused, 10000);
}

}  // namespace
}  // namespace joinsum::einsum::json
