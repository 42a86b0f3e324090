#include "runtime/local_operators.h"

#include <algorithm>
#include <map>

#include "kernels/dense.h"
#include "kernels/dense_call.h"
#include "kernels/rows.h"
#include "kernels/typing.h"
#include "runtime/dim_modes.h"

namespace joinsum::runtime {
namespace {

using kernels::Kernel;

/// The part of `box` where the dimensions of mode kSingle have one key each; calls `visit` for all of them, in key
/// order.
void for_each_single(const Box& box, const std::vector<DimMode>& modes, const std::function<void(const Box&)>& visit) {
  Box singles = box;
  for (size_t d = 0; d < modes.size(); ++d) {
    if (modes[d] == DimMode::kSingle) continue;
    singles.lower[d] = 0;
    singles.upper[d] = 1;
  }
  if (box.empty()) return;
  for_each_key(singles, [&](const Key& key) {
    Box part = box;
    for (size_t d = 0; d < modes.size(); ++d) {
      if (modes[d] != DimMode::kSingle) continue;
      part.lower[d] = key[d];
      part.upper[d] = key[d] + 1;
    }
    visit(part);
  });
}

/// What an operand with these key positions needs for the result's `box`.
Box own_box(const Box& box, const Dims& position) {
  return {project(box.lower, position), project(box.upper, position)};
}

/// Drops leading axes of kSingle dimensions and orders the others as `batch` lists them (size 1 where the operand has
/// none).
at::Tensor with_batch(at::Tensor array, const Layout& layout, const Dims& position, const std::vector<DimMode>& modes,
                      const Dims& batch) {
  Dims present;
  for (int64_t i = static_cast<int64_t>(layout.batch_dims().size()) - 1; i >= 0; --i) {
    const int64_t dim = position[layout.batch_dims()[i]];
    if (modes[dim] == DimMode::kSingle) {
      array = array.squeeze(i);
    } else {
      present.insert(present.begin(), dim);
    }
  }
  Dims order;
  for (const int64_t dim : batch) {
    if (const auto at = position_of(present, dim)) order.push_back(*at);
  }
  const auto leading = static_cast<int64_t>(present.size());
  for (int64_t a = leading; a < array.dim(); ++a) order.push_back(a);
  array = array.permute(order);
  for (size_t i = 0; i < batch.size(); ++i) {
    if (!position_of(present, batch[i])) array = array.unsqueeze(static_cast<int64_t>(i));
  }
  return array;
}

/// Gives elementwise operands equal rank behind their batch axes, as broadcasting wants.
at::Tensor pad_rank(at::Tensor array, int64_t batch, int64_t rank) {
  while (array.dim() < batch + rank) array = array.unsqueeze(batch);
  return array;
}

/// Turns a result with leading axes `batch` into the layout of `type`: its other leading axes have one key.
at::Tensor to_layout(at::Tensor array, const Dims& batch, const Layout& layout) {
  const Dims& wanted = layout.batch_dims();
  for (size_t i = 0; i < wanted.size(); ++i) {
    if (!position_of(batch, wanted[i])) array = array.unsqueeze(static_cast<int64_t>(i));
  }
  return array;
}

Dims dims_in(const std::vector<DimMode>& modes, DimMode mode) {
  Dims out;
  for (size_t d = 0; d < modes.size(); ++d) {
    if (modes[d] == mode) out.push_back(static_cast<int64_t>(d));
  }
  return out;
}

/// Joined keys of two boxes; nothing where they do not meet.
std::optional<Box> meeting(const Box& left, const Box& right, const ia::LocalJoin& op) {
  Box box = left;
  for (const int64_t d : complement(op.right_keys, right.arity())) {
    box.lower.push_back(right.lower[d]);
    box.upper.push_back(right.upper[d]);
  }
  for (size_t i = 0; i < op.left_keys.size(); ++i) {
    const int64_t d = op.left_keys[i];
    box.lower[d] = std::max(box.lower[d], right.lower[op.right_keys[i]]);
    box.upper[d] = std::min(box.upper[d], right.upper[op.right_keys[i]]);
    if (box.lower[d] >= box.upper[d]) return std::nullopt;
  }
  return box.empty() ? std::nullopt : std::optional(box);
}

/// Folds into the piece of one box; the first array may belong to an operand and is not written.
class Folder {
 public:
  using Fold = std::function<at::Tensor(const at::Tensor&, const at::Tensor&, const at::Tensor& out)>;
  explicit Folder(Fold fold) : fold_(std::move(fold)) {}

