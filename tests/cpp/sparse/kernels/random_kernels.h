#pragma once

#include <algorithm>
#include <deque>
#include <limits>
#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "sparse/kernels/walks.h"
#include "sparse/tensor/random_tensors.h"

namespace joinsum::sparse::kernels {

using namespace operators;  // NOLINT: the tests' own words
using namespace tensor;     // NOLINT

/// A kernel with the tensors that it runs on.
struct Case {
  DType dtype = DType::kFloat64;
  Kernel kernel;
  std::deque<Tensor> tensors;
  Dims extents;
  std::map<int64_t, int64_t> same = {};  ///< operands that are read from another one's tensor

  KernelArguments arguments() const {
    KernelArguments out{.extents = extents};
    for (const Tensor& tensor : tensors) out.operands.push_back(&tensor);
    for (const auto& [operand, other] : same) out.operands[operand] = out.operands[other];
    return out;
  }
};

/// Kernels of every kind: their fills, formats, bodies, loop orders and walkers are drawn, walkers among the legal
/// ones.
class RandomKernels {
 public:
  /// With `fractions`, elements of floats are no round numbers, so that sums show their order.
  explicit RandomKernels(uint64_t seed, bool fractions = false) : random_(seed), fractions_(fractions) {}

  Case draw(DType dtype) {
    Case out{.dtype = dtype};
    draw_extents(out, below(5));
    draw_rest(out);
    return out;
  }

  /// One that reads a tensor several times, along the same loops.
  Case draw_repeated(DType dtype) {
    Case out{.dtype = dtype};
    draw_extents(out, 1 + below(4));
    for (int64_t operands = 1 + below(3); operands > 0; --operands) draw_operand(out);
    for (int64_t repeated = 1 + below(3); repeated > 0; --repeated) {
      const int64_t other = below(std::ssize(out.kernel.operands));
      out.same[std::ssize(out.kernel.operands)] = out.same.contains(other) ? out.same[other] : other;
      out.tensors.push_back(out.tensors[other]);
      out.kernel.operands.push_back(Operand(out.kernel.operands[other]));
    }
    draw_body(out);
    derive(out.kernel);
    draw_result(out);
    draw_walkers(out.kernel);
    return out;
  }

  /// One whose last loop is longer than the blocks and chunks in which elements are worked off.
  Case draw_long(DType dtype) {
    Case out{.dtype = dtype};
    draw_extents(out, below(2));
    out.extents.push_back(1 + below(1500));
    out.kernel.loops.emplace_back();
    draw_rest(out);
    // Long products leave the range of numbers.
    if (out.kernel.aggregate == Operator::kMultiply) out.kernel.aggregate = Operator::kAdd;
    return out;
  }

  /// One whose first operand walks lists in all loops but the first few, while the others are dense.
  Case draw_listed(DType dtype) {
    Case out{.dtype = dtype};
    for (int64_t loop = 2 + below(3); loop > 0; --loop) out.extents.push_back(1 + below(loop == 1 ? 3 : 9));
    out.kernel.loops.resize(out.extents.size());
    Operand lists{.loops = all_dims(std::ssize(out.extents)), .fill = draw_fill(dtype)};
    const int64_t first = below(std::ssize(out.extents));
    for (int64_t loop = 0; loop < std::ssize(out.extents); ++loop) {
      const LevelFormat list = below(3) == 0 ? LevelFormat::kHash : LevelFormat::kSortedList;
      lists.formats.push_back(loop < first ? static_cast<LevelFormat>(below(4)) : list);
    }
    out.tensors.push_back(draw_tensor(dtype, out.extents, lists));
    out.kernel.operands.push_back(lists);
    for (int64_t others = below(4); others > 0; --others) {
      draw_operand(out);
      Operand& other = out.kernel.operands.back();
      for (size_t l = below(8) == 0 ? 1 : 0; l < other.formats.size(); ++l) other.formats[l] = LevelFormat::kDense;
      Dims shape;
      for (const int64_t loop : other.loops) shape.push_back(out.extents[loop]);
      out.tensors.back() = draw_tensor(dtype, shape, other);
    }
    draw_body(out);
    derive(out.kernel);
    draw_result(out);
    if (below(2) == 0) std::ranges::fill(out.kernel.formats, LevelFormat::kDense);
    if (out.kernel.aggregate == Operator::kMultiply && below(2) == 0) out.kernel.aggregate = Operator::kAdd;
    draw_walkers(out.kernel);
    for (Loop& loop : out.kernel.loops) walk_alone(out.kernel, loop, 0);
    return out;
  }

