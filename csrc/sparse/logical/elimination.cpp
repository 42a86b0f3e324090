#include "sparse/logical/elimination.h"

#include <algorithm>
#include <iterator>

namespace joinsum::sparse::logical {
namespace {

using Kind = Expression::Kind;

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

void collect_bound(const TermPtr& term, std::vector<int64_t>& found) {
  if (!term->aggregated) return;
  if (term->is(Kind::kAggregate)) found.insert(found.end(), term->indices.begin(), term->indices.end());
  for (const TermPtr& child : term->children) collect_bound(child, found);
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
    if (term->is(Kind::kMap) && distributes(term->op, op_, others_never_negative(*term))) return into(*term);
    return end_at(term);
  }

  /// Aggregates of the index alone, at the end of each path.
  const std::vector<TermPtr>& ends() const { return ends_; }
  /// Whether a factor came along that only is covered.
  bool covered() const { return covered_; }
  /// The aggregate at `stop` with the index.
  const TermPtr& joined() const { return joined_; }

  /// The value of a child that lacks the index, reduced along it.
  TermPtr repeated(const TermPtr& term) const {
    const auto size = static_cast<double>(terms_.space().sizes[index_]);
    if (size == 0) return terms_.literal(identity_of(op_));
    if (op_ == Operator::kAdd) return terms_.map(Operator::kMultiply, {term, terms_.literal(size)});
    if (op_ == Operator::kMultiply) return terms_.map(Operator::kPower, {term, terms_.literal(size)});
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
    for (const TermPtr& child : term.children) {
      children.push_back(contains(child->free, index_) ? apply(child) : repeated(child));
    }
    return terms_.with_children(term, std::move(children));
  }

  /// ⊕ over a ⊗ b where ⊗ distributes over it: of the factors that have the index.
  TermPtr into(const Term& term) {
    std::vector<TermPtr> holders, rest;
    IndexSet held = 0;
    for (const TermPtr& child : term.children) {
      if (contains(child->free, index_)) held |= child->free;
    }
    for (const TermPtr& child : term.children) {
      const bool covered = child->free != 0 && (child->free & ~held) == 0 && !child->aggregated;
      const bool holds = contains(child->free, index_);
      const bool joins = factors_ == Factors::kAlsoCovered && covered && !holds;
      covered_ = covered_ || joins;
      (holds || joins ? holders : rest).push_back(child);
    }
    rest.push_back(holders.size() == 1 ? apply(holders.front()) : end_at(terms_.map(term.op, std::move(holders))));
    return terms_.map(term.op, std::move(rest));
  }

  const Terms& terms_;
  Operator op_;
  int64_t index_;
  Factors factors_;
  TermPtr stop_;
  bool covered_ = false;
  std::vector<TermPtr> ends_;
  TermPtr joined_;
};

/// The term in which the aggregate of `index` is pushed down.
TermPtr pushed_down(const Terms& terms, const TermPtr& term, const TermPtr& binder, int64_t index, Push& push) {
  std::vector<int64_t> rest = binder->indices;
  std::erase(rest, index);
  const TermPtr& body = binder->child();
  TermPtr below = contains(body->free, index) ? push.apply(body) : push.repeated(body);
  // `or` and `and` of equal values are their truth.
  const bool truth = binder->op == Operator::kAnd || binder->op == Operator::kOr;
  if (truth && below == body) below = terms.map(binder->op, {below});
  return terms.replaced(term, binder, terms.aggregate(binder->op, std::move(rest), std::move(below)));
}

}  // namespace

std::vector<int64_t> bound_indices(const Terms& terms, const TermPtr& term) {
  std::vector<int64_t> found;
  collect_bound(term, found);
  std::ranges::sort(found, {}, [&](int64_t index) { return terms.space().names[index]; });
  found.erase(std::ranges::unique(found).begin(), found.end());
  return found;
}

TermPtr Eliminator::without_idle(TermPtr term, std::vector<int64_t>& gone) const {
  const auto is_idle = [&](int64_t index) { return !contains(binder_of(term, index)->child()->free, index); };
  std::vector<int64_t> bound = bound_indices(terms_, term);
  // Without the index, aggregates below it may be gone, and others may reduce what no leaf has any more.
  for (auto idle = std::ranges::find_if(bound, is_idle); idle != bound.end();
       idle = std::ranges::find_if(bound, is_idle)) {
    const TermPtr binder = binder_of(term, *idle);
    Push push(terms_, binder->op, *idle);
    term = pushed_down(terms_, term, binder, *idle, push);
    std::vector<int64_t> left = bound_indices(terms_, term);
    std::ranges::copy_if(bound, std::back_inserter(gone),
                         [&](int64_t index) { return std::ranges::find(left, index) == left.end(); });
    bound = std::move(left);
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
  Push push(terms_, binder->op, index, factors_);
  const TermPtr pushed = pushed_down(terms_, term, binder, index, push);
  covered_ = covered_ || push.covered();
  std::vector<Elimination> found;
  for (size_t path = 0; path < push.ends().size(); ++path) {
    const TermPtr& aggregate = push.ends()[path];
    if (aggregate->child()->aggregated) continue;
    Elimination each{.index = index, .path = static_cast<int64_t>(path), .pushed = pushed, .aggregate = aggregate};
    for (size_t other = 0; other < push.ends().size(); ++other) {
      if (other != path) each.others.emplace_back(static_cast<int64_t>(other), push.ends()[other]);
    }
    if (absorption_ == Absorption::kAbsorb) absorb(each);
    fill_query(each);
    found.push_back(std::move(each));
  }
  return found;
}

void Eliminator::absorb(Elimination& elimination) const {
  for (const int64_t index : bound_indices(terms_, elimination.pushed)) {
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

LogicalQuery Eliminator::query_of(const TermPtr& aggregate) const {
  LogicalQuery query{.name = {}, .op = aggregate->op, .indices = aggregate->indices, .body = aggregate->child()};
  query.output = members_of(aggregate->free);
  query.entries_of_body = terms_.estimate(terms_.statistics(query.body));
  query.entries_of_result = terms_.estimate(terms_.statistics(aggregate));
  query.cost = cost_.per_result * query.entries_of_result + cost_.per_element * query.entries_of_body;
  return query;
}

void Eliminator::fill_query(Elimination& elimination) const {
  const TermPtr& aggregate = elimination.aggregate;
  elimination.query = query_of(aggregate);
  elimination.result = terms_.statistics(aggregate);
  for (const int64_t index : aggregate->indices) {
    elimination.covered.emplace_back(index, origins_with(aggregate->child(), index));
  }
}

TermPtr Eliminator::apply(const Elimination& elimination) const {
  TermPtr term = elimination.pushed;
  for (const auto& [path, other] : elimination.others) {
    const int64_t index = terms_.space().path_of(elimination.index, path + 1);
    JOINSUM_USER_CHECK(index < kMostIndices,
                       "sparse program: too many indices in one query, with one for each path of ",
                       "an aggregate: most=", kMostIndices);
    const TermPtr own = terms_.renamed(other->child(), elimination.index, index);
    term = terms_.replaced(term, other, terms_.aggregate(other->op, {index}, own));
  }
  const TermPtr& aggregate = elimination.aggregate;
  const TermPtr alias = terms_.input(elimination.query.name, elimination.query.output, aggregate->fill,
                                     elimination.result, aggregate->origins);
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