  void add(const Box& box, const at::Tensor& array) {
    const auto [at, fresh] = pieces_.try_emplace(box, Entry{array, false});
    if (fresh) return;
    Entry& entry = at->second;
    entry.array = fold_(entry.array, array, entry.owned ? entry.array : at::Tensor());
    entry.owned = true;
  }
  std::vector<Piece> pieces() const {
    std::vector<Piece> out;
    for (const auto& [box, entry] : pieces_) out.push_back({box, entry.array});
    return out;
  }

 private:
  struct Entry {
    at::Tensor array;
    bool owned;
  };
  Fold fold_;
  std::map<Box, Entry> pieces_;
};

/// Goes key by key through the kept dimensions that `result` links otherwise than `input` does (a fold of irregular
/// groups may find new links).
void split_relinked(const RelationType& input, const Dims& group_by, const RelationType& result,
                    std::vector<DimMode>& modes) {
  for (size_t i = 0; i < group_by.size(); ++i) {
    if (input.axes_of(group_by[i]) != result.axes_of(static_cast<int64_t>(i))) modes[group_by[i]] = DimMode::kSingle;
  }
}

/// Operands of a join, with what its dimensions allow.
struct JoinPlan {
  ModeOperand left;
  ModeOperand right;
  Layout left_layout;
  Layout right_layout;
  std::vector<DimMode> modes;
  Dims batch;

  JoinPlan(const ia::LocalJoin& op, const RelationType& l, const RelationType& r, const RelationType& joined,
           const Dims& summed)
      : left{l, all_dims(l.arity())},
        right{r, kernels::JoinKeys{op.left_keys, op.right_keys}.right_position(l.arity(), r.arity())},
        left_layout(l),
        right_layout(r),
        modes(dim_modes(op.kernel, {left, right}, joined, summed)),
        batch(dims_in(modes, DimMode::kBatch)) {}

  /// Of a join whose sum over all but `group_by` has type `result`.
  static JoinPlan summed(const ia::LocalJoin& op, const RelationType& l, const RelationType& r,
                         const RelationType& joined, const Dims& group_by, const RelationType& result) {
    JoinPlan plan(op, l, r, joined, complement(group_by, joined.arity()));
    split_relinked(joined, group_by, result, plan.modes);
    plan.batch = dims_in(plan.modes, DimMode::kBatch);
    return plan;
  }

