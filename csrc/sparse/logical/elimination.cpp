#include "sparse/logical/elimination.h"

#include <algorithm>
#include <cmath>
#include <iterator>

namespace joinsum::sparse::logical {
namespace {

using Kind = Expression::Kind;

constexpr size_t kMostKnown = 20'000;

bool reduces(const TermPtr& term, int64_t index) {
  return term->is(Kind::kAggregate) && std::ranges::find(term->indices, index) != term->indices.end();
}

/// The aggregate that binds `index`.
TermPtr binder_of(const TermPtr& term, int64_t index) {
  if (!term->aggregated) return nullptr;
  if (reduces(term, index)) return term;
  for (const TermPtr& child : term->children) {
    if (const TermPtr found = binder_of(child, index)) return found;
  }
  return nullptr;
}

/// Whether a leaf outside of `inside`, which is one of the term's nodes, has an index that no aggregate of it binds.
bool held_outside(const TermPtr& term, const TermPtr& inside, int64_t index) {
  if (term == inside || !contains(term->free, index)) return false;
  if (term->is(Kind::kInput)) return true;
  return std::ranges::any_of(term->children, [&](const TermPtr& child) { return held_outside(child, inside, index); });
}

/// The indices that aggregates of the term bind.
IndexSet bound_in(const TermPtr& term) {
  IndexSet found = 0;
  if (!term->aggregated) return found;
  if (term->is(Kind::kAggregate)) {
    for (const int64_t index : term->indices) found |= only(index);
  }
  for (const TermPtr& child : term->children) found |= bound_in(child);
  return found;
}

/// Those of the indices that aggregates of the term bind that no leaf below their aggregate has.
IndexSet idle_in(const TermPtr& term) {
  IndexSet idle = 0;
  if (!term->aggregated) return idle;
  if (term->is(Kind::kAggregate)) {
    for (const int64_t index : term->indices) {
      if (!contains(term->child()->free, index)) idle |= only(index);
    }
  }
  for (const TermPtr& child : term->children) idle |= idle_in(child);
  return idle;
}

/// Leaves that hold an index, as their numbers.
uint64_t origins_with(const TermPtr& term, int64_t index) {
  if (!contains(term->free, index)) return 0;
  if (term->is(Kind::kInput)) return term->origins;
  uint64_t origins = 0;
  for (const TermPtr& child : term->children) origins |= origins_with(child, index);
  return origins;
}

/// Pushes the aggregate of one index down to where it ends on each path.
class Push {
 public:
  /// At `stop`, an aggregate by the same operator, the index joins those that it reduces.
  Push(const Terms& terms, Operator op, int64_t index, Factors factors = Factors::kHolders, TermPtr stop = nullptr)
      : terms_(terms), op_(op), index_(index), factors_(factors), stop_(std::move(stop)) {}
  /// One that takes what is known of terms below sums, and adds to it.
  Push(const Terms& terms, Operator op, int64_t index, Factors factors, KnownPushes& known)
      : terms_(terms), op_(op), index_(index), factors_(factors), known_(&known) {}

  /// `term` below the aggregate, which has the index.
  TermPtr apply(const TermPtr& term) {
    if (term == stop_) {
      std::vector<int64_t> indices = term->indices;
      indices.push_back(index_);
      joined_ = terms_.aggregate(op_, std::move(indices), term->child());
      return joined_;
    }
    // Over an empty range the aggregate is the operator's identity, whatever it is of.
    if (terms_.space().sizes[index_] == 0) return end_at(term);
    if (term->is(Kind::kAggregate) && term->op == op_) return terms_.with_children(*term, {apply(term->child())});
    if (term->is_map(op_) && is_associative(op_)) return across(*term);
    const auto dtype = terms_.space().dtype;
    if (term->is(Kind::kMap) && distributes_in(dtype, term->op, op_, others_never_negative(*term))) return into(*term);
    return end_at(term);
  }

  /// Aggregates of the index alone, at the end of each path.
  const std::vector<TermPtr>& ends() const { return ends_; }
  /// Whether there was a factor that is only covered.
  bool covered() const { return covered_; }
  /// The aggregate at `stop` with the index.
  const TermPtr& joined() const { return joined_; }

  /// The value of a child that lacks the index, reduced along it.
  TermPtr repeated(const TermPtr& term) const {
    const auto size = static_cast<double>(terms_.space().sizes[index_]);
    if (size == 0) return terms_.literal(identity_of(op_));
    if (op_ == Operator::kAdd) return terms_.map(Operator::kMultiply, {term, terms_.literal(size)});
    if (op_ == Operator::kMultiply) return terms_.map(Operator::kPower, {term, terms_.literal(size)});
    if (op_ == Operator::kLogAddExp) return terms_.map(Operator::kAdd, {term, terms_.literal(std::log(size))});
    return term;
  }

 private:
  bool others_never_negative(const Term& term) const {
    return std::ranges::all_of(
        term.children, [&](const TermPtr& child) { return contains(child->free, index_) || never_negative(child); });
  }

