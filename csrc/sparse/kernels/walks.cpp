#include "sparse/kernels/walks.h"

#include <algorithm>

#include "base/check.h"

namespace joinsum::sparse::kernels {
namespace {

using Kind = BodyNode::Kind;

double fill_of_node(const Kernel& kernel, const BodyNode& node, const std::vector<double>& fills) {
  std::vector<double> children;
  for (const int64_t child : node.children) children.push_back(fills[child]);
  return tensor::fill_of_map(kernel.dtype, node.op, children);
}

/// Whether the map number `number` is at its fill.
bool map_at_fill(const BodyNode& node, size_t number, const std::vector<double>& fills, const std::vector<bool>& at) {
  bool all = true;
  for (const int64_t child : node.children) {
    if (at[child] && tensor::decides(node.op, fills[child], fills[number])) return true;
    all = all && at[child];
  }
  return all;
}

void check_body(const Kernel& kernel) {
  JOINSUM_USER_CHECK(!kernel.body.empty(), "kernel: the body has no node");
  for (size_t n = 0; n < kernel.body.size(); ++n) {
    const BodyNode& node = kernel.body[n];
    if (node.kind == Kind::kOperand) {
      JOINSUM_USER_CHECK(node.operand >= 0 && node.operand < std::ssize(kernel.operands),
                         "kernel: a node names no operand: node=", n, ", operand=", node.operand);
    }
    if (node.kind != Kind::kMap) continue;
    JOINSUM_USER_CHECK(takes(node.op, node.children.size()),
                       "kernel: an operator takes another number of children: ", "node=", n,
                       ", operator=", name_of(node.op), ", children=", node.children.size());
    for (const int64_t child : node.children) {
      JOINSUM_USER_CHECK(child >= 0 && child < static_cast<int64_t>(n),
                         "kernel: a child must come before its node: ", "node=", n, ", child=", child);
    }
  }
}

void check_operands(const Kernel& kernel) {
  const auto loops = std::ssize(kernel.loops);
  for (size_t o = 0; o < kernel.operands.size(); ++o) {
    const Operand& operand = kernel.operands[o];
    JOINSUM_USER_CHECK(operand.loops.size() == operand.formats.size(), "kernel: an operand needs a format for each of ",
                       "its loops: operand=", o, ", loops=", operand.loops, ", formats=", operand.formats.size());
    for (size_t l = 0; l < operand.loops.size(); ++l) {
      const int64_t before = l == 0 ? -1 : operand.loops[l - 1];
      JOINSUM_USER_CHECK(operand.loops[l] > before && operand.loops[l] < loops,
                         "kernel: an operand's loops must ascend within the nest: operand=", o,
                         ", loops=", operand.loops, ", nest=", loops);
    }
  }
}

void check_result(const Kernel& kernel) {
  const auto loops = std::ssize(kernel.loops);
  std::vector<int64_t> sorted = kernel.output;
  std::ranges::sort(sorted);
  const bool distinct = std::ranges::adjacent_find(sorted) == sorted.end();
  JOINSUM_USER_CHECK(distinct && (sorted.empty() || (sorted.front() >= 0 && sorted.back() < loops)),
                     "kernel: the output must name distinct loops: output=", kernel.output, ", loops=", loops);
  JOINSUM_USER_CHECK(kernel.output.size() == kernel.formats.size(),
                     "kernel: the result needs a format for each level: ", "output=", kernel.output,
                     ", formats=", kernel.formats.size());
  JOINSUM_USER_CHECK(kernel.aggregate.has_value() || std::ssize(kernel.output) == loops,
                     "kernel: loops that are not of the output need an aggregate: output=", kernel.output,
                     ", loops=", loops);
  JOINSUM_USER_CHECK(!kernel.aggregate || aggregates(*kernel.aggregate), "kernel: the operator does not aggregate: ",
                     "operator=", name_of(kernel.aggregate.value_or(Operator::kAdd)));
}

void check_loop(const Kernel& kernel, int64_t loop) {
  std::vector<int64_t> named = kernel.loops[loop].walkers;
  named.insert(named.end(), kernel.loops[loop].lookups.begin(), kernel.loops[loop].lookups.end());
  std::ranges::sort(named);
  std::vector<int64_t> having;
  for (int64_t o = 0; o < std::ssize(kernel.operands); ++o) {
    if (std::ranges::binary_search(kernel.operands[o].loops, loop)) having.push_back(o);
  }
  JOINSUM_USER_CHECK(named == having, "kernel: a loop must name each operand that has it once: loop=", loop,
                     ", named=", named, ", having=", having);
  if (kernel.loops[loop].walkers.empty()) return;
  std::vector<bool> absent(kernel.operands.size());
  for (const int64_t o : kernel.loops[loop].walkers) absent[o] = true;
  JOINSUM_USER_CHECK(at_fill(kernel, absent), "kernel: the walkers of a loop leave out visits that matter: loop=", loop,
                     ", walkers=", kernel.loops[loop].walkers);
}

void check_derived(const Kernel& kernel) {
  Kernel derived = kernel;
  derive(derived);
  JOINSUM_USER_CHECK(kernel.required.size() == kernel.operands.size(), "kernel: `required` needs a value for each ",
                     "operand: operands=", kernel.operands.size(), ", required=", kernel.required.size());
  for (size_t o = 0; o < kernel.operands.size(); ++o) {
    JOINSUM_USER_CHECK(!kernel.required[o] || derived.required[o],
                       "kernel: an operand is required whose absence leaves the body open: operand=", o);
  }
  const double fill = kernel.body_fill;
  JOINSUM_USER_CHECK(fill == derived.body_fill || (fill != fill && derived.body_fill != derived.body_fill),
                     "kernel: the body's fill is another: body_fill=", fill, ", derived=", derived.body_fill);
}

bool never_absent(const Operand& operand) {
  return std::ranges::all_of(operand.formats, [](LevelFormat format) { return format == LevelFormat::kDense; }) &&
         !operand.formats.empty();
}

/// Whether a visit finds `node` at its fill: some set of absent operands puts it there and stops no visit.
bool may_be_at_fill(const Kernel& kernel, int64_t node) {
  std::vector<bool> absent(kernel.operands.size());
  for (size_t o = 0; o < absent.size(); ++o) absent[o] = !kernel.required[o] && !never_absent(kernel.operands[o]);
  if (!nodes_at_fill(kernel, absent)[node]) return false;
  const auto needed = [&](int64_t operand) {
    std::vector<bool> others = absent;
    others[operand] = false;
    return absent[operand] && !nodes_at_fill(kernel, others)[node];
  };
  // A loop all of whose walkers must be absent for it is not visited then.
  return std::ranges::none_of(kernel.loops, [&](const Loop& loop) {
    return !loop.walkers.empty() && std::ranges::all_of(loop.walkers, needed);
  });
}

}  // namespace

std::vector<double> fills_of(const Kernel& kernel) {
  std::vector<double> fills;
  for (const BodyNode& node : kernel.body) {
    if (node.kind == Kind::kOperand) {
      fills.push_back(kernel.operands[node.operand].fill);
    } else {
      fills.push_back(node.kind == Kind::kLiteral ? node.literal : fill_of_node(kernel, node, fills));
    }
  }
  return fills;
}

std::vector<bool> nodes_at_fill(const Kernel& kernel, const std::vector<bool>& absent) {
  const std::vector<double> fills = fills_of(kernel);
  std::vector<bool> at;
  for (const BodyNode& node : kernel.body) {
    if (node.kind == Kind::kOperand) {
      at.push_back(absent[node.operand]);
    } else {
      at.push_back(node.kind == Kind::kLiteral || map_at_fill(node, at.size(), fills, at));
    }
  }
  return at;
}

bool at_fill(const Kernel& kernel, const std::vector<bool>& absent) { return nodes_at_fill(kernel, absent).back(); }

void derive(Kernel& kernel) {
  kernel.body_fill = fills_of(kernel).back();
  kernel.required.assign(kernel.operands.size(), false);
  for (size_t o = 0; o < kernel.operands.size(); ++o) {
    std::vector<bool> absent(kernel.operands.size());
    absent[o] = true;
    kernel.required[o] = at_fill(kernel, absent);
  }
}

void check(const Kernel& kernel) {
  check_body(kernel);
  check_operands(kernel);
  check_result(kernel);
  for (int64_t loop = 0; loop < std::ssize(kernel.loops); ++loop) check_loop(kernel, loop);
  check_derived(kernel);
}

std::vector<bool> nodes_to_guard(const Kernel& kernel) {
  const std::vector<double> fills = fills_of(kernel);
  std::vector<bool> guarded;
  for (const BodyNode& node : kernel.body) {
    const double fill = fills[guarded.size()];
    guarded.push_back(node.kind == Kind::kMap && std::ranges::any_of(node.children, [&](int64_t child) {
                        return tensor::decides(node.op, fills[child], fill) && may_be_at_fill(kernel, child);
                      }));
  }
  return guarded;
}

}  // namespace joinsum::sparse::kernels
