#pragma once

#include <algorithm>
#include <vector>

#include "sparse/kernels/nest/products.h"
#include "sparse/kernels/prepared.h"
#include "sparse/kernels/walks.h"

namespace joinsum::sparse::kernels {

/// A body that is a product of operands and literals, whose innermost loop has one list or range of coordinates and for
/// the rest dense levels: these loops are compiled.
template <class T>
class ProductBody {
 public:
  explicit ProductBody(const Prepared& run) : run_(run), shape_(shape_of(run)) {
    const Kernel& kernel = *run.kernel;
    if (shape_ == nest::ProductShape::kNone) return;
    const BodyNode& root = kernel.body.back();
    const std::vector<int64_t> self{std::ssize(kernel.body) - 1};
    for (const int64_t child : root.kind == BodyNode::Kind::kMap ? root.children : self) {
      const BodyNode& node = kernel.body[child];
      if (node.kind == BodyNode::Kind::kLiteral) {
        factors_.push_back({.value = nest::value_of<T>(node.literal)});
      } else if (!varies(node.operand)) {
        factors_.push_back({.values = run.arguments->operands[node.operand]->values.template as<T>(),
                            .at = run.nest.last[node.operand],
                            .value = nest::value_of<T>(kernel.operands[node.operand].fill)});
      }
    }
    for (const nest::Participant& each : participants()) {
      values_.push_back(run.arguments->operands[each.operand]->values.template as<T>());
    }
  }

  nest::ProductShape shape() const { return shape_; }

  /// The terms of one innermost loop; of shape kNone where an operand is absent.
  nest::ProductTerms<T> terms(const std::vector<int64_t>& positions, int64_t lower, int64_t upper) const {
    nest::ProductTerms<T> terms{.shape = shape_, .scale = T(1), .first = lower};
    for (const nest::Participant& each : participants()) {
      if (positions[each.above] < 0) return {};
    }
    for (const Factor& factor : factors_) {
      const int64_t entry = factor.values == nullptr ? -1 : positions[factor.at];
      terms.scale = nest::applied(Operator::kMultiply, terms.scale, entry < 0 ? factor.value : factor.values[entry]);
    }
    const nest::LevelView& level = participants()[0].level;
    const int64_t fiber = positions[participants()[0].above];
    const bool follows = participants().size() == 2;
    const int64_t second = follows ? positions[participants()[1].above] * level.size : 0;
    if (level.lists()) {
      int64_t begin = level.begin(fiber);
      int64_t end = level.begin(fiber + 1);
      if (lower > 0 || upper < level.size) {
        nest::Walk walk;
        walk.start(level, fiber, lower, upper);
        begin = walk.entry;
        end = walk.end;
      }
      terms.count = end - begin;
      terms.coordinates = level.coordinates + begin;
      terms.a = values_[0] + begin;
      if (follows) terms.b = values_[1] + second;
    } else {
      terms.count = std::max<int64_t>(0, upper - lower);
      terms.a = values_[0] + fiber * level.size + lower;
      if (follows) terms.b = values_[1] + second + lower;
    }
    return terms;
  }

 private:
  /// What does not change in the loop: a literal, or an operand's value.
  struct Factor {
    const T* values = nullptr;
    int64_t at = 0;
    T value{};  ///< the literal, or the operand's fill
  };

  const std::vector<nest::Participant>& participants() const { return run_.nest.loops.back().participants; }
  bool varies(int64_t operand) const {
    return std::ranges::find(participants(), operand, &nest::Participant::operand) != participants().end();
  }

  /// Whether the body multiplies each operand of the innermost loop once, and the rest are operands and literals.
  static bool is_product(const Kernel& kernel, const std::vector<nest::Participant>& inner) {
    const BodyNode& root = kernel.body.back();
    const std::vector<int64_t> self{std::ssize(kernel.body) - 1};
    const bool is_map = root.kind == BodyNode::Kind::kMap;
    if (is_map && root.op != Operator::kMultiply) return false;
    std::vector<int64_t> uses(kernel.operands.size());
    for (const int64_t child : is_map ? root.children : self) {
      if (kernel.body[child].kind == BodyNode::Kind::kMap) return false;
      if (kernel.body[child].kind == BodyNode::Kind::kOperand) ++uses[kernel.body[child].operand];
    }
    return std::ranges::all_of(inner, [&](const nest::Participant& each) { return uses[each.operand] == 1; }) &&
           (root.children.size() < 3 || !std::is_floating_point_v<T> || ends_with(root.children, kernel, inner));
  }

  /// Whether the last arguments are the operands of the innermost loop: the loops compute from the left to the right.
  static bool ends_with(const std::vector<int64_t>& arguments, const Kernel& kernel,
                        const std::vector<nest::Participant>& inner) {
    return std::equal(
        inner.rbegin(), inner.rend(), arguments.rbegin(),
        [&](const nest::Participant& each, int64_t argument) { return kernel.body[argument].operand == each.operand; });
  }

  static nest::ProductShape shape_of(const Prepared& run) {
    const nest::LoopPlan& loop = run.nest.loops.back();
    const auto& inner = loop.participants;
    if (inner.empty() || inner.size() > 2 || loop.walkers > 1) return nest::ProductShape::kNone;
    const std::vector<bool> guarded = nodes_to_guard(*run.kernel);
    if (std::is_floating_point_v<T> && guarded.back()) return nest::ProductShape::kNone;
    if (!is_product(*run.kernel, inner)) return nest::ProductShape::kNone;
    const auto is_dense = [](const nest::Participant& each) { return each.level.format == LevelFormat::kDense; };
    if (inner.size() == 2 && !is_dense(inner[1])) return nest::ProductShape::kNone;
    const bool pair = inner.size() == 2;
    if (is_dense(inner[0])) return pair ? nest::ProductShape::kRangePair : nest::ProductShape::kRange;
    if (loop.walkers == 0 || !inner[0].level.lists()) return nest::ProductShape::kNone;
    return pair ? nest::ProductShape::kListPair : nest::ProductShape::kList;
  }

  const Prepared& run_;
  nest::ProductShape shape_;
  std::vector<Factor> factors_;
  std::vector<const T*> values_;  ///< of each participant
};

}  // namespace joinsum::sparse::kernels
