#include "relation/relation_type.h"

#include <algorithm>

namespace joinsum::relation {
namespace {

constexpr int64_t kMostEnumeratedKeys = 20'000'000;

Dims bound_of(const std::vector<Key>& keys, int64_t arity) {
  Dims bound(arity, 0);
  for (const Key& key : keys) {
    for (int64_t d = 0; d < arity; ++d) bound[d] = std::max(bound[d], key[d] + 1);
  }
  return bound;
}

void truncate_cuts(Axis& axis, int64_t parts) {
  if (!axis.linked() || static_cast<int64_t>(axis.cuts.size()) == parts + 1) return;
  axis.cuts.resize(parts + 1);
  axis.extent = axis.cuts.back();
}

void check_axis(const std::string& who, const Axis& axis, const Dims& frontier) {
  JOINSUM_USER_CHECK(axis.extent >= 0, who, ": negative extent: extent=", axis.extent);
  if (!axis.linked()) return;
  const auto arity = static_cast<int64_t>(frontier.size());
  JOINSUM_USER_CHECK(axis.key_dim >= 0 && axis.key_dim < arity, who,
                     ": axis linked to a key dimension that is not there: ", "dimension=", axis.key_dim,
                     ", key arity=", arity);
  JOINSUM_USER_CHECK(static_cast<int64_t>(axis.cuts.size()) == frontier[axis.key_dim] + 1, who,
                     ": cut points do not match the frontier: cuts=", axis.cuts, ", parts=", frontier[axis.key_dim]);
  JOINSUM_USER_CHECK(
      axis.cuts.front() == 0 && axis.cuts.back() == axis.extent && std::is_sorted(axis.cuts.begin(), axis.cuts.end()),
      who, ": cut points must ascend from 0 to the extent: cuts=", axis.cuts, ", extent=", axis.extent);
}

std::string axis_text(const Axis& axis, int64_t index, const Dims& frontier, int64_t rank) {
  std::string out = std::to_string(axis.extent);
  const bool square = rank == static_cast<int64_t>(frontier.size());
  if (!axis.linked()) return square ? out + "@-" : out;
  const int64_t parts = frontier[axis.key_dim];
  const bool even = parts == 0 || axis.cuts == even_cuts(axis.extent, parts);
  if (square && axis.key_dim == index && even) return out;
  out += "@" + std::to_string(axis.key_dim);
  if (!even) {
    out += "{";
    for (size_t i = 0; i < axis.cuts.size(); ++i) out += (i > 0 ? "," : "") + std::to_string(axis.cuts[i]);
    out += "}";
  }
  return out;
}

struct AxisText {
  int64_t extent = 0;
  std::optional<int64_t> key_dim;
  CutPoints cuts;
};

AxisText parse_axis(Scanner& scanner) {
  AxisText axis{scanner.integer(), std::nullopt, {}};
  if (!scanner.accept("@")) return axis;
  if (scanner.accept("-")) {
    axis.key_dim = Axis::kUnlinked;
    return axis;
  }
  axis.key_dim = scanner.integer();
  if (scanner.accept("{")) {
    axis.cuts = scanner.integers();
    scanner.expect("}");
  }
  return axis;
}

Axis resolve_axis(Scanner& scanner, const AxisText& text, int64_t index, const Dims& frontier, bool square) {
  const int64_t dim = text.key_dim.value_or(square ? index : Axis::kUnlinked);
  if (dim == Axis::kUnlinked) return Axis::whole(text.extent);
  if (dim < 0 || dim >= static_cast<int64_t>(frontier.size()))
    scanner.fail("axis linked to a key dimension that is not there");
  if (!text.cuts.empty()) return Axis{text.extent, dim, text.cuts};
  const int64_t parts = frontier[dim];
  if (parts == 0 && text.extent == 0) return Axis{0, dim, {0}};
  if (text.extent < 0 || parts < 1 || parts > std::max<int64_t>(1, text.extent)) {
    scanner.fail(concatenate("an axis of ", text.extent, " cannot be cut in ", parts, " parts"));
  }
  return Axis::cut(dim, even_cuts(text.extent, parts));
}

Key parse_key(Scanner& scanner) {
  scanner.expect("<");
  Key key = scanner.integers();
  scanner.expect(">");
  return key;
}

}  // namespace

void check_enumerable(const std::string& who, int64_t count) {
  JOINSUM_USER_CHECK(count <= kMostEnumeratedKeys, who, ": too many keys to check one by one: keys=", count,
                     ", at most=", kMostEnumeratedKeys);
}

Axis Axis::cut(int64_t key_dim, CutPoints cuts) {
  const int64_t extent = cuts.empty() ? 0 : cuts.back();
  return {extent, key_dim, std::move(cuts)};
}

int64_t Axis::extent_at(const Key& key) const {
  return linked() ? cuts[key[key_dim] + 1] - cuts[key[key_dim]] : extent;
}

int64_t Axis::extent_over(const Box& box) const {
  return linked() ? cuts[box.upper[key_dim]] - cuts[box.lower[key_dim]] : extent;
}

RelationType RelationType::make(const std::string& who, DType dtype, Dims frontier, std::vector<Axis> axes,
                                std::shared_ptr<const std::vector<Key>> keys) {
  for (const int64_t size : frontier) {
    JOINSUM_USER_CHECK(size >= 0, who, ": negative frontier: frontier=", key_text(frontier));
  }
  for (const Axis& axis : axes) check_axis(who, axis, frontier);
  if (keys != nullptr) {
    auto sorted = *keys;
    std::sort(sorted.begin(), sorted.end());
    const Dims bound = bound_of(sorted, static_cast<int64_t>(frontier.size()));
    for (size_t d = 0; d < frontier.size(); ++d) {
      JOINSUM_USER_CHECK(bound[d] <= frontier[d], who, ": key beyond the frontier: frontier=", key_text(frontier));
    }
    frontier = bound;
    for (Axis& axis : axes) truncate_cuts(axis, axis.linked() ? frontier[axis.key_dim] : 0);
    const bool distinct = std::adjacent_find(sorted.begin(), sorted.end()) == sorted.end();
    const bool all = distinct && static_cast<int64_t>(sorted.size()) == checked_product(who, frontier);
    keys = all ? nullptr : std::make_shared<const std::vector<Key>>(std::move(sorted));
  }
  checked_product(who, frontier);
  return {dtype, std::move(frontier), std::move(axes), std::move(keys), std::nullopt};
}

RelationType RelationType::of_tensor(DType dtype, const Dims& shape, const Dims& parts) {
  JOINSUM_USER_CHECK(shape.size() == parts.size(), "relation: parts must name each axis once: parts=", parts,
                     ", shape=", shape);
  std::vector<CutPoints> cuts;
  for (size_t a = 0; a < shape.size(); ++a) cuts.push_back(even_cuts(shape[a], parts[a]));
  return of_tensor(dtype, cuts);
}

RelationType RelationType::of_tensor(DType dtype, const std::vector<CutPoints>& cuts) {
  Dims frontier;
  std::vector<Axis> axes;
  for (const CutPoints& of_axis : cuts) {
    axes.push_back(Axis::cut(static_cast<int64_t>(axes.size()), of_axis));
    frontier.push_back(static_cast<int64_t>(of_axis.size()) - 1);
  }
  return make("relation", dtype, std::move(frontier), std::move(axes));
}

std::optional<Key> RelationType::first_duplicate() const {
  if (keys == nullptr) return std::nullopt;
  const auto found = std::adjacent_find(keys->begin(), keys->end());
  if (found == keys->end()) return std::nullopt;
  return *found;
}

std::optional<Key> RelationType::first_hole() const {
  if (keys == nullptr || Box::below(frontier).empty()) return std::nullopt;
  auto present = keys->begin();
  for (Key expected(frontier.size(), 0);;) {
    if (present == keys->end() || *present != expected) return expected;
    while (present != keys->end() && *present == expected) ++present;
    int64_t d = arity() - 1;
    while (d >= 0 && ++expected[d] == frontier[d]) expected[d--] = 0;
    if (d < 0) return std::nullopt;
  }
}

int64_t RelationType::tuples() const {
  return keys == nullptr ? Box::below(frontier).count() : static_cast<int64_t>(keys->size());
}

std::vector<Key> RelationType::all_keys() const {
  if (keys != nullptr) return *keys;
  check_enumerable("relation", tuples());
  return keys_of(Box::below(frontier));
}

Dims RelationType::array_shape(const Key& key) const {
  Dims shape;
  shape.reserve(axes.size());
  for (const Axis& axis : axes) shape.push_back(axis.extent_at(key));
  return shape;
}

std::optional<Dims> RelationType::uniform_shape() const {
  Dims shape;
  for (const Axis& axis : axes) {
    if (axis.linked()) {
      for (size_t i = 2; i < axis.cuts.size(); ++i) {
        if (axis.cuts[i] - axis.cuts[i - 1] != axis.cuts[1]) return std::nullopt;
      }
      shape.push_back(axis.cuts.size() > 1 ? axis.cuts[1] : 0);
    } else {
      shape.push_back(axis.extent);
    }
  }
  return shape;
}

int64_t RelationType::elements_at(const Key& key) const { return checked_product("relation", array_shape(key)); }

int64_t RelationType::elements_over(const Box& box) const {
  if (box.empty()) return 0;
  int64_t elements = 1;
  for (int64_t d = 0; d < arity(); ++d) elements *= elements_along(d, box);
  for (const Axis& axis : axes) elements *= axis.linked() ? 1 : axis.extent;
  return elements;
}

int64_t RelationType::elements_along(int64_t dim, const Box& box) const {
  const Axis* only = nullptr;
  int64_t linked = 0;
  for (const Axis& axis : axes) {
    if (axis.key_dim != dim) continue;
    only = &axis;
    ++linked;
  }
  if (linked == 0) return box.extent(dim);
  if (linked == 1) return only->extent_over(box);
  int64_t sum = 0;
  for (int64_t k = box.lower[dim]; k < box.upper[dim]; ++k) {
    int64_t product = 1;
    for (const Axis& axis : axes) product *= axis.key_dim == dim ? axis.cuts[k + 1] - axis.cuts[k] : 1;
    sum += product;
  }
  return sum;
}

int64_t RelationType::elements() const {
  if (keys == nullptr) return elements_over(Box::below(frontier));
  int64_t elements = 0;
  for (const Key& key : *keys) elements += elements_at(key);
  return elements;
}

int64_t RelationType::stored_of(int64_t count) const {
  const int64_t all = sparse() ? elements() : 0;
  if (all == 0) return count;
  return static_cast<int64_t>(static_cast<double>(count) / static_cast<double>(all) * static_cast<double>(*entries));
}

int64_t RelationType::bytes_of(int64_t count) const {
  const int64_t indices = sparse() ? rank() * byte_size(DType::kInt64) : 0;
  return stored_of(count) * (byte_size(dtype) + indices);
}

Dims RelationType::axes_of(int64_t dim) const {
  Dims out;
  for (size_t a = 0; a < axes.size(); ++a) {
    if (axes[a].key_dim == dim) out.push_back(static_cast<int64_t>(a));
  }
  return out;
}

std::string RelationType::text(bool full) const {
  std::string out = name_of(dtype) + "[";
  for (size_t a = 0; a < axes.size(); ++a) {
    out += (a > 0 ? "," : "") + axis_text(axes[a], static_cast<int64_t>(a), frontier, rank());
  }
  out += "]" + key_text(frontier);
  if (sparse()) out += " sparse{" + std::to_string(*entries) + "}";
  if (regular()) return out;
  if (!full) {
    if (const auto hole = first_hole()) out += " hole" + key_text(*hole);
    if (const auto duplicate = first_duplicate()) out += " duplicate" + key_text(*duplicate);
    return out;
  }
  out += " keys{";
  for (size_t i = 0; i < keys->size(); ++i) out += (i > 0 ? "," : "") + key_text((*keys)[i]);
  return out + "}";
}

RelationType RelationType::parse(Scanner& scanner) {
  const size_t start = scanner.offset();
  const auto dtype = dtype_from_name(scanner.name());
  if (!dtype) {
    scanner.seek(start);
    scanner.fail("unknown dtype");
  }
  std::vector<AxisText> texts;
  scanner.expect("[");
  if (!scanner.peek("]")) {
    do {
      texts.push_back(parse_axis(scanner));
    } while (scanner.accept(","));
  }
  scanner.expect("]");
  const Dims frontier = parse_key(scanner);
  std::vector<Axis> axes;
  for (size_t a = 0; a < texts.size(); ++a) {
    axes.push_back(resolve_axis(scanner, texts[a], static_cast<int64_t>(a), frontier, texts.size() == frontier.size()));
  }
  std::optional<int64_t> entries;
  if (scanner.accept("sparse")) {
    scanner.expect("{");
    entries = scanner.integer();
    if (*entries < 0) scanner.fail("a negative number of entries");
    scanner.expect("}");
  }
  const auto made = [&](std::shared_ptr<const std::vector<Key>> listed) {
    RelationType type = make("parse", *dtype, frontier, std::move(axes), std::move(listed));
    type.entries = entries;
    return type;
  };
  if (!scanner.accept("keys")) return made(nullptr);
  std::vector<Key> keys;
  scanner.expect("{");
  while (!scanner.peek("}")) {
    keys.push_back(parse_key(scanner));
    if (keys.back().size() != frontier.size()) scanner.fail("key arity differs from the frontier's");
    for (const int64_t component : keys.back()) {
      if (component < 0) scanner.fail("negative key");
    }
    if (!scanner.accept(",")) break;
  }
  scanner.expect("}");
  return made(std::make_shared<const std::vector<Key>>(std::move(keys)));
}

RelationType RelationType::parse(const std::string& text) {
  Scanner scanner(text);
  RelationType type = parse(scanner);
  if (!scanner.at_end()) scanner.fail("text goes on after the type");
  return type;
}

bool RelationType::operator==(const RelationType& other) const {
  if (dtype != other.dtype || frontier != other.frontier || axes != other.axes) return false;
  if (sparse() != other.sparse()) return false;
  if (regular() != other.regular()) return false;
  return regular() || *keys == *other.keys;
}

namespace {

/// Links axis `a` to key dimension `d`, if the extents allow it; parts without a tuple get extent 0.
std::optional<Axis> try_link(const std::string& who, const Dims& frontier, const std::vector<Key>& keys,
                             const std::vector<Dims>& shapes, size_t a, int64_t d) {
  check_enumerable(who, frontier[d]);
  std::vector<int64_t> extents(frontier[d], -1);
  for (size_t i = 0; i < keys.size(); ++i) {
    int64_t& extent = extents[keys[i][d]];
    if (extent == -1) extent = shapes[i][a];
    if (extent != shapes[i][a]) return std::nullopt;
  }
  CutPoints cuts{0};
  for (const int64_t extent : extents) cuts.push_back(cuts.back() + std::max<int64_t>(0, extent));
  return Axis::cut(d, std::move(cuts));
}

std::optional<Axis> try_whole(const std::vector<Dims>& shapes, size_t a) {
  for (const Dims& shape : shapes) {
    if (shape[a] != shapes[0][a]) return std::nullopt;
  }
  return Axis::whole(shapes.empty() ? 0 : shapes[0][a]);
}

}  // namespace

std::vector<Axis> fit_axes(const std::string& who, const Dims& frontier, const std::vector<Key>& keys,
                           const std::vector<Dims>& shapes, const Dims& preferred) {
  std::vector<Axis> axes;
  const size_t rank = preferred.size();
  for (size_t i = 0; i < shapes.size(); ++i) {
    JOINSUM_USER_CHECK(shapes[i].size() == rank, who, ": arrays differ in rank: key=", key_text(keys[i]),
                       ", shape=", shapes[i], ", first shape=", shapes[0]);
  }
  for (size_t a = 0; a < rank; ++a) {
    std::optional<Axis> axis;
    if (preferred[a] != Axis::kUnlinked) axis = try_link(who, frontier, keys, shapes, a, preferred[a]);
    if (!axis) axis = try_whole(shapes, a);
    for (size_t d = 0; !axis && d < frontier.size(); ++d)
      axis = try_link(who, frontier, keys, shapes, a, static_cast<int64_t>(d));
    if (!axis) {
      size_t first = 1;
      while (shapes[first][a] == shapes[0][a]) ++first;
      throw PlanError(concatenate(who, ": extents of an axis must depend on one key component at most: axis=", a,
                                  ", key=", key_text(keys[first]), ", shape=", shapes[first],
                                  ", first shape=", shapes[0]));
    }
    axes.push_back(std::move(*axis));
  }
  return axes;
}

}  // namespace joinsum::relation
