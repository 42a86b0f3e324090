#include <algorithm>

#include "sparse/kernels/kernel_writer.h"

namespace joinsum::sparse::kernels {

int64_t KernelWriter::level_number(int64_t operand, int64_t depth) const {
  const std::vector<int64_t>& of = kernel_.operands[operand].loops;
  return std::ranges::find(of, depth) - of.begin();
}

LevelFormat KernelWriter::format(int64_t operand, int64_t depth) const {
  return kernel_.operands[operand].formats[level_number(operand, depth)];
}

std::string KernelWriter::upper(int64_t depth) const { return depth == 0 ? "call.upper" : "extent" + number(depth); }

std::string KernelWriter::level(int64_t operand, int64_t depth) const {
  return "level" + number(operand) + "_" + number(level_number(operand, depth));
}

std::string KernelWriter::entry(int64_t operand, int64_t depth) const {
  if (depth < 0) return "root" + number(operand);
  return "p" + number(operand) + "_" + number(level_number(operand, depth));
}

std::string KernelWriter::above(int64_t operand, int64_t depth) const {
  const int64_t l = level_number(operand, depth);
  return l == 0 ? "0" : "p" + number(operand) + "_" + number(l - 1);
}

int64_t KernelWriter::intersected(int64_t depth) const {
  const Loop& loop = kernel_.loops[depth];
  if (loop.walkers.size() != 1 || !lists(loop.walkers[0], depth)) return -1;
  for (const int64_t o : loop.lookups) {
    if (kernel_.required[o] && format(o, depth) == LevelFormat::kSortedList) return o;
  }
  return -1;
}

void KernelWriter::declare_searches(int64_t depth) {
  for (const int64_t o : kernel_.loops[depth].lookups) {
    if (format(o, depth) != LevelFormat::kSortedList || o == intersected(depth)) continue;
    line("Search search" + number(o) + "_" + number(depth) + "(" + level(o, depth) + ", " + above(o, depth) + ");");
  }
}

void KernelWriter::open_loop(int64_t depth) {
  const Loop& loop = kernel_.loops[depth];
  declare_searches(depth);
  const int64_t other = intersected(depth);
  if (loop.walkers.size() > 1) {
    open_union(depth);
  } else if (other >= 0) {
    open_intersection(depth, loop.walkers[0], other);
  } else if (loop.walkers.size() == 1 && lists(loop.walkers[0], depth)) {
    open_list(depth, loop.walkers[0]);
  } else {
    open_range(depth);
  }
  // Those that end visits come first.
  for (const bool ends : {true, false}) {
    for (const int64_t o : loop.lookups) {
      const bool may_end = kernel_.required[o] && format(o, depth) != LevelFormat::kDense;
      if (o != other && may_end == ends) look_up(depth, o);
    }
  }
}

/// A range, or a walker that is dense or a bytemap.
void KernelWriter::open_range(int64_t depth) {
  const std::string i = "i" + number(depth);
  const Loop& loop = kernel_.loops[depth];
  std::string first = lower(depth);
  if (!loop.walkers.empty() && !present_[loop.walkers[0]]) {
    first = above(loop.walkers[0], depth) + " < 0 ? " + upper(depth) + " : " + first;
  }
  open("for (int64_t " + i + " = " + first + "; " + i + " < " + upper(depth) + "; ++" + i + ")");
  if (loop.walkers.empty()) return;
  const int64_t o = loop.walkers[0];
  line("const int64_t " + entry(o, depth) + " = " + above(o, depth) + " * " + level(o, depth) + ".size + " + i + ";");
  if (format(o, depth) == LevelFormat::kBytemap) {
    line("if (!" + level(o, depth) + ".stored[" + entry(o, depth) + "]) continue;");
  }
  present_[o] = true;
}

void KernelWriter::open_list(int64_t depth, int64_t walker) {
  const std::string a = level(walker, depth);
  const std::string p = entry(walker, depth);
  const std::string walk = "walk" + number(depth);
  if (depth == 0 || !present_[walker]) {
    line("const ListWalk " + walk + "(" + a + ", " + above(walker, depth) + ", " + lower(depth) + ", " + upper(depth) +
         ");");
    open("for (int64_t " + p + " = " + walk + ".entry; " + p + " < " + walk + ".end; ++" + p + ")");
  } else {
    const std::string f = above(walker, depth);
    const bool single = kernel_.loops[depth].single;
    const std::string begin = single ? f : a + ".begin(" + f + ")";
    const std::string end = single ? f + " + 1" : a + ".begin(" + f + " + 1)";
    open("for (int64_t " + p + " = " + begin + ", end = " + end + "; " + p + " < end; ++" + p + ")");
  }
  line("const int64_t i" + number(depth) + " = " + a + ".coordinates[" + p + "];");
  present_[walker] = true;
}

/// Two sorted lists that must both have the coordinate. One that is much longer is searched, others are merged.
void KernelWriter::open_intersection(int64_t depth, int64_t walker, int64_t other) {
  const std::string d = number(depth);
  const std::string a = level(walker, depth);
  const std::string b = level(other, depth);
  line("const ListWalk walk" + d + "(" + a + ", " + above(walker, depth) + ", " + lower(depth) + ", " + upper(depth) +
       ");");
  line("const Search other" + d + "(" + b + ", " + above(other, depth) + ");");
  line("const int64_t m" + d + " = walk" + d + ".end - walk" + d + ".entry, n" + d + " = other" + d + ".end - other" +
       d + ".at;");
  line("const bool search" + d + " = m" + d + " > 16 * n" + d + " || n" + d + " > 16 * m" + d + ";");
  open("for (int64_t a" + d + " = walk" + d + ".entry, b" + d + " = other" + d + ".at; a" + d + " < walk" + d +
       ".end && b" + d + " < other" + d + ".end;)");
  open("if (search" + d + ")");
  line("a" + d + " = gallop(" + a + ".coordinates, a" + d + ", walk" + d + ".end, " + b + ".coordinates[b" + d + "]);");
  line("if (a" + d + " == walk" + d + ".end) break;");
  line("b" + d + " = gallop(" + b + ".coordinates, b" + d + ", other" + d + ".end, " + a + ".coordinates[a" + d +
       "]);");
  line("if (b" + d + " == other" + d + ".end) break;");
  close();
  line("const int64_t i" + d + " = " + a + ".coordinates[a" + d + "], j" + d + " = " + b + ".coordinates[b" + d + "];");
  line("const int64_t " + entry(walker, depth) + " = a" + d + ", " + entry(other, depth) + " = b" + d + ";");
  line("a" + d + " += i" + d + " <= j" + d + ";");
  line("b" + d + " += j" + d + " <= i" + d + ";");
  line("if (i" + d + " != j" + d + ") continue;");
  present_[walker] = present_[other] = true;
}

void KernelWriter::open_union(int64_t depth) {
  const std::string d = number(depth);
  const std::vector<int64_t>& walkers = kernel_.loops[depth].walkers;
  const auto walk = [&](int64_t o) { return "walk" + number(o) + "_" + d; };
  std::string least;
  for (const int64_t o : walkers) {
    const bool marked = format(o, depth) == LevelFormat::kBytemap;
    const std::string type = lists(o, depth) ? "ListWalk" : marked ? "RangeWalk<true>" : "RangeWalk<false>";
    line(type + " " + walk(o) + "(" + level(o, depth) + ", " + above(o, depth) + ", " + lower(depth) + ", " +
         upper(depth) + ");");
    const std::string coordinate = walk(o) + ".coordinate";
    least = least.empty() ? coordinate : "least(" + least + ", " + coordinate + ")";
  }
  open("for (;;)");
  line("const int64_t i" + d + " = " + least + ";");
  line("if (i" + d + " == kPastAll) break;");
  for (const int64_t o : walkers) {
    line("const int64_t " + entry(o, depth) + " = " + walk(o) + ".coordinate == i" + d + " ? " + walk(o) +
         ".entry : -1;");
    line("if (" + entry(o, depth) + " >= 0) " + walk(o) + ".next(" + level(o, depth) + ");");
  }
  for (const int64_t o : walkers) {
    present_[o] = kernel_.required[o];
    if (kernel_.required[o]) line("if (" + entry(o, depth) + " < 0) continue;");
  }
}

std::string KernelWriter::found(int64_t depth, int64_t operand) const {
  const std::string i = "i" + number(depth);
  const std::string arguments = level(operand, depth) + ", " + above(operand, depth) + ", " + i;
  switch (format(operand, depth)) {
    case LevelFormat::kDense: {
      const std::string at = above(operand, depth) + " * " + level(operand, depth) + ".size + " + i;
      return present_[operand] ? at : above(operand, depth) + " < 0 ? -1 : " + at;
    }
    case LevelFormat::kBytemap:
      return "find_marked(" + arguments + ")";
    case LevelFormat::kSortedList:
      return "search" + number(operand) + "_" + number(depth) + ".find(" + level(operand, depth) + ", " + i + ")";
    default:
      return "find_hashed(" + arguments + ")";
  }
}

void KernelWriter::look_up(int64_t depth, int64_t operand) {
  line("const int64_t " + entry(operand, depth) + " = " + found(depth, operand) + ";");
  if (format(operand, depth) == LevelFormat::kDense) return;
  present_[operand] = kernel_.required[operand];
  if (kernel_.required[operand]) line("if (" + entry(operand, depth) + " < 0) continue;");
}

}  // namespace joinsum::sparse::kernels
