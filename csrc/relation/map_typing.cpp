#include <algorithm>
#include <set>

#include "relation/kernel_axes.h"
#include "relation/typing.h"

namespace joinsum::relation {
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
                                            const kernels::table::Kernel& tile) {
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
                                  const KeyMap& key_map, const kernels::table::Kernel& kernel, const Dims& frontier) {
  std::vector<Key> keys;
  std::vector<Dims> shapes;
  source_of(who, input.frontier, input.keys)([&](const Key& key) {
    for (int64_t m = 0; m < outputs; ++m) {
      keys.push_back(key_map.evaluate(key, m));
      shapes.push_back(kernels::table::result_shape(kernel, {input.array_shape(key)}, m));
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

/// The axis of two relations where it is cut alike as far as both go: that of the one with more parts.
std::optional<Axis> common_axis(const Axis& a, const Axis& b) {
  if (a.key_dim != b.key_dim) return std::nullopt;
  if (!a.linked()) return a == b ? std::optional(a) : std::nullopt;
  const Axis& longer = a.cuts.size() < b.cuts.size() ? b : a;
  const Axis& shorter = &longer == &a ? b : a;
  const bool begins = std::equal(shorter.cuts.begin(), shorter.cuts.end(), longer.cuts.begin());
  return begins ? std::optional(longer) : std::nullopt;
}

std::optional<std::vector<Axis>> common_axes(const RelationType& a, const RelationType& b) {
  std::vector<Axis> out;
  for (size_t i = 0; i < a.axes.size(); ++i) {
    auto axis = common_axis(a.axes[i], b.axes[i]);
    if (!axis) return std::nullopt;
    out.push_back(std::move(*axis));
  }
  return out;
}

}  // namespace

RelationType map_type(const std::string& who, const RelationType& input, int64_t outputs, const KeyMap& key_map,
                      const kernels::table::Kernel& array_map) {
  if (!array_map.epilogue.empty()) {
    return epilogue_type(who, map_type(who, input, outputs, key_map, array_map.first()), array_map);
  }
  JOINSUM_USER_CHECK(
      !input.sparse() || (outputs == 1 && kernels::table::keeps_zero(array_map)), who,
      ": a sparse relation is mapped by elementwise kernels that are zero at zero, such as relu, and to ",
      "other keys; give a dense tensor: kernel=", array_map.text(), ", type=", input.text());
  JOINSUM_USER_CHECK(outputs >= 1, who, ": a map gives at least one tuple: outputs=", outputs);
  check_enumerable(who, outputs);
  JOINSUM_USER_CHECK(key_map.input_arity() <= input.arity(), who,
                     ": key map reads a component that the key lacks: key map=", key_map.text(),
                     ", key arity=", input.arity());
  check_operands(who, array_map, 1);
  const kernels::table::Form form = kernels::table::row_of(array_map).form;
  JOINSUM_USER_CHECK(outputs == 1 || form == kernels::table::Form::kTile || form == kernels::table::Form::kDuplicate,
                     who, ": kernel has one result: kernel=", array_map.text(), ", outputs=", outputs);
  const DType dtype = kernels::table::result_dtype(array_map, {input.dtype});
  MappedKeys mapped = map_keys(who, input, outputs, key_map);
  const KernelUse use{who, array_map, source_of(who, input.frontier, input.keys)};
  std::optional<std::vector<Axis>> axes;
  if (form == kernels::table::Form::kTile) {
    axes = tiled_axes(input, outputs, key_map, array_map);
  } else if (auto own = symbolic_axes(use, {input.axes})) {
    axes = carry_axes(*own, key_map);
  }
  if (!axes) axes = enumerated_axes(who, input, outputs, key_map, array_map, mapped.frontier);
  RelationType type = RelationType::make(who, dtype, mapped.frontier, std::move(*axes), mapped.keys);
  type.entries = input.entries;
  return type;
}

RelationType epilogue_type(const std::string& who, RelationType result, const kernels::table::Kernel& kernel) {
  for (const kernels::table::Kernel& next : kernel.epilogue)
    result = map_type(who, result, 1, KeyMap::identity(result.arity()), next);
  return result;
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
  RelationType type = RelationType::make(who, input.dtype, input.frontier, input.axes, std::move(keys));
  if (input.sparse()) type.entries = input.stored_of(type.elements());
  return type;
}

RelationType upsert_type(const std::string& who, const RelationType& base, const RelationType& updates) {
  check_dense(who, base);
  check_dense(who, updates);
  JOINSUM_USER_CHECK(base.dtype == updates.dtype, who, ": operands have different dtypes: base=", name_of(base.dtype),
                     ", updates=", name_of(updates.dtype));
  JOINSUM_USER_CHECK(base.arity() == updates.arity() && base.rank() == updates.rank(), who,
                     ": operands have keys of different arity, or arrays of different rank: base=", base.text(),
                     ", updates=", updates.text());
  check_enumerable(who, base.tuples() + updates.tuples());
  const std::vector<Key> written = updates.all_keys();
  std::vector<Key> keys = written;
  for (Key& key : base.all_keys()) {
    if (!std::binary_search(written.begin(), written.end(), key)) keys.push_back(std::move(key));
  }
  Dims frontier = base.frontier;
  for (size_t d = 0; d < frontier.size(); ++d) frontier[d] = std::max(frontier[d], updates.frontier[d]);
  std::optional<std::vector<Axis>> axes = common_axes(base, updates);
  if (!axes) {
    std::vector<Dims> shapes;
    for (size_t i = 0; i < keys.size(); ++i)
      shapes.push_back((i < written.size() ? updates : base).array_shape(keys[i]));
    Dims links;
    for (size_t a = 0; a < base.axes.size(); ++a) {
      links.push_back(base.axes[a].linked() ? base.axes[a].key_dim : updates.axes[a].key_dim);
    }
    axes = fit_axes(who, frontier, keys, shapes, links);
  }
  return RelationType::make(who, base.dtype, std::move(frontier), std::move(*axes),
                            std::make_shared<const std::vector<Key>>(std::move(keys)));
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
          kernels::table::Kernel{"tile", {axis, size}}};
}

}  // namespace joinsum::relation