  TermPtr end_at(const TermPtr& term) {
    ends_.push_back(terms_.aggregate(op_, {index_}, term));
    return ends_.back();
  }

  /// ⊕ over a ⊕ b: of each of them.
  TermPtr across(const Term& term) {
    std::vector<TermPtr> children;
    children.reserve(term.children.size());
    for (const TermPtr& child : term.children) {
      children.push_back(contains(child->free, index_) ? applied(child) : repeated(child));
    }
    return terms_.with_children(term, std::move(children));
  }

  /// `apply` to one of several children, most of which no elimination changes.
  TermPtr applied(const TermPtr& term) {
    if (known_ == nullptr) return apply(term);
    auto found = known_->find({term, index_});
    if (found == known_->end()) {
      Push push(terms_, op_, index_, factors_, *known_);
      const TermPtr result = push.apply(term);
      found = known_->emplace(std::pair(term, index_), Pushed{result, push.ends_, push.covered_}).first;
    }
    const Pushed& pushed = found->second;
    ends_.insert(ends_.end(), pushed.ends.begin(), pushed.ends.end());
    covered_ = covered_ || pushed.covered;
    return pushed.term;
  }

  /// ⊕ over a ⊗ b where ⊗ distributes over it: of the factors that have the index.
  TermPtr into(const Term& term) {
    std::vector<TermPtr> holders, rest;
    holders.reserve(term.children.size());
    rest.reserve(term.children.size() + 1);
    IndexSet held = 0;
    for (const TermPtr& child : term.children) {
      if (contains(child->free, index_)) held |= child->free;
    }
    for (const TermPtr& child : term.children) {
      const bool covered = child->free != 0 && (child->free & ~held) == 0 && !child->aggregated;
      const bool holds = contains(child->free, index_);
      covered_ = covered_ || (covered && !holds);
      (holds || (covered && factors_ == Factors::kAlsoCovered) ? holders : rest).push_back(child);
    }
    rest.push_back(holders.size() == 1 ? apply(holders.front()) : end_at(terms_.map(term.op, std::move(holders))));
    return terms_.map(term.op, std::move(rest));
  }

