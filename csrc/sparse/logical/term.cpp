#include "sparse/logical/term.h"

#include <algorithm>
#include <cmath>

#include "sparse/tensor/diagonal.h"
#include "sparse/tensor/fills.h"

namespace joinsum::sparse::logical {
namespace {

using Kind = Expression::Kind;

constexpr size_t kMostInterned = 100'000;

std::vector<double> fills_of(const std::vector<TermPtr>& terms) {
  std::vector<double> fills;
  fills.reserve(terms.size());
  for (const TermPtr& term : terms) fills.push_back(term->fill);
  return fills;
}

/// Whether a map of this operator has the children of `child` in its place. A number is a truth for `and` and `or`,
/// whose results are 0 and 1: which fills annihilate is not seen from others.
bool merges(Operator op, const Term& child) {
  if (!child.is_map(op)) return false;
  if (op != Operator::kAnd && op != Operator::kOr) return true;
  return std::ranges::all_of(child.children, [](const TermPtr& each) { return each->fill == 0 || each->fill == 1; });
}

}  // namespace

Terms::Terms(EstimatorPtr estimator, IndexSpace space) : estimator_(std::move(estimator)), space_(std::move(space)) {
  JOINSUM_USER_CHECK(space_.count() <= kMostIndices,
                     "sparse program: too many indices in one query: indices=", space_.count(),
                     ", most=", kMostIndices);
}

TermPtr Terms::input(std::string tensor, std::vector<int64_t> indices, double fill, StatisticsPtr statistics,
                     uint64_t origins) const {
  auto made = std::make_shared<Term>();
  made->kind = Kind::kInput;
  made->tensor = std::move(tensor);
  for (const int64_t index : indices) made->free |= only(index);
  made->indices = std::move(indices);
  made->fill = fill;
  made->origins = origins;
  made->statistics_ = std::move(statistics);
  return made;
}

TermPtr Terms::literal(double value) const {
  auto made = std::make_shared<Term>();
  made->fill = value;
  return made;
}

std::pair<TermPtr, size_t> Terms::known(Kind kind, Operator op, const std::vector<int64_t>& indices,
                                        const std::vector<TermPtr>& children) const {
  uint64_t hash = hash_mix(static_cast<uint64_t>(kind), static_cast<uint64_t>(op));
  for (const TermPtr& child : children) hash = hash_mix(hash, reinterpret_cast<uintptr_t>(child.get()));
  for (const int64_t index : indices) hash = hash_mix(hash, static_cast<uint64_t>(index));
  const auto [begin, end] = made_.equal_range(hash);
  for (auto each = begin; each != end; ++each) {
    const Term& term = *each->second;
    if (term.kind == kind && term.op == op && term.indices == indices && term.children == children) {
      return {each->second, hash};
    }
  }
  return {nullptr, hash};
}

TermPtr Terms::interned(std::shared_ptr<Term> term, size_t hash) const {
  if (made_.size() >= kMostInterned) made_.clear();
  made_.emplace(hash, term);
  return term;
}

TermPtr Terms::map(Operator op, std::vector<TermPtr> children) const {
  if (is_associative(op) && std::ranges::any_of(children, [&](const TermPtr& child) { return merges(op, *child); })) {
    std::vector<TermPtr> flat;
    flat.reserve(2 * children.size());
    for (TermPtr& child : children) {
      if (merges(op, *child)) {
        flat.insert(flat.end(), child->children.begin(), child->children.end());
      } else {
        flat.push_back(std::move(child));
      }
    }
    children = std::move(flat);
  }
  const bool transparent = is_associative(op) && op != Operator::kAnd && op != Operator::kOr;
  if (transparent && children.size() == 1) return children.front();
  auto [found, hash] = known(Kind::kMap, op, {}, children);
  if (found != nullptr) return found;
  auto made = std::make_shared<Term>();
  made->kind = Kind::kMap;
  made->op = op;
  made->children = std::move(children);
  for (const TermPtr& child : made->children) {
    made->free |= child->free;
    made->aggregated = made->aggregated || child->aggregated;
    made->origins |= child->origins;
  }
  made->fill = tensor::fill_of_map(space_.dtype, op, fills_of(made->children));
  return interned(std::move(made), hash);
}

TermPtr Terms::aggregate(Operator op, std::vector<int64_t> indices, TermPtr child) const {
  if (indices.empty()) return child;
  // Of an index that the child lacks, the extent decides the fill, and another space of the query may have another one.
  const auto has = [&](int64_t index) { return contains(child->free, index); };
  const bool is_shared = std::ranges::all_of(indices, has);
  std::vector<TermPtr> children{std::move(child)};
  auto [found, hash] = known(Kind::kAggregate, op, indices, children);
  if (found != nullptr && is_shared) return found;
  auto made = std::make_shared<Term>();
  made->kind = Kind::kAggregate;
  made->op = op;
  made->indices = std::move(indices);
  made->children = std::move(children);
  made->free = made->child()->free;
  double range = 1;
  for (const int64_t index : made->indices) {
    made->free &= ~only(index);
    range *= static_cast<double>(space_.sizes[index]);
  }
  made->fill = tensor::fill_of_aggregate(space_.dtype, op, made->child()->fill, range);
  made->origins = made->child()->origins;
  made->aggregated = true;
  return is_shared ? interned(std::move(made), hash) : made;
}

TermPtr Terms::with_children(const Term& term, std::vector<TermPtr> children) const {
  if (term.is(Kind::kMap)) return map(term.op, std::move(children));
  return aggregate(term.op, term.indices, std::move(children.front()));
}

TermPtr Terms::renamed(const TermPtr& term, int64_t from, int64_t to) const {
  if (!contains(term->free, from)) return term;
  if (term->is(Kind::kInput)) {
    std::vector<int64_t> indices = term->indices;
    std::ranges::replace(indices, from, to);
    StatisticsPtr statistics;
    if (term->statistics_ != nullptr) {
      std::vector<int64_t> ids;
      for (int64_t id = 0; id < space_.count(); ++id) ids.push_back(id == from ? to : id);
      statistics = estimator_->relabelled(term->statistics_, ids, space_);
    }
    return input(term->tensor, std::move(indices), term->fill, std::move(statistics), term->origins);
  }
  std::vector<TermPtr> children;
  children.reserve(term->children.size());
  for (const TermPtr& child : term->children) children.push_back(renamed(child, from, to));
  return with_children(*term, std::move(children));
}

TermPtr Terms::replaced(const TermPtr& term, const TermPtr& what, const TermPtr& by) const {
  if (term == what) return by;
  std::vector<TermPtr> children;  // once one of them has changed
  for (size_t i = 0; i < term->children.size(); ++i) {
    TermPtr child = replaced(term->children[i], what, by);
    if (child == term->children[i]) continue;
    if (children.empty()) children = term->children;
    children[i] = std::move(child);
  }
  return children.empty() ? term : with_children(*term, std::move(children));
}

TermPtr Terms::renumbered(const TermPtr& term) {
  if (term->is(Kind::kInput)) {
    const uint64_t origin = uint64_t{1} << (leaves_++ % 64);
    return input(term->tensor, term->indices, term->fill, term->statistics_, origin);
  }
  if (term->children.empty()) return term;
  std::vector<TermPtr> children;
  for (const TermPtr& child : term->children) children.push_back(renumbered(child));
  return with_children(*term, std::move(children));
}

StatisticsPtr Terms::statistics(const TermPtr& term) const {
  if (term->statistics_ == nullptr) term->statistics_ = computed(term);
  return term->statistics_;
}

StatisticsPtr Terms::computed(const TermPtr& term) const {
  if (term->is(Kind::kLiteral)) return estimator_->of_literal();
  if (term->is(Kind::kAggregate)) return estimator_->aggregate(statistics(term->child()), term->free, space_);
  const std::vector<size_t> deciding = deciding_children(term->op, fills_of(term->children), term->fill);
  std::vector<StatisticsPtr> of_children;
  if (deciding.empty()) {
    for (const TermPtr& child : term->children) of_children.push_back(statistics(child));
    return estimator_->unite(of_children, term->free, space_);
  }
  for (const size_t i : deciding) of_children.push_back(statistics(term->children[i]));
  return estimator_->join(of_children, term->free, space_);
}

double Terms::estimate(const StatisticsPtr& statistics) const { return estimator_->estimate(statistics, space_); }

double Terms::estimate(const TermPtr& term) const {
  if (!term->estimate_) term->estimate_ = estimate(statistics(term));
  return *term->estimate_;
}

StatisticsPtr Terms::statistics_of(const Source& source, const std::vector<int64_t>& indices) const {
  if (source.statistics == nullptr) return nullptr;
  std::vector<int64_t> distinct;
  std::vector<std::vector<int64_t>> groups;
  for (size_t axis = 0; axis < indices.size(); ++axis) {
    const auto at = std::ranges::find(distinct, indices[axis]) - distinct.begin();
    if (at == static_cast<std::ptrdiff_t>(distinct.size())) {
      distinct.push_back(indices[axis]);
      groups.emplace_back();
    }
    groups[at].push_back(static_cast<int64_t>(axis));
  }
  const bool counted = source.tensor != nullptr && source.tensor->entries != nullptr;
  if (distinct.size() == indices.size() || !counted) return estimator_->relabelled(source.statistics, indices, space_);
  const Coordinates elements = on_diagonals(to_coordinates(*source.tensor->entries), groups);
  const std::vector<LevelFormat> lists(groups.size(), LevelFormat::kSortedList);
  const auto axes = all_dims(static_cast<int64_t>(groups.size()));
  const auto diagonal = std::make_shared<Tensor>(from_coordinates(elements, axes, lists, source.fill));
  const InputTensor tensor{elements.shape, source.fill, diagonal, static_cast<double>(elements.count()), {}};
  return estimator_->relabelled(estimator_->of_tensor(tensor), distinct, space_);
}

TermPtr Terms::from_expression(const ExpressionPtr& expression, const Sources& sources) {
  if (expression->kind == Kind::kLiteral) return literal(expression->value);
  std::vector<int64_t> indices;
  for (const std::string& index : expression->indices) indices.push_back(space_.id_of(index));
  if (expression->kind == Kind::kInput) {
    const auto found = sources.find(expression->tensor);
    const Source source = found == sources.end() ? Source() : found->second;
    const uint64_t origin = uint64_t{1} << (leaves_++ % 64);
    StatisticsPtr statistics = statistics_of(source, indices);
    return input(expression->tensor, std::move(indices), source.fill, std::move(statistics), origin);
  }
  std::vector<TermPtr> children;
  for (const ExpressionPtr& child : expression->children) children.push_back(from_expression(child, sources));
  if (expression->kind == Kind::kMap) return map(expression->op, std::move(children));
  return aggregate(expression->op, std::move(indices), std::move(children.front()));
}

ExpressionPtr Terms::to_expression(const TermPtr& term, bool originals) const {
  if (term->is(Kind::kLiteral)) return make_literal(term->fill);
  std::vector<std::string> names;
  for (const int64_t index : term->indices) names.push_back((originals ? space_.originals : space_.names)[index]);
  if (term->is(Kind::kInput)) return make_input(term->tensor, std::move(names));
  std::vector<ExpressionPtr> children;
  for (const TermPtr& child : term->children) children.push_back(to_expression(child, originals));
  if (term->is(Kind::kMap)) return make_map(term->op, std::move(children));
  return make_aggregate(term->op, std::move(names), std::move(children.front()));
}

TermPtr lifted(const Terms& terms, const TermPtr& term, bool finite) {
  if (term->children.empty()) return term;
  std::vector<TermPtr> children;
  for (const TermPtr& child : term->children) children.push_back(lifted(terms, child, finite));
  if (term->is(Kind::kAggregate)) {
    const TermPtr& child = children.front();
    if (!child->is(Kind::kAggregate) || child->op != term->op) return terms.with_children(*term, std::move(children));
    std::vector<int64_t> indices = term->indices;
    indices.insert(indices.end(), child->indices.begin(), child->indices.end());
    return terms.aggregate(term->op, std::move(indices), child->child());
  }
  for (size_t i = 0; i < children.size() && (finite || term->op != Operator::kMultiply); ++i) {
    const TermPtr inner = children[i];
    if (!inner->is(Kind::kAggregate)) continue;
    const bool positive =
        std::ranges::all_of(children, [&](const TermPtr& other) { return other == inner || never_negative(other); });
    if (!distributes_in(terms.space().dtype, term->op, inner->op, positive)) continue;
    // Over an empty range an aggregate is its identity, for which a factor need not be positive.
    const auto is_empty = [&](int64_t index) { return terms.space().sizes[index] == 0; };
    if (std::ranges::any_of(inner->indices, is_empty)) continue;
    children[i] = inner->child();
    return lifted(terms, terms.aggregate(inner->op, inner->indices, terms.map(term->op, std::move(children))), finite);
  }
  return terms.map(term->op, std::move(children));
}

std::vector<int64_t> by_name(const Terms& terms, IndexSet indices) {
  std::vector<int64_t> members = members_of(indices);
  const std::vector<std::string>& names = terms.space().names;
  std::ranges::sort(members, [&](int64_t a, int64_t b) { return names[a] < names[b]; });
  return members;
}

bool distributes_in(DType dtype, Operator map, Operator over, bool factors_not_negative) {
  const bool wraps = dtype == DType::kUInt8 && (map == Operator::kAdd || map == Operator::kMultiply);
  if (wraps && (over == Operator::kMin || over == Operator::kMax)) return false;
  return distributes(map, over, factors_not_negative);
}

bool never_negative(const TermPtr& term) {
  using enum Operator;
  const auto all = [&] { return std::ranges::all_of(term->children, never_negative); };
  if (term->is(Kind::kLiteral)) return term->fill >= 0;
  if (term->is(Kind::kInput)) return false;
  switch (term->op) {
    case kSquare:
    case kSqrt:
    case kExp:
    case kSigmoid:
    case kRelu:
    case kAbs:
    case kAnd:
    case kOr:
    case kEqual:
    case kGreater:
      return true;
    case kAdd:
    case kMultiply:
    case kMin:
    case kDivide:
      return all();
    case kMax:
      return std::ranges::any_of(term->children, never_negative);
    default:
      return false;
  }
}

}  // namespace joinsum::sparse::logical
