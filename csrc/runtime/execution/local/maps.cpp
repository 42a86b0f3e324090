#include <algorithm>

#include "kernels/table/rows.h"
#include "relation/typing.h"
#include "runtime/execution/local/joins.h"
#include "runtime/execution/local/kernel_calls.h"
#include "runtime/storage/sparse_array.h"

namespace joinsum::runtime::execution::local {
namespace {

using storage::Layout;

/// Type of what the first kernel of a map computes.
relation::RelationType first_type(const ia::LocalMap& op, const relation::RelationType& input) {
  return relation::map_type("local_map", input, op.outputs, op.key_map, op.array_map.first());
}

/// How a box of several keys is one operand of a kernel that reduces the axes that the keys cut, each key's part by
/// itself: each such axis becomes one of keys and one of a part. There are these axes where parts are equally long.
class KeyAxes {
 public:
  /// `reduced`: the key dimensions whose axes the kernel reduces; `batch`: the leading axes of the result.
  KeyAxes(const relation::RelationType& input, const Layout& layout, const Dims& reduced, const Dims& batch,
          const Box& box) {
    Dims position(input.arity());
    for (size_t i = 0; i < layout.batch_dims().size(); ++i) position[layout.batch_dims()[i]] = static_cast<int64_t>(i);
    for (size_t axis = 0; axis < input.axes.size(); ++axis) {
      const int64_t dim = input.axes[axis].linked() ? input.axes[axis].key_dim : -1;
      if (dim < 0 || !position_of(reduced, dim)) continue;
      position[dim] = layout.position_of_axis(static_cast<int64_t>(axis)) + static_cast<int64_t>(split_.size());
      split_.emplace_back(position[dim], box.extent(dim));
    }
    for (const int64_t dim : batch) order_.push_back(position[dim]);
    const auto rank = static_cast<int64_t>(layout.batch_dims().size() + input.axes.size() + split_.size());
    for (const int64_t rest : complement(order_, rank)) order_.push_back(rest);
  }

  at::Tensor apply(at::Tensor array) const {
    for (const auto& [axis, keys] : split_) array = array.unflatten(axis, {keys, array.size(axis) / keys});
    return array.permute(order_);
  }

 private:
  std::vector<std::pair<int64_t, int64_t>> split_;  ///< axes, ascending, as they are when those before are split
  Dims order_;
};

/// A map that leaves keys as they are.
class ArrayMap final : public LocalOperator {
 public:
  ArrayMap(const ia::LocalMap& op, const relation::RelationType& input)
      : kernel_(op.array_map.first()),
        type_(first_type(op, input)),
        input_(input),
        in_(input),
        modes_(dim_modes(kernel_, {{input, all_dims(input.arity())}}, type_, {})),
        batch_(dims_in(modes_, DimMode::kBatch)),
        axes_(in_, all_dims(input.arity()), modes_, batch_),
        missing_(missing_axes(batch_, Layout(type_))),
        call_(kernel_, static_cast<int64_t>(batch_.size())),
        whole_(dims_in(modes_, DimMode::kSingle).empty()),
        of_keys_(kernel_, std::ssize(Layout(type_).batch_dims())),
        epilogue_(op.array_map, type_) {}

  std::vector<PinnedPiece> run(const std::vector<PinnedOperand>& operands, const std::vector<Box>& /*boxes*/,
                               const RunContext& context) const override {
    std::vector<PinnedPiece> out;
    for (const PinnedPiece& piece : operands[0].pieces) {
      for_each_single(piece.box, modes_, [&](const Box& part) {
        const PartOperand operand{in_.slice(piece.array, piece.box, part), operands[0].overwritable && whole_};
        out.push_back({part, mapped(operand, context)});
      });
    }
    return epilogue_.run(std::move(out), context);
  }

  OnePart on(const std::vector<Box>& operands, const Box& result) const override {
    if (result != operands[0]) return {};
    if (!is_one_part(result, modes_)) return of_equal_parts(result);
    return epilogue_.after(
        [this](c10::ArrayRef<PartOperand> given, const RunContext& context) { return mapped(given[0], context); },
        result);
  }