  /// One whose first loops walk lists of one entry each, of which some are not the result's.
  Case draw_single(DType dtype) {
    Case out{.dtype = dtype};
    const int64_t loops = 3 + below(3);
    for (int64_t loop = 0; loop < loops; ++loop) out.extents.push_back(2 + below(6));
    out.kernel.loops.resize(loops);
    const int64_t singles = 2 + below(loops - 1);
    const int64_t shared = below(singles);
    for (const int64_t first : {int64_t{0}, shared}) {
      Operand lists;
      Dims shape;
      for (int64_t loop = first; loop < (first == 0 && out.tensors.empty() ? singles : loops); ++loop) {
        lists.loops.push_back(loop);
        lists.formats.push_back(below(4) == 0 ? LevelFormat::kHash : LevelFormat::kSortedList);
        shape.push_back(out.extents[loop]);
      }
      // Of the first operand one for each coordinate of the first level, of the other one for each of the last but one.
      std::vector<std::pair<Dims, double>> elements;
      std::set<Dims> begun;
      for (const Key& key : keys_of(Box::below(shape))) {
        const auto above = Dims(key.begin(), out.tensors.empty() ? key.begin() + 1 : key.end() - 1);
        if (below(2) == 0 && begun.insert(above).second) elements.emplace_back(key, draw_number(dtype));
      }
      out.tensors.push_back(from_coordinates(coordinates_of(shape, dtype, elements), all_dims(std::ssize(shape)),
                                             lists.formats, lists.fill));
      out.kernel.operands.push_back(lists);
    }
    out.kernel.body = {{.kind = BodyNode::Kind::kOperand, .operand = 0},
                       {.kind = BodyNode::Kind::kOperand, .operand = 1},
                       {.kind = BodyNode::Kind::kMap, .op = Operator::kMultiply, .children = {0, 1}}};
    derive(out.kernel);
    draw_walkers(out.kernel);
    for (int64_t loop = 0; loop < loops; ++loop) walk_alone(out.kernel, out.kernel.loops[loop], loop < singles ? 0 : 1);
    for (int64_t loop = 0; loop < loops; ++loop) {
      if (loop > 0 && below(2) == 0) continue;
      out.kernel.output.push_back(loop);
      out.kernel.formats.push_back(static_cast<LevelFormat>(below(4)));
    }
    if (below(4) == 0) std::swap(out.kernel.output.front(), out.kernel.output.back());
    out.kernel.aggregate = draw_aggregate(out);
    return out;
  }

  int64_t below(int64_t bound) { return static_cast<int64_t>(random_() % static_cast<uint64_t>(bound)); }

 private:
  void draw_rest(Case& out) {
    const int64_t operands = below(8) == 0 ? 0 : 1 + below(4);
    // Without an operand, the dtype is f64.
    if (operands == 0) out.dtype = DType::kFloat64;
    for (int64_t o = 0; o < operands; ++o) draw_operand(out);
    draw_body(out);
    derive(out.kernel);
    draw_result(out);
    draw_walkers(out.kernel);
  }

  template <class Choices>
  auto one_of(const Choices& choices) {
    return *(std::begin(choices) + below(std::ssize(choices)));
  }

  static bool is_float(DType dtype) { return dtype == DType::kFloat32 || dtype == DType::kFloat64; }

  void draw_extents(Case& out, int64_t loops) {
    for (int64_t i = 0; i < loops; ++i) out.extents.push_back(below(20) == 0 ? 0 : 1 + below(5));
    out.kernel.loops.resize(loops);
  }

  double draw_number(DType dtype) {
    if (dtype == DType::kBool) return static_cast<double>(below(2));
    if (dtype == DType::kUInt8) return static_cast<double>(below(3));
    if (is_float(dtype) && below(24) == 0) return one_of(kInfinities);
    const auto number = static_cast<double>(below(5) - 2);
    return is_float(dtype) && fractions_ ? number / static_cast<double>(1 + below(40)) : number;
  }

  double draw_fill(DType dtype) {
    if (below(2) == 0) return 0;
    if (dtype == DType::kBool || dtype == DType::kUInt8) return static_cast<double>(below(2));
    if (is_float(dtype) && below(2) == 0) return one_of(kInfinities);
    return static_cast<double>(below(3) - 1);
  }

