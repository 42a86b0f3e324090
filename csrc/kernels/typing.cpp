#include "kernels/typing.h"

#include <algorithm>
#include <map>
#include <set>

namespace joinsum::kernels {
namespace {

using KeyVisitor = std::function<bool(const Key&)>;
/// Calls its argument with each key of a relation until that returns false.
using KeySource = std::function<void(const KeyVisitor&)>;

KeySource source_of(const std::string& who, const Dims& frontier, std::shared_ptr<const std::vector<Key>> keys) {
  return [=](const KeyVisitor& visit) {
    if (keys != nullptr) {
      for (const Key& key : *keys) {
        if (!visit(key)) return;
      }
      return;
    }
    check_enumerable(who, Box::below(frontier).count());
    bool more = true;
    for_each_key(Box::below(frontier), [&](const Key& key) { more = more && visit(key); });
  };
}

/// Extent shared by all parts of `axis`, if there is one.
std::optional<int64_t> uniform_extent(const Axis& axis) {
  if (!axis.linked()) return axis.extent;
  if (axis.cuts.size() < 2) return std::nullopt;
  for (size_t i = 2; i < axis.cuts.size(); ++i) {
    if (axis.cuts[i] - axis.cuts[i - 1] != axis.cuts[1]) return std::nullopt;
  }
  return axis.cuts[1];
}

/// Re-reads an operand's axes by the positions that its key dimensions take in the result, cut to the result's
/// frontier.
std::vector<Axis> relink(const std::vector<Axis>& axes, const Dims& position, const Dims& frontier) {
  std::vector<Axis> out = axes;
  for (Axis& axis : out) {
    if (!axis.linked()) continue;
    axis.key_dim = position[axis.key_dim];
    axis.cuts.resize(frontier[axis.key_dim] + 1);
    axis.extent = axis.cuts.back();
  }
  return out;
}

struct Context {
  const std::string& who;
  const Kernel& kernel;
  KeySource keys;
};

/// The axis that two operand axes of one letter share. The leftmost linked one is kept.
Axis combine(const Context& context, const Axis& a, const Axis& b, bool broadcast) {
  if (a == b) return a;
  const auto uniform_a = uniform_extent(a);
  const auto uniform_b = uniform_extent(b);
  if (uniform_a && uniform_a == uniform_b) return a.linked() ? a : b;
  if (broadcast && uniform_a == 1) return b;
  if (broadcast && uniform_b == 1) return a;
  context.keys([&](const Key& key) {
    JOINSUM_USER_CHECK(a.extent_at(key) == b.extent_at(key), context.who,
                       ": array extents do not match: kernel=", context.kernel.text(), ", key=", key_text(key),
                       ", extents=", a.extent_at(key), " and ", b.extent_at(key));
    return true;
  });
  return a.linked() ? a : b;
}

std::vector<Axis> elementwise_axes(const Context& context, const std::vector<std::vector<Axis>>& operands) {
  std::vector<Axis> out = operands[0];
  if (operands.size() == 1) return out;
  std::vector<Axis> other = operands[1];
  if (out.size() < other.size()) out.insert(out.begin(), other.size() - out.size(), Axis::whole(1));
  if (other.size() < out.size()) other.insert(other.begin(), out.size() - other.size(), Axis::whole(1));
  for (size_t a = 0; a < out.size(); ++a) out[a] = combine(context, out[a], other[a], true);
  return out;
}

std::vector<Axis> labelled_axes(const Context& context, const Labels& labels,
                                const std::vector<std::vector<Axis>>& operands) {
  std::map<char, Axis> letters;
  for (size_t i = 0; i < operands.size(); ++i) {
    JOINSUM_USER_CHECK(labels.operands[i].size() == operands[i].size(), context.who,
                       ": operand has the wrong rank: kernel=", context.kernel.text(), ", operand=", i,
                       ", rank=", operands[i].size(), ", wanted=", labels.operands[i]);
    for (size_t a = 0; a < operands[i].size(); ++a) {
      const char letter = labels.operands[i][a];
      const auto [at, fresh] = letters.try_emplace(letter, operands[i][a]);
      if (!fresh) at->second = combine(context, at->second, operands[i][a], false);
    }
  }
  std::vector<Axis> out;
  for (const char letter : labels.result) out.push_back(letters.at(letter));
  return out;
}

/// Result axes by form, where they follow from the operands' axes; nothing where only tuple by tuple will do.
std::optional<std::vector<Axis>> symbolic_axes(const Context& context, const std::vector<std::vector<Axis>>& operands) {
  const Row& row = row_of(context.kernel);
  switch (row.form) {
    case Form::kElementwise:
      return elementwise_axes(context, operands);
    case Form::kLabelled:
      return labelled_axes(context, row.labels(context.kernel), operands);
    case Form::kDuplicate:
      return operands[0];
    case Form::kInsertAxis: {
      auto out = operands[0];
      const int64_t at = context.kernel.integer(0);
      JOINSUM_USER_CHECK(at >= 0 && at <= static_cast<int64_t>(out.size()), context.who,
                         ": axis out of range: axis=", at, ", rank=", out.size());
      const int64_t extent = inserted_extent(context.kernel);
      JOINSUM_USER_CHECK(extent >= 0, context.who, ": an axis has no negative extent: extent=", extent);
      out.insert(out.begin() + at, Axis::whole(extent));
      return out;
    }
    case Form::kEmbed: {
      auto out = operands[0];
      const auto rank = static_cast<int64_t>(out.size());
      const int64_t at = context.kernel.integer(0), axis = context.kernel.integer(1);
      JOINSUM_USER_CHECK(at >= 0 && at <= rank && axis >= 0 && axis < rank, context.who,
                         ": axis out of range: kernel=", context.kernel.text(), ", rank=", rank);
      out.insert(out.begin() + at, operands[0][axis]);
      return out;
    }
    default:
      return std::nullopt;
  }
}

void check_operands(const std::string& who, const Kernel& kernel, int64_t operands) {
  const int64_t own = operands_of(kernel);
  JOINSUM_USER_CHECK(own == operands, who, ": kernel has the wrong number of operands: kernel=", kernel.text(),
                     ", operands=", own, ", wanted=", operands);
}

Dims join_frontier(const std::string& who, const RelationType& left, const RelationType& right, const JoinKeys& on) {
  Dims frontier = left.frontier;
  for (const int64_t d : complement(on.right, right.arity())) frontier.push_back(right.frontier[d]);
  for (size_t i = 0; i < on.left.size(); ++i) {
    int64_t& size = frontier[on.left[i]];
    size = std::min(left.frontier[on.left[i]], right.frontier[on.right[i]]);
    for (const int64_t a : left.axes_of(on.left[i])) {
      for (const int64_t b : right.axes_of(on.right[i])) {
        JOINSUM_USER_CHECK(
            std::equal(left.axes[a].cuts.begin(), left.axes[a].cuts.begin() + size + 1, right.axes[b].cuts.begin()),
            who, ": joined axes are cut at different points: left key dimension=", on.left[i],
            ", cuts=", left.axes[a].cuts, ", right key dimension=", on.right[i], ", cuts=", right.axes[b].cuts);
      }
    }
  }
  return frontier;
}

/// Calls `visit` with each left and right key that meet, in the order of the left keys, then of the right ones.
void for_each_meeting(const RelationType& left, const RelationType& right, const JoinKeys& on,
                      const std::function<void(const Key& out, const Key& left, const Key& right)>& visit) {
  std::map<Key, std::vector<Key>> matches;
  for (const Key& key : right.all_keys()) matches[project(key, on.right)].push_back(key);
  const Dims rest = complement(on.right, right.arity());
  for (const Key& key : left.all_keys()) {
    const auto found = matches.find(project(key, on.left));
    if (found == matches.end()) continue;
    for (const Key& other : found->second) {
      Key out = key;
      for (const int64_t d : rest) out.push_back(other[d]);
      visit(out, key, other);
    }
  }
}

std::shared_ptr<const std::vector<Key>> join_keys(const std::string& who, const RelationType& left,
                                                  const RelationType& right, const JoinKeys& on) {
  if (left.regular() && right.regular()) return nullptr;
  auto keys = std::make_shared<std::vector<Key>>();
  for_each_meeting(left, right, on, [&](const Key& out, const Key&, const Key&) { keys->push_back(out); });
  check_enumerable(who, static_cast<int64_t>(keys->size()));
  return keys;
}

}  // namespace

Dims JoinKeys::left_position(int64_t left_arity) const { return all_dims(left_arity); }

Dims JoinKeys::right_position(int64_t left_arity, int64_t right_arity) const {
  Dims position(right_arity);
  int64_t next = left_arity;
  for (int64_t d = 0; d < right_arity; ++d) {
    const auto joined = position_of(right, d);
    position[d] = joined ? left[*joined] : next++;
  }
  return position;
}

RelationType join_type(const std::string& who, const RelationType& left, const RelationType& right, const JoinKeys& on,
                       const Kernel& kernel) {
  if (!kernel.then.empty()) return then_type(who, join_type(who, left, right, on, kernel.first()), kernel);
  JOINSUM_USER_CHECK(on.left.size() == on.right.size(), who, ": key lists differ in length: left=", on.left,
                     ", right=", on.right);
  check_dims(who, "left", on.left, left.arity());
  check_dims(who, "right", on.right, right.arity());
  check_operands(who, kernel, 2);
  const DType dtype = result_dtype(kernel, {left.dtype, right.dtype});
  const Dims frontier = join_frontier(who, left, right, on);
  const auto keys = join_keys(who, left, right, on);
  const Context context{who, kernel, source_of(who, frontier, keys)};
  const auto left_axes = relink(left.axes, on.left_position(left.arity()), frontier);
  const auto right_axes = relink(right.axes, on.right_position(left.arity(), right.arity()), frontier);
  if (auto axes = symbolic_axes(context, {left_axes, right_axes}))
    return RelationType::make(who, dtype, frontier, *axes, keys);

  std::vector<Key> out_keys;
  std::vector<Dims> shapes;
  for_each_meeting(left, right, on, [&](const Key& out, const Key& l, const Key& r) {
    out_keys.push_back(out);
    shapes.push_back(result_shape(kernel, {left.array_shape(l), right.array_shape(r)}));
  });
  Dims preferred(shapes.empty() ? 0 : shapes[0].size(), Axis::kUnlinked);
  for (size_t a = 0; a < std::min(preferred.size(), left_axes.size()); ++a) preferred[a] = left_axes[a].key_dim;
  return RelationType::make(who, dtype, frontier, fit_axes(who, frontier, out_keys, shapes, preferred), keys);
}

namespace {

RelationType concat_type(const std::string& who, const RelationType& input, const Dims& group_by,
                         const Kernel& kernel) {
  const Dims dropped = complement(group_by, input.arity());
  JOINSUM_USER_CHECK(dropped.size() == 1 && std::is_sorted(group_by.begin(), group_by.end()), who,
                     ": concat keeps all key dimensions but one, in order: keep=", group_by,
                     ", key arity=", input.arity());
  const int64_t dim = dropped[0];
  const int64_t at = kernel.integer(0);
  JOINSUM_USER_CHECK(at >= 0 && at < input.rank(), who, ": axis out of range: axis=", at, ", rank=", input.rank());
  const auto duplicate = input.first_duplicate();
  JOINSUM_USER_CHECK(!duplicate, who,
                     ": concat over a key that occurs twice: key=", key_text(duplicate.value_or(Key{})));
  std::set<Key> groups;
  if (!input.regular()) {
    const std::set<Key> present(input.keys->begin(), input.keys->end());
    for (const Key& key : *input.keys) {
      groups.insert(project(key, group_by));
      Key other = key;
      for (other[dim] = 0; other[dim] < input.frontier[dim]; ++other[dim]) {
        JOINSUM_USER_CHECK(present.contains(other), who, ": concat over a hole: missing key=", key_text(other));
      }
    }
  }
  std::vector<Axis> axes = input.axes;
  for (size_t a = 0; a < axes.size(); ++a) {
    Axis& axis = axes[a];
    const bool grown = static_cast<int64_t>(a) == at;
    if (axis.key_dim == dim) {
      const auto uniform = uniform_extent(axis);
      JOINSUM_USER_CHECK(grown || uniform || input.frontier[dim] <= 1, who,
                         ": arrays to concatenate differ in another axis: axis=", a, ", cuts=", axis.cuts);
      axis = Axis::whole(grown ? axis.extent : uniform.value_or(axis.extent));
    } else {
      if (grown) {
        axis.extent *= input.frontier[dim];
        for (int64_t& cut : axis.cuts) cut *= input.frontier[dim];
      }
      if (axis.linked() && axis.key_dim > dim) --axis.key_dim;
    }
  }
  Dims frontier = project(input.frontier, group_by);
  std::shared_ptr<const std::vector<Key>> keys;
  if (!input.regular() || input.frontier[dim] == 0)
    keys = std::make_shared<const std::vector<Key>>(groups.begin(), groups.end());
  return RelationType::make(who, input.dtype, std::move(frontier), std::move(axes), std::move(keys));
}

void check_fold(const std::string& who, const RelationType& input, const Kernel& kernel) {
  check_operands(who, kernel, 2);
  const DType dtype = result_dtype(kernel, {input.dtype, input.dtype});
  JOINSUM_USER_CHECK(dtype == input.dtype, who, ": a fold keeps the dtype: kernel=", kernel.text(),
                     ", dtype=", name_of(input.dtype), ", result=", name_of(dtype));
  if (const auto shape = input.uniform_shape()) {
    const Dims folded = result_shape(kernel, {*shape, *shape});
    JOINSUM_USER_CHECK(folded == *shape, who, ": a fold keeps the shape: kernel=", kernel.text(), ", shape=", *shape,
                       ", result=", folded);
  } else {
    JOINSUM_USER_CHECK(row_of(kernel).form == Form::kElementwise, who,
                       ": arrays of different shapes are folded by elementwise kernels only: kernel=", kernel.text());
  }
  if (foldable(kernel)) return;
  const auto duplicate = input.first_duplicate();
  JOINSUM_USER_CHECK(!duplicate, who,
                     ": the result depends on the order of equal keys, and the kernel is not associative and ",
                     "commutative: kernel=", kernel.text(), ", key=", key_text(duplicate.value_or(Key{})));
}

/// Groups of an irregular relation, or of one whose parts differ along a dropped dimension.
RelationType enumerated_aggregate(const std::string& who, const RelationType& input, const Dims& group_by) {
  std::map<Key, std::pair<Key, Dims>> groups;
  for (const Key& key : input.all_keys()) {
    const Dims shape = input.array_shape(key);
    const auto [at, fresh] = groups.try_emplace(project(key, group_by), key, shape);
    JOINSUM_USER_CHECK(at->second.second == shape, who,
                       ": arrays of one group differ in shape: keys=", key_text(at->second.first), " and ",
                       key_text(key), ", shapes=", at->second.second, " and ", shape);
  }
  auto keys = std::make_shared<std::vector<Key>>();
  std::vector<Dims> shapes;
  for (const auto& [key, first] : groups) {
    keys->push_back(key);
    shapes.push_back(first.second);
  }
  Dims preferred;
  for (const Axis& axis : input.axes) {
    preferred.push_back(axis.linked() ? position_of(group_by, axis.key_dim).value_or(Axis::kUnlinked)
                                      : Axis::kUnlinked);
  }
  const Dims frontier = project(input.frontier, group_by);
  auto axes = fit_axes(who, frontier, *keys, shapes, preferred);
  return RelationType::make(who, input.dtype, frontier, std::move(axes), std::move(keys));
}

}  // namespace

RelationType aggregate_type(const std::string& who, const RelationType& input, const Dims& group_by,
                            const Kernel& kernel) {
  if (!kernel.then.empty()) return then_type(who, aggregate_type(who, input, group_by, kernel.first()), kernel);
  check_dims(who, "keep", group_by, input.arity());
  if (row_of(kernel).form == Form::kConcat) return concat_type(who, input, group_by, kernel);
  check_fold(who, input, kernel);
  bool enumerate = !input.regular() || input.tuples() == 0;
  std::vector<Axis> axes = input.axes;
  for (Axis& axis : axes) {
    if (!axis.linked()) continue;
    const auto kept = position_of(group_by, axis.key_dim);
    const auto uniform = uniform_extent(axis);
    if (kept) {
      axis.key_dim = *kept;
    } else if (uniform) {
      axis = Axis::whole(*uniform);
    } else {
      enumerate = true;
    }
  }
  if (enumerate) return enumerated_aggregate(who, input, group_by);
  return RelationType::make(who, input.dtype, project(input.frontier, group_by), std::move(axes));
}

RelationType filter_type(const std::string& who, const RelationType& input, const KeyExpression& predicate) {
  JOINSUM_USER_CHECK(predicate.is_boolean(), who, ": a predicate is a comparison: predicate=", predicate.text());
  JOINSUM_USER_CHECK(predicate.arity() <= input.arity() && !predicate.reads_output(), who,
                     ": predicate reads a component that the key lacks: predicate=", predicate.text(),
                     ", key arity=", input.arity());
  auto keys = std::make_shared<std::vector<Key>>();
  source_of(who, input.frontier, input.keys)([&](const Key& key) {
    if (predicate.evaluate(key) != 0) keys->push_back(key);
    return true;
  });
  return RelationType::make(who, input.dtype, input.frontier, input.axes, std::move(keys));
}

namespace {

/// Frontier of a key map that copies every input dimension once and may add `m`: such a map keeps regularity.
std::optional<Dims> permuted_frontier(const RelationType& input, int64_t outputs, const KeyMap& key_map) {
  const Dims copied = key_map.copied_dims();
  Dims frontier;
  std::set<int64_t> seen;
  bool output_seen = false;
  for (size_t i = 0; i < copied.size(); ++i) {
    if (copied[i] >= 0) {
      if (!seen.insert(copied[i]).second) return std::nullopt;
      frontier.push_back(input.frontier[copied[i]]);
    } else if (key_map.components()[i].op() == KeyOperator::kOutput && !output_seen) {
      output_seen = true;
      frontier.push_back(outputs);
    } else {
      return std::nullopt;
    }
  }
  const bool all = static_cast<int64_t>(seen.size()) == input.arity() && (output_seen || outputs == 1);
  return all && input.regular() && input.tuples() > 0 ? std::optional(frontier) : std::nullopt;
}

struct MappedKeys {
  Dims frontier;
  std::shared_ptr<const std::vector<Key>> keys;  // in the order of the input's keys, outputs fastest
};

MappedKeys map_keys(const std::string& who, const RelationType& input, int64_t outputs, const KeyMap& key_map) {
  if (outputs == 1 && key_map.is_identity(input.arity())) return {input.frontier, input.keys};
  if (auto frontier = permuted_frontier(input, outputs, key_map)) return {*frontier, nullptr};
  auto keys = std::make_shared<std::vector<Key>>();
  Dims frontier(key_map.output_arity(), 0);
  check_enumerable(who, input.tuples() * outputs);
  source_of(who, input.frontier, input.keys)([&](const Key& key) {
    for (int64_t m = 0; m < outputs; ++m) {
      keys->push_back(key_map.evaluate(key, m));
      for (size_t d = 0; d < frontier.size(); ++d) frontier[d] = std::max(frontier[d], keys->back()[d] + 1);
    }
    return true;
  });
  return {std::move(frontier), std::move(keys)};
}

/// Position of the output component that copies key dimension `dim`, or that is `m` for dim = Axis::kUnlinked.
std::optional<int64_t> carried_to(const KeyMap& key_map, int64_t dim) {
  if (dim != Axis::kUnlinked) return position_of(key_map.copied_dims(), dim);
  for (size_t i = 0; i < key_map.components().size(); ++i) {
    if (key_map.components()[i].op() == KeyOperator::kOutput) return static_cast<int64_t>(i);
  }
  return std::nullopt;
}

std::optional<std::vector<Axis>> carry_axes(const std::vector<Axis>& axes, const KeyMap& key_map) {
  std::vector<Axis> out = axes;
  for (Axis& axis : out) {
    if (!axis.linked()) continue;
    const auto carried = carried_to(key_map, axis.key_dim);
    const auto uniform = uniform_extent(axis);
    if (carried) {
      axis.key_dim = *carried;
    } else if (uniform) {
      axis = Axis::whole(*uniform);
    } else {
      return std::nullopt;
    }
  }
  return out;
}

std::optional<std::vector<Axis>> tiled_axes(const RelationType& input, int64_t outputs, const KeyMap& key_map,
                                            const Kernel& tile) {
  const int64_t at = tile.integer(0);
  const int64_t size = tile.integer(1);
  if (at < 0 || at >= input.rank() || size < 1) return std::nullopt;
  const auto extent = uniform_extent(input.axes[at]);
  const auto counter = carried_to(key_map, Axis::kUnlinked);
  if (!extent || !counter || outputs != std::max<int64_t>(1, ceil_div(*extent, size))) return std::nullopt;
  auto rest = input.axes;
  rest[at] = Axis::whole(*extent);
  auto axes = carry_axes(rest, key_map);
  if (!axes) return std::nullopt;
  CutPoints cuts;
  for (int64_t m = 0; m < outputs; ++m) cuts.push_back(m * size);
  cuts.push_back(*extent);
  (*axes)[at] = Axis::cut(*counter, std::move(cuts));
  return axes;
}

std::vector<Axis> enumerated_axes(const std::string& who, const RelationType& input, int64_t outputs,
                                  const KeyMap& key_map, const Kernel& kernel, const Dims& frontier) {
  std::vector<Key> keys;
  std::vector<Dims> shapes;
  source_of(who, input.frontier, input.keys)([&](const Key& key) {
    for (int64_t m = 0; m < outputs; ++m) {
      keys.push_back(key_map.evaluate(key, m));
      shapes.push_back(result_shape(kernel, {input.array_shape(key)}, m));
    }
    return true;
  });
  Dims preferred(shapes.empty() ? 0 : shapes[0].size(), Axis::kUnlinked);
  if (static_cast<int64_t>(preferred.size()) == input.rank()) {
    for (size_t a = 0; a < preferred.size(); ++a) {
      const int64_t dim = input.axes[a].key_dim;
      preferred[a] = dim == Axis::kUnlinked ? dim : carried_to(key_map, dim).value_or(Axis::kUnlinked);
    }
  }
  return fit_axes(who, frontier, keys, shapes, preferred);
}

}  // namespace

RelationType map_type(const std::string& who, const RelationType& input, int64_t outputs, const KeyMap& key_map,
                      const Kernel& array_map) {
  if (!array_map.then.empty()) {
    return then_type(who, map_type(who, input, outputs, key_map, array_map.first()), array_map);
  }
  JOINSUM_USER_CHECK(outputs >= 1, who, ": a map gives at least one tuple: outputs=", outputs);
  check_enumerable(who, outputs);
  JOINSUM_USER_CHECK(key_map.input_arity() <= input.arity(), who,
                     ": key map reads a component that the key lacks: key map=", key_map.text(),
                     ", key arity=", input.arity());
  check_operands(who, array_map, 1);
  const Form form = row_of(array_map).form;
  JOINSUM_USER_CHECK(outputs == 1 || form == Form::kTile || form == Form::kDuplicate, who,
                     ": kernel has one result: kernel=", array_map.text(), ", outputs=", outputs);
  const DType dtype = result_dtype(array_map, {input.dtype});
  MappedKeys mapped = map_keys(who, input, outputs, key_map);
  const Context context{who, array_map, source_of(who, input.frontier, input.keys)};
  std::optional<std::vector<Axis>> axes;
  if (form == Form::kTile) {
    axes = tiled_axes(input, outputs, key_map, array_map);
  } else if (auto own = symbolic_axes(context, {input.axes})) {
    axes = carry_axes(*own, key_map);
  }
  if (!axes) axes = enumerated_axes(who, input, outputs, key_map, array_map, mapped.frontier);
  return RelationType::make(who, dtype, mapped.frontier, std::move(*axes), mapped.keys);
}

RelationType then_type(const std::string& who, RelationType result, const Kernel& kernel) {
  for (const Kernel& next : kernel.then) result = map_type(who, result, 1, KeyMap::identity(result.arity()), next);
  return result;
}

TileMap tile_map(const std::string& who, const RelationType& input, int64_t axis, int64_t size) {
  JOINSUM_USER_CHECK(axis >= 0 && axis < input.rank(), who, ": axis out of range: axis=", axis,
                     ", rank=", input.rank());
  JOINSUM_USER_CHECK(size >= 1, who, ": tiles need a positive size: size=", size);
  const auto extent = uniform_extent(input.axes[axis]);
  JOINSUM_USER_CHECK(extent || input.tuples() == 0, who,
                     ": arrays differ along the tiled axis, so tile counts would too; concat the axis ",
                     "first: axis=", axis, ", cuts=", input.axes[axis].cuts);
  std::vector<KeyExpression> components = KeyMap::identity(input.arity()).components();
  components.push_back(KeyExpression::output());
  return {std::max<int64_t>(1, ceil_div(extent.value_or(0), size)), KeyMap(std::move(components)),
          Kernel{"tile", {axis, size}}};
}

}  // namespace joinsum::kernels
