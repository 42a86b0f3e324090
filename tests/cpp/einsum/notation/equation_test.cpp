#include "einsum/notation/equation.h"

#include <gtest/gtest.h>

#include "einsum/text.h"

namespace joinsum::einsum::notation {
namespace {

std::string read(const std::string& text, const std::vector<Dims>& shapes, const Extents& extents = {}) {
  try {
    const Equation equation = parse_equation(text, shapes, extents);
    return labels_text(equation.operands, equation.result);
  } catch (const PlanError& error) {
    return error.what();
  }
}

TEST(EinsumEquation, LettersNameAxes) {
  EXPECT_EQ(read("ij,jk->ik", {{2, 3}, {3, 4}}), "ij,jk->ik");
  EXPECT_EQ(read(" i j , j k -> k i ", {{2, 3}, {3, 4}}), "ij,jk->ki");
  EXPECT_EQ(read("->", {{}}), "->");
}

TEST(EinsumEquation, WithoutAnArrowTheResultHasTheLettersThatOccurOnceCapitalsFirst) {
  EXPECT_EQ(read("ij,jk", {{2, 3}, {3, 4}}), "ij,jk->ik");
  EXPECT_EQ(read("ba", {{2, 3}}), "ba->ab");
  EXPECT_EQ(read("aB", {{2, 3}}), "aB->Ba");
  EXPECT_EQ(read("ii", {{2, 2}}), "ii->");
}

TEST(EinsumEquation, AnEllipsisStandsForTheOtherAxesFromTheRight) {
  EXPECT_EQ(read("...ij,...jk", {{5, 6, 2, 3}, {6, 3, 4}}), "{.1}{.0}ij,{.0}jk->{.1}{.0}ik");
  EXPECT_EQ(read("i...->...i", {{2, 3, 4}}), "i{.1}{.0}->{.1}{.0}i");
  EXPECT_EQ(read("i...->i", {{2, 3}}), "i{.0}->i");
  EXPECT_EQ(read("...", {{}}), "->");
}

TEST(EinsumEquation, AnExtentOf1FitsAny) {
  EXPECT_EQ(parse_equation("ij,jk", {{2, 1}, {3, 4}}).extents.at("j"), 3);
  EXPECT_EQ(parse_equation("ij,jk", {{2, 3}, {1, 4}}).extents.at("j"), 3);
  EXPECT_EQ(parse_equation("...,...", {{2, 1}, {3}}).extents.at(".0"), 3);
  EXPECT_EQ(parse_equation("i,i", {{0}, {1}}).extents.at("i"), 0);
}

TEST(EinsumEquation, WordsInBracesAreLabels) {
  EXPECT_EQ(read("{row}j,jk->{row}k", {{2, 3}, {3, 4}}), "{row}j,jk->{row}k");
  EXPECT_EQ(read("{row}{mid}, {mid}{Out}", {{2, 3}, {3, 4}}), "{row}{mid},{mid}{Out}->{Out}{row}");
  EXPECT_EQ(read("{i}j->j{i}", {{2, 3}}), "ij->ji");
  EXPECT_EQ(read("{row}j,{row}->j", {{2, 3}, {4}}),
            "einsum: extents of a label differ: label=row, operand 0=2, operand 1=4\n"
            "  {row}j,{row}->j\n"
            "         ^");
  EXPECT_EQ(read("{row", {{2}}), "einsum: a brace is not closed\n  {row\n  ^");
  EXPECT_EQ(read("{a b}", {{2}}), "einsum: a label is letters, digits, _ and .: label=a b\n  {a b}\n  ^");
}

TEST(EinsumEquation, LabelsThatOnlyTheResultHasTakeTheirExtents) {
  EXPECT_EQ(read("i->ij", {{2}}, {{"j", 5}}), "i->ij");
  EXPECT_EQ(parse_equation("i->ij", {{2}}, {{"j", 5}}).extents.at("j"), 5);
  EXPECT_EQ(read("i->i{row}", {{2}}, {{"row", 5}, {"i", 2}}), "i->i{row}");
  EXPECT_EQ(read("i->ij", {{2}}, {{"j", 5}, {"i", 3}}),
            "einsum: extents of a label differ: label=i, operand 0=2, given=3\n  i->ij\n  ^");
  EXPECT_EQ(read("i->i", {{2}}, {{"j", 5}}),
            "einsum: an extent is given for a label that is not there: label=j\n  i->i");
  EXPECT_EQ(read("i->ij", {{2}}, {{"j", -5}}), "einsum: an extent is negative: label=j, extent=-5\n  i->ij");
}

TEST(EinsumEquation, ErrorsMarkThePlace) {
  EXPECT_EQ(read("ij,jk->ik", {{2, 3}, {4, 5}}),
            "einsum: extents of a label differ: label=j, operand 0=3, operand 1=4\n"
            "  ij,jk->ik\n"
            "     ^");
  EXPECT_EQ(read("ij,j?", {{2, 3}, {4, 5}}), "einsum: not a letter: character=?\n  ij,j?\n      ^");
  EXPECT_EQ(read("ié,éj", {{2, 3}, {3, 4}}), "einsum: not a letter: character=é\n  ié,éj\n   ^");
  EXPECT_EQ(read("{é}j,?", {{2, 3}, {3}}), "einsum: a label is letters, digits, _ and .: label=é\n  {é}j,?\n  ^");
  EXPECT_EQ(read("ij\n,jk", {{2, 3}, {3, 4}}), "einsum: only blanks stand between letters: code=10\n  ij ,jk\n    ^");
  EXPECT_EQ(read("ij->ijk", {{2, 3}}), "einsum: a label of the result is in no operand: label=k\n  ij->ijk\n        ^");
  EXPECT_EQ(read("ij->ii", {{2, 3}}), "einsum: a label stands twice in the result: label=i\n  ij->ii\n       ^");
  EXPECT_EQ(read("ij", {{2}}),
            "einsum: subscripts and axes differ in number: operand=0, subscripts=2, axes=1, shape=[2]\n  ij\n  ^");
  EXPECT_EQ(read("i,j,k", {{2}, {2}}),
            "einsum: subscripts for another number of operands: subscripts=3, operands=2\n  i,j,k\n      ^");
  EXPECT_EQ(read("ii", {{2, 3}}),
            "einsum: extents of a repeated label differ: label=i, operand=0, extents=2 and 3\n  ii\n   ^");
  EXPECT_EQ(read("i......", {{2}}), "einsum: a second ellipsis\n  i......\n      ^");
  EXPECT_EQ(read("i->->", {{2}}), "einsum: a second arrow\n  i->->\n     ^");
}

}  // namespace
}  // namespace joinsum::einsum::notation