  const Terms& terms_;
  Operator op_;
  int64_t index_;
  Factors factors_;
  TermPtr stop_;
  KnownPushes* known_ = nullptr;
  bool covered_ = false;
  std::vector<TermPtr> ends_;
  TermPtr joined_;
};

/// What is below the binder of `index` once its aggregate is pushed down.
TermPtr pushed_below(const Terms& terms, const TermPtr& binder, int64_t index, Push& push) {
  const TermPtr& body = binder->child();
  TermPtr below = contains(body->free, index) ? push.apply(body) : push.repeated(body);
  // `or` and `and` of equal values are their truth.
  const bool truth = binder->op == Operator::kAnd || binder->op == Operator::kOr;
  return truth && below == body ? terms.map(binder->op, {below}) : below;
}

/// The term in which the binder, without the index, has that below it.
TermPtr with_below(const Terms& terms, const TermPtr& term, const TermPtr& binder, int64_t index, TermPtr below) {
  std::vector<int64_t> rest = binder->indices;
  std::erase(rest, index);
  return terms.replaced(term, binder, terms.aggregate(binder->op, std::move(rest), std::move(below)));
}

/// The term in which the aggregate of `index` is pushed down.
TermPtr pushed_down(const Terms& terms, const TermPtr& term, const TermPtr& binder, int64_t index, Push& push) {
  return with_below(terms, term, binder, index, pushed_below(terms, binder, index, push));
}

}  // namespace

std::vector<int64_t> bound_indices(const Terms& terms, const TermPtr& term) { return by_name(terms, bound_in(term)); }

TermPtr Eliminator::without_idle(TermPtr term, std::vector<int64_t>& gone) const {
  // Without the index, aggregates below it may be gone, and others may reduce what no leaf has any more.
  for (IndexSet idle = idle_in(term); idle != 0; idle = idle_in(term)) {
    const IndexSet bound = bound_in(term);
    const int64_t first = by_name(terms_, idle).front();
    const TermPtr binder = binder_of(term, first);
    Push push(terms_, binder->op, first);
    term = pushed_down(terms_, term, binder, first, push);
    std::ranges::copy(by_name(terms_, bound & ~bound_in(term)), std::back_inserter(gone));
  }
  return term;
}

std::vector<Elimination> Eliminator::candidates(const TermPtr& term) const {
  std::vector<Elimination> all;
  for (const int64_t index : bound_indices(terms_, term)) {
    for (Elimination& each : candidates(term, index)) all.push_back(std::move(each));
  }
  return all;
}

std::vector<Elimination> Eliminator::candidates(const TermPtr& term, int64_t index) const {
  const TermPtr binder = binder_of(term, index);
  if (binder == nullptr) return {};
  if (known_.size() >= kMostKnown) known_.clear();
  Push push(terms_, binder->op, index, factors_, known_);
  const TermPtr below = pushed_below(terms_, binder, index, push);
  covered_ = covered_ || push.covered();
  const auto ends = std::make_shared<const std::vector<TermPtr>>(push.ends());
  const IndexSet bound = bound_in(term);
  std::vector<Elimination> found;
  TermPtr pushed;  // once a path needs it
  for (size_t path = 0; path < ends->size(); ++path) {
    const TermPtr& aggregate = (*ends)[path];
    if (aggregate->child()->aggregated) continue;
    Elimination& each = found.emplace_back();
    each.index = index;
    each.path = static_cast<int64_t>(path);
    each.aggregate = aggregate;
    each.binder = binder;
    each.below = below;
    each.ends = ends;
    const IndexSet others = absorption_ == Absorption::kAbsorb ? bound & aggregate->free : 0;
    if (others != 0) {
      if (pushed == nullptr) pushed = with_below(terms_, term, binder, index, below);
      each.pushed = pushed;
      absorb(each, others);
    }
    each.cost = cost_of(each.aggregate);
  }
  return found;
}

void Eliminator::absorb(Elimination& elimination, IndexSet others) const {
  for (const int64_t index : by_name(terms_, others)) {
    if (!contains(elimination.aggregate->free, index)) continue;
    const TermPtr binder = binder_of(elimination.pushed, index);
    if (binder->op != elimination.aggregate->op) continue;
    if (held_outside(binder->child(), elimination.aggregate, index)) continue;
    Push push(terms_, binder->op, index, Factors::kHolders, elimination.aggregate);
    const TermPtr pushed = pushed_down(terms_, elimination.pushed, binder, index, push);
    if (push.joined() == nullptr || !push.ends().empty()) continue;
    elimination.pushed = pushed;
    elimination.aggregate = push.joined();
  }
}

double Eliminator::cost_of(const TermPtr& aggregate) const {
  return cost_.per_result * terms_.estimate(aggregate) + cost_.per_element * terms_.estimate(aggregate->child());
}

LogicalQuery Eliminator::query_of(const TermPtr& aggregate) const {
  LogicalQuery query{.name = {}, .op = aggregate->op, .indices = aggregate->indices, .body = aggregate->child()};
  query.output = members_of(aggregate->free);
  query.entries_of_body = terms_.estimate(query.body);
  query.entries_of_result = terms_.estimate(aggregate);
  query.cost = cost_of(aggregate);
  return query;
}

std::vector<std::pair<int64_t, uint64_t>> Elimination::covered() const {
  std::vector<std::pair<int64_t, uint64_t>> found;
  for (const int64_t reduced : aggregate->indices) {
    found.emplace_back(reduced, origins_with(aggregate->child(), reduced));
  }
  return found;
}

TermPtr Eliminator::apply(const TermPtr& whole, const Elimination& elimination, const std::string& name) const {
  TermPtr term = elimination.pushed;
  if (term == nullptr) term = with_below(terms_, whole, elimination.binder, elimination.index, elimination.below);
  for (size_t path = 0; path < elimination.ends->size(); ++path) {
    if (static_cast<int64_t>(path) == elimination.path) continue;
    const TermPtr& other = (*elimination.ends)[path];
    const int64_t index = terms_.space().path_of(elimination.index, static_cast<int64_t>(path) + 1);
    JOINSUM_USER_CHECK(index < kMostIndices,
                       "sparse program: too many indices in one query, with one for each path of ",
                       "an aggregate: most=", kMostIndices);
    const TermPtr own = terms_.renamed(other->child(), elimination.index, index);
    term = terms_.replaced(term, other, terms_.aggregate(other->op, {index}, own));
  }
  const TermPtr& aggregate = elimination.aggregate;
  const TermPtr alias = terms_.input(name, members_of(aggregate->free), aggregate->fill, terms_.statistics(aggregate),
                                     aggregate->origins);
  return terms_.replaced(term, aggregate, alias);
}

std::vector<TermPtr> minimal_sub_expressions(Terms& terms, const TermPtr& term, int64_t index) {
  const TermPtr binder = binder_of(term, index);
  JOINSUM_USER_CHECK(binder != nullptr,
                     "sparse program: no aggregate reduces the index: index=", terms.space().names[index]);
  if (!contains(binder->child()->free, index)) return {};
  Push push(terms, binder->op, index);
  pushed_down(terms, term, binder, index, push);
  std::vector<TermPtr> found;
  for (const TermPtr& end : push.ends()) found.push_back(end->child());
  return found;
}

std::vector<std::pair<int64_t, int64_t>> must_precede(Terms& terms, const TermPtr& term) {
  std::vector<std::pair<int64_t, int64_t>> pairs;
  for (const int64_t outer : bound_indices(terms, term)) {
    const TermPtr binder = binder_of(term, outer);
    const std::vector<TermPtr> ends = minimal_sub_expressions(terms, term, outer);
    for (const int64_t inner : bound_indices(terms, binder->child())) {
      const bool commute = binder_of(binder->child(), inner)->op == binder->op;
      const bool reached =
          std::ranges::none_of(ends, [&](const TermPtr& end) { return binder_of(end, inner) != nullptr; });
      if (!commute || !reached) pairs.emplace_back(inner, outer);
    }
  }
  return pairs;
}

}  // namespace joinsum::sparse::logical