  void draw_operand(Case& out) {
    Operand operand{.fill = draw_fill(out.dtype)};
    Dims shape;
    for (int64_t loop = 0; loop < std::ssize(out.extents); ++loop) {
      if (below(5) < 2 || operand.loops.size() == 3) continue;
      operand.loops.push_back(loop);
      operand.formats.push_back(static_cast<LevelFormat>(below(4)));
      shape.push_back(out.extents[loop]);
    }
    out.tensors.push_back(draw_tensor(out.dtype, shape, operand));
    out.kernel.operands.push_back(operand);
  }

  Tensor draw_tensor(DType dtype, const Dims& shape, const Operand& operand) {
    // Levels in order of the loops, axes in any other.
    std::vector<int64_t> axes = all_dims(std::ssize(shape));
    for (int64_t a = std::ssize(axes) - 1; a > 0; --a) std::swap(axes[a], axes[below(a + 1)]);
    Dims by_axis(shape.size());
    for (size_t l = 0; l < axes.size(); ++l) by_axis[axes[l]] = shape[l];
    std::vector<std::pair<Dims, double>> elements;
    const int64_t density = 1 + below(4);
    // Often one below each coordinate of the first level.
    const bool single = !axes.empty() && below(4) == 0;
    std::set<int64_t> begun;
    for (const Key& key : keys_of(Box::below(by_axis))) {
      if (single ? below(2) == 0 && begun.insert(key[axes[0]]).second : below(4) < density)
        elements.emplace_back(key, draw_number(dtype));
    }
    return from_coordinates(coordinates_of(by_axis, dtype, elements), axes, operand.formats, operand.fill);
  }

  std::vector<Operator> map_operators(DType dtype) {
    using enum Operator;
    if (dtype == DType::kBool) return {kMultiply, kMultiply, kMin, kMax, kAnd, kOr};
    if (dtype == DType::kUInt8) return {kMultiply, kMultiply, kAdd, kMin, kMax, kAnd, kOr, kEqual, kGreater, kRelu};
    if (!is_float(dtype)) {
      return {kMultiply, kMultiply, kMultiply, kAdd,     kAdd,    kSubtract, kMin,  kMax,
              kAnd,      kOr,       kEqual,    kGreater, kSquare, kNegate,   kRelu, kAbs};
    }
    return {kMultiply, kMultiply, kMultiply, kMultiply, kAdd,    kAdd, kAdd,  kSubtract, kMin,  kMax, kAnd,
            kOr,       kEqual,    kGreater,  kSquare,   kNegate, kExp, kSqrt, kSigmoid,  kRelu, kAbs, kDivide};
  }

  /// A tree over all operands, one of them maybe twice, and maybe a literal.
  void draw_body(Case& out) {
    std::vector<BodyNode>& body = out.kernel.body;
    std::vector<int64_t> open;
    const auto leaf = [&](BodyNode node) {
      body.push_back(std::move(node));
      open.push_back(std::ssize(body) - 1);
    };
    const int64_t operands = std::ssize(out.kernel.operands);
    for (int64_t o = 0; o < operands; ++o) leaf({.kind = BodyNode::Kind::kOperand, .operand = o});
    if (operands > 0 && below(6) == 0) leaf({.kind = BodyNode::Kind::kOperand, .operand = below(operands)});
    if (operands == 0 || below(6) == 0) leaf({.kind = BodyNode::Kind::kLiteral, .literal = draw_number(out.dtype)});
    const bool products = below(3) == 0;
    while (open.size() > 1 || below(4) == 0) {
      BodyNode node{.kind = BodyNode::Kind::kMap};
      node.op = products ? Operator::kMultiply : one_of(map_operators(out.dtype));
      int64_t count = products ? std::ssize(open) : 1 + below(std::min<int64_t>(3, std::ssize(open)));
      while (!takes(node.op, count)) count = 1 + below(2);
      if (count > std::ssize(open)) continue;
      for (; count > 0; --count) {
        const int64_t picked = below(std::ssize(open));
        node.children.push_back(open[picked]);
        open.erase(open.begin() + picked);
      }
      leaf(std::move(node));
    }
  }

  std::optional<Operator> draw_aggregate(const Case& out) {
    using enum Operator;
    static const std::vector<Operator> all{kAdd, kAdd, kAdd, kMin, kMax, kAnd, kOr, kMultiply};
    const Operator op = one_of(all);
    // Products of many numbers leave the range of integers.
    if (op == kMultiply && out.dtype != DType::kBool && out.dtype != DType::kUInt8 && !is_float(out.dtype)) return kAdd;
    return op;
  }

