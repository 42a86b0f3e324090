#include "ia/text.h"

#include <gtest/gtest.h>

#include "random_plans.h"
#include "tra/lower.h"
#include "tra/text.h"

namespace joinsum::ia {
namespace {

std::string parse_error(const std::string& text) {
  try {
    parse(text);
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

constexpr const char* kHead = "ia on 2x2x2\ninput X: f32[8,4]<4,2> on 2x2x2 (0, *, 1)\n";

TEST(PhysicalPlanText, PrintsOneLinePerNodeInputsFirst) {
  const std::string text =
      "ia on 2x2\n"
      "input X: f32[8,4]<4,2> on 2x2 (0, *)\n"
      "input W: f32[4,6]<2,3> keys{<0,0>,<1,2>} on 2x2 (*, *)\n"
      "t0 = local_join[1; 0; matmul](X, W): f32[8@0,6@2]<4,2,3> hole<0,0,1> on 2x2 (0, *)\n"
      "t1 = local_filter[k0 < 3](t0): f32[6@0,6@2]<3,2,3> hole<0,0,1> on 2x2 (0:4, *)\n"
      "t2 = shuffle[(1, 2)](t1): f32[6@0,6@2]<3,2,3> hole<0,0,1> on 2x2 (1, 2)\n"
      "t3 = local_aggregate[0; add](t2): f32[6@0,2]<3> on 2x2 (+add, +add)\n"
      "t4 = broadcast[1](t3): f32[6@0,2]<3> on 2x2 (+add, *)\n"
      "t5 = shuffle[(0:4, *)](t4): f32[6@0,2]<3> on 2x2 (0:4, *)\n"
      "t6 = local_map[2: (k0, m); duplicate](t5): f32[6,2@-]<3,2> on 2x2 (0:4, *)\n"
      "t7 = local_map[(k0, k1, k2); relu](t2): f32[6@0,6@2]<3,2,3> hole<0,0,1> on 2x2 (1, 2)\n"
      "output Z = t6\n"
      "output V = t7\n";
  EXPECT_EQ(print(parse(text)), text);
}

TEST(PhysicalPlanText, OneSiteIsAGridWithoutAxes) {
  const std::string text =
      "ia on 1\n"
      "input X: f32[8,4]<4,2> on 1 ()\n"
      "t0 = shuffle[()](X): f32[8,4]<4,2> on 1 ()\n"
      "t1 = broadcast[](t0): f32[8,4]<4,2> on 1 ()\n"
      "output X -> X = t1\n";
  EXPECT_EQ(print(parse(text)), text);
}

TEST(PhysicalPlanText, ReadsTheShorthandsOfThePaperAndShortNames) {
  const Plan brief = parse(std::string(kHead) +
                           "output Z = map[(k0, k1); relu](filter[k0 < 3](agg[0, 2; add](shuffle[0, 2]("
                           "join[1; 1; matmul](broadcast(X), map[(k1, k0); transpose](X))))))");
  const Plan full = parse(std::string(kHead) +
                          "a = broadcast[0, 1, 2](X)\n"
                          "b = local_map[(k1, k0); transpose](X)\n"
                          "c = local_join[1; 1; matmul](a, b)\n"
                          "d = shuffle[(0, 2, 0)](c)\n"
                          "e = local_aggregate[0, 2; add](d)\n"
                          "f = local_filter[k0 < 3](e)\n"
                          "output Z = local_map[(k0, k1); relu](f)\n");
  EXPECT_TRUE(brief == full) << brief.text() << full.text();
}

TEST(PhysicalPlanText, TheGridOfAnInputGoesWithoutSaying) {
  EXPECT_TRUE(parse("ia on 2x2x2\ninput X: f32[8,4]<4,2> (0, *, 1)\noutput Z = X") ==
              parse(std::string(kHead) + "output Z = X"));
}

TEST(PhysicalPlanText, APlanHasOneGrid) {
  EXPECT_EQ(parse_error("ia on 2x2\ninput X: f32[8]<4> on 4 (0)\noutput Z = X").substr(0, 48),
            "parse: the plan is on another grid: grid=2x2: li");
  EXPECT_EQ(parse_error("ia\ninput X: f32[8]<4>").substr(0, 21), "parse: expected `on`:");
}

TEST(PhysicalPlanText, ErrorsNameTheirPlace) {
  EXPECT_EQ(parse_error(std::string(kHead) + "output Z = scatter[0](X)"),
            "parse: no such operator: name=scatter, operators=[broadcast, shuffle, local_join, local_aggregate, "
            "local_filter, local_map, local_call, local_upsert]: line=3, column=20, near=`0](X)`");
  EXPECT_EQ(parse_error(std::string(kHead) + "output Z = shuffle[(0, 1)](X)").substr(0, 65),
            "parse: a placement has one state per grid axis: states=2, grid=2x");
  EXPECT_EQ(parse_error(std::string(kHead) + "output Z = shuffle[0](X, X)"),
            "shuffle: wrong number of inputs: inputs=2, wanted=1, line=3");
  EXPECT_EQ(parse_error(std::string(kHead) + "output Z = shuffle[2](X)"),
            "shuffle: key dimension out of range: dims=[2], key arity=2, line=3");
  EXPECT_EQ(parse_error(std::string(kHead) + "t = broadcast(X): f32[8,4]<4,2> on 2x2x2 (0, *, *)\noutput Z = t"),
            "parse: the stated type is not the inferred one: stated=f32[8,4]<4,2> on 2x2x2 (0, *, *), inferred="
            "f32[8,4]<4,2> on 2x2x2 (*, *, *): line=3, column=19, near=`f32[8,4]<4,2> on 2x2x2 (`");
}

TEST(PhysicalPlanText, StatedTypesMayBeScatteredOrPending) {
  EXPECT_EQ(parse_error(std::string(kHead) + "t = agg[0; add](X): f32[8@0,2]<4> on 2x2x2 (0, *, +add)\noutput Z = t"),
            "no error");
  EXPECT_EQ(parse_error("ia on 2x2\ninput X: f32[8@0,4]<4> on 2x2 (0, 0)\n"
                        "t = map[(k0 // 2); id](X): f32[2,4]<2> duplicate<0> on 2x2 (scattered)\noutput Z = t"),
            "no error");
}

TEST(PhysicalPlanText, LookupTablesAreNoPartOfTheHash) {
  const auto plan = [](std::vector<int64_t> values) {
    const relation::LookupTables tables{
        {"owner", std::make_shared<const relation::LookupTable>(relation::LookupTable{"owner", std::move(values)})}};
    return parse("ia on 2\ninput X: f32[4]<2> (0)\noutput Z = map[(lookup(owner, k0)); id](X)", tables);
  };
  EXPECT_TRUE(plan({0, 1}) == plan({5, 2}));
  EXPECT_EQ(plan({0, 1}).hash(), plan({5, 2}).hash());
  EXPECT_NE(plan({0, 1}).hash(), parse("ia on 2\ninput X: f32[4]<2> (0)\noutput Z = X").hash());
}

/// Random words and edits of valid plans; whatever they say, only errors of the caller's come out.
class TextFuzz {
 public:
  explicit TextFuzz(uint64_t seed) : random_(seed) {}

  std::string words() {
    static const std::vector<std::string> kWords{"tra",
                                                 "ia on 2x2",
                                                 "ia",
                                                 "on",
                                                 "input",
                                                 "output",
                                                 "X",
                                                 "Y",
                                                 "t0",
                                                 "Z",
                                                 "=",
                                                 ":",
                                                 "->",
                                                 "f32",
                                                 "[",
                                                 "]",
                                                 "(",
                                                 ")",
                                                 "<",
                                                 ">",
                                                 ",",
                                                 ";",
                                                 "0",
                                                 "1",
                                                 "2",
                                                 "-3",
                                                 "4,4",
                                                 "*",
                                                 "+add",
                                                 "k0",
                                                 "k1",
                                                 "m",
                                                 "==",
                                                 "//",
                                                 "%",
                                                 "and",
                                                 "not",
                                                 "add",
                                                 "relu",
                                                 "matmul",
                                                 "concat",
                                                 "tile",
                                                 "join",
                                                 "rekey",
                                                 "filter",
                                                 "agg",
                                                 "local",
                                                 "map",
                                                 "shuffle",
                                                 "broadcast",
                                                 "keys{",
                                                 "}",
                                                 "\n",
                                                 "# x\n",
                                                 "f32[4,4]<2,2>",
                                                 "scale[0.5]",
                                                 "transform",
                                                 "duplicate",
                                                 "@",
                                                 "@-",
                                                 "{0,2}",
                                                 "hole",
                                                 "lookup",
                                                 "contract[ij,jk->ik]",
                                                 "(0, *)",
                                                 "local_join",
                                                 "aggregate",
                                                 "$x"};
    std::string text =
        random_.chance(50) ? "tra\ninput X: f32[4,4]<2,2>\n" : "ia on 2x2\ninput X: f32[4,4]<2,2> (0, *)\n";
    if (random_.chance(20)) text.clear();
    for (int64_t i = random_.between(1, 25); i > 0; --i)
      text += random_.one_of(kWords) + (random_.chance(70) ? " " : "");
    return text;
  }

  /// Numbers are left alone or made one digit, so that no relation grows large.
  std::string edited(std::string text) {
    for (int64_t i = random_.between(1, 4); i > 0 && !text.empty(); --i) {
      const size_t at = random_.between(0, static_cast<int64_t>(text.size()) - 1);
      const size_t from = random_.between(0, static_cast<int64_t>(text.size()) - 1);
      switch (random_.between(0, 4)) {
        case 0:
          text.erase(at, random_.between(1, 6));
          break;
        case 1:
          text.insert(at, " " + text.substr(from, random_.between(1, 8)) + " ");
          break;
        case 2:
          text[at] = "[](){}<>,;:=*@#\n tkm0123"[random_.between(0, 23)];
          break;
        case 3:
          std::swap(text[at], text[from]);
          break;
        default:
          text.insert(at, 1, "[](){}<>,;:=*@#\n "[random_.between(0, 16)]);
      }
    }
    return text;
  }

  std::string plan() {
    const tra::Plan plan = random_.plan(4);
    return random_.chance(50) ? plan.text() : tra::lower(plan, random_.grid()).text();
  }

 private:
  testing::RandomPlans random_;
};

/// Parses at both levels; true when one of them takes the text.
bool parses(const std::string& text) {
  int taken = 0;
  for (const bool physical : {false, true}) {
    try {
      physical ? parse(text).text() : tra::parse(text).text();
      ++taken;
    } catch (const PlanError&) {
    } catch (const KernelError&) {
    }
  }
  return taken > 0;
}

TEST(PhysicalPlanText, RandomWordsRaisePlanErrorsOnly) {
  TextFuzz fuzz(1);
  for (int i = 0; i < 10000; ++i) {
    const std::string text = fuzz.words();
    ASSERT_NO_THROW(parses(text)) << text;
  }
}

TEST(PhysicalPlanText, EditedPlansRaisePlanErrorsOnly) {
  TextFuzz fuzz(2);
  int taken = 0;
  std::string valid;
  for (int i = 0; i < 10000; ++i) {
    if (i % 10 == 0) valid = fuzz.plan();
    const std::string text = fuzz.edited(valid);
    ASSERT_NO_THROW(taken += parses(text) ? 1 : 0) << text;
  }
  EXPECT_GT(taken, 100);
}

}  // namespace
}  // namespace joinsum::ia