  std::string text() const override { return "modes=" + modes_text(modes_); }

 private:
  /// The kernel on all keys of a box at once, where it reduces the axes that they cut and their parts are equally long.
  OnePart of_equal_parts(const Box& box) const {
    const Dims singles = dims_in(modes_, DimMode::kSingle);
    Dims batch = batch_;
    batch.insert(batch.end(), singles.begin(), singles.end());
    std::sort(batch.begin(), batch.end());
    const bool possible = kernels::table::row_of(kernel_).form == kernels::table::Form::kLabelled && !in_.sparse() &&
                          !box.empty() && batch == Layout(type_).batch_dims();
    if (!possible || !std::all_of(singles.begin(), singles.end(), [&](int64_t dim) { return equal_parts(dim, box); })) {
      return {};
    }
    return epilogue_.after(
        [this, keys = KeyAxes(input_, in_, singles, batch, box)](c10::ArrayRef<PartOperand> given,
                                                                 const RunContext& context) {
          return of_keys_.run({keys.apply(given[0].array)}, context);
        },
        box);
  }

  /// Whether one axis alone is linked to the key dimension, with as many elements for each key of the box.
  bool equal_parts(int64_t dim, const Box& box) const {
    const Dims axes = input_.axes_of(dim);
    if (axes.size() != 1) return false;
    const Dims& cuts = input_.axes[axes[0]].cuts;
    const int64_t first = cuts[box.lower[dim] + 1] - cuts[box.lower[dim]];
    for (int64_t key = box.lower[dim]; key < box.upper[dim]; ++key) {
      if (cuts[key + 1] - cuts[key] != first) return false;
    }
    return first > 0;
  }

  at::Tensor mapped(const PartOperand& operand, const RunContext& context) const {
    if (operand.array.is_sparse()) return call_.run({operand.array}, context);
    const at::Tensor array = axes_.apply(operand.array);
    const bool overwrite = operand.overwritable && call_.fits_result(array, {array});
    return with_axes(call_.run({array}, context, 0, overwrite ? array : at::Tensor()), missing_);
  }

  kernels::table::Kernel kernel_;
  relation::RelationType type_;
  const relation::RelationType& input_;
  Layout in_;
  std::vector<DimMode> modes_;
  Dims batch_;
  BatchAxes axes_;
  Dims missing_;
  KernelCall call_;
  bool whole_;
  KernelCall of_keys_;  ///< with an axis for each key dimension
  Epilogue epilogue_;
};

/// A map of keys, tuple by tuple.
class KeyedMap final : public LocalOperator {
 public:
  KeyedMap(const ia::LocalMap& op, const relation::RelationType& input)
      : op_(op),
        input_(input),
        kernel_(op.array_map.first()),
        type_(first_type(op, input)),
        call_(kernel_, 0),
        epilogue_(op.array_map, type_) {}

  std::vector<PinnedPiece> run(const std::vector<PinnedOperand>& operands, const std::vector<Box>& /*boxes*/,
                               const RunContext& context) const override {
    const Layout in(input_);
    const Layout layout(type_);
    std::vector<PinnedPiece> out;
    for (const PinnedPiece& piece : operands[0].pieces) {
      for_each_key(piece.box, [&](const Key& key) {
        const at::Tensor array =
            storage::reshaped(in.slice(piece.array, piece.box, Box::single(key)), input_.array_shape(key));
        for (int64_t m = 0; m < op_.outputs; ++m) {
          const Box box = Box::single(op_.key_map.evaluate(key, m));
          out.push_back({box, storage::reshaped(call_.run({array}, context, m), layout.shape(box))});
        }
      });
    }
    return epilogue_.run(std::move(out), context);
  }

  std::string text() const override { return "tuple by tuple"; }

 private:
  const ia::LocalMap& op_;
  const relation::RelationType& input_;
  kernels::table::Kernel kernel_;
  relation::RelationType type_;
  KernelCall call_;
  Epilogue epilogue_;
};

class Filter final : public LocalOperator {
 public:
  Filter(const ia::LocalFilter& op, const relation::RelationType& input) : op_(op), layout_(input) {}