  /// Calls `visit` with each joined part, and both operands' arrays for it.
  void for_each(const ia::LocalJoin& op, const Operand& l, const Operand& r,
                const std::function<void(const Box&, const at::Tensor&, const at::Tensor&)>& visit) const {
    for (const Piece& a : l.pieces) {
      for (const Piece& b : r.pieces) {
        const auto box = meeting(a.box, b.box, op);
        if (!box) continue;
        for_each_single(*box, modes, [&](const Box& part) {
          visit(part, left_layout.slice(a.array, a.box, own_box(part, left.position)),
                right_layout.slice(b.array, b.box, own_box(part, right.position)));
        });
      }
    }
  }
};

}  // namespace

namespace {

/// Whether `kernel` is a built-in elementwise one of its operands' dtype, whose result can be computed into an array.
bool computes_elements(const Kernel& kernel) {
  const kernels::Row& row = kernels::row_of(kernel);
  return row.form == kernels::Form::kElementwise && !row.user && !row.dtype && !row.facts.moves_elements;
}

}  // namespace

at::Tensor LocalOperators::call(const Kernel& kernel, const std::vector<at::Tensor>& operands, int64_t batch,
                                int64_t output, const at::Tensor& out) const {
  int64_t calls = 1;
  for (int64_t i = 0; i < batch; ++i) {
    int64_t size = 1;
    for (const at::Tensor& operand : operands) size = std::max(size, operand.size(i));
    calls *= size;
  }
  std::vector<Dims> shapes;
  for (const at::Tensor& operand : operands) shapes.push_back(operand.sizes().slice(batch).vec());
  flops_ += calls * kernels::flops(kernel, shapes);
  if (out.defined() || !computes_elements(kernel))
    return kernels::dense(kernel, operands, scalars_, batch, output, out);
  Dims shape = operands[0].sizes().vec();
  if (operands.size() > 1) shape = at::infer_size(operands[0].sizes(), operands[1].sizes());
  return kernels::dense(kernel, operands, scalars_, batch, output, store_.allocate(shape, operands[0].options()));
}

namespace {

/// Whether `kernel` may write its result into `array`: elementwise, same shape as the broadcast result, a place for
/// each element.
bool fits_result(const Kernel& kernel, const at::Tensor& array, const std::vector<at::Tensor>& operands) {
  if (!computes_elements(kernel)) return false;
  for (int64_t a = 0; a < array.dim(); ++a) {
    if (array.size(a) > 1 && array.stride(a) == 0) return false;
  }
  return std::all_of(operands.begin(), operands.end(), [&](const at::Tensor& operand) {
    for (int64_t a = 0; a < array.dim(); ++a) {
      if (operand.size(a) != array.size(a) && operand.size(a) != 1) return false;
    }
    return operand.scalar_type() == array.scalar_type();
  });
}

}  // namespace

std::vector<Piece> LocalOperators::then(const Kernel& kernel, std::vector<Piece> pieces, RelationType type) const {
  for (const Kernel& next : kernel.then) {
    const KeyMap identity = KeyMap::identity(type.arity());
    RelationType result = kernels::map_type("local_map", type, 1, identity, next);
    pieces = map({1, identity, next}, {type, std::move(pieces)}, result);
    type = std::move(result);
  }
  return pieces;
}

std::vector<Piece> LocalOperators::join(const ia::LocalJoin& op, const Operand& left, const Operand& right,
                                        const RelationType& result) const {
  if (!op.kernel.then.empty()) {
    const ia::LocalJoin first{op.left_keys, op.right_keys, op.kernel.first()};
    RelationType type =
        kernels::join_type("local_join", left.type, right.type, {op.left_keys, op.right_keys}, first.kernel);
    auto pieces = join(first, left, right, type);
    return then(op.kernel, std::move(pieces), std::move(type));
  }
  const JoinPlan plan(op, left.type, right.type, result, {});
  const Layout layout(result);
  const auto batch = static_cast<int64_t>(plan.batch.size());
  const bool elementwise = kernels::row_of(op.kernel).form == kernels::Form::kElementwise;
  // A part that one operand contributes to several pairs must not be overwritten by the first of them.
  const bool one_pair =
      left.pieces.size() == 1 && right.pieces.size() == 1 && dims_in(plan.modes, DimMode::kSingle).empty();
  std::vector<Piece> out;
  plan.for_each(op, left, right, [&](const Box& part, const at::Tensor& a, const at::Tensor& b) {
    at::Tensor l = with_batch(a, plan.left_layout, plan.left.position, plan.modes, plan.batch);
    at::Tensor r = with_batch(b, plan.right_layout, plan.right.position, plan.modes, plan.batch);
    if (elementwise) {
      l = pad_rank(l, batch, result.rank());
      r = pad_rank(r, batch, result.rank());
    }
    at::Tensor into;
    if (one_pair && left.reusable && fits_result(op.kernel, l, {l, r})) {
      into = l;
    } else if (one_pair && right.reusable && fits_result(op.kernel, r, {l, r})) {
      into = r;
    }
    out.push_back({part, to_layout(call(op.kernel, {l, r}, batch, 0, into), plan.batch, layout)});
  });
  return out;
}

namespace {

/// Letters of one fused contraction: those of the kernel's axes, and one for each batch dimension.
struct ContractionLetters {
  kernels::Labels labels;
  Dims kept_batch;  // positions in the result's key, ascending
};

ContractionLetters contraction_letters(const JoinPlan& plan, const kernels::Labels& axes, const Dims& group_by) {
  std::string used = axes.result;
  for (const std::string& operand : axes.operands) used += operand;
  std::map<int64_t, char> letter;
  char next = 'A';
  for (const int64_t dim : plan.batch) {
    while (used.find(next) != std::string::npos || (next > 'Z' && next < 'a')) ++next;
    letter[dim] = next++;
  }
  ContractionLetters out{axes, {}};
  const auto prefix = [&](const Layout& layout, const Dims& position) {
    std::string text;
    for (const int64_t d : layout.batch_dims()) {
      if (letter.contains(position[d])) text += letter[position[d]];
    }
    return text;
  };
  out.labels.operands[0] = prefix(plan.left_layout, plan.left.position) + axes.operands[0];
  out.labels.operands[1] = prefix(plan.right_layout, plan.right.position) + axes.operands[1];
  std::string kept;
  for (size_t i = 0; i < group_by.size(); ++i) {
    if (!letter.contains(group_by[i])) continue;
    kept += letter[group_by[i]];
    out.kept_batch.push_back(static_cast<int64_t>(i));
  }
  out.labels.result = kept + axes.result;
  return out;
}

/// Drops leading axes of kSingle dimensions.
at::Tensor without_singles(at::Tensor array, const Layout& layout, const Dims& position,
                           const std::vector<DimMode>& modes) {
  for (int64_t i = static_cast<int64_t>(layout.batch_dims().size()) - 1; i >= 0; --i) {
    if (modes[position[layout.batch_dims()[i]]] == DimMode::kSingle) array = array.squeeze(i);
  }
  return array;
}

}  // namespace

std::vector<Piece> LocalOperators::contract(const ia::LocalJoin& op, const ia::LocalAggregate& aggregate,
                                            const Operand& left, const Operand& right,
                                            const RelationType& joined) const {
  const Dims& group_by = aggregate.group_by;
  const RelationType result = kernels::aggregate_type("local_aggregate", joined, group_by, aggregate.kernel.first());
  const JoinPlan plan = JoinPlan::summed(op, left.type, right.type, joined, group_by, result);
  const Layout layout(result);
  const auto axes = letters_of(op.kernel, {plan.left, plan.right});
  const ContractionLetters letters = contraction_letters(plan, *axes, group_by);
  const kernels::Row& row = kernels::row_of(op.kernel);
  const bool product = row.facts.linear;
  std::map<Box, at::Tensor> folded;
  plan.for_each(op, left, right, [&](const Box& part, const at::Tensor& a, const at::Tensor& b) {
    const at::Tensor l = without_singles(a, plan.left_layout, plan.left.position, plan.modes);
    const at::Tensor r = without_singles(b, plan.right_layout, plan.right.position, plan.modes);
    const auto extents = kernels::letter_extents(op.kernel.name, letters.labels, {l.sizes().vec(), r.sizes().vec()});
    int64_t points = 1;
    for (const auto& [letter, extent] : extents) points *= extent;
    flops_ += kernels::flops_per_element(op.kernel) * points;
    const auto [at, fresh] = folded.try_emplace(own_box(part, group_by));
    at::Tensor& out = at->second;
    if (fresh) out = store_.allocate(kernels::extents_of(letters.labels.result, extents), l.options());
    product ? kernels::contract(letters.labels, l, r, out, !fresh)
            : kernels::contract(op.kernel, letters.labels, l, r, out, !fresh);
  });
  std::vector<Piece> pieces;
  for (const auto& [box, array] : folded) pieces.push_back({box, to_layout(array, letters.kept_batch, layout)});
  return then(aggregate.kernel, std::move(pieces), result);
}

std::vector<Piece> LocalOperators::aggregate(const ia::LocalAggregate& op, const Operand& input,
                                             const RelationType& result) const {
  if (!op.kernel.then.empty()) {
    const ia::LocalAggregate first{op.group_by, op.kernel.first()};
    RelationType type = kernels::aggregate_type("local_aggregate", input.type, op.group_by, first.kernel);
    auto pieces = aggregate(first, input, type);
    return then(op.kernel, std::move(pieces), std::move(type));
  }
  if (kernels::row_of(op.kernel).form == kernels::Form::kConcat) return concatenate_pieces(op, input, result);
  const Layout in(input.type);
  const Layout layout(result);
  const Kernel& kernel = op.kernel;
  const kernels::Row& row = kernels::row_of(kernel);
  const bool elementwise = row.form == kernels::Form::kElementwise && !row.user;
  const bool reducible = kernels::folds_axes(kernel);
  std::vector<DimMode> modes(input.type.arity(), DimMode::kSingle);
  for (int64_t d = 0; d < input.type.arity() && elementwise; ++d) {
    const bool linked = !input.type.axes_of(d).empty();
    const bool kept = position_of(op.group_by, d).has_value();
    if (kept || (!linked && reducible)) modes[d] = linked ? DimMode::kWhole : DimMode::kBatch;
  }
  split_relinked(input.type, op.group_by, result, modes);
  Dims batch;
  Dims kept_batch;
  for (size_t i = 0; i < op.group_by.size(); ++i) {
    if (modes[op.group_by[i]] != DimMode::kBatch) continue;
    batch.push_back(op.group_by[i]);
    kept_batch.push_back(static_cast<int64_t>(i));
  }
  const auto kept = static_cast<int64_t>(batch.size());
  for (const int64_t d : complement(op.group_by, input.type.arity())) {
    if (modes[d] == DimMode::kBatch) batch.push_back(d);
  }
  const auto leading = static_cast<int64_t>(layout.batch_dims().size());
  Folder folder([&](const at::Tensor& a, const at::Tensor& b, const at::Tensor& out) {
    return call(kernel, {a, b}, leading, 0, elementwise ? out : at::Tensor());
  });
  for (const Piece& piece : input.pieces) {
    for_each_single(piece.box, modes, [&](const Box& part) {
      at::Tensor array =
          with_batch(in.slice(piece.array, piece.box, part), in, all_dims(input.type.arity()), modes, batch);
      flops_ += array.numel();
      Dims folded;
      for (auto axis = kept; axis < static_cast<int64_t>(batch.size()); ++axis) folded.push_back(axis);
      if (!folded.empty()) array = kernels::fold_axes(kernel.name, array, folded);
      folder.add(own_box(part, op.group_by), to_layout(array, kept_batch, layout));
    });
  }
  return folder.pieces();
}

std::vector<Piece> LocalOperators::concatenate_pieces(const ia::LocalAggregate& op, const Operand& input,
                                                      const RelationType& result) const {
  const int64_t axis = op.kernel.integer(0);
  const int64_t dim = complement(op.group_by, input.type.arity())[0];
  const Layout in(input.type);
  const Layout layout(result);
  std::vector<DimMode> modes(input.type.arity(), DimMode::kBatch);
  const bool joined_parts = input.type.axes[axis].key_dim == dim && input.type.axes_of(dim).size() == 1;
  modes[dim] = joined_parts ? DimMode::kWhole : DimMode::kSingle;
  // Where the grown axis is cut by another dimension, its parts interleave: one key of that dimension at a time.
  if (input.type.axes[axis].linked() && !joined_parts && input.type.axes[axis].key_dim != dim) {
    modes[input.type.axes[axis].key_dim] = DimMode::kSingle;
  }
  std::map<Box, std::vector<at::Tensor>> parts;
  for (const Piece& piece : input.pieces) {
    for_each_single(piece.box, modes, [&](const Box& part) {
      at::Tensor array = in.slice(piece.array, piece.box, part);
      const auto leading = position_of(in.batch_dims(), dim);
      if (leading) array = array.squeeze(*leading);
      parts[own_box(part, op.group_by)].push_back(array);
    });
  }
  std::vector<Piece> out;
  const int64_t at = layout.position_of_axis(axis);
  for (const auto& [box, arrays] : parts) out.push_back({box, arrays.size() == 1 ? arrays[0] : at::cat(arrays, at)});
  return out;
}

std::vector<at::Tensor> LocalOperators::call(const kernels::PreparedCall& prepared,
                                             const std::vector<Operand>& operands) const {
  const kernels::Call& op = prepared.call();
  std::vector<at::Tensor> blocks;
  std::map<char, int64_t> begins;
  std::map<char, double> extents;
  for (const auto& [letter, fresh] : op.extents) {  // never divided
    begins[letter] = 0;
    extents[letter] = static_cast<double>(fresh.extent);
  }
  for (size_t i = 0; i < operands.size(); ++i) {
    JOINSUM_CHECK(operands[i].pieces.size() == 1, "call=", op.text(), ", operand=", i);
    const Piece& piece = operands[i].pieces.front();
    for (size_t a = 0; a < op.operands[i].size(); ++a) {
      const Axis& axis = operands[i].type.axes[a];
      begins[op.operands[i][a]] = axis.linked() ? axis.cuts[piece.box.lower[axis.key_dim]] : 0;
      extents[op.operands[i][a]] = static_cast<double>(axis.extent_over(piece.box));
    }
    blocks.push_back(piece.array);
  }
  flops_ += static_cast<int64_t>(kernels::flops(op, extents));
  return prepared.run(blocks, begins);
}

std::vector<Piece> LocalOperators::filter(const ia::LocalFilter& op, const Operand& input) const {
  const Layout layout(input.type);
  std::vector<Piece> out;
  for (const Piece& piece : input.pieces) {
    for_each_key(piece.box, [&](const Key& key) {
      const Box box = Box::single(key);
      if (op.predicate.evaluate(key) != 0) out.push_back({box, layout.slice(piece.array, piece.box, box)});
    });
  }
  return out;
}

std::vector<Piece> LocalOperators::map(const ia::LocalMap& op, const Operand& input, const RelationType& result) const {
  if (!op.array_map.then.empty()) {
    const ia::LocalMap first{op.outputs, op.key_map, op.array_map.first()};
    RelationType type = kernels::map_type("local_map", input.type, op.outputs, op.key_map, first.array_map);
    auto pieces = map(first, input, type);
    return then(op.array_map, std::move(pieces), std::move(type));
  }
  const Layout in(input.type);
  const Layout layout(result);
  std::vector<Piece> out;
  if (op.outputs == 1 && op.key_map.is_identity(input.type.arity())) {
    const Dims position = all_dims(input.type.arity());
    const auto modes = dim_modes(op.array_map, {{input.type, position}}, result, {});
    const Dims batch = dims_in(modes, DimMode::kBatch);
    const bool whole = dims_in(modes, DimMode::kSingle).empty();
    for (const Piece& piece : input.pieces) {
      for_each_single(piece.box, modes, [&](const Box& part) {
        const at::Tensor array = with_batch(in.slice(piece.array, piece.box, part), in, position, modes, batch);
        const bool reuse = input.reusable && whole && fits_result(op.array_map, array, {array});
        const auto made =
            call(op.array_map, {array}, static_cast<int64_t>(batch.size()), 0, reuse ? array : at::Tensor());
        out.push_back({part, to_layout(made, batch, layout)});
      });
    }
    return out;
  }
  for (const Piece& piece : input.pieces) {
    for_each_key(piece.box, [&](const Key& key) {
      const at::Tensor array = in.slice(piece.array, piece.box, Box::single(key)).reshape(input.type.array_shape(key));
      for (int64_t m = 0; m < op.outputs; ++m) {
        const Box box = Box::single(op.key_map.evaluate(key, m));
        out.push_back({box, call(op.array_map, {array}, 0, m, {}).reshape(layout.shape(box))});
      }
    });
  }
  return out;
}

}  // namespace joinsum::runtime