  void draw_result(Case& out) {
    std::vector<int64_t> order = all_dims(std::ssize(out.extents));
    if (below(2) == 0) {
      for (int64_t i = std::ssize(order) - 1; i > 0; --i) std::swap(order[i], order[below(i + 1)]);
    }
    order.resize(below(std::ssize(order) + 1));
    if (below(2) == 0) std::ranges::sort(order);
    out.kernel.output = order;
    const bool dense = below(4) == 0;
    for (size_t l = 0; l < order.size(); ++l) {
      out.kernel.formats.push_back(dense ? LevelFormat::kDense : static_cast<LevelFormat>(below(4)));
    }
    if (order.size() < out.extents.size() || below(4) == 0) out.kernel.aggregate = draw_aggregate(out);
  }

  void draw_walkers(Kernel& kernel) {
    for (int64_t loop = 0; loop < std::ssize(kernel.loops); ++loop) {
      std::vector<int64_t> having;
      for (int64_t o = 0; o < std::ssize(kernel.operands); ++o) {
        if (std::ranges::find(kernel.operands[o].loops, loop) != kernel.operands[o].loops.end()) having.push_back(o);
      }
      kernel.loops[loop].lookups = having;
      for (int attempt = 0; attempt < 6; ++attempt) {
        if (try_walkers(kernel, kernel.loops[loop], having, attempt)) break;
      }
    }
  }

  /// Makes an operand the loop's only walker, if it may be.
  static void walk_alone(const Kernel& kernel, Loop& loop, int64_t operand) {
    std::vector<bool> absent(kernel.operands.size());
    absent[operand] = true;
    if (!at_fill(kernel, absent)) return;
    for (const int64_t each : loop.walkers) loop.lookups.push_back(each);
    std::erase(loop.lookups, operand);
    std::ranges::sort(loop.lookups);
    loop.walkers = {operand};
  }

  bool try_walkers(const Kernel& kernel, Loop& loop, const std::vector<int64_t>& having, int attempt) {
    std::vector<bool> absent(kernel.operands.size());
    Loop drawn;
    const int64_t single = having.empty() ? 0 : below(std::ssize(having));
    for (int64_t i = 0; i < std::ssize(having); ++i) {
      const bool walks = attempt < 2 ? i == single : (attempt == 5 || below(2) == 0);
      (walks ? drawn.walkers : drawn.lookups).push_back(having[i]);
      absent[having[i]] = walks;
    }
    if (drawn.walkers.empty() || !at_fill(kernel, absent)) return false;
    loop = drawn;
    return true;
  }

  static constexpr double kInfinities[] = {std::numeric_limits<double>::infinity(),
                                           -std::numeric_limits<double>::infinity()};
  std::mt19937_64 random_;
  bool fractions_;
};

/// A kernel as one reads it in a failed test.
inline std::string text_of(const Case& drawn) {
  std::string out = concatenate("dtype=", name_of(drawn.dtype), " extents=", drawn.extents, "\n");
  const Kernel& kernel = drawn.kernel;
  for (size_t o = 0; o < kernel.operands.size(); ++o) {
    out += concatenate("  operand ", o, ": loops=", kernel.operands[o].loops, " fill=", kernel.operands[o].fill,
                       " required=", bool{kernel.required[o]}, " formats=");
    for (const LevelFormat format : kernel.operands[o].formats) out += name_of(format) + " ";
    out += "\n";
  }
  for (const Loop& loop : kernel.loops) {
    out += concatenate("  loop: walkers=", loop.walkers, " lookups=", loop.lookups, "\n");
  }
  for (size_t n = 0; n < kernel.body.size(); ++n) {
    const BodyNode& node = kernel.body[n];
    out += concatenate("  node ", n, ": ");
    if (node.kind == BodyNode::Kind::kOperand) out += concatenate("operand ", node.operand, "\n");
    if (node.kind == BodyNode::Kind::kLiteral) out += concatenate("literal ", node.literal, "\n");
    if (node.kind == BodyNode::Kind::kMap) out += concatenate(name_of(node.op), " ", node.children, "\n");
  }
  out += concatenate("  output=", kernel.output, " body_fill=", kernel.body_fill,
                     " aggregate=", kernel.aggregate ? name_of(*kernel.aggregate) : "none", " formats=");
  for (const LevelFormat format : kernel.formats) out += name_of(format) + " ";
  return out;
}

}  // namespace joinsum::sparse::kernels