  std::vector<PinnedPiece> run(const std::vector<PinnedOperand>& operands, const std::vector<Box>& /*boxes*/,
                               const RunContext& /*context*/) const override {
    std::vector<PinnedPiece> out;
    for (const PinnedPiece& piece : operands[0].pieces) {
      for_each_key(piece.box, [&](const Key& key) {
        const Box box = Box::single(key);
        if (op_.predicate.evaluate(key) != 0) out.push_back({box, layout_.slice(piece.array, piece.box, box)});
      });
    }
    return out;
  }

  std::string text() const override { return "tuple by tuple"; }

 private:
  const ia::LocalFilter& op_;
  Layout layout_;
};

class Upsert final : public LocalOperator {
 public:
  Upsert(const relation::RelationType& base, const relation::RelationType& updates,
         const relation::RelationType& result)
      : base_(base), updates_(updates), result_(result), written_(updates.all_keys()) {}

  std::vector<PinnedPiece> run(const std::vector<PinnedOperand>& operands, const std::vector<Box>& /*boxes*/,
                               const RunContext& /*context*/) const override {
    std::vector<PinnedPiece> out;
    for (const PinnedPiece& piece : operands[0].pieces) {
      for_each_key(piece.box, [&](const Key& key) {
        if (!std::binary_search(written_.begin(), written_.end(), key)) add(base_, piece, key, out);
      });
    }
    for (const PinnedPiece& piece : operands[1].pieces) {
      for_each_key(piece.box, [&](const Key& key) { add(updates_, piece, key, out); });
    }
    return out;
  }

  std::string text() const override { return "tuple by tuple"; }

 private:
  /// The axes of the result may be linked to other key dimensions than those of an operand.
  void add(const Layout& layout, const PinnedPiece& piece, const Key& key, std::vector<PinnedPiece>& out) const {
    const Box box = Box::single(key);
    out.push_back({box, layout.slice(piece.array, piece.box, box).reshape(result_.shape(box))});
  }

  Layout base_, updates_, result_;
  std::vector<Key> written_;  ///< ascending
};

}  // namespace

LocalOperatorPtr prepare_map(const ia::LocalMap& op, const relation::RelationType& input) {
  if (op.outputs == 1 && op.key_map.is_identity(input.arity())) return std::make_unique<ArrayMap>(op, input);
  return std::make_unique<KeyedMap>(op, input);
}

LocalOperatorPtr prepare_upsert(const relation::RelationType& base, const relation::RelationType& updates,
                                const relation::RelationType& result) {
  return std::make_unique<Upsert>(base, updates, result);
}

LocalOperatorPtr prepare_filter(const ia::LocalFilter& op, const relation::RelationType& input) {
  return std::make_unique<Filter>(op, input);
}

Epilogue::Epilogue(const kernels::table::Kernel& kernel, const relation::RelationType& type) {
  if (!kernel.epilogue.empty()) types_.push_back(type);
  for (const kernels::table::Kernel& next : kernel.epilogue) {
    maps_.push_back({1, relation::KeyMap::identity(type.arity()), next});
    operators_.push_back(prepare_map(maps_.back(), types_.back()));
    types_.push_back(first_type(maps_.back(), types_.back()));
  }
}

std::vector<PinnedPiece> Epilogue::run(std::vector<PinnedPiece> pieces, const RunContext& context) const {
  for (const LocalOperatorPtr& next : operators_) {
    std::vector<PinnedOperand> operands;
    operands.emplace_back(std::move(pieces));
    pieces = next->run(operands, {}, context);
  }
  return pieces;
}

OnePart Epilogue::after(OnePart part, const Box& box) const {
  for (const LocalOperatorPtr& next : operators_) {
    OnePart follows = next->on({box}, box);
    if (part == nullptr || follows == nullptr) return {};
    part = [before = std::move(part), then = std::move(follows)](c10::ArrayRef<PartOperand> operands,
                                                                 const RunContext& context) {
      return then(PartOperand{before(operands, context)}, context);
    };
  }
  return part;
}

}  // namespace joinsum::runtime::execution::local
