#include "sparse/logical/search.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <optional>
#include <set>

#include "sparse/logical/branch_and_bound.h"
#include "sparse/logical/distribution.h"

namespace joinsum::sparse::logical {
namespace {

/// The names of the queries of one plan.
class Names {
 public:
  Names(std::string name, std::set<std::string> taken) : name_(std::move(name)), taken_(std::move(taken)) {}

  std::string next() {
    std::string chosen;
    do {
      chosen = concatenate(name_, "_", ++last_);
    } while (taken_.contains(chosen));
    return chosen;
  }

  const std::set<std::string>& taken() const { return taken_; }

 private:
  std::string name_;
  std::set<std::string> taken_;
  int64_t last_ = 0;
};

/// Ends a plan: the last query bears the name of the source query and has its output.
void finish(QueryPlan& plan, Terms& terms, const TermPtr& term, const Query& query) {
  std::vector<int64_t> output;
  for (const std::string& index : query.output) output.push_back(terms.space().id_of(index));
  IndexSet indices = 0;
  for (const int64_t index : output) indices |= only(index);
  const bool is_last = !plan.queries.empty() && term->is(Expression::Kind::kInput) &&
                       term->tensor == plan.queries.back().name && term->free == indices;
  if (is_last) {
    plan.queries.back().name = query.name;
    plan.queries.back().output = output;
  } else {
    const double stored = terms.estimate(term);
    const double entries = stored == 0 ? 0 : stored * extent_of(indices & ~term->free, terms.space());
    plan.queries.push_back({query.name, {}, {}, term, output, entries, entries, 0});
  }
  StatisticsPtr result = terms.statistics(term);
  if ((indices & ~term->free) != 0) result = terms.estimator().join({result}, indices, terms.space());
  std::vector<int64_t> axes(terms.space().count(), -1);
  for (size_t axis = 0; axis < output.size(); ++axis) axes[output[axis]] = static_cast<int64_t>(axis);
  plan.result = terms.estimator().relabelled(result, axes, terms.space());
  plan.space = terms.space();
  plan.fill = term->fill;
  for (const LogicalQuery& each : plan.queries) plan.cost += each.cost;
}

/// Cheaper by more than rounding.
bool cheaper(double a, double b) { return std::isinf(b) ? a < b : a < b - 1e-12 * std::abs(b); }

/// Repeatedly the cheapest elimination, of equal ones the first by name; stops where the cost exceeds that of the
/// options, with one that is infinite. `covered`, if given, becomes `Eliminator::covered`. Source: Galley, section 5.6.
QueryPlan greedy(const TermPtr& start, const IndexSpace& space, const Query& query, Names names,
                 const LogicalOptions& options, Factors factors, bool* covered = nullptr) {
  Terms terms(options.estimator, space);
  const Eliminator eliminator(terms, options.cost, options.absorption, factors);
  QueryPlan plan;
  TermPtr term = eliminator.without_idle(start, plan.order);
  double cost = 0;
  while (term->aggregated) {
    std::vector<Elimination> candidates = eliminator.candidates(term);
    JOINSUM_CHECK(!candidates.empty());
    auto best = candidates.begin();
    for (auto each = candidates.begin(); each != candidates.end(); ++each) {
      if (cheaper(each->cost, best->cost)) best = each;
    }
    cost += best->cost;
    if (cost >= options.most_cost) {
      plan.cost = std::numeric_limits<double>::infinity();
      break;
    }
    LogicalQuery& query_of_step = plan.queries.emplace_back(eliminator.query_of(best->aggregate));
    query_of_step.name = names.next();
    term = eliminator.apply(term, *best, query_of_step.name);
    plan.order.push_back(best->index);
    term = eliminator.without_idle(term, plan.order);
  }
  if (!std::isinf(plan.cost)) finish(plan, terms, term, query);
  if (covered != nullptr) *covered = eliminator.covered();
  return plan;
}

/// The greedy plan of queries with the factors that they need, or with those that they cover where that is cheaper.
QueryPlan greedy(const TermPtr& term, const IndexSpace& space, const Query& query, const Names& names,
                 const LogicalOptions& options) {
  bool covered = false;
  QueryPlan plan = greedy(term, space, query, names, options, Factors::kHolders, &covered);
  if (!options.cover || !covered) return plan;
  QueryPlan covering = greedy(term, space, query, names, options, Factors::kAlsoCovered);
  return cheaper(covering.cost, plan.cost) ? covering : plan;
}

/// Summands of one sum that are planned apart.
constexpr int64_t kMostSummands = 1000;
/// Indices of a sum, with one for each path, up to which branch and bound searches them together.
constexpr int64_t kMostSearched = 12;

/// An aggregate over a map of its own operator whose indices, with one for each path, are more than `most`.
TermPtr sum_of_many(const Terms& terms, const TermPtr& term, int64_t most) {
  if (!term->aggregated) return nullptr;
  if (term->is(Expression::Kind::kAggregate) && term->child()->is_map(term->op) && !term->child()->aggregated &&
      is_associative(term->op)) {
    const int64_t summands = std::ssize(term->child()->children);
    const int64_t indices = std::ssize(term->indices) * (summands - 1) + terms.space().count();
    if (indices > most && summands <= kMostSummands) return term;
    JOINSUM_USER_CHECK(indices <= kMostIndices,
                       "sparse program: too many indices in one query, with one for each path of an aggregate: most=",
                       kMostIndices, ", and too many summands: most=", kMostSummands);
  }
  for (const TermPtr& child : term->children) {
    if (const TermPtr found = sum_of_many(terms, child, most)) return found;
  }
  return nullptr;
}

QueryPlan plan_term(TermPtr term, const IndexSpace& space, const Query& query, Names names,
                    const LogicalOptions& options, const QueryPlan* greedy_plan = nullptr);

/// Adds queries that follow those of `plan`.
void append(QueryPlan& plan, QueryPlan next) {
  std::ranges::move(next.queries, std::back_inserter(plan.queries));
  plan.order.insert(plan.order.end(), next.order.begin(), next.order.end());
  plan.cost += next.cost;
  plan.space = std::move(next.space);
  plan.result = std::move(next.result);
  plan.fill = next.fill;
  plan.complete = plan.complete && next.complete;
}

/// The sum of the results of queries, one of each summand, which share the indices of the sum. Adds them to `plan`.
TermPtr summed_apart(Terms& terms, const TermPtr& sum, Names& names, LogicalOptions options, QueryPlan& plan) {
  options.most_cost = std::numeric_limits<double>::infinity();  // of each summand
  std::vector<TermPtr> results;
  for (const TermPtr& child : sum->child()->children) {
    const TermPtr summand = terms.aggregate(sum->op, sum->indices, child);
    const std::vector<int64_t> output = members_of(summand->free);
    Query query{.name = names.next(), .expression = {}, .output = {}};
    for (const int64_t index : output) query.output.push_back(terms.space().names[index]);
    append(plan, plan_term(summand, terms.space(), query, Names(query.name, names.taken()), options));
    terms.space() = plan.space;
    const StatisticsPtr result = terms.estimator().relabelled(plan.result, output, terms.space());
    results.push_back(terms.input(query.name, output, summand->fill, result, summand->origins));
  }
  return terms.map(sum->op, std::move(results));
}

/// All sets of twelve indices.
constexpr double kStatesOfCheapQueries = 4096;

/// The plan of branch and bound where it is cheaper than `known`, whose cost bounds it. `covered`, if given, becomes
/// `Eliminator::covered`.
QueryPlan searched(Terms& terms, const TermPtr& term, const Query& query, Names names, const LogicalOptions& options,
                   Factors factors, const QueryPlan& known, bool* covered = nullptr) {
  const Eliminator eliminator(terms, options.cost, options.absorption, factors);
  QueryPlan plan;
  TermPtr start = eliminator.without_idle(term, plan.order);
  // A state takes the time of some entries of a kernel, so what is cheap anyway is not searched for long.
  const auto worthwhile = static_cast<int64_t>(std::clamp(known.cost, kStatesOfCheapQueries, 1e15));
  const Best best = branch_and_bound(eliminator, terms, start, known.cost, std::min(options.most_states, worthwhile));
  if (covered != nullptr) *covered = eliminator.covered();
  if (!best.found || best.gave_up) {
    plan = known;
    plan.complete = plan.complete && !best.gave_up;
    return plan;
  }
  for (const auto& [index, path] : best.steps) {
    std::vector<Elimination> candidates = eliminator.candidates(start, index);
    const auto step = std::ranges::find(candidates, path, &Elimination::path);
    LogicalQuery& query_of_step = plan.queries.emplace_back(eliminator.query_of(step->aggregate));
    query_of_step.name = names.next();
    start = eliminator.apply(start, *step, query_of_step.name);
    plan.order.push_back(step->index);
    start = eliminator.without_idle(start, plan.order);
  }
  plan.complete = known.complete;
  finish(plan, terms, start, query);
  return plan;
}

/// The plan of one query, of an aggregate over an expression without one.
QueryPlan undivided(Terms& terms, const TermPtr& term, const Query& query, Names names, const LogicalOptions& options) {
  QueryPlan plan;
  const Eliminator eliminator(terms, options.cost, options.absorption);
  TermPtr start = eliminator.without_idle(term, plan.order);
  if (start->is(Expression::Kind::kAggregate)) {
    LogicalQuery whole = eliminator.query_of(start);
    whole.name = names.next();
    plan.order.insert(plan.order.end(), whole.indices.begin(), whole.indices.end());
    start = terms.input(whole.name, whole.output, start->fill, terms.statistics(start), start->origins);
    plan.queries.push_back(std::move(whole));
  }
  finish(plan, terms, start, query);
  return plan;
}

/// `greedy_plan`, if given, is what greedy search finds for the term.
QueryPlan plan_term(TermPtr term, const IndexSpace& space, const Query& query, Names names,
                    const LogicalOptions& options, const QueryPlan* greedy_plan) {
  Terms terms(options.estimator, space);
  if (options.whole && term->is(Expression::Kind::kAggregate) && !term->child()->aggregated) {
    return undivided(terms, term, query, names, options);
  }
  QueryPlan all;
  const int64_t most = options.search == Search::kBranchAndBound ? kMostSearched : kMostIndices;
  while (const TermPtr sum = sum_of_many(terms, term, most)) {
    term = terms.replaced(term, sum, summed_apart(terms, sum, names, options, all));
  }
  const bool is_known = greedy_plan != nullptr && all.queries.empty();
  QueryPlan plan = is_known ? *greedy_plan : greedy(term, terms.space(), query, names, options);
  if (options.search == Search::kBranchAndBound) {
    bool covered = false;
    plan = searched(terms, term, query, names, options, Factors::kHolders, plan, &covered);
    if (options.cover && covered) plan = searched(terms, term, query, names, options, Factors::kAlsoCovered, plan);
  }
  append(all, std::move(plan));
  // Greedy search did not plan summands apart.
  return greedy_plan != nullptr && cheaper(greedy_plan->cost, all.cost) ? *greedy_plan : all;
}

/// A term with its greedy plan, none where it is yet to be found, and what that of the term as it was written costs.
struct Planned {
  TermPtr term;
  std::optional<QueryPlan> plan = {};
  double cost_as_written = std::numeric_limits<double>::infinity();
};

/// Branch and bound hardly ever finds a plan that costs a smaller part of the greedy one.
constexpr double kMostSaved = 2;

/// Products of sums as sums of products where that is cheaper: the best single step again and again, and all steps at
/// once. Source: Galley, section 5.2.
Planned distributed(Terms& terms, const TermPtr& original, const Query& query, const Names& names,
                    const LogicalOptions& options) {
  LogicalOptions greedily = options;
  greedily.search = Search::kGreedy;
  // Where its cost is at least `most`, it is infinite.
  const auto planned = [&](const TermPtr& other, double most) {
    greedily.most_cost = most;
    try {
      return plan_term(other, terms.space(), query, names, greedily);
    } catch (const PlanError&) {
      // More paths than there may be indices: no plan of this form.
      return QueryPlan{.cost = std::numeric_limits<double>::infinity()};
    }
  };
  std::set<std::string> seen;
  Planned best{original, planned(original, std::numeric_limits<double>::infinity())};
  best.cost_as_written = best.plan->cost;
  IndexSpace space = terms.space();  // of the chosen term: others leave indices that count as its own would
  for (bool better = true; better;) {
    better = false;
    const TermPtr start = best.term;
    for (const TermPtr& step : distribution_steps(terms, start, options.most_terms, options.dependencies)) {
      if (!seen.insert(text_of(terms.to_expression(step))).second) continue;
      QueryPlan with_step = planned(step, best.plan->cost);
      if (!cheaper(with_step.cost, best.plan->cost)) continue;
      best.term = step;
      best.plan = std::move(with_step);
      space = terms.space();
      better = true;
    }
  }
  if (const TermPtr whole = wholly_distributed(terms, original, options.most_terms, options.dependencies)) {
    QueryPlan plan = planned(whole, best.plan->cost);
    if (cheaper(plan.cost, best.plan->cost)) return {whole, std::move(plan), best.cost_as_written};
  }
  terms.space() = std::move(space);
  return best;
}

/// The plan whose queries are no larger than kernels may be.
QueryPlan fitted(QueryPlan plan, const Query& query, const std::vector<std::string>& taken,
                 const LogicalOptions& options) {
  std::set<std::string> known(taken.begin(), taken.end());
  for (const LogicalQuery& each : plan.queries) known.insert(each.name);
  Names names(query.name, std::move(known));
  Terms terms(options.estimator, plan.space);
  plan.queries =
      split_queries(terms, std::move(plan.queries), options.kernel_size, options.cost, [&] { return names.next(); });
  plan.cost = 0;
  for (const LogicalQuery& each : plan.queries) plan.cost += each.cost;
  return plan;
}

/// Each index once, by its original name, where its last path is eliminated, but after those that must precede it.
std::vector<int64_t> legal_order(std::vector<int64_t> eliminated, const IndexSpace& space,
                                 const std::vector<std::pair<int64_t, int64_t>>& precedes) {
  const auto same = [&](int64_t a, int64_t b) { return space.originals[a] == space.originals[b]; };
  std::vector<int64_t> left;
  for (auto index = eliminated.begin(); index != eliminated.end(); ++index) {
    if (std::none_of(index + 1, eliminated.end(), [&](int64_t later) { return same(*index, later); })) {
      left.push_back(*index);
    }
  }
  std::vector<int64_t> order;
  while (!left.empty()) {
    const auto waits = [&](int64_t index) {
      return std::ranges::any_of(precedes, [&](const auto& pair) {
        const auto is_first = [&](int64_t other) { return same(other, pair.first); };
        return same(index, pair.second) && !same(index, pair.first) && std::ranges::any_of(left, is_first);
      });
    };
    const auto found = std::ranges::find_if_not(left, waits);
    const auto next = found == left.end() ? left.begin() : found;
    order.push_back(*next);
    left.erase(next);
  }
  return order;
}

}  // namespace

QueryPlan plan_query(const Query& query, const IndexSpace& space, const Terms::Sources& sources,
                     const std::vector<std::string>& taken, const LogicalOptions& options) {
  Terms terms(options.estimator, space);
  const Names names(query.name, {taken.begin(), taken.end()});
  const TermPtr written = lifted(terms, terms.from_expression(query.expression, sources), options.finite);
  std::vector<int64_t> left_out;
  const TermPtr term = with_unified_indices(terms, written, options.dependencies, &left_out);
  const bool is_empty = std::ranges::find(space.sizes, 0) != space.sizes.end();
  Planned chosen{term};
  if (options.distribute && options.finite && !options.whole && !is_empty) {
    chosen = distributed(terms, term, query, names, options);
  }
  const QueryPlan* known = chosen.plan && std::isfinite(chosen.plan->cost) ? &*chosen.plan : nullptr;
  const QueryPlan unfitted = plan_term(chosen.term, terms.space(), query, names, options, known);
  QueryPlan plan = fitted(unfitted, query, taken, options);
  plan.distributed = chosen.term != term;
  // The choice was made by greedy plans, and before queries were split.
  const bool searched_may_be_cheaper =
      options.search == Search::kBranchAndBound && chosen.cost_as_written < kMostSaved * unfitted.cost;
  if (plan.distributed && (searched_may_be_cheaper || cheaper(unfitted.cost, plan.cost))) {
    QueryPlan other = fitted(plan_term(term, space, query, names, options), query, taken, options);
    if (cheaper(other.cost, plan.cost)) plan = std::move(other);
  }
  plan.order.insert(plan.order.begin(), left_out.begin(), left_out.end());
  plan.order = legal_order(std::move(plan.order), plan.space, must_precede(terms, written));
  return plan;
}

double elimination_cost(const Query& query, const IndexSpace& space, const Terms::Sources& sources,
                        const std::vector<std::string>& order, const LogicalOptions& options) {
  Terms terms(options.estimator, space);
  const Eliminator eliminator(terms, options.cost, options.absorption);
  TermPtr term = lifted(terms, terms.from_expression(query.expression, sources));
  std::vector<int64_t> gone;
  term = eliminator.without_idle(term, gone);
  Names names(query.name, {});
  double cost = 0;
  for (const std::string& name : order) {
    const auto& originals = terms.space().originals;
    JOINSUM_USER_CHECK(std::ranges::find(originals, name) != originals.end(),
                       "elimination_cost: unknown index: index=", name);
    while (true) {
      std::vector<int64_t> bound = bound_indices(terms, term);
      std::erase_if(bound, [&](int64_t index) { return originals[index] != name; });
      if (bound.empty()) break;
      std::vector<Elimination> candidates;
      for (const int64_t index : bound) {
        for (Elimination& each : eliminator.candidates(term, index)) candidates.push_back(std::move(each));
      }
      JOINSUM_USER_CHECK(!candidates.empty(), "elimination_cost: another aggregate must go first: index=", name,
                         ", order=", order);
      cost += candidates.front().cost;
      term = eliminator.without_idle(eliminator.apply(term, candidates.front(), names.next()), gone);
    }
  }
  JOINSUM_USER_CHECK(!term->aggregated, "elimination_cost: the order leaves out an index: order=", order,
                     ", index=", terms.space().originals[bound_indices(terms, term).front()]);
  return cost;
}

Terms::Source source_of(const InputTensor& tensor, const Estimator& estimator) {
  return {estimator.of_tensor(tensor), tensor.fill, &tensor};
}

}  // namespace joinsum::sparse::logical
