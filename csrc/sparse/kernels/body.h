#pragma once

#include <algorithm>
#include <vector>

#include "sparse/kernels/nest/block.h"
#include "sparse/kernels/nest/buffer.h"
#include "sparse/kernels/nest/columns.h"
#include "sparse/kernels/prepared.h"
#include "sparse/kernels/walks.h"

namespace joinsum::sparse::kernels {

/// The body of a kernel at the visits of the innermost loops, by columns.
template <class T>
class Body {
 public:
  /// `participants` are the operands that vary in these loops.
  Body(const Prepared& run, const std::vector<int64_t>& participants) : run_(run), participants_(participants) {
    const Kernel& kernel = *run.kernel;
    const std::vector<double> fills = fills_of(kernel);
    // Integers have no values for which arithmetic with a fill that annihilates gives another one.
    if (std::is_floating_point_v<T>) guarded_ = nodes_to_guard(kernel);
    guarded_.resize(kernel.body.size());
    guards_ = std::ranges::find(guarded_, true) != guarded_.end();
    for (size_t n = 0; n < kernel.body.size(); ++n) nodes_.push_back(node_of(kernel.body[n], fills, n));
    columns_.resize(nodes_.size());
    at_fill_.resize(nodes_.size());
  }

  /// Begins the innermost loops: takes what does not change in them.
  void start(const std::vector<int64_t>& positions) {
    for (size_t n = 0; n < nodes_.size(); ++n) {
      if (nodes_[n].varies) continue;
      if (nodes_[n].from->kind == BodyNode::Kind::kOperand) {
        const int64_t entry = positions[run_.nest.last[nodes_[n].from->operand]];
        columns_[n] = {nullptr, entry < 0 ? nodes_[n].fill : nodes_[n].values[entry]};
        at_fill_[n] = {nullptr, entry < 0};
      } else {
        evaluate_node(n, 1);
      }
    }
  }

  /// The body at the visits of a block.
  nest::Column<T> evaluate(const std::vector<nest::BlockEntries>& entries, int64_t count) {
    for (size_t n = 0; n < nodes_.size(); ++n) {
      if (!nodes_[n].varies) continue;
      if (nodes_[n].from->kind == BodyNode::Kind::kOperand) {
        load(n, entries[nodes_[n].participant], count);
      } else {
        evaluate_node(n, count);
      }
    }
    return columns_.back();
  }

 private:
  using Kind = nest::BlockEntries::Kind;

  struct Node {
    const BodyNode* from = nullptr;
    T fill{};
    const T* values = nullptr;        ///< operand
    int64_t participant = -1;         ///< operand of the innermost loops: which of their participants
    bool varies = false;              ///< within the innermost loops
    std::vector<bool> deciding = {};  ///< map: the children whose fill annihilates it, so that it is its own
    nest::Buffer<T> buffer = {};
    std::vector<uint8_t> at_fill_buffer = {};
  };

  Node node_of(const BodyNode& from, const std::vector<double>& fills, size_t n) {
    Node node{.from = &from, .fill = nest::value_of<T>(fills[n])};
    if (from.kind == BodyNode::Kind::kOperand) {
      node.values = run_.arguments->operands[from.operand]->values.template as<T>();
      const auto found = std::ranges::find(participants_, from.operand);
      node.varies = found != participants_.end();
      if (node.varies) node.participant = found - participants_.begin();
    }
    for (const int64_t child : from.children) {
      node.varies = node.varies || nodes_[child].varies;
      node.deciding.push_back(tensor::decides(from.op, fills[child], fills[n]));
    }
    if (node.varies) node.buffer.extend(nest::kBlock);
    if (node.varies && guards_) node.at_fill_buffer.resize(nest::kBlock);
    return node;
  }

  void load(size_t n, const nest::BlockEntries& entries, int64_t count) {
    Node& node = nodes_[n];
    at_fill_[n] = {nullptr, 0};
    if (entries.kind == Kind::kAbsent) {
      columns_[n] = {nullptr, node.fill};
      at_fill_[n] = {nullptr, 1};
    } else if (entries.kind == Kind::kContiguous) {
      columns_[n] = {node.values + entries.first, T{}};
    } else {
      nest::gather(node.values, entries.listed, entries.may_be_absent, node.fill, node.buffer.data(), count);
      columns_[n] = {node.buffer.data(), T{}};
      if (!guards_ || !entries.may_be_absent) return;
      for (int64_t i = 0; i < count; ++i) node.at_fill_buffer[i] = entries.listed[i] < 0;
      at_fill_[n] = {node.at_fill_buffer.data(), 0};
    }
  }

  void evaluate_node(size_t n, int64_t count) {
    Node& node = nodes_[n];
    if (node.from->kind == BodyNode::Kind::kLiteral) {
      columns_[n] = {nullptr, node.fill};
      at_fill_[n] = {nullptr, 1};
      return;
    }
    const std::vector<int64_t>& children = node.from->children;
    nest::Column<T> value = columns_[children[0]];
    T* out = node.buffer.data();
    if (children.size() == 1) value = nest::mapped(node.from->op, value, out, count);
    for (size_t i = 1; i < children.size(); ++i) {
      value = nest::combined(node.from->op, value, columns_[children[i]], out, count);
    }
    columns_[n] = value;
    if (guards_) guard(n, count);
  }

  /// Finds where absent operands put a map at its fill, and takes it there if the arithmetic may not.
  void guard(size_t n, int64_t count) {
    Node& node = nodes_[n];
    nest::Column<uint8_t> any{nullptr, 0};
    nest::Column<uint8_t> all{nullptr, 1};
    std::vector<uint8_t>& any_buffer = scratch_[0];
    std::vector<uint8_t>& all_buffer = scratch_[1];
    for (size_t i = 0; i < node.deciding.size(); ++i) {
      const nest::Column<uint8_t>& child = at_fill_[node.from->children[i]];
      all = nest::combined(Operator::kAnd, all, child, all_buffer.data(), count);
      if (node.deciding[i]) any = nest::combined(Operator::kOr, any, child, any_buffer.data(), count);
    }
    at_fill_[n] = nest::combined(Operator::kOr, any, all, node.at_fill_buffer.data(), count);
    if (!guarded_[n]) return;
    if (at_fill_[n].is_scalar()) {
      if (at_fill_[n].value) columns_[n] = {nullptr, node.fill};
      return;
    }
    T* out = node.buffer.data();
    for (int64_t i = 0; i < count; ++i) {
      const T value = columns_[n].is_scalar() ? columns_[n].value : columns_[n].data[i];
      out[i] = at_fill_[n].data[i] ? node.fill : value;
    }
    columns_[n] = {out, T{}};
  }

  const Prepared& run_;
  const std::vector<int64_t> participants_;
  std::vector<bool> guarded_;
  bool guards_ = false;
  std::vector<Node> nodes_;
  std::vector<nest::Column<T>> columns_;
  std::vector<nest::Column<uint8_t>> at_fill_;  ///< whether absent operands put the node at its fill
  std::vector<uint8_t> scratch_[2] = {std::vector<uint8_t>(nest::kBlock), std::vector<uint8_t>(nest::kBlock)};
};

}  // namespace joinsum::sparse::kernels
